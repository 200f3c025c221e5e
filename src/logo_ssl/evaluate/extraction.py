"""How do images become features? Chunk by chunk, so that memory is bounded, and exactly, so that numbers repeat."""

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass, field, replace
from statistics import median
from typing import Literal, TypeVar

import torch
from jaxtyping import Float, Int, UInt8
from torch import Tensor, nn

from ..data import BadImages, Photos, Split, nvjpeg
from ..data.facts import sizes_of
from ..data.feed import Feed
from ..data.prefetch import Prefetch
from ..data.samples import CHUNK
from ..data.workers import Decoding, Workers, fitting_workers
from ..errors import UserError
from ..features import extract
from ..hardware import best_device, hardware
from ..terminal import are
from .encoders import FrozenEncoder

T = TypeVar("T")
PREPROCESSING = 4  # to be raised when decoding, squares or `extract` change what an encoder sees
MOST_NAMED = 3  # images in a sentence
PIXELS_PER_WORKER = 24_000
"""Of a photograph: so many workers decode it as fast as nvJPEG in turns with a network may (docs/results/speed.md)."""


@dataclass(frozen=True)
class Extraction:
    """How features are computed; it changes speed and memory, not the features (but for the last digits of a pixel)."""

    device: str = "auto"
    """Where the encoder runs: auto, cpu, cuda or mps."""
    batch_size: int = 256
    """Images at a time; between batch sizes features differ by float32's rounding (on a CPU, 1e-6 of the largest)."""
    workers: int = -1
    """Worker processes that decode photographs; -1: one per core, at most 16; 0: none."""
    max_bad: float = 0.3
    """Share of unreadable images that stops an evaluation; up to it they are left out."""
    cache: bool = True
    """Keep features in $LOGO_CACHE, or ~/.cache/logo-ssl/features."""
    say: Callable[[str], None] = lambda sentence: None
    """Takes sentences for the user."""
    progress: Callable[[str, int, int], None] = lambda what, done, total: None
    """Takes what is being done, how much of it is done, and how much there is."""
    decoder: Literal["auto", "nvjpeg", "workers"] = "workers"
    """Who decodes photographs: workers see the same pixels everywhere; nvJPEG needs few cores, and rounds otherwise."""
    unreadable: list[str] = field(default_factory=list, compare=False)
    """Takes the names of images that turn out unreadable."""

    def counting(self, what: str, total: int) -> Callable[[int], None]:
        """Takes how much of one thing is done."""
        return lambda done: self.progress(what, done, total)

    def afresh(self) -> "Extraction":
        """The same, with nothing found unreadable yet."""
        return replace(self, unreadable=[])

    def leave_out(self, names: Sequence[str], n_images: int, what: str) -> None:
        """Note images that cannot be read, and say so."""
        self.unreadable.extend(names)
        more = len(names) - MOST_NAMED
        named = ", ".join(names[:MOST_NAMED]) + (f" and {more:,} more" if more > 0 else "")
        self.say(f"{len(names):,} of {n_images:,} {what} cannot be read and {are(len(names))} left out: {named}.")


def refuse_senseless(batch_size: int, workers: int, max_bad: float) -> None:
    """Raise a UserError for the first of these numbers that cannot work."""
    for holds, sentence in (
        (batch_size >= 1, f"batch-size is {batch_size}; use 1 or more."),
        (workers >= -1, f"workers is {workers}; use -1 (one per core) or more."),
        (0 <= max_bad <= 1, f"max-bad is {max_bad}; a share lies in 0 to 1."),
    ):
        if not holds:
            raise UserError(sentence)


def exactly() -> AbstractContextManager[None]:
    """Convolutions that repeat on CUDA: without TF32, which keeps 10 bits, and kernels that are chosen by the clock."""
    return torch.backends.cudnn.flags(True, benchmark=False, deterministic=True, allow_tf32=False)


def in_channels(encoder: FrozenEncoder, split: Split) -> Split:
    """The images in the channels that an encoder sees: grey fills all of them, and others are refused."""
    if split.channels not in (1, encoder.channels):
        raise UserError(
            f"{encoder.name} sees images of {encoder.channels} channels, and these have {split.channels}; give others, "
            "or another encoder."
        )
    if split.channels == encoder.channels:
        return split
    return Split(split.array.expand(-1, encoder.channels, -1, -1), split.labels)  # a view, which takes no memory


def decodes_on_gpu(how: Extraction, photos: Photos, size: int) -> bool:
    """Whether nvJPEG decodes these photographs; UserError where it was asked for and is not there."""
    if how.decoder == "workers":
        return False
    device = best_device(how.device)
    there = device.type == "cuda" and nvjpeg.works(device)
    if how.decoder == "nvjpeg" and not there:
        raise UserError("decoder is 'nvjpeg', which this machine does not have; use auto or workers.")
    return there and (how.decoder == "nvjpeg" or not _workers_suffice(how, photos, size))


def _workers_suffice(how: Extraction, photos: Photos, size: int) -> bool:
    workers = fitting_workers(how.workers, 3 * size**2, some_day=True)
    pixels = median(width * height for width, height in sizes_of(photos))
    return workers * PIXELS_PER_WORKER >= pixels


def compute(
    encoder: FrozenEncoder,
    split: Split,
    parts: list[Int[Tensor, " _"]],
    how: Extraction,
    what: str,
    bad: BadImages | None = None,
) -> Generator[Float[Tensor, "n F"], None, None]:
    """Features of each part of a split, on the CPU; the rows of images that cannot be read are NaN."""
    if not parts:
        return
    device = best_device(how.device)
    backbone = encoder.backbone.to(device)
    bad = BadImages(len(split), how.max_bad) if bad is None else bad
    order = [rows for part in parts for rows in part.split(CHUNK)]
    done = len(split) - sum(map(len, parts))
    waiting, found = iter(parts), list[Tensor]()
    part = next(waiting)
    with closing(_chunks(encoder, split, order, how, bad)) as chunks:
        made = (_fetched(_seen(backbone, pixels, encoder, how)) for pixels in chunks)
        for arrival in _one_behind(made) if device.type == "cuda" else made:
            found.append(features := arrival())
            done += len(features)
            how.progress(f"features of {what}", done, len(split))
            if sum(map(len, found)) == len(part):
                yield _checked(torch.cat(found), encoder, split, part, bad)
                part, found = next(waiting, part), []


def _seen(
    backbone: nn.Module, pixels: UInt8[Tensor, "n C H W"], encoder: FrozenEncoder, how: Extraction
) -> Float[Tensor, "n F"]:
    try:
        with exactly(), seeing(encoder):
            return extract(backbone, pixels, encoder.mean, encoder.std, encoder.size, how.batch_size)
    except torch.OutOfMemoryError as error:
        device = hardware(best_device(how.device))
        raise UserError(f"{device} has too little memory for {how.batch_size} images; lower batch-size.") from error


@contextmanager
def seeing(encoder: FrozenEncoder) -> Iterator[None]:
    """A network that cannot take images of that size says so in its own way; this is ours."""
    try:
        yield
    except (torch.OutOfMemoryError, torch.AcceleratorError):
        raise
    except (RuntimeError, AssertionError) as error:
        if _sees_a_blank(encoder):
            raise  # the size is not to blame
        reason = next(iter(str(error).splitlines()), type(error).__name__)
        raise UserError(
            f"{encoder.name} cannot see images of {encoder.size} px ({reason}); give another --size."
        ) from error


@torch.no_grad()
def _sees_a_blank(encoder: FrozenEncoder) -> bool:
    device = next(encoder.backbone.parameters()).device
    try:
        encoder.backbone.forward(torch.zeros(1, encoder.channels, encoder.size, encoder.size, device=device))
    except (RuntimeError, AssertionError):
        return False
    return True


def _fetched(features: Float[Tensor, "n F"]) -> Callable[[], Float[Tensor, "n F"]]:
    """Sends features to the CPU at once, before the next are computed; the call waits for them alone."""
    if not features.is_cuda:
        return features.cpu
    here = torch.empty(features.shape, dtype=features.dtype, pin_memory=True).copy_(features, non_blocking=True)
    arrived = torch.cuda.Event()
    arrived.record(torch.cuda.current_stream(features.device))

    def arrival() -> Float[Tensor, "n F"]:
        arrived.synchronize()
        return here

    return arrival


def _one_behind(arrivals: Iterator[T]) -> Iterator[T]:
    """The same, each when the next is under way: whoever waits for it keeps no GPU waiting."""
    under_way: list[T] = []
    for newest in arrivals:
        yield from under_way
        under_way = [newest]
    yield from under_way


def _checked(
    features: Float[Tensor, "n F"], encoder: FrozenEncoder, split: Split, rows: Int[Tensor, " n"], bad: BadImages
) -> Float[Tensor, "n F"]:
    """The features, NaN where the image was bad and another had taken its place."""
    if not features.isfinite().all():
        raise UserError(f"{encoder.name} gives features that are not finite; train it again, or check mean and std.")
    if isinstance(split.images, Photos) and len(bad):
        gone = [split.images.name(row) in bad for row in rows.tolist()]
        features[torch.tensor(gone)] = torch.nan
    return features


def _chunks(
    encoder: FrozenEncoder, split: Split, order: list[Int[Tensor, " _"]], how: Extraction, bad: BadImages
) -> Generator[UInt8[Tensor, "n C H W"], None, None]:
    """The pixels of each group of rows: photographs as central squares, arrays as they are."""
    shown = in_channels(encoder, split)
    if shown is not split:
        how.say(f"Grey images are shown to {encoder.name} in each of its {encoder.channels} channels.")
    if not isinstance(shown.images, Photos):
        yield from (shown.array[rows] for rows in order)
        return
    decoding = Decoding(shown.images, max_side=0, square=encoder.size)
    workers = min(fitting_workers(how.workers, 3 * encoder.size**2), len(order))
    device = best_device(how.device)
    if decodes_on_gpu(how, shown.images, encoder.size):
        # In turns with the network: beside it, each image would wait for the end of a kernel.
        feed: Feed = nvjpeg.Nvjpeg(decoding, bad, workers, device)
    elif device.type == "cuda":
        feed = Prefetch(Workers(decoding, bad, workers), device)
    else:
        feed = Workers(decoding, bad, workers)
    try:
        yield from (batch.pixels for batch in feed.batches(order))
    finally:
        feed.close()
