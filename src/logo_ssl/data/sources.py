"""Where do images come from? A name or a path becomes an `ImageSet`."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from ..errors import DataMissing, UserError, nearest
from .folders import load_folder
from .images import ImageSet
from .lists import load_list
from .named import TINY, imagenet, imagenet100, mit67, scenes, tiny_imagenet
from .npz import load_npz
from .shards import COMPRESSED, load_shards
from .torchvision_sets import KINDS, NOT_DOWNLOADED, torchvision_set

OWN: dict[str, Callable[[Path, int], ImageSet]] = {
    "scenes": scenes,
    "imagenet100": imagenet100,
    "imagenet": imagenet,
    "tiny-imagenet": tiny_imagenet,
    "mit67": mit67,
}
NAMES = OWN | {kind.name.lower(): torchvision_set(kind) for kind in KINDS}
"""Loaders of the sets that have names, from the folder where these are kept and the size of a crop."""
PLACES = {"tiny-imagenet": (f"{TINY}/wnids.txt",)} | {kind.name.lower(): kind.places for kind in KINDS}
"""What lies in that folder once a set is there that can be downloaded, or is placed as if it had been."""
BY_HAND = frozenset(name.lower() for name in NOT_DOWNLOADED)
"""Those of them that must be placed."""

PATHS: dict[tuple[str, ...], Callable[[Path], ImageSet]] = {
    (".npz",): load_npz,
    (".txt", ".lst"): load_list,
    (".tar", *COMPRESSED): lambda path: load_shards(path.stem, [str(path)]),
}
ACCEPTED = "a folder of images or .tar shards, a text file of paths (.txt), an .npz file"


def locate(source: str) -> str:
    """A name as it is, a path made absolute: a run must find its data from any folder."""
    refuse_empty(source)
    return source if source in NAMES else str(absolute(Path(source)))


def absolute(path: Path) -> Path:
    """The path from the root, without `..` where that only leads back: not behind a link, nor behind what is no folder.

    `os.path.normpath` would take `link/..` away, too, which leads to where the link's folder lies.
    """
    root, *parts = path.expanduser().absolute().parts
    kept = Path(root)
    for part in parts:
        leads_back = part == ".." and kept.name != ".." and kept.is_dir() and not kept.is_symlink()
        kept = kept.parent if leads_back else kept / part
    return kept


def load_data(source: str, size: int) -> ImageSet:
    """The data set of that name, or at that path; scenes are painted at `size`, all else is as it is."""
    refuse_empty(source)
    return replace(_found(source, size), source=source, root=_root(source))


def refuse_empty(source: str) -> None:
    """Raise a UserError for no word at all, which as a path would be this folder."""
    if not source.strip():
        raise UserError("data is empty: give a name or a path.")


def _root(source: str) -> str:
    path = data_root() if source in NAMES else Path(source).expanduser()
    return str((path if path.is_dir() else path.parent).absolute())


def _found(source: str, size: int) -> ImageSet:
    if source in NAMES:
        with hinting_at_folder(source):
            return NAMES[source](data_root(), size)
    path = Path(source).expanduser()
    if path.is_dir():
        return load_folder(path)
    for suffixes, load in PATHS.items():
        if path.name.lower().endswith(suffixes) and path.is_file():
            return load(path)
    if path.exists():
        raise UserError(f"{source} is none of what can be read: {ACCEPTED}; give one of these or a name.")
    hint = nearest(path.name.lower(), NAMES, cutoff=0.7)  # a path may be like a name by chance
    known = f"{', '.join(OWN)}, cifar10, stl10 or another of torchvision's classification sets"
    raise DataMissing(f"No data at {source!r}; give {ACCEPTED}, or a name: {known}.{hint}")


def is_placed(source: str) -> bool:
    """Whether nothing would be downloaded."""
    return all((data_root() / place).exists() for place in PLACES.get(source, ()))


@contextmanager
def hinting_at_folder(name: str) -> Iterator[None]:
    """Where a set is missing, and a folder that lies here has its name, that may have been meant."""
    try:
        yield
    except DataMissing as missing:
        hint = f" A folder {name} lies here, too: ./{name} in place of {name} takes it."
        if not Path(name).is_dir() or hint in str(missing):
            raise
        raise DataMissing(f"{missing}{hint}") from missing


@contextmanager
def hinting_at_a_move(source: str, run: str, cure: str) -> Iterator[None]:
    """Where the images of a run are no longer at their path, they may have moved."""
    try:
        yield
    except DataMissing as missing:
        if source in NAMES:
            raise
        told = f"No data at {source!r}, where {run} has its images from; if they have moved, {cure}."
        raise DataMissing(told) from missing


def data_root() -> Path:
    """Where named data sets are kept: $LOGO_DATA, or a folder in the user's cache."""
    return Path(os.environ.get("LOGO_DATA") or "~/.cache/logo-ssl").expanduser()
