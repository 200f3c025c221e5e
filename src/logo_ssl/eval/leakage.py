"""Leakage: are test images among those that train or choose? A look at some of them, cheap enough to take each time."""

import hashlib
from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from ..data import Photos, Split
from ..data.images import CALLED

LOOKED_AT = 1_000  # images that are looked for, evenly spread
MOST_KNOWN = 200_000
"""Images to look among: to ask a disk for the sizes of more would take longer than some evaluations."""
MOST_READ = 4_000  # of these, whose bytes are compared
MOST_BYTES = 2**26  # of an array at a time


def count_copies(
    train: Split, test: Split | None, val: Split | None = None, *, say: Callable[[str], None] = lambda sentence: None
) -> dict[str, int]:
    """How many of the test images that were looked at are training images, byte by byte; a warning if any is.

    Validation images choose and train as well: if given, these are looked among and looked for.
    """
    if test is None:
        return {}
    if val is None:
        return _count_among("train", train, {"test": test}, say)
    found = _count_among("train", train, {"test": test, "val": val}, say)
    return found | _count_among("val", val, {"test": test}, say)


def _count_among(
    known_as: str, known: Split, splits: Mapping[str, Split], say: Callable[[str], None]
) -> dict[str, int]:
    """Look for images of some splits among those of another, whose keys are asked for once."""
    if len(known) > MOST_KNOWN:
        return {}
    offered, counts = _keys(known.images), dict[str, int]()
    for name, split in splits.items():
        if isinstance(split.images, Photos) != isinstance(known.images, Photos):
            continue
        some = split.thinned(LOOKED_AT)
        wanted = _keys(some.images)
        alike = set(wanted) & set(offered) - {0}  # an empty file is not an image
        candidates = [row for row, key in enumerate(offered) if key in alike]
        read = candidates[:: 1 + len(candidates) // MOST_READ]
        digests = {_digest(known.images, row) for row in read} - {None}
        found = sum(_digest(some.images, row) in digests for row, key in enumerate(wanted) if key in alike)
        if found:
            least = "at least " if len(read) < len(candidates) else ""
            say(
                f"Warning: {least}{found:,} of {len(some):,} {CALLED[name]} are also among the {CALLED[known_as]}, so "
                f"figures are too good; remove them from {known_as} or {name}."
            )
        counts |= {f"{name}_images_compared": len(some), f"{name}_images_in_{known_as}": found}
    return counts


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
