"""An encoder as a plain module that brings its transform along."""

import os
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, UInt8
from PIL import Image
from torch import Tensor, nn

from ..data.decode import BadImage, decode_square, plain_reason, seen, square
from ..encoders import FrozenEncoder, load_encoder, weights_fingerprint
from ..errors import UserError
from ..knn import prepared
from ..models.batch_norm import with_plain_batch_norm
from ..models.external_checkpoints import EncoderStem


@dataclass(frozen=True)
class Transform:
    """What an encoder is shown of an image: its middle, resized and normalised, exactly as evaluation does."""

    size: int
    mean: tuple[float, ...]
    std: tuple[float, ...]

    def __call__(self, image: Any) -> Float[Tensor, "C S S"]:
        """From a path, a PIL image, an array H x W x C or a tensor C x H x W of uint8.

        A large JPEG is decoded in part if a path names it, and whole if it comes as a PIL image: these differ slightly.
        """
        if isinstance(image, str | os.PathLike):
            image = read_square(Path(image), self.size)
        elif isinstance(image, Image.Image):
            image = square(seen(image), self.size)
        pixels = torch.from_numpy(image).permute(2, 0, 1) if isinstance(image, np.ndarray) else image
        if pixels.dtype != torch.uint8:
            raise UserError(f"An image is {pixels.dtype}; give a path, a PIL image, or pixels as uint8.")
        if len(pixels) == 1:
            pixels = pixels.expand(len(self.mean), -1, -1)  # grey fills every channel
        if len(pixels) != len(self.mean):
            raise UserError(f"An image has {len(pixels)} channels, and this encoder sees {len(self.mean)}; give these.")
        return prepared(pixels[None], self.mean, self.std, self.size)[0]


def read_square(path: Path, size: int) -> UInt8[np.ndarray, "{size} {size} 3"]:
    """The central square of the image in a file; UserError with the reason where there is none."""
    try:
        return decode_square(Path(path).read_bytes(), size)
    except (OSError, BadImage) as error:
        raise UserError(f"{path} cannot be read as an image ({plain_reason(error)}); give another.") from error


def load(
    source: str | os.PathLike[str],
    *,
    backbone: str | None = None,
    stem: EncoderStem | None = None,
    key: str | None = None,
    size: int | None = None,
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
) -> nn.Module:
    """The encoder of a run folder, torchvision/NAME, timm/NAME, random/NAME, or a checkpoint of MoCo and the like.

    It is a plain module in eval mode that gives features [B F]: keys and layers are its library's. `encoder.transform`
    makes its input of an image, `encoder.about` says where it comes from and what it needs. A run that is not finished
    gives the encoder of its newest checkpoint, with a warning.
    """
    options = {"backbone": backbone, "stem": stem, "key": key, "size": size, "mean": mean, "std": std}
    return plain(_found(source, **options))


def _found(source: str | os.PathLike[str], **options: Any) -> FrozenEncoder:
    found = load_encoder(os.fspath(source), **options)
    if found.unfinished is not None:
        warnings.warn(found.says[0], stacklevel=3)
    return found


def plain(found: FrozenEncoder) -> nn.Module:
    """An encoder as a module of its library, which brings along its transform and what is known of it."""
    network: Any = with_plain_batch_norm(found.backbone).requires_grad_(True)
    network.transform = Transform(found.size, found.mean, found.std)
    network.about = replace(found, backbone=network)
    return network


class Classifier(nn.Module):
    """An encoder with a linear head: scores [B classes] of images that its `transform` makes."""

    def __init__(self, found: FrozenEncoder) -> None:
        super().__init__()
        self.backbone, self.head = found.classifier.backbone.children()
        with_plain_batch_norm(self.backbone)
        self.requires_grad_(True).eval()
        self.classes, self.transform = found.classes, Transform(found.size, found.mean, found.std)
        self.about = replace(found, backbone=self.backbone)

    def forward(self, x: Float[Tensor, "B C H W"]) -> Float[Tensor, "B classes"]:
        """The score of each class; the softmax over them are probabilities."""
        return self.head(self.backbone(x))


def load_classifier(path: str | os.PathLike[str]) -> Classifier:
    """The classifier in a folder that `logo-ssl finetune` wrote, in eval mode, with `classes` and `transform`."""
    return Classifier(load_encoder(os.fspath(path)))


def frozen(encoder: nn.Module | FrozenEncoder | str | os.PathLike[str]) -> FrozenEncoder:
    """What `load` or `load_classifier` gave, or the encoder of a source, with all that is known of it."""
    if isinstance(encoder, FrozenEncoder):
        return encoder
    if isinstance(encoder, str | os.PathLike):
        return _found(encoder)
    about = getattr(encoder, "about", None)
    if isinstance(encoder, Classifier):
        encoder = encoder.backbone
    if not isinstance(about, FrozenEncoder):
        raise UserError(f"{type(encoder).__name__} does not say what its input needs; get it from logo_ssl.load.")
    return replace(about, backbone=encoder, fingerprint=weights_fingerprint(encoder.state_dict(), *about.architecture))
