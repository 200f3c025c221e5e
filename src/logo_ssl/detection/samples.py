"""Which pictures does a detector see, in which order? By (seed, place) alone: there is no state to lose."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from ..data.workers import fitting_workers
from ..errors import UserError
from ..randomness import stream
from .masks import decoded
from .pictures import Picture, PictureSet
from .recipe import DetectionRecipe

BYTES = 4 * 3 * 640 * 480
"""Of a picture as it is common in these sets."""


class Sample(NamedTuple):
    """A picture, and what torchvision's detectors learn from it."""

    pixels: Float[Tensor, "3 H W"]
    target: dict[str, Tensor]


Read = Sample | UserError
"""A sample, or the sentence why there is none."""


class TrainingPictures(Dataset[Sample]):
    """The pictures in random order, pass after pass, mirrored by chance."""

    def __init__(self, data: PictureSet, recipe: DetectionRecipe, masks: bool) -> None:
        kept = [p for p in data.pictures if recipe.learn_from_empty or (~p.crowd).any()]
        if not kept:
            raise UserError("No training picture has an object that is no crowd; look at the annotations.")
        self.pictures, self.recipe, self.masks = kept, recipe, masks
        self.passed, self.order = -1, torch.empty(0, dtype=torch.int64)

    def __len__(self) -> int:
        return max(self.recipe.iterations, self.recipe.norm_batches) * self.recipe.batch_size

    def __getitem__(self, place: int) -> Sample:
        n_passed, row = divmod(place, len(self.pictures))
        if n_passed != self.passed:
            order = torch.randperm(len(self.pictures), generator=stream(self.recipe.seed, "order", n_passed))
            self.passed, self.order = n_passed, order
        sample = as_sample(self.pictures[int(self.order[row])], self.masks)
        chance = torch.rand(1, generator=stream(self.recipe.seed, "flip", place)).item()
        return mirrored(sample) if self.recipe.flip and chance < 0.5 else sample


class TestPictures(Dataset[Float[Tensor, "3 H W"]]):
    """The pictures, one after the other."""

    __test__ = False  # no test class

    def __init__(self, pictures: Sequence[Picture]) -> None:
        self.pictures = pictures

    def __len__(self) -> int:
        return len(self.pictures)

    def __getitem__(self, row: int) -> Float[Tensor, "3 H W"]:
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


def loader(pictures: Dataset[Any], batch_size: int, workers: int) -> DataLoader[Any]:
    """Batches as plain lists, since pictures differ in size; decoded by `workers` processes (-1: as many as fit)."""
    fitting, pinned = fitting_workers(workers, BYTES), torch.cuda.is_available()
    return DataLoader(Telling(pictures), batch_size, num_workers=fitting, collate_fn=list, pin_memory=pinned)


def whole(batch: Sequence[Any]) -> Sequence[Any]:
    """The batch, unless one of its pictures could not be read."""
    for each in batch:
        if isinstance(each, UserError):
            raise each
    return batch


def pixels_of(picture: Picture) -> Float[Tensor, "3 H W"]:
    """A picture's pixels, from 0 to 1."""
    return torch.from_numpy(picture.pixels()).permute(2, 0, 1).float() / 255


def as_sample(picture: Picture, masks: bool) -> Sample:
    """A picture with all objects but crowds."""
    rows = np.flatnonzero(~picture.crowd)
    target = {"boxes": torch.from_numpy(picture.boxes[rows]), "labels": torch.from_numpy(picture.labels[rows])}
    if masks:
        size = (picture.height, picture.width)
        pixels = [decoded(picture.segmentations[row], *size) for row in rows]
        target["masks"] = torch.from_numpy(np.stack(pixels) if pixels else np.zeros((0, *size), np.uint8))
    return Sample(pixels_of(picture), target)


def mirrored(sample: Sample) -> Sample:
    """Left becomes right, of pixels, boxes and masks."""
    left, top, right, bottom = sample.target["boxes"].unbind(1)
    width = sample.pixels.shape[2]
    target = sample.target | {"boxes": torch.stack((width - right, top, width - left, bottom), 1)}
    if "masks" in target:
        target["masks"] = target["masks"].flip(2)
    return Sample(sample.pixels.flip(2), target)
