"""What is a linear probe, and what is it trained on?"""

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

import torch
from jaxtyping import Float, Int
from torch import Tensor

from ..errors import UserError

Metric: TypeAlias = Callable[[Float[Tensor, "N C"], Int[Tensor, " N"]], float]
"""A figure in percent, higher is better, from scores and labels: top1 or mean_per_class."""


Progress: TypeAlias = Callable[[int], None]
"""Takes how much is done."""


def unwatched(done: int) -> None:
    """Nobody asks how much is done."""


class Linear(NamedTuple):
    """A linear classifier of features."""

    weight: Float[Tensor, "F C"]
    bias: Float[Tensor, " C"]

    def scores(self, features: Float[Tensor, "N F"]) -> Float[Tensor, "N C"]:
        """The score of each class, the larger the likelier."""
        return torch.addmm(self.bias, features, self.weight)

    @property
    def finite(self) -> bool:
        """Whether training has not diverged."""
        return bool(self.weight.isfinite().all() and self.bias.isfinite().all())


class Labelled(NamedTuple):
    """Features of images with their classes."""

    features: Float[Tensor, "N F"]
    labels: Int[Tensor, " N"]

    def joined(self, other: "Labelled") -> "Labelled":
        """Both sets as one."""
        return Labelled(torch.cat([self.features, other.features]), torch.cat([self.labels, other.labels]))


def check(data: Labelled, n_classes: int) -> None:
    """Refuse what no probe can be trained on."""
    features, labels = data
    if len(labels) == 0:
        raise UserError("There are no images to train a probe on; give at least one.")
    broken = int((~features.isfinite().all(dim=1)).sum())
    if broken:
        raise UserError(f"Features of {broken} of {len(features)} images are not finite; the backbone has diverged.")
    low, high = int(labels.min()), int(labels.max())
    if low < 0 or high >= n_classes:
        raise UserError(f"Labels run from {low} to {high}, but classes from 0 to {n_classes - 1}; number them so.")
