"""Which encoders have names? torchvision's and timm's with their published weights, and untrained ones of ours."""

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple, TypeAlias

import timm
import timm.data
import torch
import torchvision
from torch import Tensor, nn

from ..errors import UserError, nearest
from ..models import build_backbone
from ..models.hub import hub_if_reached
from ..run import Run

EncoderStem: TypeAlias = Literal["imagenet", "cifar", "solo-learn"]
"""Ours, and solo-learn's for CIFAR: a 3x3 convolution of stride 1 that pads by 2 pixels, and no max-pool."""
IMAGENET_SIZE, CIFAR_SIZE = 224, 32
SOLO_PADDING = (2, 2)
SEED = 0  # of untrained weights
MOST_SAID = 120  # letters of somebody else's error


class FoundEncoder(NamedTuple):
    """A backbone and what its source tells of it; where that is silent, ImageNet's custom holds."""

    backbone: nn.Module
    architecture: tuple[str, ...]
    """What the weights do not tell, as strides: part of the fingerprint."""
    channels: int = 3
    mean: Sequence[float] | None = None
    std: Sequence[float] | None = None
    size: int = IMAGENET_SIZE
    says: tuple[str, ...] = ()
    run: Run | None = None
    missing: tuple[str, ...] = ()
    """Weights that a checkpoint does not have, and"""
    unused: tuple[str, ...] = ()
    """keys of it that found no place."""
    unfinished: str | None = None
    """How far its run has come, where that is not finished: epoch 12 of 200."""
    heads: dict[str, Tensor] | None = None
    """The weights of projector and regressor then."""


def torchvision_encoder(name: str) -> FoundEncoder:
    """A classifier of torchvision with its default weights, up to its last linear layer."""
    known = torchvision.models.list_models(module=torchvision.models)
    if name not in known:
        raise UserError(f"torchvision has no classifier {name!r}.{nearest(name, known)}")
    try:
        weights: Any = torchvision.models.get_model_weights(name)["DEFAULT"]
        backbone = torchvision.models.get_model(name, weights=weights)
    except Exception as error:  # of the network or the disk, or of a model that nobody trained
        raise _not_fetched(f"torchvision/{name}", error) from error
    needs = weights.transforms()
    says = (without_classifier(backbone), f"Weights: {weights}.")
    return FoundEncoder(backbone, ("torchvision", name), 3, needs.mean, needs.std, needs.crop_size[0], says)


def timm_encoder(name: str, size: int | None) -> FoundEncoder:
    """A model of timm with its published weights, without its classifier."""
    if not timm.is_model(name.split(".")[0]):
        raise UserError(f"timm has no model {name!r}.{nearest(name, timm.list_models())}")
    options: dict[str, Any] = {"pretrained": True, "num_classes": 0}
    sized: dict[str, Any] = {} if size is None else {"img_size": size}
    backbone: Any
    with hub_if_reached() as out_of_reach:
        try:
            try:
                backbone = timm.create_model(name, **options, **sized)
            except TypeError:  # convolutional networks take any size, and have no such option
                backbone = timm.create_model(name, **options)
        except Exception as error:  # of the network, the hub or the disk
            raise _not_fetched(f"timm/{name}", out_of_reach or error) from error
    needs = timm.data.resolve_model_data_config(backbone)
    tag = backbone.pretrained_cfg.get("tag") or "default"
    return FoundEncoder(
        backbone,
        ("timm", name),
        len(needs["mean"]),
        needs["mean"],
        needs["std"],
        needs["input_size"][-1],
        (f"Weights: {name}, tag {tag}.",),
    )


def untrained_encoder(name: str, stem: EncoderStem, channels: int, size: int | None) -> FoundEncoder:
    """A backbone of ours as it is before training, always the same."""
    size = usual_size(stem) if size is None else size
    backbone = seeded_backbone(name, stem, channels, size)
    says = (f"{name} with the {stem} stem is untrained (seed {SEED}).",)
    return FoundEncoder(backbone, (name, stem), channels, size=size, says=says)


def usual_size(stem: EncoderStem) -> int:
    """The side of the images that a network with that stem is made for."""
    return IMAGENET_SIZE if stem == "imagenet" else CIFAR_SIZE


def seeded_backbone(name: str, stem: EncoderStem, channels: int, size: int) -> nn.Module:
    """A backbone whose first weights are always the same, whatever was drawn before."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(SEED)
        backbone = build_backbone(name, "cifar" if stem == "solo-learn" else stem, channels, size)
    if stem == "solo-learn":
        conv1 = getattr(backbone, "conv1", None)
        if not isinstance(conv1, nn.Conv2d):
            raise UserError(f"solo-learn's stem belongs to ResNets, and {name} is none; use --stem imagenet or cifar.")
        conv1.padding = SOLO_PADDING
    return backbone


def without_classifier(network: nn.Module) -> str:
    """Make the last linear layer, which torchvision's classifiers end with, pass its input on; says so."""
    linear = [name for name, module in network.named_modules() if isinstance(module, nn.Linear)]
    if not linear:
        raise UserError(f"{type(network).__name__} ends with no linear layer, so its features are unknown; try timm/.")
    parent, _, child = linear[-1].rpartition(".")
    setattr(network.get_submodule(parent), child, nn.Identity())
    return f"Features are the input of its last layer, {linear[-1]}."


def _not_fetched(what: str, error: Exception | str) -> UserError:
    reason = next(iter(str(error).splitlines()), type(error).__name__)[:MOST_SAID].strip()
    return UserError(
        f"The published weights of {what} could not be fetched ({reason}); look at the connection, give a checkpoint "
        "file, or take random/NAME for untrained weights."
    )
