"""Which images test, and which choose? The official test split where there is one, and a part of train for choosing."""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from ..errors import UserError
from ..hardware import exact_device
from ..probes import Labelled, stratified_split
from ..randomness import stream
from .chance import Guesswork, chance_of

TEST_SHARE, VAL_SHARE = 0.2, 0.2


class Rows(NamedTuple):
    """Rows of the training images: to learn from, to choose by, and to test on where there is no other test."""

    train: Int[Tensor, " train"]
    val: Int[Tensor, " val"]
    test: Int[Tensor, " test"]

    @property
    def known(self) -> Int[Tensor, " known"]:
        """What the last classifier learns from: all but the test."""
        return torch.cat([self.train, self.val]).sort().values


class Parts(NamedTuple):
    """Features to learn from, to choose by, and to test on."""

    train: Labelled
    val: Labelled
    test: Labelled
    official_test: bool
    official_val: bool
    rows: Rows

    @property
    def n_classes(self) -> int:
        """How many classes there are to learn."""
        return int(max(self.train.labels.max(), self.val.labels.max())) + 1

    @property
    def counts(self) -> dict[str, int | bool]:
        """How many images there are, and who chose those to test on and to choose by; these train, too, in the end."""
        return {
            "official_test": self.official_test,
            "official_val": self.official_val,
            "val_images": len(self.val.labels),
            "train_images": len(self.train.labels) + len(self.val.labels),
            "test_images": len(self.test.labels),
            "classes": self.n_classes,
        }

    def chance(self, *, per_class: bool = False) -> Guesswork:
        """What guessing gives, of what is known once a rate or weight is chosen."""
        return chance_of(self.test.labels, torch.cat([self.train.labels, self.val.labels]), per_class=per_class)

    def to(self, device: torch.device) -> "Parts":
        """All of it on a device, where it has the float64 that probes and figures need, else on the CPU."""
        device = exact_device(device)
        train, val, test = (Labelled(part.features.to(device), part.labels.to(device)) for part in self[:3])
        return self._replace(train=train, val=val, test=test)


def part(
    train: Labelled,
    test: Labelled | None,
    seed: int,
    name: str = "this data set",
    val: Bool[Tensor, " N"] | None = None,
) -> Parts:
    """Part a data set; what is random follows from the seed. `val` are rows to choose by beside an official test."""
    if test is not None and len(test.labels) == 0:
        raise UserError(f"None of the test images of {name} can be read; look at the files.")
    official_val = test is not None and val is not None and bool(val.any() and not val.all())
    if official_val:
        assert val is not None
        rows = Rows((~val).nonzero()[:, 0], val.nonzero()[:, 0], torch.arange(0))
    else:
        rows = part_rows(train.labels, test is not None, seed, name)
    tested = _rows(train, rows.test) if test is None else test
    return Parts(_rows(train, rows.train), _rows(train, rows.val), tested, test is not None, official_val, rows)


def part_rows(labels: Int[Tensor, " N"], official_test: bool, seed: int, name: str) -> Rows:
    """Rows of each part; a data set too small to have an image in each is refused."""
    test, known = torch.arange(0), torch.arange(len(labels))
    if not official_test:
        known, test = rows_to_test(labels, seed, name)
    rows = stratified_split(labels[known], VAL_SHARE, stream(seed, "validation split"))
    if len(rows.val) == 0 and official_test:
        raise UserError(f"No class of {name} has 2 images to train on, so none is left to choose by; give more images.")
    if len(rows.val) == 0:
        raise UserError(
            f"No class of {name} has 3 images, one each to train on, to choose by and to test on; give more images, or "
            "a test split."
        )
    return Rows(known[rows.train], known[rows.val], test)


def rows_to_test(labels: Int[Tensor, " N"], seed: int, name: str) -> tuple[Int[Tensor, " known"], Int[Tensor, " test"]]:
    """Rows to know and rows to test on, of a data set without a test split."""
    rows = stratified_split(labels, TEST_SHARE, stream(seed, "test split"))
    if len(rows.val) == 0:
        raise UserError(f"No class of {name} has 2 images, so none is left to test on; give more, or a test split.")
    return rows.train, rows.val


def _rows(data: Labelled, rows: Int[Tensor, " n"]) -> Labelled:
    return Labelled(data.features[rows], data.labels[rows])
