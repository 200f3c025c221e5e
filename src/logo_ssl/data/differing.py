"""Which images are others than before? Names are noted in a few places, so that a sentence can say where."""

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import groupby
from posixpath import basename
from typing import Any, NamedTuple
from zlib import crc32

import numpy as np
from torch import Tensor

from ..text import counted, listed, on_one_line
from .fingerprints import folder_of_all, name_below
from .images import ImageSet, Photos

PLACES, FEW = 64, 1024  # of a split, however large it is; of as many images as this, each has a place of its own
MOST_TOLD = 3
UNKNOWN = "of other names, order or contents"


class Place(NamedTuple):
    """The images whose names come from this one on in the alphabet, before the next place: how many, and a checksum."""

    first: str
    n: int
    checksum: int


def names_noted(data: ImageSet) -> dict[str, list[Place]]:
    """What a run notes of the names of its images, beside their fingerprint; an array has none."""
    splits = {"train": data.train, "val": data.val, "test": data.test}
    images = {part: split.images for part, split in splits.items() if split is not None}
    return {part: _noted(found) if isinstance(found, Photos) else [] for part, found in images.items()}


def difference(n_then: int, noted: Sequence[Sequence[Any]] | None, images: Tensor | Photos) -> str:
    """How images differ from those of before: how many there are and, by what was noted of their names, where."""
    counts = counted(n_then, "image") + (f" then, {n_now:,} now" if (n_now := len(images)) != n_then else "")
    if noted is None:
        return counts if n_then != n_now else f"{counts} {UNKNOWN}"
    if bool(noted) != isinstance(images, Photos):
        return f"{counts}; {'files then, an array now' if noted else 'an array then, files now'}, which count as others"
    if not isinstance(images, Photos):
        return counts if n_then != n_now else f"{counts} of other pixels or in another order"
    where = _where([Place(*place) for place in noted], images)
    return f"{counts}: {where}" if where else f"{counts} of the same names, with other contents or in another order"


def _where(then: Sequence[Place], photos: Photos) -> str:
    """The places where names differ, neighbours as one, in words; nothing where none does."""
    above = folder_of_all(photos)
    if named := _named(then, Counter(_names(photos, above))):
        return named
    now = _counted([place.first for place in then], _names(photos, above))
    changed = [[*places] for differs, places in groupby(range(len(then)), lambda i: then[i] != now[i]) if differs]
    if changed == [[*range(len(then))]]:
        firsts, names = {place.first for place in then}, {*_names(photos, above)}
        is_moved = not firsts & names and {*map(basename, firsts)} <= {*map(basename, names)}
        moved = " (files are called as before, but lie in other folders)" if is_moved else ""
        first, first_now = on_one_line(min(firsts)), on_one_line(min(names, default="none"))
        return f"others everywhere, the first {first} then, {first_now} now{moved}"
    told = [_told(then, now, places[0], places[-1] + 1) for places in changed[:MOST_TOLD]]
    more = [f"{counted(len(changed) - MOST_TOLD, 'place')} more"] if len(changed) > MOST_TOLD else []
    return listed([*told, *more])


def _named(then: Sequence[Place], now: Counter[str]) -> str:
    """Which names are new and which gone, in words; nothing where not all of then are known, or none is left."""
    before = Counter({place.first: place.n for place in then})
    if any(place.checksum != place.n * _checksum(place.first) % 2**32 for place in then) or not before & now:
        return ""
    return ", ".join(_few(names, what) for names, what in ((now - before, "new"), (before - now, "gone")) if names)


def _few(names: Counter[str], what: str) -> str:
    found = sorted(names.elements())
    more = [counted(len(found) - MOST_TOLD, "other")] if len(found) > MOST_TOLD else []
    return f"{listed([*map(on_one_line, found[:MOST_TOLD]), *more])} {what}"


def _told(then: Sequence[Place], now: Sequence[Place], begin: int, end: int) -> str:
    n_then, n_now = (sum(place.n for place in places[begin:end]) for places in (then, now))
    first = on_one_line(then[begin].first)
    if n_then == 1 >= n_now:
        return f"another in place of {first}" if n_now else f"{first} is gone"
    numbers = f"{n_then:,} then and {n_now:,} now" if n_then != n_now else f"other names of {n_then:,}"
    since = f" from {first}" if begin else ""  # the first place has what comes before it, too
    return f"{numbers}{since} up to {on_one_line(then[end].first)}" if end < len(then) else f"{numbers}{since} on"


def _noted(photos: Photos) -> list[Place]:
    n, above = len(photos), folder_of_all(photos)
    rows = np.linspace(0, n - 1, n if n <= FEW else PLACES).astype(int)
    firsts = {name_below(above, photos.name(row)) for row in rows.tolist()}
    return _counted(sorted(firsts), _names(photos, above))


def _names(photos: Photos, above: str) -> Iterable[str]:
    return (name_below(above, photos.name(row)) for row in range(len(photos)))


def _counted(firsts: Sequence[str], names: Iterable[str]) -> list[Place]:
    """How many names there are in each place, whatever their order; those before all places are in the first."""
    n, checksums = [0] * len(firsts), [0] * len(firsts)
    for name in names:
        i = max(0, bisect_right(firsts, name) - 1)
        n[i] += 1
        checksums[i] = (checksums[i] + _checksum(name)) % 2**32
    return [Place(*told) for told in zip(firsts, n, checksums, strict=True)]


def _checksum(name: str) -> int:
    return crc32(name.encode(errors="surrogateescape"))
