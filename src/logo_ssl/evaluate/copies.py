"""Are test images among the training images? A look at some of them, cheap enough to be taken each time."""

import hashlib

import torch
from torch import Tensor

from ..data import Photos, Split
from ..terminal import are, them
from .how import Extraction

LOOKED_AT = 1_000  # test images, evenly spread
MOST_TRAIN = 200_000  # training images: to ask a disk for the sizes of more would take longer than some evaluations
MOST_READ = 4_000  # training images whose bytes are compared
MOST_BYTES = 2**26  # of an array at a time


def copies(train: Split, test: Split | None, how: Extraction) -> dict[str, int]:
    """How many of the test images that were looked at are training images, byte by byte; said where any is."""
    if test is None or len(train) > MOST_TRAIN or isinstance(train.images, Photos) != isinstance(test.images, Photos):
        return {}
    some = test.thinned(LOOKED_AT)
    wanted, offered = _keys(some.images), _keys(train.images)
    alike = set(wanted) & set(offered) - {0}  # an empty file is no image
    candidates = [row for row, key in enumerate(offered) if key in alike]
    read = candidates[:: 1 + len(candidates) // MOST_READ]
    known = {_digest(train.images, row) for row in read} - {None}
    found = sum(_digest(some.images, row) in known for row, key in enumerate(wanted) if key in alike)
    if found:
        least = "at least " if len(read) < len(candidates) else ""
        looked = " that were looked at" if len(some) < len(test) else ""
        how.say(
            f"Warning: {least}{found:,} of {len(some):,} test images{looked} {are(found)} among the "
            f"training images, byte by byte, and the figures are too good; take {them(found)} out of train or test."
        )
    return {"test_images_compared": len(some), "test_images_in_train": found}


def _keys(images: Tensor | Photos) -> list[int]:
    """What copies have in common and others seldom do: the size of a file, the sum of an array's pixels."""
    if isinstance(images, Photos):
        return [_size(images, row) for row in range(len(images))]
    parts = images.split(max(1, MOST_BYTES // max(1, images[:1].nbytes)))
    return [1 + key for part in parts for key in part.flatten(1).sum(1, dtype=torch.int64).tolist()]


def _size(photos: Photos, row: int) -> int:
    try:
        return photos.stamp(row).size
    except OSError:  # gone; evaluation itself will say so
        return 0


def _digest(images: Tensor | Photos, row: int) -> bytes | None:
    try:
        content = images.read(row) if isinstance(images, Photos) else images[row].contiguous().numpy().data
    except OSError:
        return None
    return hashlib.blake2b(content, digest_size=16).digest()
