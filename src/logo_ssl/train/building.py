"""Which networks does a recipe make for these data, and do they fit each other?"""

from dataclasses import replace
from operator import attrgetter
from statistics import median
from typing import Any, TypeVar

import torch
from rich.console import Console

from ..data import ImageSet, statistics
from ..data.decode import image_sizes
from ..errors import UserError
from ..frameworks import Framework
from ..models import build_backbone, draw_as_torch_does
from ..models.norm import BatchNorm, fitting_batch, fitting_splits
from ..recipes import FEW_STEPS, RECIPES, Recipe, advised_batch
from ..strategies import Strategy
from ..terminal import wants_advice
from ..text import counted
from .module import Pretraining
from .processes import Processes
from .weights import initialise

Part = TypeVar("Part", Framework, Strategy)
ONE = Processes()
HUGE = 4  # times the image's shorter side, or crops that are smaller by as much
LEAST_TO_SPLIT = 4  # images: two splits of two


def fitted(recipe: Recipe, data: ImageSet, console: Console, processes: Processes = ONE) -> Recipe:
    """The recipe, cut to what the data allow; every cut is said."""
    n = len(data.train)
    refuse_too_few(recipe.data, n)
    if recipe.framework_traits.labelled:
        recipe = replace(recipe, framework=replace(recipe.framework, dim=_number_of_classes(recipe, data)))
    if recipe.batch_size > n:
        most = fitting_batch(n, recipe.framework_traits.splits, processes.total)
        evenly = ", which its splits part evenly" if n - most >= processes.total else ""
        console.print(
            f"The batch of {recipe.batch_size} is larger than the {n} training images; cut to {most}{evenly} "
            f"(optimiser.lr stays {recipe.optimiser.lr:g}).{_advice('An epoch is one step so', recipe, n, processes)}"
        )
        recipe = replace(recipe, batch_size=most)
    elif (steps := n // recipe.batch_size) <= FEW_STEPS and wants_advice(console):  # rows are told it before, once
        few = f"A batch of {recipe.batch_size} leaves {counted(steps, 'step')} in an epoch of {n:,} images"
        if sentence := _advice(few, recipe, n, processes).strip():
            console.print(sentence)
    queue, half = recipe.framework_traits.queue, max(n // 2, 1)
    if queue > half:  # else an image often meets its own last key as a negative
        console.print(f"The queue of {queue} is more than half of the {n} training images; cut to {half}.")
        recipe = replace(recipe, framework=replace(recipe.framework, queue=half))  # type: ignore[call-arg] (it has one)
    warmup = recipe.optimiser.warmup_epochs
    if warmup >= recipe.epochs:
        epochs, shorter = "epoch" if warmup == 1 else "epochs", recipe.epochs / 10
        whole = f"as long as the whole training ({counted(recipe.epochs, 'epoch')}) or longer"
        console.print(f"The warm-up of {warmup:g} {epochs} would be {whole}; cut to a tenth, {shorter:g} epochs.")
        recipe = replace(recipe, optimiser=replace(recipe.optimiser, warmup_epochs=shorter))
    seen = (about_huge_crops(recipe, data), about_small_crops(recipe, data) if wants_advice(console) else None)
    for sentence in filter(None, seen):
        console.print(sentence)
    return recipe


def refuse_too_few(data: str, n_images: int) -> None:
    """Raise a UserError for data that hold no two images to compare."""
    if n_images < 2:
        raise UserError(f"{data} has {counted(n_images, 'training image')}; LoGo compares images and needs 2 or more.")


def about_huge_crops(recipe: Recipe, data: ImageSet) -> str | None:
    """A sentence with the cure where crops are far larger than what they are cut from."""
    size, sizes = recipe.crops.global_size, image_sizes(data.train.images)
    side = int(median(map(min, sizes))) if sizes else size
    if size <= HUGE * side:
        return None
    return (
        f"Crops of {size} px are {size / side:.0f} times as large as the images (about {side} px): enlarging shows "
        f"nothing more, and takes time and memory; use --crops.global-size {side} or so."
    )


def about_small_crops(recipe: Recipe, data: ImageSet) -> str | None:
    """A sentence where a recipe's own crops are far smaller than the images, for which others would be chosen."""
    own, sizes = RECIPES.get(recipe.name), image_sizes(data.train.images)
    width, height = sorted(sizes, key=min)[len(sizes) // 2] if sizes else (0, 0)
    size = recipe.crops.global_size
    if own is None or recipe.chosen or size != own.crops.global_size or min(width, height) <= HUGE * size:
        return None
    return (
        f"Images of {width} x {height} px are seen as crops of {size} px by this recipe; without a recipe, settings "
        "are chosen for them."
    )


def _advice(few: str, recipe: Recipe, n: int, processes: Processes) -> str:
    """How an epoch of n images would have more than a `few` steps, where batches need not be too small for that."""
    fewer = advised_batch(recipe, n, processes.total)
    if fewer is None:
        return ""
    rate = _rate(recipe, fewer)
    more = "makes more, with a lower --optimiser.lr" if rate is None else f"and --optimiser.lr {rate:.2g} make more"
    return f" {few}; --batch-size {fewer} {more}."


def _rate(recipe: Recipe, batch_size: int) -> float | None:
    """The learning rate for another batch, by the batch that the rate is for: that of the recipe as it is in the book.

    None where that is unclear: batch and rate were both changed (to fit each other? or is one mistyped?), or chosen.
    """
    own, lr = RECIPES.get(recipe.name), recipe.optimiser.lr
    if own is None or recipe.chosen or (recipe.batch_size != own.batch_size and lr != own.optimiser.lr):
        return None
    return lr * batch_size / own.batch_size


def _number_of_classes(recipe: Recipe, data: ImageSet) -> int:
    labels = data.train.labels
    if len(data.classes) == 1:
        raise UserError(f"{recipe.data} has one class only ({data.classes[0]}); supervised learning needs two or more.")
    if labels is None or (labels < 0).any():
        raise UserError(f"{recipe.data} has images without labels, and supervised learning needs them all.")
    return max(len(data.classes), int(labels.max()) + 1)


def build(recipe: Recipe, data: ImageSet, console: Console | None = None, *, fresh: bool = True) -> Pretraining:
    """The networks of a recipe, initialised from its seed, ready to train on `data`; if not `fresh`, to be loaded."""
    mean, std = statistics(data.train.images)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(recipe.seed)
        backbone = build_backbone(recipe.backbone, recipe.stem, data.channels, recipe.crops.global_size)
        if recipe.initialisation == "torch":
            draw_as_torch_does(backbone)
        if recipe.init is not None and fresh:
            sentence = initialise(backbone, recipe)
            if console is not None:
                console.print(sentence)
        framework = _made(recipe, "framework", Framework, backbone, backbone.num_features)
        crops = recipe.crops
        strategy = _made(recipe, "strategy", Strategy, crops.n_global, crops.n_local, recipe.framework.dim)
        say = console.print if console is not None else (lambda sentence: None)
        labels = data.train.labels if recipe.framework_traits.labelled else None
        return Pretraining(recipe, framework, strategy, mean, std, len(data.train), labels, say)


def _made(recipe: Recipe, part: str, base: type[Part], *arguments: Any) -> Part:
    """What a part's config builds."""
    made = getattr(recipe, part).build(*arguments)
    if not isinstance(made, base):
        raise TypeError(f"build of {type(getattr(recipe, part)).__name__} must give a {base.__name__}, not {made!r}")
    for name in made.kept:
        if name not in Framework.kept:  # of which not every framework has all
            attrgetter(name)(made)  # an AttributeError for a name that would be lost with the run
    return made


def about_splits(module: Pretraining, processes: Processes = ONE) -> str | None:
    """A sentence with the cure where splits are asked for, a batch norm needs them, and the batch has no divisor."""
    n, splits = module.batch_size, module.recipe.framework_traits.splits
    normed = any(isinstance(child, BatchNorm) for child in module.framework.encoder.modules())
    if splits == 1 or processes.total > 1 or not normed or fitting_splits(n, splits) > 1:  # processes are splits
        return None
    cure = f"{fitting_batch(n, splits)}" if n >= LEAST_TO_SPLIT else f"{LEAST_TO_SPLIT} or more"
    parts = "2 splits" if splits == 2 else f"2 to {splits} splits"
    return (
        f"A batch of {n} cannot be parted evenly into {parts}: keys are normalised in the same company as "
        f"their queries, which can give the answer away; use --batch-size {cure}."
    )
