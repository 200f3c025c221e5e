"""What is a data set here? Images of one size in memory as uint8, with labels that only evaluation reads."""

from dataclasses import dataclass

import torch
from jaxtyping import Int, UInt8
from torch import Tensor

STATISTICS_FROM = 10_000  # images are enough for channel means to three digits


@dataclass(frozen=True)
class Split:
    """Images and, where there are any, their labels."""

    images: UInt8[Tensor, "N C H W"]
    labels: Int[Tensor, " N"] | None = None

    def __len__(self) -> int:
        return len(self.images)

    def thinned(self, most: int) -> "Split":
        """At most so many images, evenly spread: sets are often sorted by class."""
        if len(self) <= most:
            return self
        return self[torch.arange(most) * len(self) // most]

    def __getitem__(self, rows: Tensor) -> "Split":
        return Split(self.images[rows], None if self.labels is None else self.labels[rows])


@dataclass(frozen=True)
class ImageSet:
    """A named data set: what is trained on, and what is held out (if anything)."""

    name: str
    train: Split
    test: Split | None = None
    classes: tuple[str, ...] = ()

    @property
    def channels(self) -> int:
        """Channels of an image: 3 for RGB."""
        return self.train.images.shape[1]

    def statistics(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """Mean and standard deviation of each channel of the training images, on a scale from 0 to 1."""
        sample = self.train.thinned(STATISTICS_FROM).images.transpose(0, 1).flatten(1).float() / 255
        spread = sample.std(dim=1).clamp_min(1 / 255)  # a constant channel must not divide by zero
        return tuple(sample.mean(dim=1).tolist()), tuple(spread.tolist())

    def for_knn(self) -> tuple[Split, Split] | None:
        """(bank, queries) for nearest neighbours: train and test, or a tenth of train held out of the bank."""
        if self.train.labels is None:
            return None
        bank = self.train[self.train.labels >= 0]  # STL-10 marks what has no label by -1
        if len(bank) < 2:
            return None
        if self.test is not None and self.test.labels is not None:
            return bank, self.test[self.test.labels >= 0]
        held_out = torch.arange(len(bank)) % 10 == 0
        return bank[~held_out], bank[held_out]
