"""The recipe `auto`: settings chosen for the images and the machine by a few rules."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from ..data.decode import DatasetInfo
from ..frameworks import MoCoConfig
from ..system.terminal import counted
from .config import OptimiserConfig, Recipe
from .registry import RECIPES

AUTO = "auto"
"""The name of the recipe that is chosen."""
BASES = ("tiny", "cifar10-tuned-moco-logo", "imagenette-moco-logo")
"""Recipes that a choice begins with."""
WEIGHTY = {
    "backbone": str,
    "stem": str,
    "batch_size": int,
    "crops__n_global": int,
    "crops__n_local": int,
    "crops__global_size": int,
    "crops__local_size": int,
}
"""Settings on which others depend (batch and rate), so that a wish must be known before the choice."""

SMALL, MEDIUM, LARGE = 48, 112, 160  # px: up to the first like CIFAR's; above the second photographs, then large ones
FEW, MANY = 50_000, 500_000  # images: up to the first ResNet-18, up to the second ResNet-34, then ResNet-50
VIEWS = {"cpu": 100_000, "mps": 2_000_000, "cuda": 10_000_000}  # images times epochs; CIFAR-10 in the paper: 10 million
EPOCHS = {"cpu": (5, 100), "mps": (20, 400), "cuda": (100, 800)}  # fewest and most
ADAPTED = 0.2  # of these views, epochs and, in the backbone, of the rate, where there are weights to start from
PULL, PULLED = 1.0, 500  # strongest, up to so many images: docs/decisions/0033
STEPS = 8  # of an epoch, at least, unless batches would be too small for
LEAST_BATCH = 32  # images, which batch norm needs
SPLIT = 32  # images of a batch that share its statistics in MoCo
BATCH = {"cpu": 64, "mps": 128, "cuda": 256}
BYTES_PER_PIXEL = {
    ("tiny", "imagenet"): 400,
    ("resnet18", "cifar"): 2800,
    ("resnet18", "imagenet"): 400,
    ("resnet34", "imagenet"): 400,
}
BYTES_OTHERWISE = {"imagenet": 1200, "cifar": 8400}
"""Memory that a pixel of a crop takes while training in bf16: the second and fourth follow from the peaks in
docs/results/speed.md, the others are guesses on the safe side."""
MEMORY_SHARE = 0.7  # of it


class Machine(NamedTuple):
    """Where training will run."""

    device: str
    """cpu, cuda or mps."""
    name: str
    memory: int
    """Bytes: all of a GPU, else what is free."""
    bf16: bool = True
    """Whether a GPU trains in bfloat16, and so in half the memory."""


def choose(facts: DatasetInfo, machine: Machine, wishes: Mapping[str, Any] | None = None) -> Recipe:
    """A recipe for these data on this machine; its `chosen` says why.

    Any field can be changed afterwards; those that others depend on (`WEIGHTY`) are better wished for beforehand.
    """
    base, says = _network(facts, machine)
    wished = {name: value for name, value in (wishes or {}).items() if name in WEIGHTY}
    if str(wished.get("backbone", "")).startswith("timm/"):
        wished.setdefault("stem", "imagenet")  # timm's networks keep their own first layers, whatever the images
    says = f"{wished['backbone']}, as you asked." if "backbone" in wished else says
    asked = base.changed(**wished)
    base = replace(asked, batch_size=base.batch_size)  # which the rate is for
    batch = min(asked.batch_size, facts.n_images) if "batch_size" in wished else _batch(base, facts, machine)
    adapts = (wishes or {}).get("init") is not None
    says += " Its weights are adapted: few epochs, a slow backbone, led back to its start." if adapts else ""
    fewest, most = EPOCHS[machine.device]
    epochs = min(max(VIEWS[machine.device] // max(facts.n_images, 1), fewest), most)
    epochs = max(1, round(ADAPTED * epochs)) if adapts else epochs
    framework = base.framework
    assert isinstance(framework, MoCoConfig)
    queue = min(framework.queue, _power_of_two(facts.n_images // 2), max(1, facts.n_images // 2))
    splits = min(framework.splits, max(2, batch // SPLIT))  # one would let keys and queries share statistics
    optimiser = replace(base.optimiser, lr=base.optimiser.lr * batch / base.batch_size)
    return replace(
        base,
        name=AUTO,
        paper=(),
        epochs=epochs,
        batch_size=batch,
        framework=replace(framework, queue=queue, splits=splits),
        optimiser=_adapting(optimiser, epochs, facts.n_images) if adapts else optimiser,
        knn_every=max(1, epochs // 20),
        checkpoint_every=max(1, epochs // 20),
        chosen=(f"Chosen for {facts}, on {machine.name}: {says}",),
    )


def _adapting(optimiser: OptimiserConfig, epochs: int, n_images: int) -> OptimiserConfig:
    """Heads first, the backbone slowly, and led back to its start: the fewer images, the more."""
    return replace(
        optimiser,
        warmup_epochs=epochs / 20,
        frozen_epochs=epochs / 10,
        backbone_lr=ADAPTED,
        pull=PULL * min(1.0, PULLED / n_images),
    )


def summary(recipe: Recipe) -> str:
    """The values that `choose` decides, as they are after all changes."""
    crops, queue = recipe.crops, recipe.framework_traits.queue
    keys = f", a queue of {counted(queue, 'key')}" if queue else ""
    return (
        f"framework {recipe.kind('framework')}, strategy {recipe.kind('strategy')}, {recipe.backbone} with the "
        f"{recipe.stem} stem, crops of {crops.global_size} and {crops.local_size} px, batches of {recipe.batch_size}, "
        f"learning rate {recipe.optimiser.lr:.3g}{keys}, {counted(recipe.epochs, 'epoch')}."
    )


def _network(facts: DatasetInfo, machine: Machine) -> tuple[Recipe, str]:
    """Backbone and crops, from the recipe for such images."""
    if machine.device == "cpu":
        side, crops_of = (32, "tiny") if facts.side <= SMALL else (64, "imagenette-moco-logo")
        crops = replace(RECIPES[crops_of].crops, global_size=side, local_size=side // 2)
        return (
            replace(RECIPES["tiny"], crops=crops),
            "the backbone tiny, since larger ones take a CPU long.",
        )
    if facts.side <= MEDIUM:
        side = 32 if facts.side <= SMALL else 64
        base = RECIPES["cifar10-tuned-moco-logo"]
        crops = replace(base.crops, global_size=side, local_size=side // 2)
        return replace(base, crops=crops), "ResNet-18 with the CIFAR stem, for small images."
    sizes = (224, 96) if facts.side >= LARGE else (128, 64)
    name = "resnet18" if facts.n_images <= FEW else "resnet34" if facts.n_images <= MANY else "resnet50"
    base = RECIPES["imagenette-moco-logo"]
    crops = replace(base.crops, global_size=sizes[0], local_size=sizes[1])
    return (
        replace(base, backbone=name, crops=crops),
        f"{name}, for so many photographs, and settings that were measured on Imagenette alone (resnet18, 9,469 "
        "photographs at 128 px).",
    )


def _batch(base: Recipe, facts: DatasetInfo, machine: Machine) -> int:
    """As many images as are usual, as leave some steps to an epoch, and as fit into memory."""
    crops = base.crops
    pixels = crops.n_global * crops.global_size**2 + crops.n_local * crops.local_size**2
    each = BYTES_PER_PIXEL.get((base.backbone, base.stem), BYTES_OTHERWISE[base.stem]) * (1 if machine.bf16 else 2)
    fitting = int(MEMORY_SHARE * machine.memory) // max(1, pixels * each)
    enough = max(LEAST_BATCH, facts.n_images // STEPS)
    return _power_of_two(min(BATCH[machine.device], enough, facts.n_images, fitting))


def _power_of_two(n: int) -> int:
    """The largest one that is no more; 2 at least."""
    return 1 << max(1, n.bit_length() - 1)
