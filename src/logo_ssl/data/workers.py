"""How are photographs decoded on the CPU? One by one in worker processes, each bad one replaced by another."""

import os
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Int, UInt8
from PIL import Image
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from ..types import ImageBatch
from .bad import Bad, BadImages
from .decode import BadImage, decode
from .feed import Feed, canvas_size
from .images import Photos

TRIES = 10  # images drawn in place of a bad one before a grey one takes it
MOST_WORKERS = 16
GREY = np.full((32, 32, 3), 128, np.uint8)


class Decoded(NamedTuple):
    """A batch as a worker sends it: canvases, sizes, and what could not be read."""

    pixels: UInt8[Tensor, "B 3 H W"]
    sizes: Int[Tensor, "B 2"]
    bad: list[Bad]


class Decoding(Dataset):
    """Photographs by number: shrunk to `max_side`, or cut to a central square of side `square`."""

    def __init__(self, photos: Photos, max_side: int, square: int = 0) -> None:
        self.photos, self.max_side, self.square = photos, max_side, square

    def __len__(self) -> int:
        return len(self.photos)

    def __getitem__(self, row: int) -> tuple[UInt8[np.ndarray, "H W 3"], list[Bad]]:
        bad: list[Bad] = []
        others = random.Random(row)  # which others take its place depends on the image alone
        for candidate in (row, *(others.randrange(len(self.photos)) for _ in range(TRIES))):
            try:
                return self._decode(self.photos.read(candidate)), bad
            except (OSError, BadImage) as error:
                reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
                bad.append(Bad(self.photos.name(candidate), reason))
        return (GREY if not self.square else np.asarray(square(GREY, self.square))), bad

    def _decode(self, data: bytes) -> UInt8[np.ndarray, "H W 3"]:
        return square(decode(data, 4 * self.square), self.square) if self.square else decode(data, self.max_side)


class Reader:
    """What worker processes make of each group of rows; they stay alive from one epoch to the next."""

    def __init__(self, dataset: Dataset, workers: int, collate: Callable[[Any], Any], pinned: bool = False) -> None:
        self.order: list[list[int]] = []
        self.loader = DataLoader(
            dataset,
            batch_sampler=_Order(self),
            num_workers=workers,
            collate_fn=collate,
            pin_memory=pinned,
            persistent_workers=workers > 0,
        )

    def read(self, order: Iterable[Tensor]) -> Iterator[Any]:
        """One result for each group of rows, in order."""
        self.order = [rows.tolist() for rows in order]
        yield from self.loader

    def close(self) -> None:
        """End the processes; torch would leave it to the garbage collector, which may come too late."""
        if self.loader._iterator is not None and self.loader.num_workers:
            self.loader._iterator._shutdown_workers()  # type: ignore[attr-defined] (of an iterator with workers)
        self.loader._iterator = None


class _Order:
    """The rows of the batches to come, read anew by each iteration of a loader."""

    def __init__(self, reader: Reader) -> None:
        self.reader = reader

    def __iter__(self) -> Iterator[list[int]]:
        return iter(self.reader.order)

    def __len__(self) -> int:
        return len(self.reader.order)


class Workers(Feed):
    """Batches of photographs, decoded by worker processes."""

    def __init__(self, decoding: Decoding, bad: BadImages, workers: int) -> None:
        self.bad, self.reader = bad, Reader(decoding, workers, collate=_collate)

    def batches(self, order: Iterable[Tensor]) -> Iterator[ImageBatch]:
        """The images of each group of rows, on the CPU."""
        for decoded in self.reader.read(order):
            self.bad.note(len(decoded.pixels), decoded.bad)
            yield ImageBatch(decoded.pixels, decoded.sizes)

    def close(self) -> None:
        """End the workers."""
        self.reader.close()


def square(image: UInt8[np.ndarray, "H W 3"], size: int) -> UInt8[np.ndarray, "S S 3"]:
    """The image with its short side brought to `size` and its middle cut out, for evaluation."""
    height, width = image.shape[:2]
    scale = size / min(height, width)
    larger = (max(size, round(width * scale)), max(size, round(height * scale)))
    resized = Image.fromarray(image).resize(larger, Image.Resampling.BICUBIC)
    left, top = (larger[0] - size) // 2, (larger[1] - size) // 2
    return np.array(resized.crop((left, top, left + size, top + size)))


def on_canvas(images: Sequence[UInt8[np.ndarray, "_ _ 3"]]) -> tuple[UInt8[Tensor, "B 3 H W"], Int[Tensor, "B 2"]]:
    """Images of various sizes in the top left corners of equal canvases."""
    sizes = torch.tensor([image.shape[:2] for image in images])
    height, width = canvas_size(sizes)
    canvas = np.zeros((len(images), height, width, 3), np.uint8)
    for place, image in zip(canvas, images, strict=True):
        place[: image.shape[0], : image.shape[1]] = image
    return torch.from_numpy(canvas).permute(0, 3, 1, 2), sizes


def default_workers() -> int:
    """One for each core that this process may use."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(cores, MOST_WORKERS)


def _collate(items: list[tuple[UInt8[np.ndarray, "_ _ 3"], list[Bad]]]) -> Decoded:
    pixels, sizes = on_canvas([image for image, _ in items])
    return Decoded(pixels, sizes, [bad for _, found in items for bad in found])
