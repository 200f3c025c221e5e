"""Where do features wait until their table is written? In parts beside it: an interruption costs one at most."""

import re
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple, TypeVar

import torch
from torch import Tensor

from ..data import BadImages, Split
from ..errors import UserError
from ..eval import Extraction, FrozenEncoder
from ..eval.cache import features_key
from ..eval.extraction import compute
from ..eval.store import SUFFIX, Store
from .images import Images
from .tables import Part

T = TypeVar("T")
PART = 2048  # images whose features are kept together
NAME = rf"[0-9a-f]{{24}}-\d+{re.escape(SUFFIX)}"
KEPT = re.compile(rf"{NAME}|\.{NAME}\.\w+")
"""How files of kept features are called, and those that are being written."""


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
class Keeping:
    """The features of one split: computed where they are missing, and kept."""

    encoder: FrozenEncoder
    images: Images
    how: Extraction
    store: Store
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
        return self.images.told(rows, features)

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
