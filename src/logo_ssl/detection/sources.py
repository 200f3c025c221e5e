"""Where do pictures with boxes come from? A name, or a folder in Pascal VOC's or COCO's layout."""

import hashlib
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import chain, count
from pathlib import Path
from typing import NamedTuple

from ..data import data_root
from ..errors import DataMissing, UserError, nearest
from ..text import counted
from .coco import read_coco
from .pictures import AGNOSTIC, ONE, PictureSet, Told, ToldPicture, first_of, settled
from .voc import CLASSES, has_list, names_in, read_voc

VOC, COCO = "voc07+12", "coco"
NAMES = (VOC, COCO)
YEARS = ("VOC2007", "VOC2012")
TRAIN, TEST = ("trainval", "train"), ("test", "val")
LAYOUTS = (
    "annotations/*train*.json and *val*.json (COCO), or Annotations/, JPEGImages/ and ImageSets/Main/train.txt and "
    "test.txt (VOC), or train/ and test/ with Annotations/ and JPEGImages/ in each"
)


MISSING = -1
"""The size of a file that is not there."""


class Counts(NamedTuple):
    """How many pictures a set has to train and to test on, and how many classes."""

    train: int
    test: int
    classes: int


OFFICIAL = {VOC: Counts(16_551, 4_952, 20), COCO: Counts(118_287, 5_000, 80)}
"""The sets of the paper's Table 6: known by what they hold, wherever they lie."""


class Detection(NamedTuple):
    """What a detector learns from, and what it is tested on."""

    name: str
    train: PictureSet
    test: PictureSet
    is_voc: bool
    """Whether the 11-point metric of VOC 2007 is the custom."""
    official: bool = False
    """Whether it is one of the sets of the paper's Table 6."""

    @property
    def beside_paper(self) -> bool:
        """Whether its figures can stand beside the paper's: with all classes told apart."""
        return self.official and self.train.classes != AGNOSTIC

    def about(self) -> list[str]:
        """Sentences about what there is, and what was not as it should be."""
        sentences = []
        for what, part in (("train", self.train), ("test", self.test)):
            odd = "".join(f"; {n:,} {ONE.get(of, of) if n == 1 else of}" for of, n in part.counts.items() if n)
            there = f"{counted(len(part), 'picture')}, {counted(part.n_objects, 'object')}"
            sentences.append(f"{self.name}, {what}: {there}{odd}.")
        if both := self._in_both():
            many = f"{counted(len(both), 'picture')} both in train and in test ({first_of(both)})"
            sentences.append(f"{many}; what is learned by heart counts as found.")
        if never := self._never_learned():
            sentences.append(
                f"Test objects of classes that no training picture has cannot be found: {first_of(never)}."
            )
        if self.name in OFFICIAL and not self.official:
            train, test, classes = OFFICIAL[self.name]
            sentences.append(
                f"This is not the {self.name} of Table 6 ({train:,} + {test:,} pictures of {classes} classes), so its "
                "figures are its own."
            )
        return sentences

    def _in_both(self) -> list[str]:
        """Test pictures that are training pictures, byte by byte; only files of a size that both have are read."""
        train, test = ({p.path: _size(p.path) for p in part.pictures} for part in (self.train, self.test))
        shared = set(train.values()) & set(test.values()) - {MISSING}
        known = {_digest(path) for path, size in train.items() if size in shared}
        return [path.name for path, size in test.items() if size in shared and _digest(path) in known]

    def _never_learned(self) -> list[str]:
        """Classes of test objects that no training object has."""
        seen, asked = (
            {int(label) for picture in part.pictures for label in picture.labels} for part in (self.train, self.test)
        )
        return [self.test.classes[label - 1] for label in sorted(asked - seen)]


def _size(file: Path) -> int:
    try:
        return file.stat().st_size
    except OSError:  # others tell of it
        return MISSING


def _digest(file: Path) -> bytes:
    """What only copies have in common; of a file that cannot be read, its name."""
    try:
        content = file.read_bytes()
    except OSError:
        content = os.fsencode(file)
    return hashlib.blake2b(content, digest_size=16).digest()


def load_detection(source: str, agnostic: bool = False, masks: bool = False) -> Detection:
    """The set of that name, or at that path.

    `agnostic` makes one class of all categories; with `masks`, objects without an outline are left out.
    """
    path = folder_of(source)
    if source == VOC:
        return _voc(path, agnostic)
    files = [*sorted((path / "annotations").glob("*.json")), *sorted(path.glob("*.json"))]
    if files:
        return _coco(path, files, agnostic, masks)
    if (path / "VOC2007").is_dir():
        return _voc(path, agnostic)
    if (path / "Annotations").is_dir() and has_list(path, TRAIN) and has_list(path, TEST):
        return _custom(path.name, [*read_voc(path, TRAIN)], [*read_voc(path, TEST)], agnostic)
    parts = [[path / name for name in names if (path / name / "Annotations").is_dir()] for names in (TRAIN, TEST)]
    if all(parts):
        return _custom(path.name, [*read_voc(parts[0][0])], [*read_voc(parts[1][0])], agnostic)
    if (path / "Annotations").is_dir():
        for lists in (TRAIN, TEST):
            names_in(path, lists)  # one of them is missing
    raise UserError(f"{path} has no boxes to learn from and to test on; it needs {LAYOUTS}.")


def folder_of(source: str) -> Path:
    """Where the set of that name or path lies; if nowhere, what to place where."""
    if not source.strip():
        raise UserError("data is empty: give a name or a path.")
    if source == VOC:
        devkit = data_root() / "VOCdevkit"
        _refuse_half(devkit)
        return devkit
    path = data_root() / COCO if source == COCO else Path(source).expanduser()
    if path.is_dir():
        return path
    if source == COCO:
        raise DataMissing(
            f"coco is not in {path}; place train2017/, val2017/ and annotations/instances_train2017.json and "
            f"instances_val2017.json there, or point LOGO_DATA at the folder that holds {COCO}/."
        )
    named = f"give a folder with {LAYOUTS}, or a name: {', '.join(NAMES)}.{nearest(source, NAMES)}"
    raise DataMissing(f"No data at {source!r}; {named}")


def _refuse_half(devkit: Path) -> None:
    places = [devkit / year for year in YEARS]
    if not all((place / "Annotations").is_dir() for place in places):
        raise DataMissing(
            f"{VOC} is not in {devkit}; unpack VOCtrainval and VOCtest of 2007 and VOCtrainval of 2012 there, so that "
            f"{places[0]} and {places[1]} exist, or point LOGO_DATA at the folder that holds VOCdevkit/."
        )


def _voc(devkit: Path, agnostic: bool) -> Detection:
    """The official years: trainval of 2007 and 2012, and test of 2007."""
    _refuse_half(devkit)
    places = [devkit / year for year in YEARS]
    train = chain.from_iterable(read_voc(place, ("trainval",)) for place in places)
    test = read_voc(places[0], ("test",))
    return _both(VOC, train, test, CLASSES, agnostic, is_voc=True)


def _custom(name: str, train: list[ToldPicture], test: list[ToldPicture], agnostic: bool) -> Detection:
    """Any other pictures in VOC's layout: their classes are those of the training pictures."""
    told: list[Told] = [found for picture in train for found in picture.objects]
    classes = sorted({found.category for found in told if found.category})
    classes = CLASSES if set(classes) <= set(CLASSES) else classes
    return _both(name, train, test, classes, agnostic, is_voc=True)


def _coco(root: Path, files: list[Path], agnostic: bool, masks: bool) -> Detection:
    read = []
    for names in (TRAIN, TEST):
        fitting = [file for name in names for file in files if name in _words(file)]
        fitting = [file for file in fitting if "instances" in file.stem] or fitting
        if not fitting:
            raise UserError(f"{files[0].parent} has no JSON file named after {' or '.join(names)}; it needs {LAYOUTS}.")
        file = fitting[0]
        part = next(name for name in names if name in _words(file))
        folders = [root / file.stem.removeprefix("instances_"), root / part, root / f"{part}2017", root / "images"]
        read.append(read_coco(file, [*folders, root, file.parent]))
    train, test = read
    classes = tuple(train.categories)
    both = _both(root.name, train.pictures, test.pictures, classes, agnostic, is_voc=False, masks=masks)
    return both if agnostic else both._replace(test=replace(both.test, numbers=_numbers(classes, test.categories)))


def _numbers(classes: Sequence[str], known: Mapping[str, int]) -> tuple[int, ...]:
    """The numbers of the classes in a file; a class that it does not know gets one that it does not use."""
    new = count(max(known.values(), default=0) + 1)
    return tuple(known[name] if name in known else next(new) for name in classes)


def _words(file: Path) -> list[str]:
    """The words of a file's name: `instances_val2017` tells of val, and `trainval` does not."""
    return re.findall("[a-z]+", file.stem.lower())


def _both(
    name: str,
    told_train: Iterable[ToldPicture],
    told_test: Iterable[ToldPicture],
    classes: Sequence[str],
    agnostic: bool,
    is_voc: bool,
    masks: bool = False,
) -> Detection:
    train, test = (settled(told, classes, agnostic, masks) for told in (told_train, told_test))
    if test.strange:
        raise UserError(
            f"The test of {name} has objects of classes that train does not have ({test.strange.total():,}: "
            f"{first_of([*test.strange])}); add training pictures of them, take them out of the test, or make one "
            "class of all with --agnostic."
        )
    for what, part in (("train", train), ("test", test)):
        if not part.n_objects:
            raise UserError(f"{name} has no objects of known categories to {what} on; look at its annotations.")
    known_as = VOC if is_voc else COCO
    official = OFFICIAL[known_as] == (len(train), len(test), len(classes))
    return Detection(known_as if official else name, train, test, is_voc, official)
