"""Which labelled images train a probe, and which choose it? Rows drawn class by class.

All draws depend on the order of the images: the same generator state and the same order give the same rows.
"""

from typing import NamedTuple

import torch
from jaxtyping import Int
from torch import Tensor

from ..errors import UserError


class SplitRows(NamedTuple):
    """Rows to train on and rows to choose by, each ascending; together they are all rows."""

    train: Int[Tensor, " train"]
    val: Int[Tensor, " val"]


def stratified_split(labels: Int[Tensor, " N"], fraction: float, generator: torch.Generator) -> SplitRows:
    """Give the fraction of each class to validation, rounded: at least one image, but never a class's only one."""
    check_fraction(fraction)
    images = torch.bincount(labels)
    quota = (images * fraction).round().long().clamp(min=1)
    quota = torch.minimum(quota, (images - 1).clamp(min=0))
    chosen = _rank_in_class(labels, generator) < quota[labels]
    return SplitRows((~chosen).nonzero()[:, 0], chosen.nonzero()[:, 0])


def balanced_share(labels: Int[Tensor, " N"], fraction: float, generator: torch.Generator) -> Int[Tensor, " share"]:
    """The fraction of each class, rounded, at least one image; a larger share from the same state holds the smaller."""
    check_fraction(fraction)
    quota = (torch.bincount(labels) * fraction).round().long().clamp(min=1)
    return (_rank_in_class(labels, generator) < quota[labels]).nonzero()[:, 0]


def _rank_in_class(labels: Int[Tensor, " N"], generator: torch.Generator) -> Int[Tensor, " N"]:
    """Each image's place in a random order of its class."""
    shuffled = torch.randperm(len(labels), generator=generator, device=generator.device).to(labels.device)
    by_class = shuffled[labels[shuffled].argsort(stable=True)]
    images = torch.bincount(labels)
    first = images.cumsum(0) - images  # where each class begins
    place = torch.arange(len(labels), device=labels.device) - first[labels[by_class]]
    return torch.empty_like(place).scatter_(0, by_class, place)


def check_fraction(fraction: float) -> None:
    """UserError for what is no share of labels."""
    if not 0 < fraction <= 1:
        raise UserError(f"fraction={fraction} of the labels makes no sense; give more than 0 and at most 1.")
