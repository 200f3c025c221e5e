"""Images with objects: VOC 07+12, COCO, or a folder in either layout, with clean annotations."""

import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float32, Int64, UInt8

from ..data import data_root
from ..data.decode import BadImage, decode, plain_reason, seen_size
from ..errors import DataMissing, UserError, nearest
from ..system.terminal import counted
from .formats import (
    UNKNOWN,
    ImageAnnotation,
    ObjectAnnotation,
    RunLengths,
    decoded,
    has_outline,
    read_coco,
    read_voc,
    run_lengths,
    voc_list,
)

VOC, COCO = "voc07+12", "coco"
SHRUNK = 64
"""Pixels: JPEG is decoded faster when it is shrunk, and a broken file stays broken."""
NAMED = 5
"""Names that a message lists; the rest are counted."""
AGNOSTIC = ("object",)
"""The one class when all categories are the same."""
VOC_CLASSES = (
    *("aeroplane", "bicycle", "bird", "boat", "bottle", "bus", "car", "cat", "chair", "cow"),
    *("diningtable", "dog", "horse", "motorbike", "person", "pottedplant", "sheep", "sofa", "train", "tvmonitor"),
)
YEARS = ("VOC2007", "VOC2012")
TRAIN, TEST = ("trainval", "train"), ("test", "val")
LAYOUTS = (
    "annotations/*train*.json and *val*.json (COCO), or Annotations/, JPEGImages/ and ImageSets/Main/train.txt and "
    "test.txt (VOC), or train/ and test/ with Annotations/ and JPEGImages/ in each"
)


OFFICIAL = {VOC: (16_551, 4_952, 20), COCO: (118_287, 5_000, 80)}
"""Training images, test images and classes of the paper's Table 6: its sets are known by them, wherever they are."""


class UnusableImage(UserError):  # noqa: N818 (a state of its file)
    """An image that cannot be used, and why."""


@dataclass(frozen=True, eq=False)
class AnnotatedImage:
    """Where an image is, and the objects in it."""

    path: Path
    height: int
    width: int
    boxes: Float32[np.ndarray, "n 4"]
    labels: Int64[np.ndarray, " n"]
    """1 and more; 0 is the background."""
    crowd: Bool[np.ndarray, " n"]
    """Groups in one box: neither examples to learn from, nor mistakes to find."""
    difficult: Bool[np.ndarray, " n"]
    """Learned from, but neither asked for nor counted by VOC's metric."""
    area: Float32[np.ndarray, " n"]
    segmentations: tuple[Any, ...]
    number: Any = None
    """Its id in the annotation file."""

    @property
    def asked(self) -> Bool[np.ndarray, " n"]:
        """Which objects a test asks for: neither crowds nor difficult ones."""
        return ~(self.crowd | self.difficult)

    def pixels(self) -> UInt8[np.ndarray, "H W 3"]:
        """The image itself."""
        with self._naming_itself():
            seen = decode(self.path.read_bytes())
        self._check_size(*seen.shape[:2])
        return seen

    def run_lengths(self, row: int) -> RunLengths:
        """The mask of an object."""
        try:
            return run_lengths(self.segmentations[row], self.height, self.width)
        except UserError as error:
            raise UnusableImage(f"{self.path}, object {row + 1} at {self.boxes[row].tolist()}: {error}") from error

    def mask(self, row: int) -> UInt8[np.ndarray, "H W"]:
        """The pixels of an object's mask, 0 or 1."""
        return decoded(self.run_lengths(row), self.height, self.width)

    def check(self, masks: bool = False) -> None:
        """Raise an UnusableImage if the file or a mask is broken."""
        with self._naming_itself():
            size = seen_size(self.path)
            decode(self.path.read_bytes(), SHRUNK)
        self._check_size(*size)
        for row in range(len(self.segmentations) if masks else 0):
            self.run_lengths(row)

    @contextmanager
    def _naming_itself(self) -> Iterator[None]:
        try:
            yield
        except (OSError, BadImage) as error:
            raise UnusableImage(f"{self.path} cannot be read ({plain_reason(error)}).") from error

    def _check_size(self, height: int, width: int) -> None:
        if (height, width) != (self.height, self.width):
            told = f"{width} x {height} px, but {self.width} x {self.height} px in its annotation"
            raise UnusableImage(f"{self.path} is {told}.")


@dataclass(frozen=True, eq=False)
class AnnotatedImages:
    """Images with objects of some classes, and how many were corrected, dropped or left out."""

    classes: tuple[str, ...]
    images: tuple[AnnotatedImage, ...]
    counts: Counter[str] = field(default_factory=Counter)
    unknown: Counter[str] = field(default_factory=Counter)
    """Objects of categories that are not classes here, dropped."""
    numbers: tuple[int | None, ...] = ()
    """Ids of the classes in the annotation file, if it lists them."""

    def __len__(self) -> int:
        return len(self.images)

    @property
    def n_objects(self) -> int:
        """Objects in all images."""
        return sum(len(image.labels) for image in self.images)


class DetectionData(NamedTuple):
    """What a detector learns from, and what it is tested on."""

    name: str
    train: AnnotatedImages
    test: AnnotatedImages
    is_voc: bool
    """Whether the 11-point metric of VOC 2007 is the custom."""
    official: bool = False
    """Whether it is one of the sets of the paper's Table 6."""

    @property
    def comparable_with_paper(self) -> bool:
        """Whether its figures can be compared with the paper's: with all classes apart."""
        return self.official and self.train.classes != AGNOSTIC

    def about(self) -> list[str]:
        """One line for each part, and a warning of test images in train and of classes that train lacks."""
        lines = []
        for what, part in (("train", self.train), ("test", self.test)):
            odd = "".join(f"; {n:,} {of}" for of, n in part.counts.items() if n)
            lines.append(
                f"{self.name}, {what}: {counted(len(part), 'image')}, {counted(part.n_objects, 'object')}{odd}."
            )
        train, test = (
            {image.path: image.path.stat().st_size for image in part.images if image.path.is_file()}
            for part in (self.train, self.test)
        )
        shared = set(train.values()) & set(test.values())  # only files of these sizes are read
        known = {_digest(path) for path, size in train.items() if size in shared}
        if both := [path.name for path, size in test.items() if size in shared and _digest(path) in known]:
            lines.append(f"Both in train and in test: {counted(len(both), 'image')} ({first_of(both)}).")
        seen, asked = (
            {int(label) for image in part.images for label in image.labels} for part in (self.train, self.test)
        )
        if never := [self.test.classes[label - 1] for label in sorted(asked - seen)]:
            lines.append(f"Classes that only test images have: {first_of(never)}.")
        return lines


def _digest(file: Path) -> bytes:
    return hashlib.blake2b(file.read_bytes(), digest_size=16).digest()


def first_of(names: Sequence[str], between: str = ", ") -> str:
    """The first names, and how many more there are."""
    more = f" and {len(names) - NAMED:,} more" if len(names) > NAMED else ""
    return between.join(names[:NAMED]) + more


def clean_annotations(
    annotations: Iterable[ImageAnnotation], classes: Sequence[str], agnostic: bool = False, masks: bool = False
) -> AnnotatedImages:
    """Clip boxes to their images; drop and count objects that cannot be learned or found; keep empty images.

    `agnostic` makes one class of all categories; with `masks`, an object needs an outline.
    """
    number = {name: i for i, name in enumerate(classes, 1)}
    images, counts, unknown = list[AnnotatedImage](), Counter[str](), Counter[str]()
    for image in annotations:
        kept: list[ObjectAnnotation] = []
        for found in image.objects:
            left, right = (min(max(x, 0.0), float(image.width)) for x in found.box[::2])
            top, bottom = (min(max(y, 0.0), float(image.height)) for y in found.box[1::2])
            box = (left, top, right, bottom)
            if found.category == UNKNOWN:
                counts["of categories without a name, dropped"] += 1
            elif not agnostic and found.category not in number:
                unknown[found.category] += 1
            elif right <= left or bottom <= top:
                counts["without area in the image, dropped"] += 1
            elif masks and not has_outline(found.segmentation):
                counts["with outlines of fewer than three corners, dropped"] += 1
            else:
                counts["partly outside the image, clipped"] += box != found.box
                kept.append(found._replace(box=box))
        counts["image(s) without objects"] += not kept
        boxes = np.array([found.box for found in kept], np.float32).reshape(-1, 4)
        sides = boxes[:, 2:] - boxes[:, :2]
        areas = [side.prod() if found.area is None else found.area for found, side in zip(kept, sides, strict=True)]
        images.append(
            AnnotatedImage(
                image.path,
                image.height,
                image.width,
                boxes,
                np.array([1 if agnostic else number[found.category] for found in kept], np.int64),
                np.array([found.crowd for found in kept], bool),
                np.array([found.difficult for found in kept], bool),
                np.array(areas, np.float32),
                tuple(found.segmentation for found in kept),
                image.number,
            )
        )
    if unknown:
        counts[f"of unknown categories ({first_of([*unknown])}), dropped"] = unknown.total()
    classes = AGNOSTIC if agnostic else tuple(classes)
    return AnnotatedImages(classes, tuple(images), counts, unknown, numbers=tuple(range(1, len(classes) + 1)))


def load_detection(source: str, agnostic: bool = False, masks: bool = False) -> DetectionData:
    """The set of that name, or at that path.

    `agnostic` makes one class of all categories; with `masks`, objects without an outline are left out.
    """
    name, *parts, classes, numbers = _read(source)
    train, test = (clean_annotations(part, classes, agnostic, masks) for part in parts)
    if test.unknown:
        raise UserError(
            f"The test of {name} has {test.unknown.total():,} objects of classes that train does not have: "
            f"{first_of([*test.unknown])}. Change the annotations, or make one class of all with --agnostic."
        )
    for what, part in (("train", train), ("test", test)):
        if not part.n_objects:
            raise UserError(f"{name} has no objects of known categories to {what} on.")
        for image in part.images if masks else ():
            if None in image.segmentations:
                raise UserError(f"{name} has objects without masks ({image.path.name}); `eval detect` needs none.")
    if numbers is not None and not agnostic:
        test = replace(test, numbers=numbers)
    known_as = VOC if numbers is None else COCO  # VOC's files have no ids
    official = OFFICIAL[known_as] == (len(train), len(test), len(classes))
    return DetectionData(known_as if official else name, train, test, numbers is None, official)


Annotations = tuple[
    str, Sequence[ImageAnnotation], Sequence[ImageAnnotation], Sequence[str], tuple[int | None, ...] | None
]
"""Name, images to train and to test on, classes, and in COCO's layout the ids that these have in the test."""


def _read(source: str) -> Annotations:
    path = data_root() / {VOC: "VOCdevkit", COCO: COCO}[source] if source in OFFICIAL else Path(source).expanduser()
    if source == VOC or (path / YEARS[0]).is_dir():
        return VOC, *_official_voc(path), VOC_CLASSES, None
    if not source.strip() or not path.is_dir():
        if source == COCO:
            raise DataMissing(
                f"coco is not in {path}; place train2017/, val2017/ and annotations/instances_train2017.json and "
                f"instances_val2017.json there, or point LOGO_DATA at the folder that holds {COCO}/."
            )
        known = f"{', '.join(OFFICIAL)}.{nearest(source, OFFICIAL)}"
        raise DataMissing(f"data={source!r}: must be a folder with {LAYOUTS}, or a name: {known}")
    if files := [*sorted((path / "annotations").glob("*.json")), *sorted(path.glob("*.json"))]:
        (categories, train), (of_test, test) = (_coco(path, files, names) for names in (TRAIN, TEST))
        return path.name, train, test, tuple(categories), tuple(map(of_test.get, categories))
    lists = [voc_list(path, names) for names in (TRAIN, TEST)]
    folders = [next((path / n for n in names if (path / n / "Annotations").is_dir()), None) for names in (TRAIN, TEST)]
    if (path / "Annotations").is_dir() and None not in lists:
        train, test = (read_voc(path, names) for names in lists)
    elif None not in folders:
        train, test = (read_voc(folder) for folder in folders if folder)
    else:
        raise UserError(f"{path} has no boxes to learn from and to test on; it needs {LAYOUTS}.")
    classes = sorted({found.category for image in train for found in image.objects if found.category})
    return path.name, train, test, VOC_CLASSES if set(classes) <= set(VOC_CLASSES) else classes, None


def _official_voc(devkit: Path) -> tuple[list[ImageAnnotation], list[ImageAnnotation]]:
    """The official years: trainval of 2007 and 2012, and test of 2007."""
    places = [devkit / year for year in YEARS]
    lists = [voc_list(place, (part,)) for place, part in zip(2 * places, ("trainval",) * 2 + ("test",), strict=False)]
    if None in lists:
        raise DataMissing(
            f"{VOC} is not in {devkit}; unpack VOCtrainval and VOCtest of 2007 and VOCtrainval of 2012 there, so that "
            f"{places[0]} and {places[1]} exist, or point LOGO_DATA at the folder that holds VOCdevkit/."
        )
    first, second, test = (read_voc(place, names) for place, names in zip(2 * places, lists, strict=False))
    return first + second, test


def _coco(root: Path, files: list[Path], names: Sequence[str]) -> tuple[dict[str, int], list[ImageAnnotation]]:
    """Categories and images of the first file that is named after one of `names`, those of instances before others."""
    # by words: `instances_val2017` is of val, and `trainval` is not
    found = [(file, name) for name in names for file in files if name in re.findall("[a-z]+", file.stem.lower())]
    if not found:
        raise UserError(f"{files[0].parent} has no JSON file named after {' or '.join(names)}; it needs {LAYOUTS}.")
    file, part = min(found, key=lambda each: "instances" not in each[0].stem)
    folders = [root / file.stem.removeprefix("instances_"), root / part, root / f"{part}2017", root / "images"]
    return read_coco(file, [*folders, root, file.parent])
