"""Which lines rebuild an encoder's network in torchvision or timm? The few that its stem and channels ask for."""

from typing import Any, NamedTuple

import timm
import torch
import torchvision
from torch import nn

from ...errors import UserError
from ...eval import FrozenEncoder
from ...eval.libraries import SOLO_PADDING

RESNETS = ("resnet18", "resnet34", "resnet50")
STEMS = {"cifar": (3, 1, 1), "solo-learn": (3, 1, SOLO_PADDING[0]), "imagenet": (7, 2, 3)}
"""Side, stride and padding of a ResNet's first convolution."""
SAID_ELSEWHERE = "train with --backbone resnet18, or export `--to onnx` or `--to safetensors`, which take it"


class Rebuilt(NamedTuple):
    """A network of another library without weights, and the lines that make it."""

    network: nn.Module
    lines: tuple[str, ...]


def in_torchvision(encoder: FrozenEncoder) -> Rebuilt:
    """A ResNet of torchvision without its classifier."""
    name, stem = of_ours(encoder)
    if name not in RESNETS:
        raise UserError(f"torchvision has no {name}; {SAID_ELSEWHERE}.")
    network: Any = torchvision.models.get_model(name, weights=None)
    network.fc = nn.Identity()
    lines = (f"encoder = torchvision.models.{name}()", "encoder.fc = torch.nn.Identity()")
    return Rebuilt(*_with_stem(network, lines, stem, encoder.channels))


def in_timm(encoder: FrozenEncoder) -> Rebuilt:
    """A network of timm without its classifier; its ResNets have torchvision's keys and computations."""
    name, stem = of_ours(encoder)
    if not name.startswith("timm/") and name not in RESNETS:
        raise UserError(f"timm has no {name}; {SAID_ELSEWHERE}.")
    name, options = name.removeprefix("timm/"), timm_options(encoder)
    network = timm.create_model(name, **options)
    told = "".join(f", {key}={value!r}" for key, value in options.items())
    lines = (f"encoder = timm.create_model({name!r}{told})",)
    return Rebuilt(*_with_stem(network, lines, stem if name in RESNETS else "imagenet", 3))


def timm_options(encoder: FrozenEncoder) -> dict[str, Any]:
    """What timm must be told to build the network as it was trained: a transformer knows its size."""
    options: dict[str, Any] = {"num_classes": 0}
    if encoder.channels != 3:
        options["in_chans"] = encoder.channels
    name = encoder.architecture[0]
    sized = {"img_size": encoder.size, "dynamic_img_size": True, "dynamic_img_pad": True}
    if name.startswith("timm/"):
        try:
            with torch.device("meta"):
                timm.create_model(name.removeprefix("timm/"), **options, **sized)
        except TypeError:  # convolutional networks take any size, and have no such option
            return options
        return options | sized
    return options


def of_ours(encoder: FrozenEncoder) -> tuple[str, str]:
    """Backbone and stem of a network that we build."""
    match encoder.architecture:
        case ("torchvision" | "timm" as library, name):
            raise UserError(
                f"{encoder.name} is {library}'s own and loads there as {name}; export a run or a checkpoint, or this "
                "one `--to onnx`."
            )
        case (name, stem):
            return name, "imagenet" if name.startswith("timm/") else stem  # timm's networks are built as they are
        case _:
            raise UserError(f"{encoder.name} does not say which network it is; load it with logo_ssl.load.")


def _with_stem(network: Any, lines: tuple[str, ...], stem: str, channels: int) -> tuple[nn.Module, tuple[str, ...]]:
    """The first convolution as it was trained, and no max-pool where it had none."""
    side, stride, padding = STEMS[stem]
    if stem != "imagenet" or channels != 3:
        n_in = network.conv1.in_channels if channels == 3 else channels
        width = network.conv1.out_channels
        network.conv1 = nn.Conv2d(n_in, width, side, stride, padding, bias=False)
        lines += (f"encoder.conv1 = torch.nn.Conv2d({n_in}, {width}, {side}, {stride}, {padding}, bias=False)",)
    if stem != "imagenet":
        network.maxpool = nn.Identity()
        lines += ("encoder.maxpool = torch.nn.Identity()",)
    return network, lines
