"""What does a JSON file in COCO's layout hold? Images, categories, and annotations that belong to both."""

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from math import isfinite
from pathlib import Path
from reprlib import repr as short
from typing import Any, NamedTuple, TypeVar

from ..errors import UserError
from .masks import packed
from .pictures import UNKNOWN, Told, ToldPicture

Made = TypeVar("Made")
BOX = ("left", "top", "width", "height")


class Wrong(Exception):  # noqa: N818  # a sentence on its way to the user
    """What is wrong with an entry of a file."""


class Image(NamedTuple):
    """An image, as the file lists it."""

    number: Any
    name: str
    height: int
    width: int


class Coco(NamedTuple):
    """The content of a file."""

    categories: dict[str, int]
    """The number of each in the file; the lowest is the first."""
    pictures: list[ToldPicture]


def read_coco(file: Path, folders: Sequence[Path]) -> Coco:
    """Read a file; its pictures lie in the first of `folders` that has any of them."""
    content = _content(file)
    names = _by_number(file, "category", _read(file, "category", content["categories"], _category))
    listed = _read(file, "image", content["images"], _image)
    images = _by_number(file, "image", ((image.number, image) for image in listed))
    objects: dict[Any, list[Told]] = defaultdict(list)
    for number, told in _read(file, "annotation", content["annotations"], partial(_annotation, names=names)):
        objects[number].append(told)
    if len(set(names.values())) < len(names) or UNKNOWN in names.values():
        raise UserError(f"{file} has categories of one name, or of none; give each a name of its own.")
    if lost := sorted(map(str, objects.keys() - images.keys())):
        raise UserError(f"{file} has annotations of images that it does not list, such as {lost[0]}; list them.")
    folder = _folder(file, folders, [image.name for image in images.values()])
    pictures = [
        ToldPicture(folder / image.name, image.height, image.width, objects.get(number, []), number)
        for number, image in images.items()
    ]
    return Coco({names[number]: number for number in sorted(names)}, pictures)


def _small(content: dict[str, Any]) -> dict[str, Any]:
    """Whatever has a mask keeps it packed, from the moment that it is read."""
    if "segmentation" in content:
        content["segmentation"] = packed(content["segmentation"])
    return content


def _content(file: Path) -> dict[str, list[Any]]:
    try:
        content = json.loads(file.read_bytes(), object_hook=_small)
    except (OSError, ValueError, RecursionError) as error:
        raise UserError(f"{file} is no COCO annotation ({error}); copy or export it again.") from error
    for part in ("images", "annotations", "categories"):
        if not isinstance(content, dict) or not isinstance(content.get(part), list):
            raise UserError(
                f"{file} is no COCO annotation (no list {part!r}); it needs images, annotations and categories."
            )
    return content


def _read(file: Path, what: str, told: list[Any], make: Callable[[Any], Made]) -> Iterator[Made]:
    """What is made of each entry of a list; a UserError that names the entry and what is wrong with it."""
    for place, entry in enumerate(told):
        try:
            yield make(entry)
        except (Wrong, KeyError, TypeError, AttributeError) as error:
            wrong = "it is of a wrong kind"
            if isinstance(error, KeyError | Wrong):
                wrong = f"it has no {error}" if isinstance(error, KeyError) else str(error)
            number = entry.get("id", f"number {place} of the list") if isinstance(entry, dict) else f"number {place}"
            of = f" of image {entry['image_id']}" if isinstance(entry, dict) and "image_id" in entry else ""
            raise UserError(f"{file} is no COCO annotation ({what} {number}{of}: {wrong}); mend that entry.") from error


def _category(told: dict[str, Any]) -> tuple[int, str]:
    return _whole(told, "id"), str(told["name"])


def _image(told: dict[str, Any]) -> Image:
    hash(told["id"])
    return Image(told["id"], str(told["file_name"]), _whole(told, "height"), _whole(told, "width"))


def _annotation(told: dict[str, Any], names: dict[int, str]) -> tuple[Any, Told]:
    box = told["bbox"]
    if not isinstance(box, list) or len(box) != len(BOX):
        raise Wrong(f"its bbox is {short(box)}, not [{', '.join(BOX)}]")
    left, top, width, height = (_number(edge, "bbox", box) for edge in box)
    hash(told["image_id"])
    return told["image_id"], Told(
        names.get(_whole(told, "category_id"), UNKNOWN),
        (left, top, left + width, top + height),
        told.get("segmentation") or None,
        bool(told.get("iscrowd", 0)),
        area=None if told.get("area") is None else _number(told["area"], "area", told["area"]),
    )


def _whole(told: dict[str, Any], name: str) -> int:
    try:
        return int(told[name])
    except (ValueError, TypeError, OverflowError):
        raise Wrong(f"its {name} is {short(told[name])}, no whole number") from None


def _number(value: Any, name: str, shown: Any) -> float:
    try:
        if isfinite(number := float(value)):
            return number
    except (ValueError, TypeError, OverflowError):
        pass
    raise Wrong(f"its {name} is {short(shown)}; use numbers that fit a picture")


def _by_number(file: Path, what: str, entries: Iterable[tuple[Any, Made]]) -> dict[Any, Made]:
    """Entries by their id; the same may be listed again, another not."""
    found: dict[Any, Made] = {}
    for number, entry in entries:
        if found.setdefault(number, entry) != entry:
            told = f"{what} {number} is listed twice, as {_named(found[number])} and as {_named(entry)}"
            raise UserError(f"{file} is no COCO annotation ({told}); give each an id of its own.")
    return found


def _named(entry: Any) -> str:
    return f"{entry.name} of {entry.width} x {entry.height} px" if isinstance(entry, Image) else str(entry)


def _folder(file: Path, folders: Sequence[Path], names: Sequence[str]) -> Path:
    places = dict.fromkeys(folders)
    for folder in places:
        if not names or any((folder / name).is_file() for name in names):
            return folder
    looked = ", ".join(map(str, places))
    raise UserError(
        f"None of {len(names):,} pictures of {file} (the first: {names[0]}) is in {looked}; place them in one."
    )
