"""Which images are these? Hashes of what is in them, equal on every machine, and stamps that change when files do."""

import hashlib
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import torch
from torch import Tensor

from .files import AT_A_TIME, GONE, THREADS, Stamp
from .images import ImageSet, Photos, Split

FILES_READ = 64  # evenly spread: files of equal names and sizes may differ in what they hold
SEEN_OF_NAME = 2  # parts of a path, the class and the file, below the folder of all: where that lies may change


def images_told(data: ImageSet) -> dict[str, Any]:
    """What a run notes of its images when it begins: how many there are, and a fingerprint of each split."""
    return {
        "train_images": len(data.train),
        "val_images": _labelled(data.val),
        "test_images": _labelled(data.test),
        "fingerprint": fingerprints(data),
    }


def _labelled(split: Split | None) -> int:
    return 0 if split is None or not split.has_labels else len(split)


def fingerprints(data: ImageSet) -> dict[str, str]:
    """A fingerprint of each split."""
    splits = {"train": data.train, "val": data.val, "test": data.test}
    return {part: data_fingerprint(split.images) for part, split in splits.items() if split is not None}


def data_fingerprint(images: Tensor | Photos) -> str:
    """sha256 over the bytes of an array; over names and sizes of all photographs, and the bytes of some.

    It is the same on every machine; whether any file was written anew, `data_stamp` tells. Both go by the stamps that
    photographs have, if they have been asked for before.
    """
    if isinstance(images, Tensor):
        digest = hashlib.sha256(f"{images.dtype} {tuple(images.shape)} ".encode())
        for part in images.split(max(1, 2**26 // max(1, images[:1].nbytes))):  # a view may need a copy: bounded
            digest.update(part.cpu().contiguous().view(torch.uint8).numpy().data)
        return digest.hexdigest()
    read = set(np.linspace(0, len(images) - 1, FILES_READ).astype(int).tolist())
    above = folder_of_all(images)

    def told(row: int, stamp: Stamp) -> bytes:
        name = name_below(above, images.name(row)).encode(errors="surrogateescape")
        return b"%b\n%d\n%b" % (name, stamp.size, images.read(row) if row in read else b"")

    return _over_files(images, told)


def data_stamp(images: Tensor | Photos) -> str:
    """sha256 over path and stamp of every file, none of them read; empty for an array, whose bytes are known."""
    if isinstance(images, Tensor):
        return ""

    def told(row: int, stamp: Stamp) -> bytes:
        return f"{images.name(row)}\n{tuple(stamp)}\n".encode(errors="surrogateescape")

    return _over_files(images, told)


def name_below(above: str, name: str) -> str:
    """What counts of a name: its last parts, below the folder of all."""
    parts = name[len(above) :].replace(os.sep, "/").rsplit("/", SEEN_OF_NAME)
    return "/".join(parts[-SEEN_OF_NAME:])


def folder_of_all(photos: Photos) -> str:
    """What all names begin with, up to a folder's end."""
    first, last = (of(map(photos.name, range(len(photos))), default="") for of in (min, max))
    shared = os.path.commonprefix([first, last])  # noqa: RUF071 (whole and relative paths may stand in one list)
    return shared[: shared.rfind(os.sep) + 1]


def _over_files(photos: Photos, told: Callable[[int, Stamp], bytes]) -> str:
    stamps = photos.stamps  # before threads ask for them

    def some(first: int) -> bytes:
        found = enumerate(map(Stamp._make, stamps[first : first + AT_A_TIME].tolist()), first)
        return b"".join(_told_or_gone(told, row, stamp) for row, stamp in found)

    digest = hashlib.sha256(f"{len(photos)} files\n".encode())
    with ThreadPoolExecutor(THREADS) as pool:
        for text in pool.map(some, range(0, len(photos), AT_A_TIME)):
            digest.update(text)
    return digest.hexdigest()


def _told_or_gone(told: Callable[[int, Stamp], bytes], row: int, stamp: Stamp) -> bytes:
    try:
        return b"unreadable\n" if stamp == GONE else told(row, stamp)
    except OSError:  # gone or unreadable; whoever reads it will say so
        return b"unreadable\n"
