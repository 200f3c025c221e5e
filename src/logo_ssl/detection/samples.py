"""What a detector sees: images with their objects as tensors, in which order, mirrored, at which scale.

Order, flips and scales follow from (seed, place) alone, so that there is no state to lose.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import replace
from typing import Any, NamedTuple, cast

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int32, Shaped, UInt8
from torch import Tensor
from torch.utils.data import DataLoader, Dataset
from torchvision.models.detection.image_list import ImageList
from torchvision.models.detection.transform import GeneralizedRCNNTransform

from ..data.loader import Waiting, waited_for
from ..data.workers import fitting_workers, start, stop, worker_options
from ..errors import UserError
from ..randomness import stream
from .config import DetectionRecipe, DetectorConfig
from .data import AnnotatedImage, AnnotatedImages, DetectionData, first_of
from .masks import paste_masks

Progress = Callable[[str, int, int], None]
Say = Callable[[str], None]
Target = dict[str, Tensor]
CHUNK = 16
"""Images that a worker process checks in one go."""
ALONE = 64
"""Images for which a worker process is not worth its start."""
BYTES, WITH_MASKS = 3 * 640 * 480, 11 * 640 * 480
"""Of an image as it is common in these sets, and with the masks of eight objects."""


class Sample(NamedTuple):
    """An image, and what torchvision's detectors learn from it."""

    pixels: UInt8[Tensor, "3 H W"]
    target: dict[str, Tensor]


Read = Sample | UserError
"""A sample, or why there is none."""


class TrainingImages(Dataset[Sample]):
    """The images in random order, pass after pass, in batches of landscape or of portrait, mirrored by chance."""

    def __init__(self, data: AnnotatedImages, recipe: DetectionRecipe, masks: bool) -> None:
        kept = [p for p in data.images if recipe.learn_from_empty or (~p.crowd).any()]
        if not kept:
            raise UserError("No training image has an object other than a crowd.")
        self.images, self.recipe, self.masks = kept, recipe, masks
        landscape = np.array([image.width > image.height for image in kept])
        n_batches = max(recipe.iterations, recipe.norm_batches)
        self.rows = batches_by_orientation(landscape, recipe.batch_size, n_batches, recipe.seed)

    def __len__(self) -> int:
        return self.rows.size

    def __getitem__(self, place: int) -> Sample:
        sample = make_sample(self.images[self.rows.flat[place]], self.masks)
        chance = torch.rand(1, generator=stream(self.recipe.seed, "flip", place)).item()
        return flipped(sample) if self.recipe.flip and chance < 0.5 else sample


def batches_by_orientation(
    landscape: Bool[np.ndarray, " images"], batch_size: int, n_batches: int, seed: int
) -> Int32[np.ndarray, "n_batches batch_size"]:
    """Rows of the images of each batch.

    Pass after pass in random order, each joins the next batch of landscape or of portrait images; a batch goes when it
    is full.
    """
    waiting = 2 * (batch_size - 1)  # at most, in batches that are not yet full
    n_passes = -(-(n_batches * batch_size + waiting) // len(landscape))
    order = np.concatenate(
        [torch.randperm(len(landscape), generator=stream(seed, "order", n)).int().numpy() for n in range(n_passes)]
    )
    full = []
    for alike in (landscape[order], ~landscape[order]):
        seats = np.flatnonzero(alike)
        full.append(seats[: len(seats) // batch_size * batch_size].reshape(-1, batch_size))
    batches = np.concatenate(full)
    return order[batches[np.argsort(batches[:, -1])][:n_batches]]


class TestImages(Dataset[UInt8[Tensor, "3 H W"]]):
    """The images, one after the other."""

    __test__ = False  # no test class

    def __init__(self, images: Sequence[AnnotatedImage]) -> None:
        self.images = images

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, row: int) -> UInt8[Tensor, "3 H W"]:
        return pixels_of(self.images[row])


class ErrorsAsValues(Dataset[Any]):
    """Gives an image, or the error: raised in a worker process, it would arrive as a traceback."""

    def __init__(self, images: Any) -> None:
        self.images = images

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, place: int) -> Any:
        try:
            return self.images[place]
        except UserError as error:
            return error


class ImageChecks(Dataset[None]):
    """Raises an UnusableImage for an image that cannot be used."""

    def __init__(self, images: Sequence[AnnotatedImage], whole: bool, masks: bool) -> None:
        self.images, self.whole, self.masks = images, whole, masks

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, row: int) -> None:
        self.images[row].check(self.whole, self.masks)


def check_images(
    data: DetectionData,
    *,
    masks: bool = False,
    whole: bool = True,
    max_bad: float = 0.0,
    workers: int = 0,
    sharers: int = 1,
    progress: Progress = lambda what, done, total: None,
    say: Say = lambda sentence: None,
) -> DetectionData:
    """The data without the training images that cannot be used, up to a share of `max_bad`; else a UserError.

    A test image that cannot be used is always refused: the figures would be those of another test. Unless `whole`,
    training images are checked by their headers. It runs before a training, so that no image stops that halfway.
    """
    if not 0 <= max_bad <= 1:
        raise UserError(f"max_bad={max_bad}: must be 0 to 1.")
    kept, messages = [], []
    for what, part, allowed, decode in (("training", data.train, max_bad, whole), ("test", data.test, 0.0, True)):
        rows = range(len(part))
        found: list[UserError | None] = []
        chunks = [rows[start : start + CHUNK] for start in rows[::CHUNK]]
        fitting = min(fitting_workers(workers, BYTES, sharers), len(rows) // ALONE)
        for errors in read(ImageChecks(part.images, decode, masks), chunks, fitting):
            found += errors
            progress(f"checking {what} images", len(found), len(rows))
        bad = [str(error) for error in found if error is not None]
        kept.append(tuple(image for image, error in zip(part.images, found, strict=True) if error is None))
        if bad:
            messages.append(f"{len(bad):,} of {len(rows):,} {what} images cannot be used: {first_of(bad, ' ')}")
        if len(bad) > allowed * len(rows) or not kept[-1]:
            share = f" --max-bad (now {max_bad:g}) leaves out up to that share." if what == "training" else ""
            raise UserError(" ".join(messages) + share)
    if not messages:
        return data
    say(f"{messages[0]} These are left out.")
    counts = data.train.counts + Counter({"unusable, left out": len(data.train) - len(kept[0])})
    return data._replace(train=replace(data.train, images=kept[0], counts=counts), official=False)


class Batches:
    """The batches of a training from iteration `done` on; of several processes, each gets its slice of every batch.

    Those on one machine, the `sharers`, share its workers. Each batch is waited for inside `waiting`.
    """

    def __init__(
        self,
        images: TrainingImages,
        n_batches: int,
        workers: int,
        done: int = 0,
        part: tuple[int, int] = (0, 1),
        sharers: int = 1,
        waiting: Waiting = nullcontext,
    ) -> None:
        self.images, self.n_batches, self.waiting = images, n_batches, waiting
        self.done, self.part = done, part
        self.workers, self.sharers = max(1, workers // sharers) if workers > 0 else workers, sharers

    def __len__(self) -> int:
        return self.n_batches  # of the whole training: Lightning knows how many are done

    def __iter__(self) -> Iterator[list[Read]]:
        (number, parts), size = self.part, self.images.recipe.batch_size
        share = size // parts
        starts = (i * size + number * share for i in range(self.done, self.n_batches))
        fitting = fitting_workers(self.workers, WITH_MASKS if self.images.masks else BYTES, self.sharers)
        # worker processes start with the first batch that is asked for: Lightning asks for two iterators, and drops one
        batches = read(self.images, [range(start, start + share) for start in starts], fitting)
        yield from waited_for(batches, self.waiting)


def read(images: Dataset[Any], places: Sequence[Sequence[int]], workers: int) -> Iterator[list[Any]]:
    """Batches as plain lists, since images differ in size, decoded by worker processes."""
    loader = DataLoader(
        ErrorsAsValues(images),
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


def raise_errors(batch: Sequence[Any]) -> Sequence[Any]:
    """The batch, unless one of its images could not be read."""
    for each in batch:
        if isinstance(each, UserError):
            raise each
    return batch


def pixels_of(image: AnnotatedImage) -> UInt8[Tensor, "3 H W"]:
    """An image's pixels; bytes travel four times as fast as floats."""
    return torch.from_numpy(image.pixels()).permute(2, 0, 1)


def make_sample(image: AnnotatedImage, masks: bool) -> Sample:
    """An image with all objects but crowds."""
    seen, rows = pixels_of(image), np.flatnonzero(~image.crowd)  # which are of the size that masks must have
    target = {"boxes": torch.from_numpy(image.boxes[rows]), "labels": torch.from_numpy(image.labels[rows])}
    if masks:
        size = (image.height, image.width)
        pixels = [image.mask(int(row)) for row in rows]
        target["masks"] = torch.from_numpy(np.stack(pixels) if pixels else np.zeros((0, *size), np.uint8))
    return Sample(seen, target)


def flipped(sample: Sample) -> Sample:
    """Left becomes right, of pixels, boxes and masks."""
    left, top, right, bottom = sample.target["boxes"].unbind(1)
    width = sample.pixels.shape[2]
    target = sample.target | {"boxes": torch.stack((width - right, top, width - left, bottom), 1)}
    if "masks" in target:
        target["masks"] = target["masks"].flip(2)
    return Sample(sample.pixels.flip(2), target)


class ImageRandomness:
    """Random numbers of each image by (seed, iteration, place in the whole batch), whichever process has it."""

    def __init__(self) -> None:
        self.begin(0, 0)

    def begin(self, seed: int, iteration: int, first: int = 0) -> None:
        """Set the iteration, and the place of this process's first image in the whole batch."""
        self.seed, self.iteration, self.first = seed, iteration, first

    def of(self, purpose: str, place: int) -> torch.Generator:
        """The stream of an image, on the CPU."""
        return stream(self.seed, purpose, self.iteration, self.first + place)


class DetectionTransform(GeneralizedRCNNTransform):
    """Normalises, resizes and stacks images, and moves their boxes and masks along; brings back what was found.

    Training images draw their scale, test images have one. torchvision would send its mean, its deviation and four
    numbers for each image's boxes to the device one by one, and wait for each.
    """

    mean: Tensor
    std: Tensor

    def __init__(self, config: DetectorConfig, mean: list[float], std: list[float], draws: ImageRandomness) -> None:
        super().__init__(config.test_side, config.longest, mean, std)
        self.config, self.draws = config, draws
        for name, values in (("mean", mean), ("std", std)):
            self.register_buffer(name, torch.tensor(values)[:, None, None], persistent=False)

    def forward(
        self, images: list[Tensor], targets: list[Target] | None = None
    ) -> tuple[ImageList, list[Target] | None]:
        """The images as one tensor, each in its upper left corner, and what is in them."""
        shapes = [self.shape(image.shape[1], image.shape[2], self._side(place)) for place, image in enumerate(images)]
        shown = [self._shown(image, shape) for image, shape in zip(images, shapes, strict=True)]
        if targets is not None:
            pairs = zip(images, targets, shapes, strict=True)
            targets = [_moved(target, image.shape[1:], shape) for image, target, shape in pairs]
        return ImageList(self.batch_images(shown, self.size_divisible), shapes), targets

    def postprocess(
        self,
        result: list[dict[str, Tensor]],
        image_shapes: list[tuple[int, int]],
        original_image_sizes: list[tuple[int, int]],
    ) -> list[dict[str, Tensor]]:
        """Boxes and masks [n 1 H W] of what was found, in pixels of the images that were given."""
        for found, shown, given in zip(result, image_shapes, original_image_sizes, strict=True):
            found["boxes"] = _resized(found["boxes"], shown, given)
            if "masks" in found:
                found["masks"] = paste_masks(found["masks"][:, 0], found["boxes"], *given)[:, None]
        return result

    def shape(self, height: int, width: int, side: int) -> tuple[int, int]:
        """Height and width with that short side, or with the longer one at its limit; whole pixels, rounded."""
        scale = min(side / min(height, width), self.config.longest / max(height, width))
        return max(int(height * scale + 0.5), 1), max(int(width * scale + 0.5), 1)

    def _side(self, place: int) -> int:
        if not self.training:
            return self.config.test_side
        sides = self.config.short_sides
        return sides[int(torch.randint(len(sides), (1,), generator=self.draws.of("side", place)))]

    def _shown(self, image: Shaped[Tensor, "3 H W"], shape: tuple[int, int]) -> Float[Tensor, "3 h w"]:
        pixels = image if image.is_floating_point() else image.float() / 255
        pixels = (pixels - self.mean) / self.std
        shrinks = shape[0] < image.shape[1]
        return F.interpolate(pixels[None], shape, mode="bilinear", align_corners=False, antialias=shrinks)[0]


def _moved(target: Target, before: torch.Size, after: tuple[int, int]) -> Target:
    """Boxes and masks of an image that was resized."""
    moved = target | {"boxes": _resized(target["boxes"], before, after)}
    if "masks" in target:
        moved["masks"] = F.interpolate(target["masks"][:, None].float(), after)[:, 0].byte()
    return moved


def _resized(boxes: Float[Tensor, "n 4"], before: Sequence[int], after: Sequence[int]) -> Float[Tensor, "n 4"]:
    """Boxes of an image whose height and width changed."""
    down, across = (new / old for new, old in zip(after, before, strict=True))
    left, top, right, bottom = boxes.unbind(1)
    return torch.stack((left * across, top * down, right * across, bottom * down), 1)
