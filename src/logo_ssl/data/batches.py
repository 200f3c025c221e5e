"""In which order are images seen? In one that follows from (seed, epoch) alone."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any, TypeVar

import torch

from ..randomness import stream
from ..types import ImageBatch
from .feed import Feed

Waiting = Callable[[], AbstractContextManager[Any]]
"""What to be in while a batch is waited for."""
Batch = TypeVar("Batch")


class Batches:
    """The batches of one epoch; a last, smaller one is left out unless it is to be kept.

    The first epoch may begin after `done` of them. Of several processes, each gets its slice of every batch: `part` is
    its number and that of all. Each batch is waited for inside `waiting`.
    """

    def __init__(
        self,
        feed: Feed,
        n_images: int,
        batch_size: int,
        seed: int,
        done: int = 0,
        keeps_last: bool = False,
        part: tuple[int, int] = (0, 1),
        waiting: Waiting = nullcontext,
    ) -> None:
        self.feed, self.n_images, self.seed, self.epoch = feed, n_images, seed, 0
        self.done, self.keeps_last, self.waiting = done, keeps_last, waiting
        self.number, self.parts = part
        self.batch_size = min(batch_size, n_images)
        self.sampler = self  # where Lightning looks for `set_epoch`

    def set_epoch(self, epoch: int) -> None:
        """Say which epoch comes next."""
        self.epoch = epoch

    def __len__(self) -> int:
        return (self.n_images + (self.batch_size - 1) * self.keeps_last) // self.batch_size

    def __iter__(self) -> Iterator[ImageBatch]:
        # A generator: Lightning asks for an iterator first and says which epoch it is for afterwards.
        order = torch.randperm(self.n_images, generator=stream(self.seed, "order", self.epoch))
        done, self.done = self.done, 0
        batches = order[: len(self) * self.batch_size].split(self.batch_size)[done:]
        own = self.feed.batches([batch.chunk(self.parts)[self.number] for batch in batches])
        yield from waited_for(own, self.waiting)


def waited_for(batches: Iterable[Batch], waiting: Waiting) -> Iterator[Batch]:
    """The same batches, each waited for inside `waiting`."""
    others = iter(batches)
    while True:
        with waiting():
            batch = next(others, None)
        if batch is None:
            return
        yield batch
