"""Readers of annotations: a folder in Pascal VOC's layout, a JSON file in COCO's."""

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from math import isfinite
from pathlib import Path
from reprlib import repr as short
from typing import Any, NamedTuple, TypeVar
from xml.etree import ElementTree

from ..data.decode import BadImage, seen_size
from ..errors import UserError
from .masks import packed

Entry = TypeVar("Entry")
UNKNOWN = ""
"""The category of an object that its file does not name: no class is called so."""
VOC_CLASSES = (
    *("aeroplane", "bicycle", "bird", "boat", "bottle", "bus", "car", "cat", "chair", "cow"),
    *("diningtable", "dog", "horse", "motorbike", "person", "pottedplant", "sheep", "sofa", "train", "tvmonitor"),
)
SUFFIXES = (".jpg", ".jpeg", ".png", ".JPG", ".JPEG", ".PNG")


class ObjectAnnotation(NamedTuple):
    """One object, as its file describes it."""

    category: str
    box: tuple[float, float, float, float]
    """Left, top, right, bottom in pixels, the right and lower edges outside."""
    segmentation: Any = None
    """COCO's polygons or run lengths, if there are any."""
    crowd: bool = False
    difficult: bool = False
    area: float | None = None


class ImageAnnotation(NamedTuple):
    """One image, as its file describes it."""

    path: Path
    height: int
    width: int
    objects: Sequence[ObjectAnnotation]
    number: Any = None
    """Its id in the file."""


def read_voc(folder: Path, lists: tuple[str, ...] = ()) -> Iterator[ImageAnnotation]:
    """The images of the first of `lists` that ImageSets/Main/ has; without lists, all that have annotations."""
    annotations = folder / "Annotations"
    for name in _names_in(folder, lists) if lists else sorted(file.stem for file in annotations.glob("*.xml")):
        file = annotations / f"{name}.xml"
        try:
            yield _voc_image(folder, file)
        except (OSError, BadImage, ElementTree.ParseError, TypeError, ValueError, OverflowError) as error:
            raise UserError(f"{file} is not a VOC annotation: {error}.") from error


def has_list(folder: Path, lists: tuple[str, ...]) -> bool:
    """Whether the folder has one of the lists."""
    return any(_list_file(folder, name).is_file() for name in lists)


def _list_file(folder: Path, name: str) -> Path:
    return folder / "ImageSets" / "Main" / f"{name}.txt"


def _names_in(folder: Path, lists: tuple[str, ...]) -> list[str]:
    file = next(file for name in lists if (file := _list_file(folder, name)).is_file())
    return [line.split()[0] for line in file.read_text("utf-8").splitlines() if line.strip()]


def _voc_image(folder: Path, file: Path) -> ImageAnnotation:
    root = ElementTree.fromstring(file.read_bytes())
    images = folder / "JPEGImages"
    tried = [images / f"{file.stem}{suffix}" for suffix in SUFFIXES]
    tried += [images / Path(name).name for name in [root.findtext("filename", "")] if name]
    path = next((path for path in tried if path.is_file()), None)
    if path is None:
        raise UserError(f"{images} has no image {tried[0].name} (or {', '.join(SUFFIXES[1:3])}).")
    width, height = (int(float(root.findtext(f"size/{side}", "0"))) for side in ("width", "height"))
    if width < 1 or height < 1:  # custom sets leave it out
        height, width = seen_size(path)
    return ImageAnnotation(path, height, width, [_voc_object(found) for found in root.iter("object")], file.stem)


def _voc_object(found: ElementTree.Element) -> ObjectAnnotation:
    # VOC counts pixels from 1 and its boxes include their last pixel
    left, top, right, bottom = (
        float(found.findtext(f"bndbox/{edge}", "")) for edge in ("xmin", "ymin", "xmax", "ymax")
    )
    difficult = found.findtext("difficult", "0").strip() == "1"
    category = found.findtext("name", "").strip()
    return ObjectAnnotation(category, (left - 1, top - 1, right, bottom), difficult=difficult)


class CocoImage(NamedTuple):
    """An image, as the file lists it."""

    number: Any
    name: str
    height: int
    width: int


class CocoFile(NamedTuple):
    """The content of a file."""

    categories: dict[str, int]
    """The id of each in the file; the lowest is the first."""
    images: list[ImageAnnotation]


def read_coco(file: Path, folders: Sequence[Path]) -> CocoFile:
    """Read a file; its images are in the first of `folders` that has any of them."""
    content = _coco_content(file)
    names = _by_id(file, "category", _entries(file, "category", content["categories"], _category))
    listed = _entries(file, "image", content["images"], _image)
    images = _by_id(file, "image", ((image.number, image) for image in listed))
    objects: dict[Any, list[ObjectAnnotation]] = defaultdict(list)
    for number, annotation in _entries(file, "annotation", content["annotations"], partial(_annotation, names=names)):
        objects[number].append(annotation)
    if len(set(names.values())) < len(names) or UNKNOWN in names.values():
        raise UserError(f"{file}: each category needs a name of its own.")
    if lost := sorted(map(str, objects.keys() - images.keys())):
        raise UserError(f"{file} has annotations of images that it does not list, such as {lost[0]}.")
    wanted = [image.name for image in images.values()]
    folder = next((each for each in folders if not wanted or any((each / name).is_file() for name in wanted)), None)
    if folder is None:
        looked = ", ".join(map(str, dict.fromkeys(folders)))
        raise UserError(f"None of {len(wanted):,} images of {file} (the first: {wanted[0]}) is in {looked}.")
    found = [
        ImageAnnotation(folder / image.name, image.height, image.width, objects.get(number, []), number)
        for number, image in images.items()
    ]
    return CocoFile({names[number]: number for number in sorted(names)}, found)


def _coco_content(file: Path) -> dict[str, list[Any]]:
    def pack(content: dict[str, Any]) -> dict[str, Any]:  # masks never become lists of numbers
        if "segmentation" in content:
            content["segmentation"] = packed(content["segmentation"])
        return content

    try:
        content = json.loads(file.read_bytes(), object_hook=pack)
    except (OSError, ValueError, RecursionError) as error:
        raise UserError(f"{file} is not a COCO annotation: {error}.") from error
    for part in ("images", "annotations", "categories"):
        if not isinstance(content, dict) or not isinstance(content.get(part), list):
            raise UserError(f"{file} is not a COCO annotation: it has no list {part!r}.")
    return content


def _entries(file: Path, what: str, entries: list[Any], make: Callable[[Any], Entry]) -> Iterator[Entry]:
    """What is made of each entry of a list; a UserError that names the entry."""
    for place, entry in enumerate(entries):
        try:
            yield make(entry)
        except (KeyError, TypeError, ValueError, OverflowError, AttributeError) as error:
            why = f"it has no {error}" if isinstance(error, KeyError) else error
            raise UserError(f"{file}: {what} number {place + 1}, {short(entry)}: {why}.") from error


def _category(entry: dict[str, Any]) -> tuple[int, str]:
    return int(entry["id"]), str(entry["name"])


def _image(entry: dict[str, Any]) -> CocoImage:
    hash(entry["id"])
    return CocoImage(entry["id"], str(entry["file_name"]), int(entry["height"]), int(entry["width"]))


def _annotation(entry: dict[str, Any], names: dict[int, str]) -> tuple[Any, ObjectAnnotation]:
    left, top, width, height = box = [float(edge) for edge in entry["bbox"]]
    area = None if entry.get("area") is None else float(entry["area"])
    if not all(map(isfinite, [*box, area or 0])):
        raise ValueError(f"bbox {short(entry['bbox'])} or area {area} is not finite")
    hash(entry["image_id"])
    return entry["image_id"], ObjectAnnotation(
        names.get(int(entry["category_id"]), UNKNOWN),
        (left, top, left + width, top + height),
        entry.get("segmentation") or None,
        bool(entry.get("iscrowd", 0)),
        area=area,
    )


def _by_id(file: Path, what: str, entries: Iterable[tuple[Any, Entry]]) -> dict[Any, Entry]:
    """Entries by their id; the same may be listed again, another not."""
    found: dict[Any, Entry] = {}
    for number, entry in entries:
        if found.setdefault(number, entry) != entry:
            raise UserError(f"{file}: {what} {number} is listed twice, as {found[number]} and as {entry}.")
    return found
