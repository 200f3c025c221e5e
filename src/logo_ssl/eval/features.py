"""Features of data sets: decoded, computed part by part so that memory is bounded, and kept in a cache."""

import hashlib
import os
from collections.abc import Callable, Generator, Iterator
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median
from typing import Annotated, Literal, NamedTuple, TypeVar

import safetensors
import safetensors.torch
import torch
from jaxtyping import Bool, Float, Int, UInt8
from torch import Tensor, nn

from ..data import BadImages, Photos, Split, fingerprint, nvjpeg
from ..data.decode import image_sizes, none_readable
from ..data.loader import CHUNK, PrefetchFeed
from ..data.workers import Decoding, Feed, WorkerFeed, fitting_workers
from ..encoders import FrozenEncoder, pixels
from ..errors import UserError
from ..files import write
from ..knn import extract
from ..ranges import Count, Share, at_least, check_ranges
from ..system.hardware import best_device, hardware

T = TypeVar("T")
PREPROCESSING = 5  # to be raised when decoding, squares or `extract` change what an encoder sees
PART = 64 * CHUNK  # images whose features make one file, 134 MB at 2048 features; an interruption loses no more
MOST_BYTES = 20 * 10**9  # holds ImageNet's 1.3 million images at 2048 features (10.6 GB), and more
SUFFIX = ".safetensors"
PIXELS_PER_WORKER = 24_000
"""Of a photograph; a guess between 16 workers at 500 x 375, who beat nvJPEG (docs/results/speed.md), and none."""
MOST_NAMED = 3  # images in a sentence


@dataclass(frozen=True)
class Extraction:
    """How features are computed; it changes speed and memory, not the features (but for the last digits of a pixel)."""

    device: str = "auto"
    """Where the encoder runs: auto, cpu, cuda or mps."""
    batch_size: Count = 256
    """Images at a time; between batch sizes features differ by float32's rounding (on a CPU, 1e-6 of the largest)."""
    workers: Annotated[int, at_least(-1)] = -1
    """Worker processes that decode photographs; -1: one per core, at most 16; 0: none."""
    max_bad: Share = 0.3
    """Share of unreadable images that stops an evaluation; fewer are left out."""
    cache: bool = True
    """Keep features in $LOGO_CACHE, or ~/.cache/logo-ssl/features."""
    say: Callable[[str], None] = lambda sentence: None
    """Takes sentences for the user."""
    progress: Callable[[str, int, int], None] = lambda what, done, total: None
    """Takes what is being done, how much of it is done, and how much there is."""
    decoder: Literal["auto", "nvjpeg", "workers"] = "workers"
    """What decodes photographs: workers give the same pixels everywhere; nvJPEG needs few cores, rounds otherwise."""
    look_for_copies: bool = True
    """Look for test images among those to train on; baselines see the same images."""
    unreadable: list[str] = field(default_factory=list, compare=False)
    """Takes the names of images that turn out unreadable."""

    def __post_init__(self) -> None:
        check_ranges(self)


class LabelledFeatures(NamedTuple):
    """Features of images with their classes."""

    features: Float[Tensor, "N F"]
    labels: Int[Tensor, "N *classes"]
    """The class of each image or, where images have several, 1 or 0 for each class."""

    def joined(self, other: "LabelledFeatures") -> "LabelledFeatures":
        """Both sets as one."""
        return LabelledFeatures(torch.cat([self.features, other.features]), torch.cat([self.labels, other.labels]))

    def rows(self, rows: Int[Tensor, " n"] | Bool[Tensor, " N"]) -> "LabelledFeatures":
        """Some of them."""
        return LabelledFeatures(self.features[rows], self.labels[rows])


def features_of(
    encoder: FrozenEncoder, split: Split, how: Extraction | None = None, what: str = "images"
) -> Float[Tensor, "N F"]:
    """Features of all images of a split, on the CPU; the rows of images that cannot be read are NaN."""
    how = how or Extraction()
    if isinstance(split.images, Photos):
        split = replace(split, images=replace(split.images))  # files may have been written since they were last asked
    store = FeatureStore(cache_folder()) if how.cache else None
    key = "" if store is None else features_key(encoder, split, how)
    features: Tensor | None = None
    missing: list[Tensor] = []
    for rows in torch.arange(len(split)).split(PART):
        known = None if store is None else store.load(f"{key}-{rows[0]}", len(rows))
        if known is None:
            missing.append(rows)
        else:
            features = _place(features, known, rows, len(split))
    for rows, new in zip(missing, compute(encoder, split, missing, how, what), strict=True):
        features = _place(features, new, rows, len(split))
        if store is not None and not new.isnan().any():  # what could not be read may be repaired
            try:
                store.save(f"{key}-{rows[0]}", new)
            except OSError as error:  # costs time later, not the evaluation now
                how.say(f"Features are not kept: {store.folder} cannot be written ({error.strerror}).")
                store = None
    assert features is not None
    return features


def _place(whole: Tensor | None, part: Tensor, rows: Tensor, n: int) -> Tensor:
    """The part in its rows of the whole: joining all parts at the end would take twice the memory."""
    whole = part.new_empty(n, part.shape[1]) if whole is None else whole
    whole[int(rows[0]) : int(rows[-1]) + 1] = part
    return whole


def labelled_features(
    encoder: FrozenEncoder, split: Split, how: Extraction | None = None, what: str = "images"
) -> LabelledFeatures:
    """Features and labels of the images that can be read."""
    how = how or Extraction()
    assert split.labels is not None
    features = features_of(encoder, split, how, what)
    good = ~features[:, 0].isnan()
    if not good.all():
        _leave_out(split, good, how, what)
        return LabelledFeatures(features[good], split.labels[good])
    return LabelledFeatures(features, split.labels)


def _leave_out(split: Split, good: Bool[Tensor, " N"], how: Extraction, what: str) -> None:
    """Note the photographs that are not good, and say so; there must be others."""
    assert isinstance(split.images, Photos)
    if not good.any():
        raise none_readable(split.images, what)
    names = [split.images.name(row) for row in (~good).nonzero()[:, 0].tolist()]
    how.unreadable.extend(names)
    named = ", ".join(names[:MOST_NAMED]) + (", ..." if len(names) > MOST_NAMED else "")
    how.say(f"{len(names):,} of {len(split):,} {what} cannot be read and are left out: {named}.")


def readable(split: Split, how: Extraction, what: str) -> Split:
    """The images of a split that can be decoded, as their pixels show, which baselines need as well."""
    if not isinstance(split.images, Photos):
        return split
    good = ~features_of(pixels(split.channels), split, how, what)[:, 0].isnan()
    if good.all():
        return split
    _leave_out(split, good, how, what)
    return split[good]


# -- Computing


def exact_convolutions() -> AbstractContextManager[None]:
    """Convolutions that repeat on CUDA: without TF32, which keeps 10 bits, and kernels that are chosen by the clock."""
    return torch.backends.cudnn.flags(True, benchmark=False, deterministic=True, allow_tf32=False)


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
    encoder.backbone.to(device)
    bad = BadImages(len(split), how.max_bad) if bad is None else bad
    order = [rows for part in parts for rows in part.split(CHUNK)]
    done = len(split) - sum(map(len, parts))
    waiting, found = iter(parts), list[Tensor]()
    part = next(waiting)
    with closing(_decode(encoder, split, order, how, bad)) as shown:
        made = (_fetch(_forward(encoder, pixels, how)) for pixels in shown)
        for arrival in _one_behind(made) if device.type == "cuda" else made:
            found.append(features := arrival())
            done += len(features)
            how.progress(f"features of {what}", done, len(split))
            if sum(map(len, found)) < len(part):
                continue
            whole = torch.cat(found)
            if not whole.isfinite().all():
                raise UserError(f"{encoder.name} gives features that are not finite; check its mean and std.")
            if isinstance(split.images, Photos) and len(bad):  # others had taken their places
                whole[torch.tensor([split.images.name(row) in bad for row in part.tolist()])] = torch.nan
            yield whole
            part, found = next(waiting, part), []


@contextmanager
def brought_back(network: nn.Module) -> Iterator[None]:
    """Afterwards the network is where it was, and in the mode that it was in."""
    home = next((parameter.device for parameter in network.parameters()), torch.device("cpu"))
    was_training = network.training
    try:
        yield
    finally:
        network.to(home).train(was_training)


def _forward(encoder: FrozenEncoder, pixels: UInt8[Tensor, "n C H W"], how: Extraction) -> Float[Tensor, "n F"]:
    try:
        with exact_convolutions():
            return extract(encoder.backbone, pixels, encoder.mean, encoder.std, encoder.size, how.batch_size)
    except torch.OutOfMemoryError as error:
        device = hardware(best_device(how.device))
        raise UserError(f"batch_size={how.batch_size}: {device} has too little memory; use fewer images.") from error


def _fetch(features: Float[Tensor, "n F"]) -> Callable[[], Float[Tensor, "n F"]]:
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


# -- Decoding


def in_channels(encoder: FrozenEncoder, split: Split) -> Split:
    """The images in the channels that an encoder sees: grey fills all of them, and others are refused."""
    if split.channels not in (1, encoder.channels):
        raise UserError(f"{encoder.name} sees {encoder.channels} channels, and these images have {split.channels}.")
    if split.channels == encoder.channels:
        return split
    return Split(split.array.expand(-1, encoder.channels, -1, -1), split.labels)  # a view, which takes no memory


def decodes_on_gpu(how: Extraction, photos: Photos, size: int) -> bool:
    """Whether nvJPEG decodes these photographs: if it is asked for, or workers are too few for their size."""
    if how.decoder == "workers":
        return False
    device = best_device(how.device)
    works = device.type == "cuda" and nvjpeg.works(device)
    if how.decoder == "nvjpeg" and not works:
        raise UserError("decoder='nvjpeg': this machine does not have it; use auto or workers.")
    if how.decoder == "nvjpeg" or not works:
        return works
    workers = fitting_workers(how.workers, 3 * size**2, some_day=True)
    pixels = [width * height for width, height in image_sizes(photos)]
    return bool(pixels) and workers * PIXELS_PER_WORKER < median(pixels)


def _decode(
    encoder: FrozenEncoder, split: Split, order: list[Int[Tensor, " _"]], how: Extraction, bad: BadImages
) -> Generator[UInt8[Tensor, "n C H W"], None, None]:
    """The pixels of each group of rows: photographs as central squares, arrays as they are."""
    shown = in_channels(encoder, split)
    if not isinstance(shown.images, Photos):
        yield from (shown.array[rows] for rows in order)
        return
    decoding = Decoding(shown.images, max_side=0, square=encoder.size)
    workers = min(fitting_workers(how.workers, 3 * encoder.size**2), len(order))
    device = best_device(how.device)
    if decodes_on_gpu(how, shown.images, encoder.size):
        # In turns with the network: at the same time, each image would wait for the end of a kernel.
        feed: Feed = nvjpeg.NvjpegFeed(decoding, bad, workers, device)
    elif device.type == "cuda":
        feed = PrefetchFeed(WorkerFeed(decoding, bad, workers), device)
    else:
        feed = WorkerFeed(decoding, bad, workers)
    with closing(feed):
        yield from (batch.pixels for batch in feed.batches(order))


# -- Keeping


def features_key(encoder: FrozenEncoder, split: Split, how: Extraction) -> str:
    """What features depend on: all that goes in, not where or how fast they are computed."""
    photos = split.images if isinstance(split.images, Photos) else None
    rounded = ("nvjpeg",) if photos is not None and decodes_on_gpu(how, photos, encoder.size) else ()
    # a file of equal size may be another
    written = "" if photos is None else hashlib.sha256(photos.stats.tobytes()).hexdigest()
    about = (encoder.fingerprint, fingerprint(split.images), written, encoder.size, encoder.mean, encoder.std)
    parts = (*about, PREPROCESSING, *rounded)
    return hashlib.sha256(repr(parts).encode()).hexdigest()


def cache_folder() -> Path:
    """$LOGO_CACHE, or a folder in the user's cache."""
    return Path(os.environ.get("LOGO_CACHE") or "~/.cache/logo-ssl/features").expanduser()


class FeatureStore:
    """Features by name in a folder; beyond `most_bytes`, those that were not used for longest are removed."""

    def __init__(self, folder: Path, most_bytes: int = MOST_BYTES) -> None:
        self.folder, self.most_bytes = folder, most_bytes

    def load(self, name: str, n_rows: int) -> Float[Tensor, "N F"] | None:
        """The features of that name, if they are there, whole, and of so many rows."""
        path = self.folder / f"{name}{SUFFIX}"
        try:
            features = safetensors.torch.load_file(path)["features"]
        except (OSError, KeyError, safetensors.SafetensorError):
            return None
        if features.dim() != 2 or len(features) != n_rows:
            return None
        with suppress(OSError):  # in a cache of others, who see to it themselves
            os.utime(path)  # it was of use
        return features

    def save(self, name: str, features: Float[Tensor, "N F"]) -> None:
        """Keep features; OSError when the disk refuses."""
        write(self.folder / f"{name}{SUFFIX}", safetensors.torch.save({"features": features.contiguous()}))
        files: list[tuple[float, int, Path]] = []
        for path in self.folder.glob(f"*{SUFFIX}"):
            with suppress(FileNotFoundError):  # another process forgets as well
                files.append(((status := path.stat()).st_mtime, status.st_size, path))
        kept = 0
        for _, size, path in sorted(files, reverse=True):
            kept += size
            if kept > self.most_bytes:
                path.unlink(missing_ok=True)
