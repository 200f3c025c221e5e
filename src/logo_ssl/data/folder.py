"""Images in folders: class folders are labels, train/, val/ and test/ splits; lists of paths; ImageNet's layouts."""

import os
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from heapq import heappop, heappush
from importlib.resources import files
from pathlib import Path
from typing import NamedTuple

from ..errors import DataMissing, UserError
from ..run import Run
from .decode import ending, list_endings, suffixes
from .images import HELD_OUT, ImageSet, Split, classes_of, test_and_val
from .shards import find_shards, load_shards

NOT_DATA = {"__MACOSX", "lost+found"}  # what archives and file systems leave behind
LONGEST_LINE = 8_192  # characters, since Linux takes paths of 4,096 bytes
IMAGENETS = ("imagenet", "ILSVRC2012")  # what people call the folder
TINY_URL = "http://cs231n.stanford.edu/tiny-imagenet-200.zip"


class Contents(NamedTuple):
    """What is in a folder at any depth."""

    images: list[str]
    """Paths, sorted."""
    others: Counter[str]
    """How many other files there are, by the endings of their names, and runs of ours."""


def load_folder(folder: Path) -> ImageSet:
    """The images of a folder, or of the tar shards in it."""
    name, (train, held_out) = folder.absolute().name, _splits(str(folder))
    found, shards = find_images(train), find_shards(train)
    if shards and len(shards) >= len(found.images):  # previews beside shards, not images beside their archive
        others = Counter({"images beside shards": len(found.images)}) + found.others
        del others[".tar"]
        data = load_shards(name, shards, {part: some for part, path in held_out.items() if (some := find_shards(path))})
        return replace(data, says=(*_passed_over(train, others), *data.says))
    if not found.images:
        others = f"; there are {list_endings(found.others)}" if found.others else ""
        looked_for = ", ".join(sorted(suffixes()))
        raise UserError(f"No images in {train} (looked for {looked_for} at any depth, and .tar){others}.")
    rows = _with_classes(train, found.images)
    names = {name for _, name in rows}
    classes = classes_of(names) if None not in names else ()
    splits, others = dict[str, Split](), found.others
    for part, path in held_out.items():
        images, more = find_images(path)
        others += more
        if images:
            splits[part] = Split.from_rows(_with_classes(path, images), classes)
    test, val = test_and_val(splits)
    return ImageSet(name, Split.from_rows(rows, classes), test, classes, val, says=_passed_over(folder, others))


def _passed_over(folder: str | Path, others: Counter[str]) -> tuple[str, ...]:
    return (f"Passed over in {folder}: {list_endings(others)}.",) if others else ()


def find_images(folder: str) -> Contents:
    """All images below, and what else; each real folder is entered once, so circles of links end.

    Whoever works among their photographs has runs of ours there: these are passed over.
    """
    images, others, entered = list[str](), Counter[str](), set[tuple[int, int]]()
    folders, links = [folder], list[str]()
    while folders or links:
        here = folders.pop() if folders else heappop(links)  # links last: an image's own folder is its class
        status = os.stat(here)
        if (identity := (status.st_dev, status.st_ino)) in entered:
            continue
        entered.add(identity)
        if here != folder and _is_run(here):
            others["run folders of logo-ssl"] += 1
            continue
        for entry in _entries(here):
            if ending(entry.name) in suffixes() and (entry.is_file(follow_symlinks=False) or entry.is_symlink()):
                images.append(entry.path)
            elif entry.is_symlink() and os.path.isdir(entry.path):
                heappush(links, entry.path)
            elif entry.is_dir(follow_symlinks=False):
                folders.append(entry.path)
            else:
                others[ending(entry.name)] += 1
    return Contents(sorted(images), others)


def _is_run(folder: str) -> bool:
    run = Run(folder)
    return os.path.isfile(run.recipe_file) and os.path.isfile(run.metrics_file)


def _splits(folder: str) -> tuple[str, dict[str, str]]:
    """The folder to train on and those that may be held out, by name; a class may be called train as well."""
    within = _subfolders(folder)
    held_out = {name: os.path.join(folder, name) for name in HELD_OUT if name in within}
    train = os.path.join(folder, "train")
    if "train" in within and (held_out or within == {"train"} or _subfolders(train)):
        return train, held_out
    return folder, {}


def _subfolders(folder: str) -> set[str]:
    return {entry.name for entry in _entries(folder) if os.path.isdir(entry.path) and not _is_run(entry.path)}


def _entries(folder: str) -> list[os.DirEntry[str]]:
    with os.scandir(folder) as entries:
        return [entry for entry in entries if not entry.name.startswith(".") and entry.name not in NOT_DATA]


def _with_classes(folder: str, paths: Sequence[str]) -> list[tuple[str, str | None]]:
    """Each image with the folder directly below in which it is; None for those that are in the folder itself."""
    start = len(os.path.join(folder, ""))
    parts = ((path, *path[start:].partition(os.sep)) for path in paths)
    return [(path, name if inside else None) for path, name, _, inside in parts]


def load_list(file: Path) -> ImageSet:
    """One path a line, absolute or from the file's folder; behind it may be a tab and a label, or a number."""
    folder = str(file.absolute().parent)
    try:
        lines = [line.strip() for line in file.read_text("utf-8-sig").split("\n")]
    except UnicodeDecodeError as error:
        raise UserError(f"{file}: must be UTF-8 text, one path a line ({error}).") from error
    for number, line in enumerate(lines, start=1):
        if len(line) > LONGEST_LINE:
            raise UserError(f"{file}: line {number} has {len(line):,} characters; write one path a line.")
    rows = [_row(line, folder) for line in lines if line and not line.startswith("#")]
    if not rows:
        raise UserError(f"{file} names no images; write one path a line, absolute or from {folder}.")
    classes = classes_of(name for _, name in rows)
    return ImageSet(file.stem, Split.from_rows(rows, classes), None, classes)


def _row(line: str, folder: str) -> tuple[str, str | None]:
    path, tab, name = line.rpartition("\t")
    if not tab and (numbered := re.fullmatch(r"(.*\S)\s+(-?\d+)", line)):
        path, name = numbered.groups()
    if not path:
        return os.path.join(folder, line), None
    return os.path.join(folder, path.rstrip()), None if name.lstrip().startswith("-") else name.strip()


def load_imagenet(name: str, root: Path, size: int) -> ImageSet:
    """All classes that an ImageNet folder has or, as imagenet100, those of CMC (Tian et al. 2020)."""
    hundred = files("logo_ssl.data").joinpath("imagenet100.txt").read_text("utf-8").split()
    places = IMAGENETS if name == "imagenet" else (name, *IMAGENETS)
    folder = next((root / place for place in places if (root / place / "train").is_dir()), None)
    if folder is None:
        raise DataMissing(
            f"{name} cannot be downloaded freely; place ImageNet as {root / places[0]}/train/CLASS/*.JPEG and "
            f"val/CLASS/*.JPEG (CLASS is n01558993 and so on), or set LOGO_DATA to another folder than {root}."
        )
    train, val = folder / "train", folder / "val"
    wnids = hundred if name == "imagenet100" else [entry.name for entry in _entries(str(train)) if entry.is_dir()]
    classes = tuple(sorted(wnids))
    return ImageSet(name, _classes_in(train, classes), _classes_in(val, classes) if val.is_dir() else None, classes)


def _classes_in(folder: Path, classes: tuple[str, ...]) -> Split:
    found = {name: find_images(str(folder / name)).images for name in classes if (folder / name).is_dir()}
    missing = [name for name in classes if not found.get(name)]
    if missing or not classes:
        raise DataMissing(
            f"{folder} has no images of {', '.join(missing[:3]) or 'any class'}; place them as CLASS/*.JPEG there."
        )
    return Split.from_rows([(path, name) for name in classes for path in found[name]], classes)


def load_tiny_imagenet(root: Path, size: int) -> ImageSet:
    """200 classes at 64 px; what val/ shows is in a text file."""
    folder = root / "tiny-imagenet-200"
    try:
        classes = tuple(sorted((folder / "wnids.txt").read_text("utf-8").split()))
        lines = (folder / "val" / "val_annotations.txt").read_text("utf-8").splitlines()
    except OSError as error:
        raise DataMissing(f"tiny-imagenet is not in {root} ({error}); unpack {TINY_URL} there.") from error
    rows = (line.split("\t")[:2] for line in lines if line)  # the file and its class; a box follows
    images = os.path.join(folder, "val", "images", "")
    test = Split.from_rows([(images + file, name) for file, name in rows], classes)
    return ImageSet("tiny-imagenet", _classes_in(folder / "train", classes), test, classes)


def load_mit67(root: Path, size: int) -> ImageSet:
    """MIT Indoor-67 with its official lists of 80 training and 20 test images a class."""
    folder = root / "mit67"
    try:
        lists = [(folder / f"{part}Images.txt").read_text("utf-8").split("\n") for part in ("Train", "Test")]
    except OSError as error:
        raise DataMissing(
            f"mit67 is not in {root} ({error}); unpack indoorCVPR_09 (web.mit.edu/torralba/www/indoor.html) there, so "
            f"that {folder}/Images/CLASS/*.jpg and {folder}/TrainImages.txt exist."
        ) from error
    images = os.path.join(folder, "Images", "")
    parts = [[(images + line.strip(), line.split("/")[0]) for line in lines if line.strip()] for lines in lists]
    classes = classes_of(name for rows in parts for _, name in rows)
    train, test = (Split.from_rows(rows, classes) for rows in parts)
    return ImageSet("mit67", train, test, classes)
