"""Which pictures does a detector see, in which order? By (seed, place) alone: there is no state to lose."""

from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from jaxtyping import Bool, Int32, UInt8
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from ..data.loader import Waiting, waited_for
from ..data.workers import fitting_workers, start, stop, worker_options
from ..errors import UserError
from ..randomness import stream
from .pictures import Picture, PictureSet
from .recipe import DetectionRecipe

BYTES, WITH_MASKS = 3 * 640 * 480, 11 * 640 * 480
"""Of a picture as it is common in these sets, and with the masks of eight objects."""


class Sample(NamedTuple):
    """A picture, and what torchvision's detectors learn from it."""

    pixels: UInt8[Tensor, "3 H W"]
    target: dict[str, Tensor]


Read = Sample | UserError
"""A sample, or the sentence why there is none."""


class TrainingPictures(Dataset[Sample]):
    """The pictures in random order, pass after pass, in batches that lie or stand alike, mirrored by chance."""

    def __init__(self, data: PictureSet, recipe: DetectionRecipe, masks: bool) -> None:
        kept = [p for p in data.pictures if recipe.learn_from_empty or (~p.crowd).any()]
        if not kept:
            raise UserError("No training picture has an object that is no crowd; look at the annotations.")
        self.pictures, self.recipe, self.masks = kept, recipe, masks
        lying = np.array([picture.width > picture.height for picture in kept])
        n_batches = max(recipe.iterations, recipe.norm_batches)
        self.rows = batches_alike(lying, recipe.batch_size, n_batches, recipe.seed)

    def __len__(self) -> int:
        return self.rows.size

    def __getitem__(self, place: int) -> Sample:
        sample = as_sample(self.pictures[self.rows.flat[place]], self.masks)
        chance = torch.rand(1, generator=stream(self.recipe.seed, "flip", place)).item()
        return mirrored(sample) if self.recipe.flip and chance < 0.5 else sample


def batches_alike(
    lying: Bool[np.ndarray, " pictures"], batch_size: int, n_batches: int, seed: int
) -> Int32[np.ndarray, "n_batches batch_size"]:
    """Rows of the pictures of each batch.

    Pass after pass in random order, each takes a seat in the next batch of those that lie, or of those that stand; a
    batch goes when it is full.
    """
    waiting = 2 * (batch_size - 1)  # at most, in batches that are not yet full
    n_passes = -(-(n_batches * batch_size + waiting) // len(lying))
    order = np.concatenate(
        [torch.randperm(len(lying), generator=stream(seed, "order", n)).int().numpy() for n in range(n_passes)]
    )
    full = []
    for alike in (lying[order], ~lying[order]):
        seats = np.flatnonzero(alike)
        full.append(seats[: len(seats) // batch_size * batch_size].reshape(-1, batch_size))
    batches = np.concatenate(full)
    return order[batches[np.argsort(batches[:, -1])][:n_batches]]


class TestPictures(Dataset[UInt8[Tensor, "3 H W"]]):
    """The pictures, one after the other."""

    __test__ = False  # no test class

    def __init__(self, pictures: Sequence[Picture]) -> None:
        self.pictures = pictures

    def __len__(self) -> int:
        return len(self.pictures)

    def __getitem__(self, row: int) -> UInt8[Tensor, "3 H W"]:
        return pixels_of(self.pictures[row])


class Telling(Dataset[Any]):
    """Gives a picture, or the sentence why not: raised in a worker process, it would arrive as a traceback."""

    def __init__(self, pictures: Any) -> None:
        self.pictures = pictures

    def __len__(self) -> int:
        return len(self.pictures)

    def __getitem__(self, place: int) -> Any:
        try:
            return self.pictures[place]
        except UserError as error:
            return error


class Batches:
    """The batches of a training from iteration `done` on; of several processes, each gets its slice of every batch.

    Those on one machine, the `sharers`, share its workers, too. Each batch is waited for inside `waiting`.
    """

    def __init__(
        self,
        pictures: TrainingPictures,
        n_batches: int,
        workers: int,
        done: int = 0,
        part: tuple[int, int] = (0, 1),
        sharers: int = 1,
        waiting: Waiting = nullcontext,
    ) -> None:
        self.pictures, self.n_batches, self.waiting = pictures, n_batches, waiting
        self.done, self.part = done, part
        self.workers, self.sharers = max(1, workers // sharers) if workers > 0 else workers, sharers

    def __len__(self) -> int:
        return self.n_batches  # of the whole training: Lightning knows how many are done

    def __iter__(self) -> Iterator[list[Read]]:
        (number, parts), size = self.part, self.pictures.recipe.batch_size
        share = size // parts
        starts = (i * size + number * share for i in range(self.done, self.n_batches))
        fitting = fitting_workers(self.workers, WITH_MASKS if self.pictures.masks else BYTES, self.sharers)
        # worker processes start with the first batch that is asked for: Lightning asks for two iterators, and drops one
        batches = read(self.pictures, [range(start, start + share) for start in starts], fitting)
        yield from waited_for(batches, self.waiting)


def read(pictures: Dataset[Any], places: Sequence[Sequence[int]], workers: int) -> Iterator[list[Any]]:
    """Batches as plain lists, since pictures differ in size, decoded by worker processes."""
    loader = DataLoader(
        Telling(pictures),
        batch_sampler=cast(Any, places),
        collate_fn=list,
        pin_memory=torch.cuda.is_available(),
        **worker_options(workers),
    )
    batches = start(loader)
    try:
        yield from batches
    finally:
        stop(batches)


def whole(batch: Sequence[Any]) -> Sequence[Any]:
    """The batch, unless one of its pictures could not be read."""
    for each in batch:
        if isinstance(each, UserError):
            raise each
    return batch


def pixels_of(picture: Picture) -> UInt8[Tensor, "3 H W"]:
    """A picture's pixels; bytes travel four times as fast as floats."""
    return torch.from_numpy(picture.pixels()).permute(2, 0, 1)


def as_sample(picture: Picture, masks: bool) -> Sample:
    """A picture with all objects but crowds."""
    seen, rows = pixels_of(picture), np.flatnonzero(~picture.crowd)  # which are of the size that masks must have
    target = {"boxes": torch.from_numpy(picture.boxes[rows]), "labels": torch.from_numpy(picture.labels[rows])}
    if masks:
        size = (picture.height, picture.width)
        pixels = [picture.mask(int(row)) for row in rows]
        target["masks"] = torch.from_numpy(np.stack(pixels) if pixels else np.zeros((0, *size), np.uint8))
    return Sample(seen, target)


def mirrored(sample: Sample) -> Sample:
    """Left becomes right, of pixels, boxes and masks."""
    left, top, right, bottom = sample.target["boxes"].unbind(1)
    width = sample.pixels.shape[2]
    target = sample.target | {"boxes": torch.stack((width - right, top, width - left, bottom), 1)}
    if "masks" in target:
        target["masks"] = target["masks"].flip(2)
    return Sample(sample.pixels.flip(2), target)
