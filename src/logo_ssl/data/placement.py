"""Where do images wait for their turn? On the device, in RAM, or on disk: decided by size, said in a line."""

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from ..errors import UserError
from ..hardware import available_memory
from ..types import ImageBatch
from . import nvjpeg
from .bad import BadImages
from .feed import Feed, Uniform, Various
from .files import InMemory
from .images import Photos
from .prefetch import Prefetch
from .samples import CHUNK, decoded_sample
from .workers import Decoding, Workers, default_workers, fitting_workers

Placement = Literal["auto", "device", "ram", "encoded", "disk"]
DEVICE_SHARE, RAM_SHARE = 0.35, 0.5  # of what is free; the rest is for the network, and for everybody else
SAMPLE = 64  # images whose sizes stand for all


@dataclass(frozen=True)
class LoadingConfig:
    """Settings of the way from the disk to the device: speed, memory, and what happens to large and to bad images."""

    placement: Placement = "auto"
    """Where images wait: decoded on the device or in ram, encoded in RAM, on disk; auto takes the first that fits."""
    decoder: Literal["auto", "nvjpeg", "workers"] = "auto"
    """nvJPEG on the GPU, or worker processes; auto takes nvJPEG where there is a CUDA device."""
    workers: int = -1
    """Worker processes that decode; -1: one per core, at most 16; 0: none, the training process decodes."""
    max_side: int = 640
    """Photographs are shrunk to this longer side when they are decoded; 0 keeps them as they are."""
    max_bad: float = 0.3
    """Share of unreadable images that stops a run; up to it they are replaced by others and listed."""


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
    refuse_unfit(images, device, config)
    if isinstance(images, Photos):
        return _place_photos(images, device, config, bad, say_progress, sharers)
    return _place_tensor(images, device, config)


def refuse_unfit(images: Tensor | Photos, device: torch.device, config: LoadingConfig) -> None:
    """Raise a UserError where the settings cannot work."""
    if isinstance(images, Tensor) and config.placement in ("encoded", "disk"):
        raise UserError(
            f"loading.placement={config.placement!r}: these images are an array; must be auto, device or ram."
        )
    if config.decoder == "nvjpeg" and device.type != "cuda":
        raise UserError("loading.decoder='nvjpeg': needs a CUDA device; use auto or workers.")
    if config.decoder == "nvjpeg" and not nvjpeg.works(device):
        raise UserError("loading.decoder='nvjpeg': this torchvision does not have it; use auto or workers.")


def _place_tensor(images: Tensor, device: torch.device, config: LoadingConfig) -> tuple[Feed, str]:
    size = _gb(images.nbytes)
    fits = images.nbytes <= DEVICE_SHARE * available_memory(device)
    if device.type == "cpu" or config.placement == "device" or (config.placement == "auto" and fits):
        return Uniform(images.to(device)), f"{size} of pixels {_on(device)}"
    feed = Uniform(images)
    if device.type != "cuda":
        return Sent(feed, device), f"{size} of pixels in RAM, sent batch by batch"
    return Prefetch(feed, device), f"{size} of pixels in RAM, sent ahead batch by batch"


def _place_photos(
    photos: Photos,
    device: torch.device,
    config: LoadingConfig,
    bad: BadImages,
    say_progress: Callable[[int], None],
    sharers: int,
) -> tuple[Feed, str]:
    decoded, encoded = _sizes(photos, config.max_side)
    placement = config.placement
    if placement == "auto":
        free, ram = available_memory(device), available_memory(torch.device("cpu")) // sharers
        if device.type != "cpu" and decoded <= DEVICE_SHARE * free:
            placement = "device"
        elif decoded <= RAM_SHARE * ram:
            placement = "ram"
        else:
            placement = "encoded" if encoded <= RAM_SHARE * ram else "disk"
    if placement == "encoded":
        photos = _in_memory(photos, say_progress)
    decoder, how = _decoder(photos, device, config, bad, max(decoded, encoded) // max(len(photos), 1), sharers)
    if placement in ("device", "ram"):
        home = device if placement == "device" else torch.device("cpu")
        feed = _decode_all(decoder, len(photos), home, say_progress)
        where = f"about {_gb(decoded)} of decoded pixels {_on(home)} ({how} decoded them once)"
        if device.type == "cuda" and (home.type == "cpu" or isinstance(feed, Various)):  # laying out takes time too
            return Prefetch(feed, device), where
        return (feed if home == device else Sent(feed, device)), where
    where = f"{_gb(encoded)} of encoded images {'in RAM' if placement == 'encoded' else 'on disk'}, decoded by {how}"
    if device.type == "cuda":
        return Prefetch(decoder, device), where
    return Sent(decoder, device), where


class Sent(Feed):
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


def _decoder(
    photos: Photos, device: torch.device, config: LoadingConfig, bad: BadImages, bytes_per_image: int, sharers: int
) -> tuple[Feed, str]:
    decoding = Decoding(photos, config.max_side)
    workers = fitting_workers(config.workers, bytes_per_image, sharers)
    if device.type == "cuda" and config.decoder != "workers" and nvjpeg.works(device):
        return nvjpeg.Nvjpeg(decoding, bad, workers, device), "nvJPEG"
    return Workers(decoding, bad, workers), f"{workers} worker processes" if workers else "the training process"


def _decode_all(decoder: Feed, n: int, home: torch.device, say_progress: Callable[[int], None]) -> Feed:
    same: Tensor | None = (
        None  # one tensor while all images have one size: joining them later would take twice the room
    )
    images: list[Tensor] = []
    used: list[Tensor] = []
    done = 0
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
            elif sizes is None:
                images += [image.clone() for image in pixels]
            else:
                images += [image[:, :h, :w].clone() for image, (h, w) in zip(pixels, sizes.tolist(), strict=True)]
            done += len(pixels)
            say_progress(done)
    return Various(images, torch.cat(used)) if same is None else Uniform(same, torch.cat(used))


def _in_memory(photos: Photos, say_progress: Callable[[int], None]) -> Photos:
    """All bytes in one array: worker processes share it, where a list would be copied bit by bit."""

    def read(row: int) -> bytes:
        try:
            return photos.read(row)
        except OSError:
            return b""

    parts, lengths = [], []
    with ThreadPoolExecutor(default_workers()) as pool:
        for rows in torch.arange(len(photos)).split(CHUNK):
            contents = list(pool.map(read, rows.tolist()))
            lengths += [len(content) for content in contents]
            parts.append(np.frombuffer(b"".join(contents), np.uint8))
            say_progress(len(lengths))
    ends = np.cumsum(np.array([0, *lengths], np.int64))
    together = np.empty(int(ends[-1]), np.uint8)
    at = 0
    while parts:  # freed one by one, so that the bytes are not held twice
        part = parts.pop(0)
        together[at : at + len(part)] = part
        at += len(part)
    return Photos.all(InMemory(photos, together, ends))


def _sizes(photos: Photos, max_side: int) -> tuple[int, int]:
    """About how many bytes all images take, decoded and encoded, from some of them."""
    decoded, encoded, n = 0, 0, 0
    for content, image in decoded_sample(photos, SAMPLE, max_side):
        decoded, encoded, n = decoded + image.nbytes, encoded + len(content), n + 1
    return (decoded * len(photos) // n, encoded * len(photos) // n) if n else (0, 0)


def _on(device: torch.device) -> str:
    return "in RAM" if device.type == "cpu" else f"on the {device.type.upper()} device"


def _gb(size: int) -> str:
    return f"{size / 1e9:.1f} GB" if size >= 1e8 else f"{size / 1e6:.1f} MB"
