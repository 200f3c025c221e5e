"""Images on their way to the device: where they wait (device, RAM or disk), and in which order they come in batches."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeVar

import torch
from jaxtyping import Int, UInt8
from rich.filesize import decimal
from torch import Tensor

from ..errors import UserError
from ..ranges import Share, at_least
from ..system.hardware import available_memory, to_device
from ..system.randomness import stream
from ..types import ImageBatch
from . import nvjpeg
from .bad_images import BadImages
from .decode import decoded_sample
from .images import Photos, Split
from .workers import AheadFeed, Decoding, Feed, WorkerFeed, fitting_workers, lay_out

DEVICE_SHARE, RAM_SHARE = 0.35, 0.5  # of what is free; the rest is for the network, and for everybody else
SAMPLE = 64  # images whose sizes stand for all
CHUNK = 256  # images decoded at a time when all are
AHEAD = 3  # batches that are on their way to a CUDA device before they are asked for
Waiting = Callable[[], AbstractContextManager[Any]]
"""What to be in while a batch is waited for."""
Batch = TypeVar("Batch")


@dataclass(frozen=True)
class LoadingConfig:
    """Settings of the way from the disk to the device: speed, memory, and what happens to large and to bad images."""

    placement: Literal["auto", "device", "ram", "disk"] = "auto"
    """Where images are kept: decoded on the device or in RAM, or on disk; auto: the first that fits."""
    decoder: Literal["auto", "nvjpeg", "workers"] = "auto"
    """nvJPEG on the GPU, or worker processes; auto takes nvJPEG if there is a CUDA device."""
    workers: Annotated[int, at_least(-1, " (-1: automatic)")] = -1
    """Worker processes that decode; -1: one per core, at most 16; 0: none, the training process decodes."""
    max_side: Annotated[int, at_least(0, " (0: as they are)")] = 640
    """Photographs are shrunk to this longer side when they are decoded; 0 keeps them as they are."""
    max_bad: Share = 0.3
    """Share of unreadable images that stops a run; fewer are replaced by others and listed."""


class Batches:
    """The batches of one epoch, in an order that follows from (seed, epoch) alone.

    A last, smaller one is left out unless it is to be kept. The first epoch may begin after `done` of them. Of several
    processes, each gets its slice of every batch: `part` is its number and that of all. Each batch is waited for
    inside `waiting`.
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


class TensorFeed(Feed):
    """Images of one size in one tensor; `used` tells which image each really is, if not all are themselves."""

    def __init__(self, images: UInt8[Tensor, "N C H W"], used: Int[Tensor, " N"] | None = None) -> None:
        self.images, self.used = images, used

    def batches(self, order: Iterable[Tensor]) -> Iterator[ImageBatch]:
        """Gathered rows."""
        for rows in order:
            pixels = self.images[to_device(rows, self.images.device)]
            yield ImageBatch(pixels, rows=rows if self.used is None else self.used[rows])


class RaggedFeed(Feed):
    """Decoded images of various sizes, one tensor each; `used` as in `TensorFeed`."""

    def __init__(self, images: list[UInt8[Tensor, "C _ _"]], used: Int[Tensor, " N"]) -> None:
        self.images, self.used = images, used

    def batches(self, order: Iterable[Tensor]) -> Iterator[ImageBatch]:
        """Rows, laid on canvases."""
        for rows in order:
            yield lay_out([self.images[row] for row in rows.tolist()], self.pinned)._replace(rows=self.used[rows])


class SentFeed(Feed):
    """Another feed's batches, sent to a device when they are asked for."""

    def __init__(self, feed: Feed, device: torch.device) -> None:
        self.feed, self.device = feed, device

    def batches(self, order: Iterable[Tensor]) -> Iterator[ImageBatch]:
        """The batches of the other feed."""
        for batch in self.feed.batches(order):
            yield batch._replace(pixels=batch.pixels.to(self.device))

    def close(self) -> None:
        """Close the other feed."""
        self.feed.close()


class PrefetchFeed(AheadFeed):
    """Another feed's batches, sent to a CUDA device ahead of their use: by a thread, on a stream of its own."""

    def __init__(self, feed: Feed, device: torch.device) -> None:
        self.feed, self.device = feed, device
        self.feed.pinned = True
        self.stream = torch.cuda.Stream(device)

    def close(self) -> None:
        """End the thread, then close the other feed."""
        super().close()
        self.feed.close()

    def batches(self, order: Iterable[Tensor]) -> Iterator[ImageBatch]:
        """The batches of the other feed; whatever it raises is raised here."""
        self.stream.wait_stream(torch.cuda.current_stream(self.device))  # on which the images may have been made
        for batch, event in self.make_ahead(self._send(order), AHEAD):
            now = torch.cuda.current_stream(self.device)
            now.wait_event(event)
            batch.pixels.record_stream(now)
            yield batch

    def _send(self, order: Iterable[Tensor]) -> Iterator[tuple[ImageBatch, torch.cuda.Event]]:
        """Each batch on its way, and the event that tells of its arrival."""
        with torch.cuda.device(self.device), torch.cuda.stream(self.stream):
            for batch in self.feed.batches(order):
                pixels = batch.pixels
                if not pixels.is_cuda:  # a device without a number equals none that has one
                    pinned = pixels if pixels.is_pinned() else pixels.pin_memory()
                    pixels = pinned.to(self.device, non_blocking=True)
                event = torch.cuda.Event()
                event.record(self.stream)
                yield batch._replace(pixels=pixels), event


def place(
    images: Tensor | Photos,
    device: torch.device,
    config: LoadingConfig,
    bad: BadImages,
    say_progress: Callable[[int], None] = lambda done: None,
    sharers: int = 1,
) -> tuple[Feed, str]:
    """A feed of the images to the device, and a sentence about where they wait.

    So many processes share this machine's memory and cores: each holds its own images and has its own workers.
    """
    if config.decoder == "nvjpeg" and (device.type != "cuda" or not nvjpeg.works(device)):
        raise UserError(
            "loading.decoder='nvjpeg': needs a CUDA device and torchvision with nvJPEG; use auto or workers."
        )
    placement, free = config.placement, DEVICE_SHARE * available_memory(device)
    if isinstance(images, Tensor):
        if placement == "disk":
            raise UserError("loading.placement='disk': these images are an array; must be auto, device or ram.")
        size, fits = decimal(images.nbytes), images.nbytes <= free
        if device.type == "cpu" or placement == "device" or (placement == "auto" and fits):
            return TensorFeed(images.to(device)), f"{size} of pixels {_on(device)}"
        return _to_device(TensorFeed(images), device), f"{size} of pixels in RAM, sent batch by batch"
    some = [image.nbytes for image in decoded_sample(images, SAMPLE, config.max_side)]
    decoded = sum(some) * len(images) // len(some)
    if placement == "auto":
        ram = RAM_SHARE * (available_memory(torch.device("cpu")) // sharers)
        on_device = device.type != "cpu" and decoded <= free
        placement = "device" if on_device else "ram" if decoded <= ram else "disk"
    decoding, decoder = Decoding(images, config.max_side), "nvJPEG"
    workers = fitting_workers(config.workers, decoded // max(len(images), 1), sharers)
    if device.type == "cuda" and config.decoder != "workers" and nvjpeg.works(device):
        feed: Feed = nvjpeg.NvjpegFeed(decoding, bad, workers, device)
    else:
        feed = WorkerFeed(decoding, bad, workers)
        decoder = f"{workers} worker processes" if workers else "the training process"
    if placement == "disk":
        return _to_device(feed, device), f"on disk, decoded by {decoder}"
    home = device if placement == "device" else torch.device("cpu")
    where = f"about {decimal(decoded)} of decoded pixels {_on(home)} ({decoder} decoded them once)"
    feed = _decode_all(feed, len(images), home, say_progress)
    is_there = home == device and not (device.type == "cuda" and isinstance(feed, RaggedFeed))  # laid out ahead
    return feed if is_there else _to_device(feed, device), where


def _to_device(feed: Feed, device: torch.device) -> Feed:
    return PrefetchFeed(feed, device) if device.type == "cuda" else SentFeed(feed, device)


def _decode_all(decoder: Feed, n: int, home: torch.device, say_progress: Callable[[int], None]) -> Feed:
    # One tensor while all images have one size: to join them later would take twice the room.
    same: Tensor | None = None
    images, used, done = list[Tensor](), list[Tensor](), 0
    with closing(decoder):
        for pixels, sizes, rows in decoder.batches(torch.arange(n).split(CHUNK)):
            assert rows is not None
            used.append(rows)
            pixels = pixels.to(home)
            if done == 0 and sizes is None:
                same = pixels.new_empty(n, *pixels.shape[1:])
            if same is not None and (sizes is not None or pixels.shape[1:] != same.shape[1:]):
                images, same = [image.clone() for image in same[:done]], None
            if same is not None:
                same[done : done + len(pixels)] = pixels
            else:
                corners = [pixels.shape[2:]] * len(pixels) if sizes is None else sizes.tolist()
                images += [image[:, :h, :w].clone() for image, (h, w) in zip(pixels, corners, strict=True)]
            done += len(pixels)
            say_progress(done)
    return RaggedFeed(images, torch.cat(used)) if same is None else TensorFeed(same, torch.cat(used))


def _on(device: torch.device) -> str:
    return "in RAM" if device.type == "cpu" else f"on the {device.type.upper()} device"


def squared(split: Split, size: int, bad: BadImages, workers: int = -1) -> Split:
    """The split with photographs as central squares of one size, in RAM: what evaluation looks at.

    Images that cannot be read are left out with their labels: another in their place would have a wrong one.
    """
    if not isinstance(split.images, Photos):
        return split
    workers = min(fitting_workers(workers, 3 * size * size), len(split) // CHUNK)
    order, parts, kept = torch.arange(len(split)).split(CHUNK), [], []
    with closing(WorkerFeed(Decoding(split.images, max_side=0, square=size), bad, workers)) as feed:
        for rows, batch in zip(order, feed.batches(order), strict=True):
            kept.append(batch.rows == rows)
            parts.append(batch.pixels[kept[-1]].contiguous())
    return Split(torch.cat(parts), None if split.labels is None else split.labels[torch.cat(kept)])
