"""In which order are images seen? In one that follows from (seed, epoch) alone."""

from collections.abc import Iterator

import torch
from jaxtyping import UInt8
from torch import Tensor

from ..randomness import stream
from ..types import Images


class Batches:
    """The batches of one epoch, gathered on the device where the images live; a last, smaller one is left out."""

    def __init__(self, images: UInt8[Tensor, "N C H W"], batch_size: int, seed: int) -> None:
        self.images, self.seed, self.epoch = images, seed, 0
        self.batch_size = min(batch_size, len(images))
        self.sampler = self  # where Lightning looks for `set_epoch`

    def set_epoch(self, epoch: int) -> None:
        """Say which epoch comes next."""
        self.epoch = epoch

    def __len__(self) -> int:
        return len(self.images) // self.batch_size

    def __iter__(self) -> Iterator[Images]:
        order = torch.randperm(len(self.images), generator=stream(self.seed, "order", self.epoch))
        order = order[: len(self) * self.batch_size].to(self.images.device)
        for rows in order.split(self.batch_size):
            yield self.images[rows]
