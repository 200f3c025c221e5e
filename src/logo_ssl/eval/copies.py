"""Are test images among those that train or choose? A look at some of them, cheap enough to be taken each time."""

import hashlib
from collections.abc import Mapping

import torch
from torch import Tensor

from ..data import Photos, Split
from ..data.images import CALLED
from .how import Extraction

LOOKED_AT = 1_000  # images that are looked for, evenly spread
MOST_KNOWN = 200_000
"""Images to look among: to ask a disk for the sizes of more would take longer than some evaluations."""
MOST_READ = 4_000  # of these, whose bytes are compared
MOST_BYTES = 2**26  # of an array at a time
THEREFORE = {
    ("test", "train"): "and the figures are too good",
    ("test", "val"): "and the figures are too good, since these train the last classifier, too",
    ("val", "train"): "and what validation chooses may be fitted too closely",
}
"""What comes of it where images of the first split are among those of the second."""


def copies(train: Split, test: Split | None, how: Extraction, val: Split | None = None) -> dict[str, int]:
    """How many of the test images that were looked at are training images, byte by byte; said where any is.

    Where validation images are given, since they choose and train, too, these are looked among and looked for as well.
    """
    if test is None:
        return {}
    if val is None:
        return _among("train", train, {"test": test}, how)
    return _among("train", train, {"test": test, "val": val}, how) | _among("val", val, {"test": test}, how)


def _among(known_as: str, others: Split, splits: Mapping[str, Split], how: Extraction) -> dict[str, int]:
    """Look for images of some splits among those of another, whose keys are asked for once."""
    if len(others) > MOST_KNOWN:
        return {}
    offered, found = _keys(others.images), dict[str, int]()
    for asked, images in splits.items():
        if isinstance(images.images, Photos) == isinstance(others.images, Photos):
            found |= _found(asked, images, known_as, others, offered, how)
    return found


def _found(
    asked: str, images: Split, known_as: str, others: Split, offered: list[int], how: Extraction
) -> dict[str, int]:
    some = images.thinned(LOOKED_AT)
    wanted = _keys(some.images)
    alike = set(wanted) & set(offered) - {0}  # an empty file is no image
    candidates = [row for row, key in enumerate(offered) if key in alike]
    read = candidates[:: 1 + len(candidates) // MOST_READ]
    known = {_digest(others.images, row) for row in read} - {None}
    found = sum(_digest(some.images, row) in known for row, key in enumerate(wanted) if key in alike)
    if found:
        least = "at least " if len(read) < len(candidates) else ""
        looked = " that were looked at" if len(some) < len(images) else ""
        how.say(
            f"Warning: {least}{found:,} of {len(some):,} {CALLED[asked]}{looked} also found among the "
            f"{CALLED[known_as]}, byte by byte, {THEREFORE[asked, known_as]}; remove them from {known_as} or {asked}."
        )
    return {f"{asked}_images_compared": len(some), f"{asked}_images_in_{known_as}": found}


def _keys(images: Tensor | Photos) -> list[int]:
    """What copies have in common and others seldom do: the size of a file, the sum of an array's pixels."""
    if isinstance(images, Photos):
        return images.stats[:, 0].clip(0).tolist()  # one that is gone passes for empty; evaluation itself will say so
    parts = images.split(max(1, MOST_BYTES // max(1, images[:1].nbytes)))
    return [1 + key for part in parts for key in part.flatten(1).sum(1, dtype=torch.int64).tolist()]


def _digest(images: Tensor | Photos, row: int) -> bytes | None:
    try:
        content = images.read(row) if isinstance(images, Photos) else images[row].contiguous().numpy().data
    except OSError:
        return None
    return hashlib.blake2b(content, digest_size=16).digest()
