"""How are photographs decoded on the CPU? One by one in worker processes, each bad one replaced by another."""

import os
import random
import shutil
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import UInt8
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from ..hardware import usable_cores
from ..types import ImageBatch
from .bad import Bad, BadImages, plain_reason
from .decode import BadImage, decode, decode_square
from .ending import begin, end, go_on_alone, process_options
from .feed import Feed, lay_out
from .images import Photos
from .jpeg import Header, read_header
from .resizing import square

TRIES = 10  # images drawn in place of a bad one before a grey one takes it
MOST_WORKERS = 16
PER_MESSAGE = 32  # images that a worker sends at once: they pass through shared memory, of which there may be little
AHEAD = 2  # messages that each worker prepares
GREY = np.full((32, 32, 3), 128, np.uint8)


class Decoded(NamedTuple):
    """A photograph's pixels, or those of the one that takes its place."""

    pixels: UInt8[np.ndarray, "H W 3"]
    row: int
    """Whose pixels these are; -1: nobody's, all grey."""
    bad: list[Bad]


class Decoding:
    """Photographs by number: shrunk to `max_side`, or cut to a central square of side `square`."""

    def __init__(self, photos: Photos, max_side: int, square: int = 0) -> None:
        self.photos, self.max_side, self.square = photos, max_side, square

    def __len__(self) -> int:
        return len(self.photos)

    def __getitem__(self, row: int) -> Decoded:
        bad: list[Bad] = []
        others = random.Random(row)  # which others take its place depends on the image alone
        for candidate in (row, *(others.randrange(len(self.photos)) for _ in range(TRIES))):
            try:
                return Decoded(self._decode(self.photos.read(candidate)), candidate, bad)
            except (OSError, BadImage) as error:
                bad.append(Bad(self.photos.name(candidate), plain_reason(error)))
        return Decoded(square(GREY, self.square) if self.square else GREY, -1, bad)

    def _decode(self, data: bytes) -> UInt8[np.ndarray, "H W 3"]:
        return decode_square(data, self.square) if self.square else decode(data, self.max_side)


class Message(NamedTuple):
    """Some images as a worker sends them, in two buffers: one tensor each would use up the file descriptors."""

    rows: list[int]
    headers: list[Header | None]
    """Of those that are sent encoded; None: decoded."""
    encoded: UInt8[Tensor, " bytes"]
    lengths: list[int]
    decoded: UInt8[Tensor, " values"]
    shapes: list[tuple[int, int]]
    used: list[int]
    """Rows of the images that are really shown; -1: none."""
    bad: list[Bad]

    @property
    def failed(self) -> list[bool]:
        """Whose place another image takes."""
        return [row != used for row, used in zip(self.rows, self.used, strict=True)]

    def files(self) -> Iterator[Tensor]:
        """The encoded images, one after the other."""
        return iter(self.encoded.split(self.lengths) if self.lengths else ())

    def images(self) -> Iterator[UInt8[Tensor, "3 _ _"]]:
        """The decoded images, one after the other."""
        parts = self.decoded.split([3 * height * width for height, width in self.shapes]) if self.shapes else ()
        for part, (height, width) in zip(parts, self.shapes, strict=True):
            yield part.view(height, width, 3).permute(2, 0, 1)


class Reading(Dataset):
    """Photographs by number, decoded, or left encoded where they are plain JPEGs and these are asked for."""

    def __init__(self, decoding: Decoding, keeps_jpegs: bool = False) -> None:
        self.decoding, self.keeps_jpegs = decoding, keeps_jpegs

    def __len__(self) -> int:
        return len(self.decoding)

    def __getitems__(self, rows: list[int]) -> Message:
        headers, files, arrays, used, found = [], [], [], [], []
        for row in rows:
            data, header = self._jpeg(row)
            headers.append(header)
            if header is not None:
                files.append(data)
                used.append(row)
            else:
                decoded = self.decoding[row]
                arrays.append(decoded.pixels)
                used.append(decoded.row)
                found += decoded.bad
        encoded = torch.frombuffer(bytearray(b"".join(files) or b"\0"), dtype=torch.uint8)
        pixels = torch.from_numpy(np.concatenate([array.ravel() for array in arrays] or [np.zeros(1, np.uint8)]))
        shapes = [(array.shape[0], array.shape[1]) for array in arrays]
        return Message(rows, headers, encoded, [len(file) for file in files], pixels, shapes, used, found)

    def _jpeg(self, row: int) -> tuple[bytes, Header | None]:
        if not self.keeps_jpegs:
            return b"", None
        try:
            data = self.decoding.photos.read(row)
        except OSError:
            return b"", None
        return data, read_header(data)


class Reader:
    """What worker processes make of each group of rows; they stay alive from one epoch to the next."""

    def __init__(self, reading: Reading, workers: int) -> None:
        self.reading, self.workers = reading, workers
        self.order: list[list[int]] = []
        self.loader = DataLoader(
            reading,
            batch_sampler=_Order(self),
            collate_fn=_as_it_is,  # type: ignore[arg-type] (of __getitems__, which gives what is collated)
            persistent_workers=workers > 0,
            prefetch_factor=AHEAD if workers else None,
            **process_options(workers),
        )

    def read(self, order: Iterable[Tensor]) -> Iterator[list[Message]]:
        """The messages of each group of rows, in order."""
        groups = [[part.tolist() for part in rows.split(PER_MESSAGE)] for rows in order]
        messages = self._messages([part for group in groups for part in group])
        for group in groups:
            yield [next(messages) for _ in group]

    def _messages(self, parts: list[list[int]]) -> Iterator[Message]:
        self.order, done = parts, 0
        try:
            for message in begin(self.loader):
                yield message
                done += 1
        except RuntimeError as error:
            go_on_alone(error)
            self.close()
            for part in parts[done:]:
                yield self.reading.__getitems__(part)

    def close(self) -> None:
        """End the processes; torch would leave it to the garbage collector, which may come too late."""
        if self.loader._iterator is not None:
            end(self.loader._iterator)
        self.loader._iterator = None


class _Order:
    """The rows of the messages to come, read anew by each iteration of a loader."""

    def __init__(self, reader: Reader) -> None:
        self.reader = reader

    def __iter__(self) -> Iterator[list[int]]:
        return iter(self.reader.order)

    def __len__(self) -> int:
        return len(self.reader.order)


class Workers(Feed):
    """Batches of photographs, decoded by worker processes."""

    def __init__(self, decoding: Decoding, bad: BadImages, workers: int) -> None:
        self.bad, self.reader = bad, Reader(Reading(decoding), workers)

    def batches(self, order: Iterable[Tensor]) -> Iterator[ImageBatch]:
        """The images of each group of rows, on the CPU."""
        for messages in self.reader.read(order):
            self.bad.note([bad for message in messages for bad in message.bad])
            used = torch.tensor([row for message in messages for row in message.used])
            images = [image for message in messages for image in message.images()]
            yield lay_out(images, self.pinned)._replace(rows=used)

    def close(self) -> None:
        """End the workers."""
        self.reader.close()


def default_workers() -> int:
    """One for each core that this process may use."""
    return min(usable_cores(), MOST_WORKERS)


def fitting_workers(wished: int, bytes_per_image: int, sharers: int = 1, *, some_day: bool = False) -> int:
    """So many workers (-1: as many as cores) as half of the shared memory can serve; 0 where it serves none.

    Of several processes on one machine, each gets its share of cores and memory. What counts is the memory that is free
    now, or `some_day`: all of it, for choices that must not change from run to run.
    """
    workers = max(1, default_workers() // sharers) if wished < 0 else wished
    if not os.path.isdir("/dev/shm"):
        return workers
    each = (AHEAD + 1) * PER_MESSAGE * max(bytes_per_image, 1)
    memory = shutil.disk_usage("/dev/shm")
    return min(workers, (memory.total if some_day else memory.free) // 2 // sharers // each)


def _as_it_is(message: Message) -> Message:
    return message
