"""How is an encoder named in a shell? By a source, and what this does not tell itself."""

import shlex
from dataclasses import dataclass
from typing import Annotated

import tyro

from .encoders import FrozenEncoder, load_encoder, words_of
from .libraries import EncoderStem


@dataclass(frozen=True)
class Source:
    """Which encoder."""

    encoder: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="ENCODER")]
    """A run folder, torchvision/NAME, timm/NAME, random/NAME, a checkpoint file, or an exported encoder."""
    backbone: str | None = None
    """The network in a checkpoint, if its shapes do not show it."""
    stem: EncoderStem | None = None
    """First layers of random/NAME, or of a checkpoint if its shapes do not show them."""
    size: int | None = None
    """Side of the images in pixels (default: as in training; else 32 for a CIFAR stem and 224 for others)."""
    mean: tuple[float, ...] | None = None
    """Mean of each channel, on a scale from 0 to 1 (default: as in training, or that of ImageNet)."""
    std: tuple[float, ...] | None = None
    """Standard deviation of each channel, on the same scale."""

    def typed(self) -> str:
        """What names the same encoder in another command, as a shell takes it."""
        options = {name: getattr(self, name) for name in ("backbone", "stem", "size", "mean", "std")}
        return shlex.join([self.encoder, *words_of(options)])

    def load(self) -> FrozenEncoder:
        """The encoder that these options name."""
        looks = {"size": self.size, "mean": self.mean, "std": self.std}
        return load_encoder(self.encoder, backbone=self.backbone, stem=self.stem, **looks)
