"""Which images test, and which choose? The official test split where there is one, and a part of train for choosing."""

from typing import NamedTuple

import torch
from torch import Tensor

from ..probes import Labelled, stratified_split
from ..randomness import stream

TEST_SHARE, VAL_SHARE = 0.2, 0.2


class Parts(NamedTuple):
    """Features to learn from, to choose by, and to test on."""

    train: Labelled
    val: Labelled
    test: Labelled
    official_test: bool

    def to(self, device: torch.device) -> "Parts":
        """All of it on a device."""
        train, val, test = (Labelled(part.features.to(device), part.labels.to(device)) for part in self[:3])
        return Parts(train, val, test, self.official_test)


def part(train: Labelled, test: Labelled | None, seed: int) -> Parts:
    """Part a data set; what is random follows from the seed."""
    official = test is not None
    if test is None:
        kept = stratified_split(train.labels, TEST_SHARE, stream(seed, "test split"))
        train, test = _rows(train, kept.train), _rows(train, kept.val)
    rows = stratified_split(train.labels, VAL_SHARE, stream(seed, "validation split"))
    return Parts(_rows(train, rows.train), _rows(train, rows.val), test, official)


def _rows(data: Labelled, rows: Tensor) -> Labelled:
    return Labelled(data.features[rows], data.labels[rows])
