"""What does a probe learn from, choose by and test on? Features of the splits there are, else of parts of train."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from ..data import ImageSet, Split
from ..data.images import CALLED
from ..probes import Labelled
from .cache import labelled_features
from .copies import copies
from .encoders import FrozenEncoder
from .held_out import Parts, part
from .how import Extraction
from .labelled import labelled, labelled_val, labels_of, refuse_lost_classes, with_rows

NAMES = tuple(CALLED.values())


class Parted(NamedTuple):
    """Features in their parts."""

    known: list[Split]
    """The images that can be read to learn from and, after them, to choose by; the rows of `parts` count them all."""
    parts: Parts
    copied: dict[str, int]
    """How many images were looked for among those to train on or to choose by, and found."""


def parted(encoder: FrozenEncoder, data: ImageSet, how: Extraction, seed: int, names: Sequence[str] = NAMES) -> Parted:
    """The features of all images that can be read; validation images choose, where there are any beside a test."""
    train, test = labelled(data)
    val = None if test is None else labelled_val(data)
    copied = copies(train, test, how, val)
    seen, features, rows = _seen(encoder, train, how, names[0])
    refuse_lost_classes(data, labels_of(train), labels_of(seen))
    known = [seen]
    chosen_by = None if data.val_in_train is None else data.val_in_train[labels_of(data.train) >= 0][rows]
    if val is not None:
        others, more, _ = _seen(encoder, val, how, names[1])
        known, features = [seen, others], torch.cat([features, more])
        chosen_by = torch.arange(len(features)) >= len(rows)
    held_out = None if test is None else Labelled(*labelled_features(encoder, test, how, names[2]))
    labels = torch.cat([labels_of(split) for split in known])
    return Parted(known, part(Labelled(features, labels), held_out, seed, data.name, chosen_by), copied)


def _seen(
    encoder: FrozenEncoder, split: Split, how: Extraction, what: str
) -> tuple[Split, Float[Tensor, "n F"], Int[Tensor, " n"]]:
    """The images that can be read, their features and their rows."""
    features, rows = labelled_features(encoder, with_rows(split), how, what)
    return split if len(rows) == len(split) else split[rows], features, rows
