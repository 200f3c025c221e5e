"""Which images lie in a folder? All at any depth; class folders are labels, train/ and val/ are splits."""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from heapq import heappop, heappush
from pathlib import Path

from ..errors import UserError
from .files import SUFFIXES, Paths
from .images import ImageSet, Photos, Split
from .labels import HELD_OUT, classes_of, numbered
from .shards import find_shards, load_shards

NOT_DATA = {"__MACOSX", "lost+found"}  # what archives and file systems leave behind


def load_folder(folder: Path) -> ImageSet:
    """The images of a folder, or of the tar shards in it."""
    train, tests = _splits(str(folder))
    paths, shards = find_images(train), find_shards(train)
    if shards and len(shards) >= len(paths):  # previews beside shards, not images beside their archive
        held_out = next((found for test in tests if (found := find_shards(test))), [])
        return load_shards(folder.absolute().name, shards, held_out)
    if not paths:
        raise UserError(f"No images in {train} (looked for {', '.join(sorted(SUFFIXES))} at any depth, and .tar).")
    names = _class_names(train, paths)
    classes = classes_of(names) if None not in names else ()
    held_out = [split_of(found, _class_names(test, found), classes) for test in tests if (found := find_images(test))]
    test = next(iter(sorted(held_out, key=lambda split: not split.has_labels)), None)  # ImageNet's val/ has, test/ not
    return ImageSet(folder.absolute().name, split_of(paths, names, classes), test, classes)


def split_of(paths: Sequence[str], names: Sequence[str | None], classes: tuple[str, ...]) -> Split:
    """The images at these paths, labelled by their classes' names."""
    return Split(Photos.all(Paths(paths)), numbered(names, classes))


def find_images(folder: str) -> list[str]:
    """All images below, sorted; each real folder is entered once, so circles of links end."""
    found: list[str] = []
    entered: set[tuple[int, int]] = set()
    folders, links = [folder], list[str]()
    while folders or links:
        here = folders.pop() if folders else heappop(links)  # links last: an image's own folder is its class
        with _reading(here):
            status = os.stat(here)
        if (identity := (status.st_dev, status.st_ino)) in entered:
            continue
        entered.add(identity)
        for entry in _entries(here):
            if names_image(entry.name) and (entry.is_file(follow_symlinks=False) or entry.is_symlink()):
                found.append(entry.path)
            elif entry.is_symlink() and os.path.isdir(entry.path):
                heappush(links, entry.path)
            elif entry.is_dir(follow_symlinks=False):
                folders.append(entry.path)
    return sorted(found)


def _splits(folder: str) -> tuple[str, list[str]]:
    """The folder to train on and those that may be held out; a class may be called train, too."""
    within = _subfolders(folder)
    tests = [os.path.join(folder, name) for name in HELD_OUT if name in within]
    train = os.path.join(folder, "train")
    if "train" in within and (tests or within == {"train"} or _subfolders(train)):
        return train, tests
    return folder, []


def _subfolders(folder: str) -> set[str]:
    return {entry.name for entry in _entries(folder) if not names_image(entry.name) and os.path.isdir(entry.path)}


def _entries(folder: str) -> list[os.DirEntry[str]]:
    with _reading(folder), os.scandir(folder) as entries:
        return [entry for entry in entries if not entry.name.startswith(".") and entry.name not in NOT_DATA]


@contextmanager
def _reading(folder: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise UserError(f"{folder} cannot be read ({error.strerror}); make it readable or move it away.") from error


def names_image(name: str) -> bool:
    """Whether a file of that name should be an image."""
    return name[name.rfind(".") :].lower() in SUFFIXES


def _class_names(folder: str, paths: Sequence[str]) -> list[str | None]:
    """The folder directly below that each image lies in; none for those that lie in no folder."""
    start = len(os.path.join(folder, ""))
    parts = (path[start:].partition(os.sep) for path in paths)
    return [name if inside else None for name, _, inside in parts]
