"""Which network does somebody else's checkpoint hold? Guessed from its shapes unless it is named."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from torch import Tensor

from ..errors import UserError
from ..models.backbones import Stem
from .checkpoints import read_checkpoint
from .libraries import Found, seeded_backbone
from .matching import LAYERS, NAMINGS, matched, sentences

RESNETS: dict[tuple[bool, tuple[int, ...]], str] = {
    (False, (2, 2, 2, 2)): "resnet18",
    (False, (3, 4, 6, 3)): "resnet34",
    (True, (3, 4, 6, 3)): "resnet50",
}
"""By whether blocks are bottlenecks, and how many each layer has."""


class Guess(NamedTuple):
    """What the shapes of a ResNet's weights tell."""

    backbone: str | None
    stem: Stem


def checkpoint_encoder(path: Path, name: str | None, stem: Stem | None, size: int) -> Found:
    """The encoder in a checkpoint of MoCo, SimSiam, lightly, solo-learn, torchvision or timm, and what did not fit."""
    weights = read_checkpoint(path)
    guessed = guess(weights)
    name = name or (guessed.backbone if guessed else None)
    if name is None:
        raise UserError(
            f"The shapes in {path} tell no ResNet (it has {', '.join(list(weights)[:3])}, ...); name its network with "
            "--backbone."
        )
    stem = stem or (guessed.stem if guessed else "imagenet")
    channels = next((value.shape[1] for value in weights.values() if value.dim() == 4), 3)
    network = seeded_backbone(name, stem, channels, size)
    found = matched(network.state_dict(), weights, f"{name} with the {stem} stem")
    network.load_state_dict(found.weights, strict=False)
    says = [f"{path.name} is read as {name} with the {stem} stem.", *sentences(found)]
    padding = ""
    if stem == "cifar" and found.prefix in ("backbone.", "encoder.") and "classifier.weight" in weights:
        conv1: Any = network.get_submodule("conv1")
        conv1.padding = (2, 2)
        padding = "padding 2"
        says.append("It comes from solo-learn, whose CIFAR stem pads by 2 pixels.")
    return Found(network, (name, stem, padding), channels, size=size, says=tuple(says))


def guess(weights: Mapping[str, Tensor]) -> Guess | None:
    """The ResNet that a checkpoint holds, if it does; without its name where that is not known."""
    guesses: list[Guess] = []
    for naming in NAMINGS:
        anchor = naming("layer1.0.conv1.weight")
        for prefix in (key.removesuffix(anchor) for key in weights if key.endswith(anchor)):
            first = weights.get(prefix + naming("conv1.weight"))
            if first is not None:
                blocks = tuple(_count(weights, prefix, naming, layer) for layer in LAYERS)
                deep = prefix + naming("layer1.0.conv3.weight") in weights
                guesses.append(Guess(RESNETS.get((deep, blocks)), "cifar" if first.shape[-1] == 3 else "imagenet"))
    known = (found for found in guesses if found.backbone is not None)
    return next(known, guesses[0] if guesses else None)  # a number may be a layer in one naming, another in the next


def _count(weights: Mapping[str, Tensor], prefix: str, naming: Callable[[str], str], layer: str) -> int:
    n = 0
    while prefix + naming(f"{layer}.{n}.conv1.weight") in weights:
        n += 1
    return n
