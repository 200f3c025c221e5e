"""What is a data set here? Images, in memory or as files, with labels that only evaluation reads."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Int, Int64, UInt8
from torch import Tensor

from ..errors import UserError
from .files import Chained, Files, Stamp, stamps_of

VALIDATION = "validation images"
"""What training is watched with, where there are any beside a test."""
CALLED = {"train": "training images", "val": VALIDATION, "test": "test images"}
"""What the images of a split are called."""


@dataclass(frozen=True)
class Photos(Files):
    """Encoded RGB images of various sizes: rows of `files`, decoded when they are needed."""

    files: Files
    rows: Int[np.ndarray, " N"]

    @classmethod
    def all(cls, files: Files) -> "Photos":
        """Every file."""
        return cls(files, np.arange(len(files)))

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, rows: Tensor) -> "Photos":
        return Photos(self.files, self.rows[rows.numpy()])

    def name(self, i: int) -> str:
        """What to call image i in a message."""
        return self.files.name(int(self.rows[i]))

    def read(self, i: int) -> bytes:
        """The encoded image i."""
        return self.files.read(int(self.rows[i]))

    def stamp(self, i: int) -> Stamp:
        """What tells, without reading it, that image i was written anew."""
        return self.files.stamp(int(self.rows[i]))

    @cached_property
    def stamps(self) -> Int64[np.ndarray, "N 3"]:
        """The stamps of all images, asked for once, since that takes long on a network's disk; -1: it is gone."""
        return stamps_of(self.files, self.rows)

    def forget_stamps(self) -> None:
        """Ask for them again when they are needed: files may have been written anew."""
        vars(self).pop("stamps", None)

    def __getstate__(self) -> dict[str, Any]:
        """What is sent to worker processes, who need no stamps."""
        return {"files": self.files, "rows": self.rows}


@dataclass(frozen=True)
class Split:
    """Images and, where there are any, their labels."""

    images: UInt8[Tensor, "N C H W"] | Photos
    labels: Int[Tensor, " N"] | None = None

    def __len__(self) -> int:
        return len(self.images)

    @property
    def channels(self) -> int:
        """Channels of an image: 3 for RGB, as photographs always become."""
        return 3 if isinstance(self.images, Photos) else self.images.shape[1]

    @property
    def array(self) -> UInt8[Tensor, "N C H W"]:
        """The images as one tensor, which photographs become by `squared`."""
        if isinstance(self.images, Photos):
            raise TypeError("photographs of various sizes are no array; use `squared` first")
        return self.images

    @property
    def has_labels(self) -> bool:
        """Whether any image has a label; -1 marks those that have none, or one of a class that train lacks."""
        return self.labels is not None and bool((self.labels >= 0).any())

    def joined(self, other: "Split") -> "Split":
        """The images of both, all with labels or none."""
        mine, theirs = self.images, other.images
        if isinstance(mine, Photos) and isinstance(theirs, Photos):
            images = Photos.all(Chained(mine, theirs))
        else:
            if self.array.shape[1:] != other.array.shape[1:]:
                sizes = " and ".join(f"{split.array.shape[3]} x {split.array.shape[2]}" for split in (self, other))
                raise UserError(f"Images to train on and to choose by are {sizes} pixels; give both the same size.")
            images = torch.cat([self.array, other.array])
        labels = None if self.labels is None or other.labels is None else torch.cat([self.labels, other.labels])
        return Split(images, labels)

    def thinned(self, most: int) -> "Split":
        """At most so many images, evenly spread: sets are often sorted by class."""
        return self if len(self) <= most else self[evenly(len(self), most)]

    def __getitem__(self, rows: Tensor) -> "Split":
        rows = rows.nonzero().squeeze(1) if rows.dtype == torch.bool else rows
        return Split(self.images[rows], None if self.labels is None else self.labels[rows])


def evenly(n: int, most: int) -> Int[Tensor, " rows"]:
    """At most so many of n rows, evenly spread."""
    few = min(n, most)
    return torch.arange(few) * n // max(few, 1)


@dataclass(frozen=True)
class Rows:
    """Some images of a split, in its order; they are copied when they are taken, since a split may be large."""

    split: Split
    rows: Int[Tensor, " n"]

    def __len__(self) -> int:
        return len(self.rows)

    def thinned(self, most: int) -> "Rows":
        """At most so many of them, evenly spread."""
        return Rows(self.split, self.rows[evenly(len(self), most)])

    def taken(self) -> Split:
        """These images alone."""
        return self.split if len(self) == len(self.split) else self.split[self.rows]


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
    """Which images of train a published set's authors chose by, where they say so."""
    source: str | None = None
    """The name or path that it was loaded from."""
    root: str | None = None
    """The folder that it was loaded from, or that the file lies in."""
    says: tuple[str, ...] = ()
    """Sentences about what lies there and is left out."""
    why_unlabelled: str = ""
    """Of labels of train that lie there and are not read, why: sentences that `says` has, too."""
    labelled_by_folders: bool = False
    """Whether folders that somebody made for any purpose were taken for classes."""
    test_is: str | None = None
    """What the images that are tested on are called where they lie: val, where no test (with labels) is beside it."""

    @property
    def channels(self) -> int:
        """Channels of an image: 3 for RGB."""
        return self.train.channels

    @property
    def watched(self) -> tuple[str, Split] | None:
        """What training is watched with, and what to call it: validation images, so that nobody chooses on a test."""
        for name, split in ((VALIDATION, self.val), ("held-out images", self.test)):
            if split is not None and split.has_labels:
                return name, split
        return None

    def for_knn(self) -> tuple[Rows, Rows] | None:
        """(bank, queries) for nearest neighbours: train and what is watched, or a tenth of train out of the bank."""
        if self.train.labels is None:
            return None
        bank = (self.train.labels >= 0).nonzero()[:, 0]  # STL-10 marks what has no label by -1
        if len(bank) < 2:
            return None
        if self.watched is not None:
            queries = self.watched[1]
            assert queries.labels is not None
            return Rows(self.train, bank), Rows(queries, (queries.labels >= 0).nonzero()[:, 0])
        held_out = torch.arange(len(bank)) % 10 == 0
        return Rows(self.train, bank[~held_out]), Rows(self.train, bank[held_out])
