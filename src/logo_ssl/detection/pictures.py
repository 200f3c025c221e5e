"""What is in a picture? Objects with boxes and masks; what their file told wrongly is mended, dropped and counted."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from math import isfinite
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
from jaxtyping import Bool, Float32, Int64, UInt8

from ..data.decode import BadImage, decode, plain_reason, seen_size
from ..errors import UserError
from .masks import decoded, has_outline, run_lengths

Made = TypeVar("Made")
UNKNOWN = ""
"""The category of an object that its file does not name: no class is called so."""
SHRUNK = 64
"""Pixels: JPEG is decoded faster when it is shrunk, and a broken file stays broken."""
NAMED = 5
"""So many names are listed, and the rest are counted."""
AGNOSTIC = ("object",)
"""The one class when all categories are the same."""
EMPTY = "pictures without objects"
LEFT_OUT = "training pictures that cannot be used, left out"
ONE = {EMPTY: "picture without objects", LEFT_OUT: "training picture that cannot be used, left out"}
"""Pictures that are counted, in the singular; what is said of objects is the same for one."""


class BadPicture(UserError):  # noqa: N818 (a state of its file)
    """A picture that cannot be used, and why."""


class Told(NamedTuple):
    """One object, as its file tells it."""

    category: str
    box: tuple[float, float, float, float]
    """Left, top, right, bottom in pixels, the right and lower edges outside."""
    segmentation: Any = None
    """COCO's polygons or run lengths, if there are any."""
    crowd: bool = False
    difficult: bool = False
    area: float | None = None


class ToldPicture(NamedTuple):
    """One picture, as its file tells it."""

    path: Path
    height: int
    width: int
    objects: Sequence[Told]
    number: Any = None
    """By what its file knows it."""


@dataclass(frozen=True, eq=False)
class Picture:
    """Where a picture is, and the objects in it."""

    path: Path
    height: int
    width: int
    boxes: Float32[np.ndarray, "n 4"]
    labels: Int64[np.ndarray, " n"]
    """1 and more; 0 is the background."""
    crowd: Bool[np.ndarray, " n"]
    """Groups that are not told apart: no examples to learn from, and no mistakes to find."""
    difficult: Bool[np.ndarray, " n"]
    """Learned from, but neither asked for nor counted by VOC's metric."""
    area: Float32[np.ndarray, " n"]
    segmentations: tuple[Any, ...]
    number: Any = None
    """By what its file knows it."""

    def pixels(self) -> UInt8[np.ndarray, "H W 3"]:
        """The picture itself."""
        try:
            seen = decode(self.path.read_bytes())
        except (OSError, BadImage) as error:
            raise self._unreadable(error) from error
        self._refuse_other_size(*seen.shape[:2])
        return seen

    def mask(self, row: int) -> UInt8[np.ndarray, "H W"]:
        """The pixels of an object's mask, 0 or 1."""
        return self._mask(decoded, row)

    def look_at_masks(self) -> None:
        """Raise a BadPicture if what stands for a mask is none."""
        for row in range(len(self.segmentations)):
            self._mask(run_lengths, row)

    def _mask(self, make: Callable[[Any, int, int], Made], row: int) -> Made:
        try:
            return make(self.segmentations[row], self.height, self.width)
        except UserError as error:
            left, top, right, bottom = (float(edge) for edge in self.boxes[row])
            box = f"[{left:g}, {top:g}, {right - left:g}, {bottom - top:g}]"
            raise BadPicture(f"{self.path}, the object with the bbox {box}: {error}") from error

    def look(self, whole: bool = True) -> None:
        """Raise a BadPicture if it cannot be used: by its header alone, or by the whole of it, shrunk."""
        try:
            self._refuse_other_size(*seen_size(self.path))
            if whole:
                decode(self.path.read_bytes(), SHRUNK)
        except (OSError, BadImage) as error:
            raise self._unreadable(error) from error

    def _refuse_other_size(self, height: int, width: int) -> None:
        if (height, width) != (self.height, self.width):
            told = f"{width} x {height} px, and its annotation says {self.width} x {self.height}"
            raise BadPicture(f"{self.path} is {told}, so that its boxes would be wrong")

    def _unreadable(self, error: Exception) -> "BadPicture":
        return BadPicture(f"{self.path} cannot be read ({plain_reason(error)})")


@dataclass(frozen=True, eq=False)
class PictureSet:
    """Pictures with objects of some classes, and how many of them were not as they should be."""

    classes: tuple[str, ...]
    pictures: tuple[Picture, ...]
    counts: Counter[str] = field(default_factory=Counter)
    strange: Counter[str] = field(default_factory=Counter)
    """Objects of categories that are no class here, dropped."""
    numbers: tuple[int, ...] = ()
    """By what its file knows the classes."""

    def __len__(self) -> int:
        return len(self.pictures)

    @property
    def n_objects(self) -> int:
        """Objects in all pictures."""
        return sum(len(picture.labels) for picture in self.pictures)


def settled(
    told: Iterable[ToldPicture], classes: Sequence[str], agnostic: bool = False, masks: bool = False
) -> PictureSet:
    """Clip boxes to their pictures; drop and count objects that cannot be learned or found; keep empty pictures.

    `agnostic` makes one class of all categories; with `masks`, an object needs an outline, too.
    """
    number = None if agnostic else {name: i for i, name in enumerate(classes, 1)}
    counts, strange = Counter[str](), Counter[str]()
    pictures = tuple(_settled(picture, number, counts, strange, masks) for picture in told)
    if strange:
        counts[f"of unknown categories ({first_of([*strange])}), dropped"] = strange.total()
    classes = AGNOSTIC if agnostic else tuple(classes)
    return PictureSet(classes, pictures, counts, strange, numbers=tuple(range(1, len(classes) + 1)))


def first_of(names: Sequence[str], between: str = ", ") -> str:
    """The first names, and how many more there are."""
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return between.join(names[:NAMED]) + more


def _settled(
    told: ToldPicture, number: dict[str, int] | None, counts: Counter[str], strange: Counter[str], masks: bool
) -> Picture:
    kept: list[Told] = []
    for found in told.objects:
        if not all(map(isfinite, found.box)):
            raise UserError(f"{told.path} has a box of {found.box}; coordinates are finite numbers.")
        left, right = (min(max(x, 0.0), float(told.width)) for x in found.box[::2])
        top, bottom = (min(max(y, 0.0), float(told.height)) for y in found.box[1::2])
        box = (left, top, right, bottom)
        if found.category == UNKNOWN:
            counts["of categories without a name, dropped"] += 1
        elif number is not None and found.category not in number:
            strange[found.category] += 1
        elif found.box[2] <= found.box[0] or found.box[3] <= found.box[1]:
            counts["without area, dropped"] += 1
        elif right <= left or bottom <= top:
            counts["wholly outside the picture, dropped"] += 1
        elif masks and not has_outline(found.segmentation):
            counts["with outlines of fewer than three corners, dropped"] += 1
        else:
            counts["partly outside the picture, clipped"] += box != found.box
            kept.append(found._replace(box=box))
    counts[EMPTY] += not kept
    boxes = np.array([found.box for found in kept], np.float32).reshape(-1, 4)
    sides = boxes[:, 2:] - boxes[:, :2]
    areas = [side.prod() if found.area is None else found.area for found, side in zip(kept, sides, strict=True)]
    return Picture(
        told.path,
        told.height,
        told.width,
        boxes,
        np.array([1 if number is None else number[found.category] for found in kept], np.int64),
        np.array([found.crowd for found in kept], bool),
        np.array([found.difficult for found in kept], bool),
        np.array(areas, np.float32),
        tuple(found.segmentation for found in kept),
        told.number,
    )
