"""Features of images: in memory, or in a file that is written part by part, so that an interruption costs a part."""

import os
import re
import shlex
import warnings
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import cached_property, partial
from itertools import chain
from pathlib import Path
from typing import Any, Literal, NamedTuple, overload

import numpy as np
import torch
from jaxtyping import Float32
from torch import Tensor, nn

from .. import __version__
from ..data import BadImages, ImageSet, Photos, Split
from ..errors import Interrupted, UserError
from ..eval.encoder import EncoderOptions, FrozenEncoder
from ..eval.features import PREPROCESSING, SUFFIX, Extraction, FeatureStore, compute, features_key
from ..eval.protocol import data_for
from ..files import check_output, clear_folder
from ..system.signals import Stopped
from ..system.terminal import progress_bars
from ..system.text import counted
from .module import frozen
from .tables import Part, Shape, refuse_unknown, write_table

Which = Literal["all", "train", "val", "test"]
Data = str | os.PathLike[str] | Sequence[str | os.PathLike[str]] | Tensor | np.ndarray | Split | ImageSet
PART = 2048  # images whose features are kept together
NAME = rf"[0-9a-f]{{24}}-\d+{re.escape(SUFFIX)}"
KEPT = re.compile(rf"{NAME}|\.{NAME}\.\w+")
"""How files of kept features are called, and those that are being written."""
UNBOUNDED = 2**63

RGB = 3  # channels of every image file; timm takes all pretrained weights to have them

Decoder = Literal["auto", "nvjpeg", "workers"]
Device = Literal["auto", "cpu", "cuda", "mps"]
Encoder = nn.Module | FrozenEncoder | str | os.PathLike[str]


class Images(NamedTuple):
    """A split that is to be embedded, and what its images and classes are called."""

    part: str
    split: Split
    classes: tuple[str, ...]
    source: str | None = None
    """The name or path that `data` was, if it was one."""

    def name(self, row: int) -> str:
        """The path of an image; its number where it has none."""
        images = self.split.images
        return images.name(row) if isinstance(images, Photos) else f"{self.part}[{row}]"

    def labels(self, rows: Tensor) -> list[str | None]:
        """The class of each image, if it has one."""
        numbers = [-1] * len(rows) if self.split.labels is None else self.split.labels[rows].tolist()
        return [
            None if number < 0 else self.classes[number] if number < len(self.classes) else str(number)
            for number in numbers
        ]

    def part_of(self, rows: Tensor, features: Tensor) -> Part:
        """The rows of a table, without those of images that could not be read."""
        good = ~features[:, 0].isnan()
        kept = rows[good]
        names = [self.name(row) for row in kept.tolist()]
        return Part(names, self.labels(kept), [self.part] * len(names), features[good].numpy())


def images_of(
    encoder: FrozenEncoder, data: Data | None, which: Which, say: Callable[[str], Any] = Extraction.say
) -> list[Images]:
    """The images that a name, a path, paths or arrays stand for: train, then val, then test."""
    if isinstance(data, np.ndarray) and data.dtype.kind in "OU":  # paths
        data = data.ravel().tolist()
    if isinstance(data, np.ndarray | Tensor):
        pixels = torch.as_tensor(data)
        if pixels.dtype != torch.uint8 or pixels.dim() != 4:
            raise UserError(f"data is {pixels.dtype} {tuple(pixels.shape)}; give images as uint8 [N C H W], or paths.")
        data = Split(pixels)
    if isinstance(data, Sequence) and not isinstance(data, str):
        data = Split.from_paths([os.fspath(path) for path in data])
    if isinstance(data, Split):
        data = ImageSet("images", data)
    if not isinstance(data, ImageSet):
        data = data_for(encoder, None if data is None else os.fspath(data), say)
    parts = {"train": data.train, "val": data.val, "test": data.test}
    chosen = [
        Images(name, part, data.classes, data.source)
        for name, part in parts.items()
        if part is not None and which in ("all", name)
    ]
    if not any(len(images.split) for images in chosen):
        there = [name for name, part in parts.items() if part is not None and len(part)]
        raise UserError(f"split={which}: {data.name} has no such images, only {', '.join(there) or 'none'}.")
    return [images for images in chosen if len(images.split)]


def parts_of(split: Split) -> list[Tensor]:
    """The rows of each part."""
    return list(torch.arange(len(split)).split(PART))


@dataclass(frozen=True)
class SplitFeatures:
    """The features of one split, kept in parts."""

    encoder: FrozenEncoder
    images: Images
    how: Extraction
    store: FeatureStore
    bad: BadImages

    @cached_property
    def key(self) -> str:
        """How the names of all parts begin: another encoder, other images or another decoder have another."""
        return features_key(self.encoder, self.images.split, self.how)[:24]

    def complete(self) -> Shape:
        """Compute the parts that are missing; the shape of a table of all images that can be read."""
        missing, good, width, n = list[Tensor](), 0, 0, len(self.images.split)
        for rows in parts_of(self.images.split):
            features = self.store.load(self._name(rows), len(rows))
            if features is None:
                missing.append(rows)
                continue
            gaps = features[:, 0].isnan()
            if gaps.any():  # a disk that failed may have come back
                (features[gaps],) = self._compute([rows[gaps]], ", again")
                self.store.save(self._name(rows), features)
            good, width = good + _count_good(features), features.shape[1]
        left = sum(map(len, missing))
        if left < n:
            self.how.say(f"Going on after {n - left:,} of {n:,} {self.images.part} images.")
        with closing(self._compute(missing)) as computed:
            for rows, features in zip(missing, computed, strict=True):
                self.store.save(self._name(rows), features)
                good, width = good + _count_good(features), features.shape[1]
        return Shape(good, width)

    def read(self) -> Iterator[Part]:
        """All parts, each read when it is asked for."""
        for rows in parts_of(self.images.split):
            features = self.store.load(self._name(rows), len(rows))
            if features is None:
                raise UserError(f"{self.store.folder} was changed by another process; run the same command again.")
            yield self.images.part_of(rows, features)

    def _compute(self, parts: list[Tensor], again: str = "") -> Generator[Tensor, None, None]:
        return compute(self.encoder, self.images.split, parts, self.how, f"{self.images.part} images{again}", self.bad)

    def _name(self, rows: Tensor) -> str:
        return f"{self.key}-{rows[0]}"


def _count_good(features: Tensor) -> int:
    return int((~features[:, 0].isnan()).sum())


class Embeddings(NamedTuple):
    """What an encoder saw, in the order of the data; images that could not be read are left out."""

    paths: list[str]
    labels: list[str | None]
    vectors: Float32[np.ndarray, "N F"]
    bad: list[str]
    """Paths of the images that could not be read."""
    splits: list[str]
    """train, val or test; train where the data are not parted."""

    def __repr__(self) -> str:
        n, width = self.vectors.shape
        return f"Embeddings({counted(n, 'image')}, {width} features each, {len(self.bad):,} bad)"


@overload
def embed(encoder: Encoder, data: Data | None = None, *, out: None = None, **options: Any) -> Embeddings: ...
@overload
def embed(encoder: Encoder, data: Data | None = None, *, out: str | os.PathLike[str], **options: Any) -> Path: ...
def embed(  # pyright: ignore[reportInconsistentOverload] (the options are the same in both)
    encoder: Encoder,
    data: Data | None = None,
    *,
    out: str | os.PathLike[str] | None = None,
    split: Which = "all",
    batch_size: int = Extraction.batch_size,
    device: str = "auto",
    workers: int = -1,
    decoder: Decoder = "auto",
    max_bad: float = Extraction.max_bad,
    overwrite: bool = False,
    say: Callable[[str], None] | None = None,
    progress: Callable[[str, int, int], None] = lambda what, done, total: None,
) -> Embeddings | Path:
    """Features of all images: in memory, or in the file `out` (.parquet, .npz, .csv), written part by part.

    They are as the encoder gives them, not of unit length: divide by their norms before dot products.
    `encoder` comes from `load`, or is what that takes; `data` is a name or a path as for `pretrain` (default: what the
    run was trained on), a list of paths, or an array of images [N C H W]. An interrupted call with `out` goes on where
    it stopped when it is made again, and looks again at images that could not be read. A file is replaced only with
    `overwrite`; images that cannot be read are listed in OUT-bad-images.csv. What a folder holds beside its images is
    told to `say`, else warned of.
    """
    how = Extraction(device, batch_size, workers, max_bad, False, say or Extraction.say, progress, decoder)
    target = None if out is None else Path(out)
    if target is not None:
        refuse_unknown(target)
        check_output(target, overwrite)
    known = frozen(encoder)
    chosen = images_of(known, data, split, say or partial(warnings.warn, stacklevel=4))
    about = {"encoder": known.name, "size": known.size, "mean": known.mean, "std": known.std}
    about |= {"data": chosen[0].source, "split": split, "fingerprint": known.fingerprint}  # it may be trained further
    about |= {"preprocessing": PREPROCESSING, "version": __version__}
    home = next((parameter.device for parameter in known.backbone.parameters()), torch.device("cpu"))
    try:
        return _in_memory(known, chosen, how) if target is None else _to_file(known, chosen, how, target, about)
    finally:
        known.backbone.to(home)


def _in_memory(encoder: FrozenEncoder, chosen: list[Images], how: Extraction) -> Embeddings:
    bad, parts = BadImages(sum(len(images.split) for images in chosen), how.max_bad), list[Part]()
    for images in chosen:
        rows = parts_of(images.split)
        made = compute(encoder, images.split, rows, how, f"{images.part} images", bad)
        parts += [images.part_of(*pair) for pair in zip(rows, made, strict=True)]
    paths, labels, splits = (
        list(chain.from_iterable(columns)) for columns in zip(*(part[:3] for part in parts), strict=True)
    )
    return Embeddings(paths, labels, np.concatenate([part.vectors for part in parts]), sorted(bad.names), splits)


def _to_file(encoder: FrozenEncoder, chosen: list[Images], how: Extraction, out: Path, about: dict[str, Any]) -> Path:
    """Keep each part beside `out` until all are there, then write these into it one by one."""
    kept, bad_file = out.with_name(f".{out.name}.parts"), out.with_name(f"{out.name}-bad-images.csv")
    bad_file.unlink(missing_ok=True)  # what could not be read is tried again, and listed anew
    n = sum(len(images.split) for images in chosen)
    store, bad = FeatureStore(kept, UNBOUNDED), BadImages(n, how.max_bad, bad_file)
    splits = [SplitFeatures(encoder, images, how, store, bad) for images in chosen]
    if not all(any(file.name.startswith(split.key) for split in splits) for file in kept.glob(f"*{SUFFIX}")):
        clear_folder(kept, KEPT)  # parts of another encoder, or of other images
    try:
        shapes = [split.complete() for split in splits]
    except (KeyboardInterrupt, Stopped) as stop:
        again = f"the same command goes on with what {kept} holds"
        raise stop.interrupted(again) if isinstance(stop, Stopped) else Interrupted(f"Interrupted; {again}.") from None
    good = sum(shape.rows for shape in shapes)
    parts = chain.from_iterable(split.read() for split in splits)
    write_table(out, parts, Shape(good, shapes[0].width), about)
    clear_folder(kept, KEPT)
    if good < n:
        how.say(f"{counted(n - good, 'image')} cannot be read and had to be left out; see {bad_file}.")
    return out


@dataclass(frozen=True)
class Embed(EncoderOptions):
    """Write the features of images to a file: path, label, split and vector of each, in order.

    Vectors are as the encoder gives them, not of unit length: divide by their norms before dot products.
    Run again after an interruption, it continues. Images that cannot be read are left out and listed.

    example: logo-ssl embed runs/photos --data photos/ --out features.npz
    """

    data: str | None = None
    """A name or a path, as for `pretrain` (default: what the run was trained on)."""
    out: Path = field(kw_only=True)
    """The file: .npz, .csv or .parquet (needs `pip install 'logo-ssl[parquet]'`)."""
    split: Which = "all"
    """Train, validation or test images, or all, in this order. If there is no test/, val/ is the test."""
    batch_size: int = Extraction.batch_size
    """Images that the encoder sees at a time."""
    device: Device = "auto"
    """Where to compute."""
    workers: int = -1
    """Processes that decode photographs; -1: one per core."""
    decoder: Decoder = "auto"
    """Worker processes, or nvJPEG on a CUDA device; auto takes nvJPEG if workers are few or photographs large."""
    max_bad: float = Extraction.max_bad
    """Share of unreadable images that stops the command; fewer are left out."""
    overwrite: bool = False
    """Replace --out if it exists."""

    def run(self) -> None:
        """Embed, and say where the features are."""
        encoder, console = self.open()
        with progress_bars(console) as progress:
            file = embed(
                encoder,
                self.data,
                out=self.out,
                split=self.split,
                batch_size=self.batch_size,
                device=self.device,
                workers=self.workers,
                decoder=self.decoder,
                max_bad=self.max_bad,
                overwrite=self.overwrite,
                say=console.print,
                progress=progress,
            )
        console.print(f"Features: {file}")
        if encoder.channels == RGB:  # as every image file is shown, and so every query
            index = shlex.quote(str(file))
            console.print(f"Next: logo-ssl search {self.typed()} --index {index} --query IMAGE --out sheet.png")
