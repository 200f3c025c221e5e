"""Data sets: images in memory or in files, splits with labels that only evaluation reads, and fingerprints."""

import hashlib
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Int, Int64, Shaped, UInt8
from torch import Tensor

HELD_OUT = ("test", "val", "valid", "validation")
"""Names of splits that are not trained on, the preferred one to test on first."""
VALIDATION = "validation images"
"""What training is watched with, where there are any beside a test."""
CALLED = {"train": "training images", "val": VALIDATION, "test": "test images"}
"""What the images of a split are called."""
AT_A_TIME, THREADS = 1024, 16  # files that a disk is asked about: a network's answers many at once
FILES_READ = 64  # for a fingerprint, evenly spread: files of equal names and sizes may differ in what they hold
PARTS_OF_NAME = 2  # of a path in a fingerprint, the class and the file: the folder of all may be moved


@dataclass(frozen=True)
class Photos:
    """Encoded RGB images of various sizes: whole files, or members of tar shards; decoded when they are needed.

    Names are bytes of one array, which worker processes share. A `str` counts who holds it, so a forked process that
    looks at one copies its page: with a million, all of them.
    """

    files: Shaped[np.ndarray, " F"]
    """Paths."""
    spans: Int64[np.ndarray, "N 3"]
    """Of each image the number of its file, the first of its bytes there, and how many there are; -1: all."""
    members: Shaped[np.ndarray, " N"]
    """What each is called inside its file; empty if it is the file."""

    @classmethod
    def from_paths(cls, paths: Iterable[str | Path]) -> "Photos":
        """Each image in a file of its own."""
        files = names_array(paths)
        spans = np.stack([np.arange(len(files)), np.zeros_like(files, np.int64), np.full(len(files), -1)], axis=1)
        return cls(files, spans, np.zeros_like(files, "S1"))

    def __len__(self) -> int:
        return len(self.spans)

    def __getitem__(self, rows: Tensor) -> "Photos":
        return Photos(self.files, self.spans[rows.numpy()], self.members[rows.numpy()])

    def joined(self, other: "Photos") -> "Photos":
        """These, and behind them others."""
        files = np.concatenate([self.files, other.files])
        spans = np.concatenate([self.spans, other.spans + np.array([len(self.files), 0, 0])])
        return Photos(files, spans, np.concatenate([self.members, other.members]))

    def path(self, i: int) -> str:
        """The file that number i is in."""
        return os.fsdecode(self.files.item(self.spans.item(i, 0)))

    def name(self, i: int) -> str:
        """What to call number i in a message."""
        member = self.members[i]
        return f"{self.path(i)}:{os.fsdecode(member)}" if member else self.path(i)

    def read(self, i: int) -> bytes:
        """The bytes of number i; OSError if they cannot be read."""
        _, start, size = self.spans[i].tolist()
        with open(self.path(i), "rb") as file:
            file.seek(start)
            data = file.read(size)
        if len(data) < size:
            raise OSError(f"the shard ends after {len(data)} of {size} bytes")
        return data

    @cached_property
    def stats(self) -> Int64[np.ndarray, "N 2"]:
        """Size of all images and when they were written (nanoseconds), asked for once; -1: it is gone.

        That takes long on a network's disk.
        """
        stats = np.full((len(self), 2), -1, np.int64)

        def ask(first: int) -> None:
            for row in range(first, min(first + AT_A_TIME, len(self))):
                with suppress(OSError):
                    status, size = os.stat(self.path(row)), self.spans[row, 2]
                    stats[row] = status.st_size if size < 0 else size, status.st_mtime_ns

        with ThreadPoolExecutor(THREADS) as pool:
            list(pool.map(ask, range(0, len(self), AT_A_TIME)))
        return stats


def names_array(names: Iterable[str | Path]) -> Shaped[np.ndarray, " N"]:
    """Names as bytes of one object."""
    return np.array([os.fsencode(name) for name in names], np.bytes_)


@dataclass(frozen=True)
class Split:
    """Images and, where there are any, their labels."""

    images: UInt8[Tensor, "N C H W"] | Photos
    labels: Int[Tensor, " N"] | None = None

    @classmethod
    def from_paths(cls, paths: Iterable[str]) -> "Split":
        """The images at these paths."""
        return cls(Photos.from_paths(paths))

    @classmethod
    def from_rows(cls, rows: Sequence[tuple[str, str | None]], classes: Sequence[str]) -> "Split":
        """The images at the paths of these rows, labelled by the names of their classes."""
        return cls(Photos.from_paths(path for path, _ in rows), numbers_of((name for _, name in rows), classes))

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, rows: Tensor) -> "Split":
        rows = rows.nonzero().squeeze(1) if rows.dtype == torch.bool else rows
        return Split(self.images[rows], None if self.labels is None else self.labels[rows])

    @property
    def channels(self) -> int:
        """Channels of an image: 3 for RGB, as photographs always become."""
        return 3 if isinstance(self.images, Photos) else self.images.shape[1]

    @property
    def array(self) -> UInt8[Tensor, "N C H W"]:
        """The images as one tensor, which photographs become by `squared`."""
        if isinstance(self.images, Photos):
            raise TypeError("photographs of various sizes are not an array; use `squared` first")
        return self.images

    @property
    def has_labels(self) -> bool:
        """Whether any image has a label; -1 marks those that have none, or one of a class that train lacks."""
        return self.labels is not None and bool((self.labels >= 0).any())

    def joined(self, other: "Split") -> "Split":
        """The images of both, all with labels or none."""
        mine, theirs = self.images, other.images
        if isinstance(mine, Photos) and isinstance(theirs, Photos):
            images = mine.joined(theirs)
        else:
            images = torch.cat([self.array, other.array])
        labels = None if self.labels is None or other.labels is None else torch.cat([self.labels, other.labels])
        return Split(images, labels)

    def taken(self, rows: Int[Tensor, " n"], most: int) -> "Split":
        """At most so many of these rows, evenly spread: sets are often sorted by class. All are not copied."""
        rows = rows[evenly(len(rows), most)]
        return self if len(rows) == len(self) else self[rows]

    def thinned(self, most: int) -> "Split":
        """At most so many images, evenly spread."""
        return self.taken(torch.arange(len(self)), most)


def evenly(n: int, most: int) -> Int[Tensor, " rows"]:
    """At most so many of n rows, evenly spread."""
    few = min(n, most)
    return torch.arange(few) * n // max(few, 1)


@dataclass(frozen=True)
class ImageSet:
    """A named data set: what is trained on, and what is held out (if anything)."""

    name: str
    train: Split
    test: Split | None = None
    classes: tuple[str, ...] = ()
    val: Split | None = None
    """What settings are chosen by and training is watched with, beside a test."""
    val_in_train: Bool[Tensor, " N"] | None = None
    """Which images of train a published set's authors chose by, if they tell."""
    source: str | None = None
    """The name or path that it was loaded from."""
    root: str | None = None
    """The folder that it was loaded from, or that the file is in."""
    says: tuple[str, ...] = ()
    """Sentences about what is left out."""

    @property
    def channels(self) -> int:
        """Channels of an image: 3 for RGB."""
        return self.train.channels

    @property
    def splits(self) -> dict[str, Split]:
        """Those that there are, by name."""
        named = {"train": self.train, "val": self.val, "test": self.test}
        return {name: split for name, split in named.items() if split is not None}

    @property
    def watched(self) -> tuple[str, Split] | None:
        """What training is watched with, and what to call it: validation images, so that nobody chooses on a test."""
        for name, split in ((VALIDATION, self.val), ("held-out images", self.test)):
            if split is not None and split.has_labels:
                return name, split
        return None

    def for_knn(self, most: int = sys.maxsize) -> tuple[Split, Split, int] | None:
        """Bank and queries for nearest neighbours, at most so many images each, and of how many the bank was taken.

        They are of train and of what is watched; without that, a tenth of train is held out of the bank.
        """
        if self.train.labels is None:
            return None
        bank = (self.train.labels >= 0).nonzero()[:, 0]  # STL-10 marks what has no label by -1
        if len(bank) < 2:
            return None
        if self.watched is not None:
            asked = self.watched[1]
            assert asked.labels is not None
            queries = (asked.labels >= 0).nonzero()[:, 0]
        else:
            held_out = torch.arange(len(bank)) % 10 == 0
            asked, bank, queries = self.train, bank[~held_out], bank[held_out]
        return self.train.taken(bank, most), asked.taken(queries, most), len(bank)


def test_and_val(held_out: Mapping[str, Split]) -> tuple[Split | None, Split | None]:
    """Which of the splits that are not trained on is tested on, and which chosen by.

    Labelled ones first: ImageNet's val/ has labels, its test/ has none. Beside a test, the next one is to choose by.
    """
    ranked = sorted(held_out, key=lambda name: (not held_out[name].has_labels, HELD_OUT.index(name)))
    splits = [held_out[name] for name in ranked]
    return next(iter(splits), None), splits[1] if len(splits) > 1 and ranked[0] == HELD_OUT[0] else None


def classes_of(names: Iterable[str | None]) -> tuple[str, ...]:
    """The classes among these names, in order (numbers by value)."""
    classes = sorted({name for name in names if name is not None})
    if all(name.isdecimal() for name in classes):
        classes.sort(key=int)
    return tuple(classes)


def numbers_of(names: Iterable[str | None], classes: Sequence[str]) -> Int64[Tensor, " N"] | None:
    """Each name's place among the classes, -1 if it is not one of them.

    None if no image has a name, or if there is one class only, which tells nothing.
    """
    given, place = list(names), {name: i for i, name in enumerate(classes)}
    if len(classes) < 2 or all(name is None for name in given):
        return None
    return torch.tensor([-1 if name is None else place.get(name, -1) for name in given], dtype=torch.int64)


def data_identity(data: ImageSet) -> dict[str, Any]:
    """What a run notes of its images: how many there are to train on and, with labels, held out; fingerprints."""
    counts = {
        f"{part}_images": len(split) for part, split in data.splits.items() if part == "train" or split.has_labels
    }
    return {"train_images": 0, "val_images": 0, "test_images": 0} | counts | {"fingerprint": fingerprints(data)}


def fingerprints(data: ImageSet) -> dict[str, str]:
    """A fingerprint of each split."""
    return {part: fingerprint(split.images) for part, split in data.splits.items()}


def fingerprint(images: Tensor | Photos) -> str:
    """sha256, equal on every machine: over all bytes of an array; over names and sizes of all files, and some bytes."""
    if isinstance(images, Tensor):
        digest = hashlib.sha256(f"{images.dtype} {tuple(images.shape)} ".encode())
        for part in images.split(max(1, 2**26 // max(1, images[:1].nbytes))):  # a view may need a copy: bounded
            digest.update(part.cpu().contiguous().view(torch.uint8).numpy().data)
        return digest.hexdigest()
    digest = hashlib.sha256(f"{len(images)} files\n".encode())
    read = set(np.linspace(0, len(images) - 1, FILES_READ).astype(int).tolist())
    first, last = (of(map(images.name, range(len(images))), default="") for of in (min, max))
    shared = os.path.commonprefix([first, last])  # noqa: RUF071 (whole and relative paths may be in one list)
    above = shared.rfind(os.sep) + 1
    for row, size in enumerate(images.stats[:, 0].tolist()):
        try:
            content = images.read(row) if row in read else b""
        except OSError:  # whoever decodes it will say so
            size, content = -1, b""
        name = "/".join(images.name(row)[above:].replace(os.sep, "/").split("/")[-PARTS_OF_NAME:])
        known = b"%b\n%d\n%b" % (name.encode(errors="surrogateescape"), size, content)
        digest.update(known if size >= 0 else b"unreadable\n")
    return digest.hexdigest()
