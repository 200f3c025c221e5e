"""Worker processes that read and decode photographs, each bad one replaced by another; batches of them."""

import gc
import os
import random
import shutil
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from math import prod
from multiprocessing.pool import ThreadPool
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch
from jaxtyping import UInt8
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from ..system.hardware import usable_cores
from ..system.signals import outlast
from ..types import ImageBatch
from .bad_images import Bad, BadImages
from .decode import BadImage, JpegHeader, decode, decode_square, plain_reason, read_jpeg_header, square
from .images import Photos

TRIES = 10  # images drawn in place of a bad one before a grey one takes it
MOST_WORKERS = 16
PER_MESSAGE = 32  # images that a worker sends at once: they pass through shared memory, of which there may be little
AHEAD = 2  # messages that each worker prepares
GREY = np.full((32, 32, 3), 128, np.uint8)
CANVAS_STEP = 32  # pixels; it also keeps the number of shapes small
END: Any = object()  # of what is made ahead
Item = TypeVar("Item")


class Decoded(NamedTuple):
    """A photograph's pixels, or those of the one that takes its place."""

    pixels: UInt8[np.ndarray, "H W 3"]
    row: int
    """Whose pixels these are; -1: nobody's, all grey."""
    bad: list[Bad]


class Sent(NamedTuple):
    """What a message says of one of its images."""

    row: int
    used: int
    """The row that is really shown; -1: none."""
    shape: tuple[int, ...]
    """[H W 3], or [bytes] if it is sent encoded."""
    header: JpegHeader | None = None
    """If it is sent encoded."""


class Message(NamedTuple):
    """Some images as a worker sends them, in one buffer: a tensor for each would use up the file descriptors."""

    about: list[Sent]
    buffer: UInt8[Tensor, " bytes"]
    bad: list[Bad]

    def images(self) -> Iterator[tuple[Sent, UInt8[Tensor, "..."]]]:
        """Each image [3 H W], or its file [bytes]."""
        parts = self.buffer.split([prod(sent.shape) for sent in self.about])
        for sent, part in zip(self.about, parts, strict=True):
            yield sent, part if sent.header else part.view(sent.shape).permute(2, 0, 1)


@dataclass
class Decoding(Dataset[Decoded]):
    """Photographs by number: shrunk to `max_side`, or cut to a central square of side `square`."""

    photos: Photos
    max_side: int
    square: int = 0
    keeps_jpegs: bool = False
    """Whether messages hold plain JPEGs as they are."""

    def __len__(self) -> int:
        return len(self.photos)

    def __getitem__(self, row: int) -> Decoded:
        bad: list[Bad] = []
        others = random.Random(row)  # which others take its place depends on the image alone
        for candidate in (row, *(others.randrange(len(self.photos)) for _ in range(TRIES))):
            try:
                data = self.photos.read(candidate)
                pixels = decode_square(data, self.square) if self.square else decode(data, self.max_side)
                return Decoded(pixels, candidate, bad)
            except (OSError, BadImage) as error:
                bad.append(Bad(self.photos.name(candidate), plain_reason(error)))
        return Decoded(square(GREY, self.square) if self.square else GREY, -1, bad)

    def __getitems__(self, rows: list[int]) -> Message:
        about, arrays, bad = list[Sent](), list[np.ndarray](), list[Bad]()
        for row in rows:
            data, header = b"", None
            if self.keeps_jpegs:
                with suppress(OSError):
                    header = read_jpeg_header(data := self.photos.read(row))
            if header is not None:
                about.append(Sent(row, row, (len(data),), header))
                arrays.append(np.frombuffer(data, np.uint8))
            else:
                decoded = self[row]
                about.append(Sent(row, decoded.row, decoded.pixels.shape))
                arrays.append(decoded.pixels.ravel())
                bad += decoded.bad
        return Message(about, torch.from_numpy(np.concatenate(arrays or [np.empty(0, np.uint8)])), bad)


class Reader:
    """What worker processes make of each group of rows; they stay alive from one epoch to the next."""

    def __init__(self, decoding: Decoding, workers: int) -> None:
        self.order: list[list[int]] = []  # of the messages to come, which each iteration of the loader reads anew
        self.batches: Iterator[Message] | None = None
        self.loader = DataLoader(
            decoding,
            batch_sampler=self.order,
            collate_fn=_as_it_is,  # type: ignore[arg-type] (of __getitems__, which gives what is collated)
            persistent_workers=workers > 0,
            prefetch_factor=AHEAD if workers else None,
            **worker_options(workers),
        )

    def read(self, order: Iterable[Tensor]) -> Iterator[list[Message]]:
        """The messages of each group of rows, in order."""
        groups = [[part.tolist() for part in rows.split(PER_MESSAGE)] for rows in order]
        self.order[:] = [part for group in groups for part in group]
        self.batches = messages = start(self.loader)
        for group in groups:
            yield [next(messages) for _ in group]

    def close(self) -> None:
        """End the processes."""
        if self.batches is not None:
            stop(self.batches)


def _as_it_is(message: Message) -> Message:
    return message


class Feed(ABC):
    """Something that turns rows into batches."""

    pinned: bool = False
    """Whether new canvases are in pinned memory, from which a CUDA device fetches without another copy."""

    @abstractmethod
    def batches(self, order: Iterable[Tensor]) -> Iterator[ImageBatch]:
        """The images of each group of rows."""

    def close(self) -> None:  # noqa: B027 (most feeds have none)
        """End the processes that help, if there are any."""


class WorkerFeed(Feed):
    """Batches of photographs, decoded by worker processes."""

    def __init__(self, decoding: Decoding, bad: BadImages, workers: int) -> None:
        self.bad, self.reader = bad, Reader(decoding, workers)

    def batches(self, order: Iterable[Tensor]) -> Iterator[ImageBatch]:
        """The images of each group of rows, on the CPU."""
        for messages in self.reader.read(order):
            self.bad.note([bad for message in messages for bad in message.bad])
            about, images = zip(*(image for message in messages for image in message.images()), strict=True)
            yield lay_out(list(images), self.pinned)._replace(rows=torch.tensor([sent.used for sent in about]))

    def close(self) -> None:
        """End the workers."""
        self.reader.close()


def lay_out(images: list[UInt8[Tensor, "C _ _"]], pinned: bool = False) -> ImageBatch:
    """Images of various sizes in the top left corners of equal canvases; of one size, side by side.

    Pinned canvases go to a CUDA device without another copy, in memory that the next batches take over.
    """
    sizes = torch.tensor([image.shape[1:] for image in images])
    equal, channels = bool((sizes == sizes[0]).all()), len(images[0])
    height, width = sizes.amax(dim=0).tolist()
    if not equal:  # tensor cores want products of eights
        height, width = (-(-side // CANVAS_STEP) * CANVAS_STEP for side in (height, width))
    kind = {"dtype": torch.uint8, "device": images[0].device, "pin_memory": pinned and images[0].device.type == "cpu"}
    new = partial(torch.empty if equal else torch.zeros, **kind)  # images of one size leave nothing blank
    if images[0].stride(0) == 1:  # channels last, as Pillow gives them: the canvas as well, or copying is slow
        canvas = new(len(images), height, width, channels).permute(0, 3, 1, 2)
    else:  # line by line, as the crops are cut
        canvas = new(len(images), height, channels, width).transpose(1, 2)
    corners = (
        canvas.unbind() if equal else [place[:, :h, :w] for place, (h, w) in zip(canvas, sizes.tolist(), strict=True)]
    )
    torch._foreach_copy_(corners, images)
    return ImageBatch(canvas, None if equal else sizes)


class AheadFeed(Feed):
    """A feed of which a thread makes something ahead."""

    pool: ThreadPool | None = None

    def make_ahead(self, items: Iterator[Item], most: int) -> Iterator[Item]:
        """The items, up to `most` of them made before they are asked for; whatever making one raises is raised here."""
        self.pool = pool = self.pool or ThreadPool(1)
        more: Callable[[], Any] = partial(next, items, END)
        coming = deque(pool.apply_async(more) for _ in range(most))
        while (item := coming.popleft().get()) is not END:
            coming.append(pool.apply_async(more))
            yield item

    def close(self) -> None:
        """End the thread; the item that it makes is not waited for."""
        if self.pool is not None:
            self.pool.terminate()


def fitting_workers(wished: int, bytes_per_image: int, sharers: int = 1, *, some_day: bool = False) -> int:
    """So many workers (-1: as many as cores) as half of the shared memory can serve; 0 if it serves none.

    Of several processes on one machine, each gets its share of cores and memory. What counts is the memory that is free
    now, or `some_day`: all of it, for choices that must not change from run to run.
    """
    workers = max(1, min(usable_cores(), MOST_WORKERS) // sharers) if wished < 0 else wished
    if not os.path.isdir("/dev/shm"):
        return workers
    each = (AHEAD + 1) * PER_MESSAGE * max(bytes_per_image, 1)
    memory = shutil.disk_usage("/dev/shm")
    return min(workers, (memory.total if some_day else memory.free) // 2 // sharers // each)


def worker_options(workers: int) -> dict[str, Any]:
    """What a loader is told of its worker processes, which `start` and `stop` start and stop."""
    return {
        "num_workers": workers,
        "worker_init_fn": _begin_worker,
        "generator": torch.Generator(),  # or each start of workers would draw from the networks' own stream
        "multiprocessing_context": "fork" if workers and hasattr(os, "fork") else None,
    }


def start(loader: DataLoader[Any]) -> Iterator[Any]:
    """The loader's batches.

    No process that is forked may collect this one's garbage (`_begin_worker` forbids it for good): it may hold memory
    of a GPU, and a forked process that frees such memory is aborted.
    """
    collecting = gc.isenabled()
    gc.disable()
    try:
        return iter(loader)
    finally:
        if collecting:
            gc.enable()


def stop(batches: Any) -> None:
    """End the worker processes; torch alone would ask those that are stuck by a signal that they outlast."""
    if workers := getattr(batches, "_workers", ()):
        with suppress(RuntimeError):  # of a worker that died before
            batches._shutdown_workers()
        for worker in workers:
            worker.kill()


def _begin_worker(number: int) -> None:
    gc.freeze()
    gc.enable()
    outlast(number)  # SIGTERM, which Slurm and systemd send to all processes: this one's parent saves first
