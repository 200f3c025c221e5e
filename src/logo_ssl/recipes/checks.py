"""Can this recipe work? One sentence for every value that cannot."""

from collections.abc import Iterator
from itertools import chain
from math import inf

from ..augment import CropPlan
from ..data import LoadingConfig
from ..errors import UserError
from ..models.backbones import refuse_unknown_backbone
from .recipe import OptimiserConfig, Recipe, refuse_wrong_types

MOST_CROPS = 32

Demand = tuple[bool, str]
"""Whether it holds, and the sentence if it does not."""


def check(recipe: Recipe) -> None:
    """Refuse values that cannot work, each with a sentence that names the value and the cure."""
    refuse_wrong_types(recipe)
    demands = chain(
        _of_run(recipe),
        _of_number_and_size(recipe),
        _of_loading(recipe.loading),
        _of_optimiser(recipe.optimiser),
        _of_augmentation(recipe.crops),
        _of_augself(recipe),
        _of_strategy(recipe),
        _of_framework(recipe),
    )
    for holds, sentence in demands:
        if not holds:
            raise UserError(sentence)
    refuse_unknown_backbone(recipe.backbone)


def _of_run(recipe: Recipe) -> list[Demand]:
    return [
        (recipe.epochs >= 1, f"epochs={recipe.epochs}: must be 1 or more."),
        (recipe.batch_size >= 2, f"batch_size={recipe.batch_size}: must be 2 or more."),
        (
            recipe.devices == "auto" or recipe.devices >= 1,
            f"devices={recipe.devices}: must be 1 or more, or auto for every GPU.",
        ),
        (recipe.nodes >= 1, f"nodes={recipe.nodes}: must be 1 or more."),
        (
            recipe.stem == "imagenet" or not recipe.backbone.startswith("timm/"),
            f"stem={recipe.stem}: {recipe.backbone} keeps the first layers that timm gives it; use "
            "stem=imagenet, or backbone=resnet18 for a network with a CIFAR stem.",
        ),
        (0 <= recipe.seed < 2**63, f"seed={recipe.seed}: must be 0 to 2^63 - 1."),
        (recipe.log_every >= 1, f"log_every={recipe.log_every}: must be 1 or more."),
        (recipe.checkpoint_every >= 1, f"checkpoint_every={recipe.checkpoint_every}: must be 1 or more."),
        (
            recipe.checkpoint_minutes >= 0,
            f"checkpoint_minutes={recipe.checkpoint_minutes}: must be 0 (epochs only) or more.",
        ),
        (recipe.checkpoint_keep >= 1, f"checkpoint_keep={recipe.checkpoint_keep}: must be 1 or more."),
        (recipe.knn_every >= 0, f"knn_every={recipe.knn_every}: must be 0 (never) or more."),
    ]


def _of_number_and_size(recipe: Recipe) -> list[Demand]:
    crops = recipe.crops
    return [
        (
            crops.n_global >= recipe.framework_traits.least_global,
            f"crops.n_global={crops.n_global}: must be {recipe.framework_traits.least_global} or more.",
        ),
        (crops.n_local >= 0, f"crops.n_local={crops.n_local}: must be 0 or more."),
        (
            crops.n_global + crops.n_local <= MOST_CROPS,
            f"crops.n_global={crops.n_global}, crops.n_local={crops.n_local}: must be {MOST_CROPS} in all at most.",
        ),
        (
            min(crops.global_size, crops.local_size) >= 8,
            f"crops.global_size={crops.global_size}, crops.local_size={crops.local_size}: must be 8 or more.",
        ),
    ]


def _of_loading(loading: LoadingConfig) -> list[Demand]:
    return [
        (0 <= loading.max_bad <= 1, f"loading.max_bad={loading.max_bad}: a share lies in 0 to 1."),
        (loading.max_side >= 0, f"loading.max_side={loading.max_side}: must be 0 (never shrink) or more."),
        (loading.workers >= -1, f"loading.workers={loading.workers}: must be -1 (automatic) or more."),
    ]


def _of_optimiser(optimiser: OptimiserConfig) -> list[Demand]:
    return [
        (0 < optimiser.lr < inf, f"optimiser.lr={optimiser.lr}: must be a positive learning rate."),
        (0 <= optimiser.momentum < 1, f"optimiser.momentum={optimiser.momentum}: must be 0 <= momentum < 1."),
        (optimiser.weight_decay >= 0, f"optimiser.weight_decay={optimiser.weight_decay}: must be 0 or more."),
        (optimiser.clip >= 0, f"optimiser.clip={optimiser.clip}: must be 0 (never) or more."),
        (
            0 <= optimiser.eta_min <= optimiser.lr,
            f"optimiser.eta_min={optimiser.eta_min}: must be 0 to the learning rate ({optimiser.lr}).",
        ),
        (optimiser.warmup_epochs >= 0, f"optimiser.warmup_epochs={optimiser.warmup_epochs}: must be 0 or more."),
    ]


def _of_augmentation(crops: CropPlan) -> Iterator[Demand]:
    for name, most in (("global_scale", 1.0), ("local_scale", 1.0), ("ratio", inf), ("blur_sigma", inf)):
        low, high = getattr(crops, name)
        upper = f" <= {most:g}" if most < inf else ""
        yield 0 < low <= high <= most, f"crops.{name}={low} {high}: must be 0 < low <= high{upper}."
    for name in ("flip", "jitter_p", "grey_p", "blur_p", "solarise_p"):
        p = getattr(crops, name)
        yield 0 <= p <= 1, f"crops.{name}={p}: a probability lies between 0 and 1."
    in_range = min(crops.jitter) >= 0 and crops.jitter[3] <= 0.5
    yield in_range, f"crops.jitter={crops.jitter}: must be 0 or more, hue <= 0.5."


def _of_augself(recipe: Recipe) -> list[Demand]:
    crops, pairs = recipe.crops, recipe.strategy_traits.pairs
    return [
        (
            min(recipe.augself.crop, recipe.augself.colour) >= 0 and recipe.augself.hidden >= 1,
            f"augself={recipe.augself}: use weights of 0 or more and a width of 1 or more.",
        ),
        (
            not recipe.augself.weights or (crops.n_global >= 2 and pairs != "paper"),
            "augself compares two global crops, both encoded; use crops.n_global=2 and strategy.pairs=mean.",
        ),
    ]


def _of_strategy(recipe: Recipe) -> Iterator[Demand]:
    """The local crops that it needs; settings of whichever strategy has them, by name."""
    strategy, kind = recipe.strategy, recipe.kind("strategy")
    n, least = recipe.crops.n_local, recipe.strategy_traits.least_local
    if least:
        yield n >= least, f"crops.n_local={n}: strategy {kind} wants {least} or more."
    else:
        yield n == 0, f"crops.n_local={n}: strategy {kind} leaves local crops unused: use 0."
    for name in ("lam", "noise"):
        value = getattr(strategy, name, 0.0)
        yield 0 <= value < inf, f"strategy.{name}={value}: must be 0 or more."
    for name in ("lr", "depth", "width"):
        value = getattr(strategy, name, 1)
        yield 0 < value < inf, f"strategy.{name}={value}: must be a positive number."


def _of_framework(recipe: Recipe) -> Iterator[Demand]:
    """Settings of whichever framework has them, by name."""
    for name in ("tau", "dim", "hidden", "queue", "splits", "layers"):
        value = getattr(recipe.framework, name, 1)
        yield value > 0, f"framework.{name}={value}: must be a positive number."
    m = getattr(recipe.framework, "m", 0.5)
    yield 0 <= m <= 1, f"framework.m={m}: a momentum lies between 0 and 1."
