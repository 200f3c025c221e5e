"""Which images lie in a folder? All at any depth; class folders are labels, train/, val/ and test/ are splits."""

import os
import stat
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import cache
from heapq import heappop, heappush
from pathlib import Path
from typing import NamedTuple

from ..errors import UserError
from ..run import Run
from ..text import counted, listed
from .files import Paths
from .formats import ending, names_image, suffixes, told
from .images import ImageSet, Photos, Split
from .labels import HELD_OUT, classes_of, numbered, test_and_val
from .shards import find_shards, load_shards

NOT_DATA = {"__MACOSX", "lost+found"}  # what archives and file systems leave behind
MOST_TOLD = 3  # folders that a sentence names


class Contents(NamedTuple):
    """What lies in a folder at any depth."""

    images: list[str]
    """Paths, sorted."""
    passed_over: Counter[str]
    """How many other files there are, by the endings of their names."""
    linked: Counter[str]
    """How many of the images each symbolic link leads to, by the link's path."""
    runs: int
    """How many runs of ours lie there, whose pictures are nobody's photographs."""


def load_folder(folder: Path) -> ImageSet:
    """The images of a folder, or of the tar shards in it."""
    name, (train, held_out) = folder.absolute().name, _splits(str(folder))
    found, shards = look_through(train), find_shards(train)
    if shards and len(shards) >= len(found.images):  # previews beside shards, not images beside their archive
        says = [f"Passed over in {train}: {counted(len(found.images), 'image')} beside shards."] if found.images else []
        data = load_shards(
            name, shards, {part: there for part, path in held_out.items() if (there := find_shards(path))}
        )
        return replace(data, says=(*says, *data.says))
    if not found.images:
        others = f"; there are {told(found.passed_over)}" if found.passed_over else ""
        others += f"; passed over: {counted(found.runs, 'run')}" if found.runs else ""
        looked_for = ", ".join(sorted(suffixes()))
        raise UserError(f"No images in {train} (looked for {looked_for} at any depth, and .tar){others}.")
    names = _class_names(train, found.images)
    classes = classes_of(names) if None not in names else ()
    seen = {part: there for part, path in held_out.items() if (there := look_through(path)).images}
    splits = {
        part: split_of(there.images, _class_names(held_out[part], there.images), classes)
        for part, there in seen.items()
    }
    test, val = test_and_val({part: split.has_labels for part, split in splits.items()})
    used = {train: found} | {held_out[part]: seen[part] for part in (val, test) if part is not None}
    labelled = split_of(found.images, names, classes)
    return ImageSet(
        name,
        labelled,
        None if test is None else splits[test],
        classes,
        None if val is None else splits[val],
        says=(*_left_out(str(folder), used), *_from_outside(str(folder), used)),
        labelled_by_folders=labelled.has_labels,
        test_is=test,
    )


def _left_out(folder: str, used: Mapping[str, Contents]) -> Iterator[str]:
    """Sentences about what a folder holds beside the images that are used."""
    passed_over = sum((found.passed_over for found in used.values()), Counter[str]())
    if folder not in used:  # but parts of it
        others = {entry.name: os.path.isdir(entry.path) for entry in _entries(folder) if entry.path not in used}
        folders = sorted(name for name, is_folder in others.items() if is_folder)
        if folders:
            parts = listed([f"{os.path.basename(part)}/" for part in used])
            are = "is" if len(used) == 1 else "are"
            yield f"Left out of {folder}, of which {parts} {are} used: {', '.join(f'{name}/' for name in folders)}."
        passed_over.update(ending(name) for name, is_folder in others.items() if not is_folder)
    if passed_over:
        yield f"Passed over in {folder}: {told(passed_over)}."
    if runs := sum(found.runs for found in used.values()):
        yield f"Passed over in {folder}: {counted(runs, 'run')} of logo-ssl."


def _from_outside(folder: str, used: Mapping[str, Contents]) -> Iterator[str]:
    """A sentence about images that do not lie in a folder; a link that leads nowhere brings none."""
    places = Counter[str]()

    @cache  # a million links may lead to one folder
    def real(path: str) -> str:
        return os.path.realpath(path)

    for link, n in (pair for found in used.values() for pair in found.linked.items()):
        with suppress(OSError):
            places[_leads_to(link, real)] += n
    inside = os.path.join(real(folder), "")
    outside = {place: n for place, n in places.items() if not os.path.join(place, "").startswith(inside)}
    if outside:
        largest, more = sorted(outside, key=lambda place: (-outside[place], place)), len(outside) - MOST_TOLD
        where = listed([*largest[:MOST_TOLD], *([counted(more, "other folder")] if more > 0 else [])])
        yield f"Taken from outside of {folder}, by links to {where}: {counted(sum(outside.values()), 'image')}."


def _leads_to(link: str, real: Callable[[str], str]) -> str:
    """The folder at the end of a link, or that of the image there; OSError where it leads nowhere, or in a circle."""
    is_folder = stat.S_ISDIR(os.stat(link).st_mode)
    while os.path.islink(link):
        link = os.path.join(os.path.dirname(link), os.readlink(link))
    return real(link if is_folder else os.path.dirname(link))


def split_of(paths: Sequence[str], names: Sequence[str | None], classes: tuple[str, ...]) -> Split:
    """The images at these paths, labelled by their classes' names."""
    return Split(Photos.all(Paths(paths)), numbered(names, classes))


def find_images(folder: str) -> list[str]:
    """All images below, sorted."""
    return look_through(folder).images


def look_through(folder: str) -> Contents:
    """All images below, and what else; each real folder is entered once, so circles of links end.

    Whoever works among their photographs has runs of ours there, too: these are passed over.
    """
    found, others, runs, ways = list[str](), Counter[str](), 0, dict[str, str]()
    entered: set[tuple[int, int]] = set()
    folders: list[tuple[str, str | None]] = [(folder, folder if os.path.islink(folder) else None)]  # and how we came
    links = list[str]()
    while folders or links:
        if not folders:  # links last: an image's own folder is its class
            last = heappop(links)
            folders.append((last, last))
        here, link = folders.pop()
        with _reading(here):
            status = os.stat(here)
        if (identity := (status.st_dev, status.st_ino)) in entered:
            continue
        entered.add(identity)
        if here != folder and _is_run(here):
            runs += 1
            continue
        for entry in _entries(here):
            if names_image(entry.name) and (entry.is_file(follow_symlinks=False) or entry.is_symlink()):
                found.append(entry.path)
                if by := entry.path if entry.is_symlink() else link:
                    ways[entry.path] = by
            elif entry.is_symlink() and os.path.isdir(entry.path):
                heappush(links, entry.path)
            elif entry.is_dir(follow_symlinks=False):
                folders.append((entry.path, link))
            else:
                others[ending(entry.name)] += 1
    return Contents(sorted(found), others, Counter(ways.values()), runs)


def _is_run(folder: str) -> bool:
    run = Run(folder)
    return os.path.isfile(run.recipe_file) and os.path.isfile(run.metrics_file)  # not where we may not look


def _splits(folder: str) -> tuple[str, dict[str, str]]:
    """The folder to train on and those that may be held out, by name; a class may be called train, too."""
    within = _subfolders(folder)
    held_out = {name: os.path.join(folder, name) for name in HELD_OUT if name in within}
    train = os.path.join(folder, "train")
    if "train" in within and (held_out or within == {"train"} or _subfolders(train)):
        return train, held_out
    return folder, {}


def _subfolders(folder: str) -> set[str]:
    found = (entry for entry in _entries(folder) if not names_image(entry.name) and os.path.isdir(entry.path))
    return {entry.name for entry in found if not _is_run(entry.path)}


def _entries(folder: str) -> list[os.DirEntry[str]]:
    with _reading(folder), os.scandir(folder) as entries:
        return [entry for entry in entries if not entry.name.startswith(".") and entry.name not in NOT_DATA]


@contextmanager
def _reading(folder: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise UserError(f"{folder} cannot be read ({error.strerror}); make it readable or move it away.") from error


def _class_names(folder: str, paths: Sequence[str]) -> list[str | None]:
    """The folder directly below that each image lies in; none for those that lie in no folder."""
    start = len(os.path.join(folder, ""))
    parts = (path[start:].partition(os.sep) for path in paths)
    return [name if inside else None for name, _, inside in parts]
