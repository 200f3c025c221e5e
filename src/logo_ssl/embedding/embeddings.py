"""Features of images: in memory, or in a file that is written part by part, so that an interruption costs a part."""

import os
import re
import warnings
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeVar, overload

import numpy as np
import torch
from jaxtyping import Float32
from torch import Tensor, nn

from .. import __version__
from ..data import BadImages, ImageSet, Photos, Split, nvjpeg
from ..errors import Interrupted, UserError
from ..eval.encoder import FrozenEncoder
from ..eval.features import PREPROCESSING, SUFFIX, Extraction, FeatureStore, compute, features_key
from ..eval.protocol import data_for
from ..files import check_output, clear_folder
from ..hardware import best_device
from ..signals import Stopped
from ..text import counted, printable
from .module import frozen
from .tables import Part, Shape, keeps_names, refuse_long_names, refuse_unknown, write_table

Which = Literal["all", "train", "val", "test"]
Data = str | os.PathLike[str] | Sequence[str | os.PathLike[str]] | Tensor | np.ndarray | Split | ImageSet
T = TypeVar("T")
PART = 2048  # images whose features are kept together
NAME = rf"[0-9a-f]{{24}}-\d+{re.escape(SUFFIX)}"
KEPT = re.compile(rf"{NAME}|\.{NAME}\.\w+")
"""How files of kept features are called, and those that are being written."""
UNBOUNDED = 2**63

Decoder = Literal["auto", "nvjpeg", "workers"]
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

    def longest_name(self) -> int:
        """How many characters the longest name has, of an image or a class."""
        names = (self.name(row) for row in range(len(self.split)))
        return max(map(len, chain(names, self.classes)), default=0)

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
        paths = [os.fspath(path) for path in data]
        data = Split.from_paths(paths)
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
        others = [name for name, part in parts.items() if part is not None and len(part)]
        cure = f"use --split {' or '.join(['all', *others])}" if others else "give at least one"
        raise UserError(f"{data.name} has no {'' if which == 'all' else which + ' '}images to embed; {cure}.")
    return [images for images in chosen if len(images.split)]


class Kept(NamedTuple):
    """A part that waits in the store."""

    read: Callable[[], Part]
    good: int
    """Rows of images that could be read."""
    width: int


def parts_of(split: Split) -> list[Tensor]:
    """The rows of each part."""
    return list(torch.arange(len(split)).split(PART))


def key_of(encoder: FrozenEncoder, images: Images, how: Extraction) -> str:
    """How the names of all parts begin: another encoder, other images or another decoder have another."""
    return features_key(encoder, images.split, how)[:24]


def belongs(folder: Path, keys: list[str]) -> bool:
    """Whether all that was kept is of these images and this encoder."""
    return folder.is_dir() and all(any(file.name.startswith(key) for key in keys) for file in folder.glob(f"*{SUFFIX}"))


@dataclass(frozen=True)
class SplitFeatures:
    """The features of one split: computed if they are missing, and kept in parts."""

    encoder: FrozenEncoder
    images: Images
    how: Extraction
    store: FeatureStore
    key: str
    bad: BadImages

    def parts(self) -> list[Kept]:
        """All parts, each of them in the store."""
        known = [self._known(rows) for rows in parts_of(self.images.split)]
        missing = [rows for rows, part in zip(parts_of(self.images.split), known, strict=True) if part is None]
        n, left = len(self.images.split), sum(map(len, missing))
        if len(missing) < len(known):
            self.how.say(f"Going on after {n - left:,} of {n:,} {self.images.part} images.")
        new = iter(self._computed(missing))
        return [part or next(new) for part in known]

    def _known(self, rows: Tensor) -> Kept | None:
        """A part that was kept, its gaps filled: a disk that failed may have come back."""
        features = self.store.load(self._name(rows), len(rows))
        if features is None:
            return None
        gaps = features[:, 0].isnan()
        if gaps.any():
            (features[gaps],) = self._seen([rows[gaps]], ", again")
            self.store.save(self._name(rows), features)
        return self._kept(rows, features)

    def _computed(self, missing: list[Tensor]) -> list[Kept]:
        """Parts anew; each is saved while the next is being computed."""
        kept, saved = list[Kept](), list[Future[None]]()
        with closing(self._seen(missing)) as seen, ThreadPoolExecutor(1) as saver:
            for rows, features in zip(missing, seen, strict=True):
                _ended(saved)
                saved = [saver.submit(self.store.save, self._name(rows), features)]
                kept.append(self._kept(rows, features))
            _ended(saved)
        return kept

    def _seen(self, parts: list[Tensor], again: str = "") -> Generator[Tensor, None, None]:
        return compute(self.encoder, self.images.split, parts, self.how, f"{self.images.part} images{again}", self.bad)

    def _kept(self, rows: Tensor, features: Tensor) -> Kept:
        return Kept(partial(self._read, rows), int((~features[:, 0].isnan()).sum()), features.shape[1])

    def _read(self, rows: Tensor) -> Part:
        features = self.store.load(self._name(rows), len(rows))
        if features is None:
            raise UserError(f"{self.store.folder} was changed by another process; run the same command again.")
        return self.images.part_of(rows, features)

    def _name(self, rows: Tensor) -> str:
        return f"{self.key}-{rows[0]}"


def read_ahead(parts: Iterable[Kept]) -> Iterator[Part]:
    """The parts in order, each read while the one before it is being used."""
    under_way = list[Future[Part]]()
    with ThreadPoolExecutor(1) as reader:
        for part in parts:
            following = [reader.submit(part.read)]
            yield from _ended(under_way)
            under_way = following
        yield from _ended(under_way)


def _ended(tasks: list[Future[T]]) -> list[T]:
    """What came of some tasks; whatever they raised is raised here."""
    return [task.result() for task in tasks]


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
    Extraction(device, batch_size, workers, max_bad)
    target = None if out is None else Path(out)
    if target is not None:
        refuse_unknown(target)
        check_output(target, overwrite)
    known = frozen(encoder)
    images = images_of(known, data, split, say or partial(warnings.warn, stacklevel=4))
    about = _about(known, images, split)
    if target is not None:
        refuse_long_names(target, sum(len(each.split) for each in images), max(each.longest_name() for each in images))
    how = Extraction(device, batch_size, workers, max_bad, False, say or Extraction.say, progress, decoder)
    home = next((parameter.device for parameter in known.backbone.parameters()), torch.device("cpu"))
    try:
        return _in_memory(known, images, how) if target is None else _to_file(known, images, how, target, about)
    finally:
        known.backbone.to(home)


def _bad_among(chosen: list[Images], how: Extraction, bad_file: Path | None = None) -> BadImages:
    """What is bad among the images of all splits, which share one list: their share is of all images, too."""
    return BadImages(sum(len(images.split) for images in chosen), how.max_bad, bad_file)


def _in_memory(encoder: FrozenEncoder, chosen: list[Images], how: Extraction) -> Embeddings:
    parts, splits, found = list[Part](), list[str](), _bad_among(chosen, how)
    for images in chosen:
        rows = parts_of(images.split)
        made = compute(encoder, images.split, rows, how, f"{images.part} images", found)
        told = [images.part_of(*pair) for pair in zip(rows, made, strict=True)]
        parts += told
        splits += [images.part] * sum(len(part.paths) for part in told)
    paths = [path for part in parts for path in part.paths]
    labels = [label for part in parts for label in part.labels]
    return Embeddings(paths, labels, np.concatenate([part.vectors for part in parts]), sorted(found.names), splits)


def _about(encoder: FrozenEncoder, chosen: list[Images], split: Which) -> dict[str, Any]:
    """What a table says of itself; a run may have been trained further since."""
    looks = {"encoder": encoder.name, "size": encoder.size, "mean": encoder.mean, "std": encoder.std}
    return looks | {"data": chosen[0].source, "split": split}


def _as_begun(encoder: FrozenEncoder, chosen: list[Images], how: Extraction, kept: Path) -> Extraction:
    """With the decoder of the parts that are there, if any will do: there may be other cores than then."""
    device = best_device(how.device)
    chooses = how.decoder == "auto" and device.type == "cuda" and nvjpeg.works(device)
    for decoder in ("workers", "nvjpeg") if chooses and any(kept.glob(f"*{SUFFIX}")) else ():
        same = replace(how, decoder=decoder)
        if belongs(kept, [key_of(encoder, images, same) for images in chosen]):
            return same
    return how


def _to_file(encoder: FrozenEncoder, chosen: list[Images], how: Extraction, out: Path, about: dict[str, Any]) -> Path:
    """Keep each part beside `out` until all are there, then write these into it one by one."""
    kept, bad_file = out.with_name(f".{out.name}.parts"), out.with_name(f"{out.name}-bad-images.csv")
    how = _as_begun(encoder, chosen, how, kept)
    keys = [key_of(encoder, images, how) for images in chosen]
    if not belongs(kept, keys):
        clear_folder(kept, KEPT)
    bad_file.unlink(missing_ok=True)  # what could not be read is tried again, and listed anew
    store, bad = FeatureStore(kept, UNBOUNDED), _bad_among(chosen, how, bad_file)
    splits = [SplitFeatures(encoder, images, how, store, key, bad) for images, key in zip(chosen, keys, strict=True)]
    try:
        parts = [part for split in splits for part in split.parts()]
    except (KeyboardInterrupt, Stopped) as stop:
        again = f"the same command goes on with what {kept} holds"
        raise stop.interrupted(again) if isinstance(stop, Stopped) else Interrupted(f"Interrupted; {again}.") from None
    good = sum(part.good for part in parts)
    made_by = {"fingerprint": encoder.fingerprint, "preprocessing": PREPROCESSING, "version": __version__}
    write_table(out, read_ahead(parts), Shape(good, parts[0].width), about | made_by)
    clear_folder(kept, KEPT)
    names = (images.name(row) for images in chosen for row in range(len(images.split)))
    if not keeps_names(out) and (strange := sum(printable(name) != name for name in names)):
        how.say(
            f"{counted(strange, 'name')} in {out} cannot be written as UTF-8 and got escapes; .npz and .csv keep them."
        )
    left_out = sum(len(images.split) for images in chosen) - good
    if left_out:
        how.say(f"{counted(left_out, 'image')} cannot be read and had to be left out; see {bad_file}.")
    return out
