"""Which network does somebody else's checkpoint hold? Guessed from its shapes unless it is named."""

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

from torch import Tensor

from ..errors import UserError
from ..models.backbones import Stem
from .checkpoints import read_checkpoint
from .libraries import EncoderStem, FoundEncoder, seeded_backbone, usual_size
from .matching import LAYERS, NAMINGS, matched, sentences

RESNETS: dict[tuple[bool, tuple[int, ...]], str] = {
    (False, (2, 2, 2, 2)): "resnet18",
    (False, (3, 4, 6, 3)): "resnet34",
    (True, (3, 4, 6, 3)): "resnet50",
}
"""By whether blocks are bottlenecks, and how many each layer has."""
SOLO_NAME = re.compile(r"-ep=\d+\.ckpt$")  # solo/utils/checkpointer.py


class Guess(NamedTuple):
    """What the shapes of a ResNet's weights tell."""

    backbone: str | None
    stem: Stem


def checkpoint_encoder(path: Path, name: str | None, stem: EncoderStem | None, size: int | None) -> FoundEncoder:
    """The encoder in a checkpoint of MoCo, SimSiam, lightly, solo-learn, torchvision or timm, and what did not fit."""
    weights = read_checkpoint(path)
    guessed = guess(weights) or Guess(None, "imagenet")
    name = _network(path, weights, name, guessed.backbone)
    says = list[str]()
    if stem is None:
        stem = guessed.stem
        if stem == "cifar" and _looks_like_solo_learn(weights):
            stem, about = _solo_learn_stem(path)
            says.append(about)
    size = usual_size(stem) if size is None else size
    channels = next((value.shape[1] for value in weights.values() if value.dim() == 4), 3)
    network = seeded_backbone(name, stem, channels, size)
    found = matched(network.state_dict(), weights, f"{name} with the {stem} stem")
    network.load_state_dict(found.weights, strict=False)
    says = [f"{path.name} is read as {name} with the {stem} stem.", *says, *sentences(found)]
    missing, unused = tuple(found.missing), tuple(found.unused)
    return FoundEncoder(network, (name, stem), channels, size=size, says=tuple(says), missing=missing, unused=unused)


def _network(path: Path, weights: Mapping[str, Tensor], name: str | None, guessed: str | None) -> str:
    """What a checkpoint holds by its name, if it has one, or by its shapes; UserError where these contradict it."""
    if guessed is not None and name in RESNETS.values() and name != guessed:  # a larger ResNet has a smaller's keys
        raise UserError(f"{path} holds a {guessed} by its shapes, not a {name}; leave --backbone out.")
    found = name or guessed
    if found is None:
        raise UserError(
            f"The shapes in {path} tell no ResNet (it has {', '.join(list(weights)[:3])}, ...); name its network with "
            "--backbone."
        )
    return found


def _looks_like_solo_learn(weights: Mapping[str, Tensor]) -> bool:
    """Whether there is a classifier beside a backbone, as in its checkpoints, but not in its alone."""
    return "classifier.weight" in weights and any(f"{name}.conv1.weight" in weights for name in ("backbone", "encoder"))


def _solo_learn_stem(path: Path) -> tuple[EncoderStem, str]:
    """Its stem where its files have their names: args.json lies beside NAME-ep=999.ckpt."""
    if SOLO_NAME.search(path.name) or _is_solo_learn(path.with_name("args.json")):
        return "solo-learn", "It comes from solo-learn, whose CIFAR stem pads by 2 pixels."
    return "cifar", "If it comes from solo-learn, whose CIFAR stem pads by 2 pixels, give --stem solo-learn."


def _is_solo_learn(arguments: Path) -> bool:
    try:
        settings = json.loads(arguments.read_text())
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(settings, dict) and {"method", "backbone"} <= settings.keys()


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
