"""A recipe for the data and the machine, and the networks that it builds."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from ..data import ImageSet, dataset_info, load_data, locate, statistics
from ..encoders import Architecture, is_external, load_encoder, usual_looks
from ..errors import UserError
from ..models import Teacher, build_backbone, draw_as_torch_does
from ..models.backbones import POSITIONS, first_convolution, load_weights
from ..models.batch_norm import fitting_batch
from ..models.external_checkpoints import matching_keys, read_checkpoint, recognise
from ..models.teacher import Looks
from ..recipes import RECIPES, Machine, Recipe, choose
from ..strategies import own_roles
from ..system.hardware import available_memory, best_device, hardware
from ..system.terminal import counted
from .module import Pretraining

Say = Callable[[str], None]
SCENES_SIDE = RECIPES["tiny"].crops.global_size  # px, at which made-up scenes are looked at
CHANGED = {
    "lightly": " of a network without the first ReLU, which this one has,",
    "solo-learn": " of a network that pads its first layer by 2 pixels, this one by 1,",
}
"""What a recipe builds otherwise than the network of the weights, by its stem."""


def machine_for(device: str) -> Machine:
    """The device that training would take, and its memory: all of a GPU's, so that every process chooses the same."""
    found = best_device(device)
    if found.type != "cuda":
        return Machine(found.type, hardware(found), available_memory(found))
    whole = torch.cuda.get_device_properties(found).total_memory
    return Machine(found.type, hardware(found), whole, torch.cuda.is_bf16_supported(including_emulation=False))


def recipe_for(data: str | None, device: str = "auto", wishes: Mapping[str, Any] | None = None) -> Recipe:
    """The recipe that suits the images at `data`, this machine and some wishes; its `chosen` says why."""
    if data is None:
        raise UserError("data is missing: logo-ssl pretrain --data photos/ --out runs/photos, or name a recipe")
    facts = dataset_info(load_data(locate(data), SCENES_SIDE))
    refuse_too_few(data, facts.n_images)
    wishes = dict(wishes or {})
    network = network_of(wishes.get("init"), wishes.get("init_key")) | wishes
    return choose(facts, machine_for(device), network).changed(data=data, pooling=network.get("pooling", "default"))


def with_network_of(recipe: Recipe, changes: Mapping[str, Any]) -> Recipe:
    """The recipe with the network whose weights a changed `init` names, unless that is its own or one is asked for."""
    network = {} if "backbone" in changes else network_of(changes.get("init"), changes.get("init_key"))
    return recipe if network.get("backbone", recipe.backbone) == recipe.backbone else recipe.changed(**network)


def refuse_too_few(data: str, n_images: int) -> None:
    """UserError for data without two images to compare."""
    if n_images < 2:
        raise UserError(f"data={data}: has {counted(n_images, 'training image')}; must have 2 or more.")


def adapt_to_data(recipe: Recipe, data: ImageSet, say: Say = lambda sentence: None, processes: int = 1) -> Recipe:
    """The recipe with the number of classes of the data, and a batch, queue and warm-up that fit; cuts are printed."""
    n = len(data.train)
    refuse_too_few(recipe.data, n)
    if recipe.framework_traits.labelled:
        recipe = replace(recipe, framework=replace(recipe.framework, dim=_number_of_classes(recipe, data)))
    teacher = recipe.framework_traits.teacher
    if teacher and Path(teacher).expanduser().exists():  # a run must find it from any folder
        recipe = recipe.changed(framework__teacher=locate(teacher))
    if recipe.batch_size > n:
        most = fitting_batch(n, recipe.framework_traits.splits, processes)
        say(f"batch_size: {recipe.batch_size} -> {most}, since there are {n:,} training images.")
        recipe = replace(recipe, batch_size=most)
    queue, half = recipe.framework_traits.queue, max(n // 2, 1)
    if queue > half:  # else an image often meets its own last key as a negative
        say(f"framework.queue: {queue} -> {half}, half of the {n:,} training images.")
        recipe = replace(recipe, framework=replace(recipe.framework, queue=half))  # type: ignore[call-arg] (it has one)
    shorter = recipe.epochs / 10
    for name in ("warmup_epochs", "frozen_epochs"):
        if (planned := getattr(recipe.optimiser, name)) >= recipe.epochs:
            say(f"optimiser.{name}: {planned:g} -> {shorter:g}, a tenth of the training.")
            recipe = replace(recipe, optimiser=replace(recipe.optimiser, **{name: shorter}))
    return recipe


def _number_of_classes(recipe: Recipe, data: ImageSet) -> int:
    labels = data.train.labels
    if labels is None or (labels < 0).any():
        raise UserError(f"data={recipe.data}: has images without labels; supervised learning needs all.")
    if (n := max(len(data.classes), int(labels.max()) + 1)) < 2:
        raise UserError(f"data={recipe.data}: has one class; supervised learning needs two or more.")
    return n


def build(
    recipe: Recipe,
    data: ImageSet,
    say: Say = lambda sentence: None,
    *,
    fresh: bool = True,
) -> Pretraining:
    """The networks of a recipe, initialised from its seed, ready to train on `data`; if not `fresh`, to be loaded."""
    mean, std = statistics(data.train.images)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(recipe.seed)
        size, pooling = recipe.crops.global_size, recipe.pooling
        backbone = build_backbone(recipe.backbone, recipe.stem, data.channels, size, pooling, recipe.drop_path)
        if recipe.initialisation == "torch":
            draw_as_torch_does(backbone)
        if recipe.init is not None and fresh:
            looks, about = initialise(backbone, recipe)
            say(about)
            mean, std = looks if len(looks[0]) == data.channels else (mean, std)
        framework = recipe.framework.build(backbone, backbone.num_features)
        strategy = recipe.strategy.build(recipe.crops.n_global, recipe.crops.n_local, recipe.framework.dim)
        if recipe.framework_traits.teacher:
            teacher = load_teacher(recipe, data.channels, (mean, std))
            say(f"Teacher: {teacher.name}, frozen, {teacher.num_features} features.")
            framework.take_teacher(teacher)
            strategy.assign(own_roles(recipe.crops.n_global))
        labels = data.train.labels if recipe.framework_traits.labelled else None
        return Pretraining(recipe, framework, strategy, mean, std, len(data.train), labels, say)


def load_teacher(recipe: Recipe, channels: int, students: Looks) -> Teacher:
    """The frozen encoder that the framework learns from; UserError if it cannot be had, or does not take the crops."""
    source, size = recipe.framework_traits.teacher, recipe.crops.global_size
    try:
        found = load_encoder(source, size=size)
    except UserError as error:
        raise UserError(f"framework.teacher={source}: {error}") from error
    if found.channels != channels:
        raise UserError(f"framework.teacher={source}: sees {found.channels} channels; the images have {channels}.")
    try:
        n_features = found.backbone(torch.zeros(1, channels, size, size)).shape[1]
    except (AssertionError, RuntimeError, ValueError) as error:  # as networks of patches raise
        raise UserError(f"framework.teacher={source}: does not take crops of {size} px ({error}).") from error
    return Teacher(source, found.backbone, n_features, (found.mean, found.std), students, found.fingerprint)


class Start(NamedTuple):
    """Weights to start from, and what is known of their network."""

    weights: Mapping[str, Tensor]
    """In a checkpoint of another project, with all that is next to them."""
    architecture: Architecture
    """Its backbone is empty if the weights do not show it."""
    looks: Looks
    """Of the images that they were trained on."""


def start_of(init: str, key: str | None) -> Start:
    """The weights that `init` names, as they are: what fits of another project's is known once there is a backbone."""
    if is_external(path := Path(init).expanduser()):
        weights = read_checkpoint(path, key)
        name, stem, channels = recognise(path, weights)
        return Start(weights, Architecture(name or "", stem), usual_looks(channels))
    found = load_encoder(init, key=key)
    return Start(found.backbone.state_dict(), found.architecture, (found.mean, found.std))


def network_of(init: str | None, key: str | None = None) -> dict[str, str]:
    """Backbone, stem and pooling for the weights that `init` names, as recipes have them; nothing if it is unknown."""
    if init is None or init == "pretrained":
        return {}
    published = init.startswith(("torchvision/", "timm/"))  # to be fetched by whoever needs the weights
    backbone, stem, pooling = Architecture(init) if published else start_of(init, key).architecture
    ours = "imagenet" if stem in ("", "imagenet") else "cifar"
    known = {"backbone": backbone.removeprefix("torchvision/"), "stem": ours, "pooling": pooling}
    return known if backbone else {}


def initialise(backbone: nn.Module, recipe: Recipe) -> tuple[Looks, str]:
    """Load the weights that `init` names; gives back how their images look, and a sentence about what fitted."""
    start, own = start_of(str(recipe.start), recipe.init_key), backbone.state_dict()
    first = first_convolution(backbone)
    resizable = (POSITIONS,) if first is None else (POSITIONS, first[0])
    weights, prefix = matching_keys(own, start.weights, resizable)
    missing = load_weights(backbone, weights)
    fitted, n_own = len(own) - len(missing), len(own)
    if fitted < n_own / 2:
        raise UserError(
            f"init={recipe.init}: {fitted} of {n_own} tensors fit {recipe.backbone} with the {recipe.stem} stem; give "
            "its --backbone and --stem."
        )
    remark = (f" under {prefix!r}" if prefix else "") + CHANGED.get(start.architecture.stem, "")
    resized = [name for name in own if name not in missing and weights[name].shape != own[name].shape]
    rest = f"; resampled: {', '.join(resized)}" if resized else ""
    rest += f"; unchanged: {', '.join(missing[:4])}" + (", ..." if len(missing) > 4 else "") if missing else ""
    unused = len(start.weights) - fitted
    return start.looks, f"Started from {recipe.init}: {fitted} tensors{remark} fit, {unused} are not used{rest}."
