"""Annotations and masks as the files of Pascal VOC and of COCO have them."""

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from math import isfinite
from pathlib import Path
from reprlib import repr as short
from typing import Any, NamedTuple, TypeVar
from xml.etree import ElementTree

import numpy as np
from jaxtyping import UInt8

from ..data.decode import BadImage, seen_size
from ..errors import UserError

Made = TypeVar("Made")
UNKNOWN = ""
"""The category of an object that its file does not name: no class is called so."""
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


def read_voc(folder: Path, names: Iterable[str] | None = None) -> list[ImageAnnotation]:
    """The images of these names in VOC's layout, or all that have annotations."""
    files = sorted((folder / "Annotations").glob("*.xml"))
    if names is not None:
        files = [folder / "Annotations" / f"{name}.xml" for name in names]
    return [_voc_image(folder, file) for file in files]


def voc_list(folder: Path, parts: Sequence[str]) -> list[str] | None:
    """The names in the first list of these parts that a folder has."""
    for part in parts:
        file = folder / "ImageSets" / "Main" / f"{part}.txt"
        if file.is_file():
            return [line.split()[0] for line in file.read_text("utf-8").splitlines() if line.strip()]
    return None


def _voc_image(folder: Path, file: Path) -> ImageAnnotation:
    images = folder / "JPEGImages"
    try:
        root = ElementTree.fromstring(file.read_bytes())
        tried = [images / f"{file.stem}{suffix}" for suffix in SUFFIXES]
        tried += [images / Path(name).name for name in [root.findtext("filename", "")] if name]
        path = next((path for path in tried if path.is_file()), None)
        if path is None:
            raise UserError(f"{images} has no image {tried[0].name} (or {', '.join(SUFFIXES[1:3])}).")
        width, height = (int(float(root.findtext(f"size/{side}", "0"))) for side in ("width", "height"))
        if width < 1 or height < 1:  # custom sets leave it out
            height, width = seen_size(path)
        return ImageAnnotation(path, height, width, [_voc_object(found) for found in root.iter("object")], file.stem)
    except (OSError, BadImage, ElementTree.ParseError, TypeError, ValueError, OverflowError) as error:
        raise UserError(f"{file} is not a VOC annotation: {error}.") from error


def _voc_object(found: ElementTree.Element) -> ObjectAnnotation:
    # VOC counts pixels from 1 and its boxes include their last pixel
    left, top, right, bottom = (
        float(found.findtext(f"bndbox/{edge}", "")) for edge in ("xmin", "ymin", "xmax", "ymax")
    )
    if not all(map(isfinite, (left, top, right, bottom))):
        raise ValueError("a box is not finite")
    difficult = found.findtext("difficult", "0").strip() == "1"
    category = found.findtext("name", "").strip()
    return ObjectAnnotation(category, (left - 1, top - 1, right, bottom), difficult=difficult)


def read_coco(file: Path, folders: Sequence[Path]) -> tuple[dict[str, int], list[ImageAnnotation]]:
    """Ids of the categories of a file, in order, and its images, in the first of `folders` that has any of them."""
    content = _coco_content(file)
    names = dict(
        _entries(file, "category", content["categories"], lambda entry: (int(entry["id"]), str(entry["name"])))
    )
    images = dict(_entries(file, "image", content["images"], lambda entry: (entry["id"], _coco_image(entry))))
    objects: dict[Any, list[ObjectAnnotation]] = defaultdict(list)
    for number, annotation in _entries(file, "annotation", content["annotations"], lambda e: _coco_object(e, names)):
        objects[number].append(annotation)
    wanted = [image.path for image in images.values()]
    folder = next((each for each in folders if not wanted or any((each / name).is_file() for name in wanted)), None)
    if folder is None:
        looked = ", ".join(map(str, dict.fromkeys(folders)))
        raise UserError(f"None of {len(wanted):,} images of {file} (the first: {wanted[0]}) is in {looked}.")
    found = [
        image._replace(path=folder / image.path, objects=objects[number], number=number)
        for number, image in images.items()
    ]
    return {names[number]: number for number in sorted(names)}, found


def _coco_content(file: Path) -> dict[str, list[Any]]:
    def pack(content: dict[str, Any]) -> dict[str, Any]:  # as lists, the polygons of all of COCO would take gigabytes
        if isinstance(polygons := content.get("segmentation"), list):
            with suppress(TypeError, ValueError, OverflowError):  # `run_lengths` raises
                content["segmentation"] = [np.array(numbers, np.float64) for numbers in polygons]
        return content

    try:
        content = json.loads(file.read_bytes(), object_hook=pack)
    except (OSError, ValueError, RecursionError) as error:
        raise UserError(f"{file} is not a COCO annotation: {error}.") from error
    for part in ("images", "annotations", "categories"):
        if not isinstance(content, dict) or not isinstance(content.get(part), list):
            raise UserError(f"{file} is not a COCO annotation: it has no list {part!r}.")
    return content


def _entries(
    file: Path, what: str, entries: list[Any], make: Callable[[Any], tuple[Any, Made]]
) -> Iterator[tuple[Any, Made]]:
    """What is made of each entry of a list, behind an id; a UserError that names the entry."""
    for place, entry in enumerate(entries):
        try:
            number, made = make(entry)
            hash(number)
        except (KeyError, TypeError, ValueError, OverflowError, AttributeError) as error:
            why = f"it has no {error}" if isinstance(error, KeyError) else error
            raise UserError(f"{file}: {what} number {place + 1}, {short(entry)}: {why}.") from error
        yield number, made


def _coco_image(entry: dict[str, Any]) -> ImageAnnotation:
    return ImageAnnotation(Path(entry["file_name"]), int(entry["height"]), int(entry["width"]), ())


def _coco_object(entry: dict[str, Any], names: dict[int, str]) -> tuple[Any, ObjectAnnotation]:
    left, top, width, height = box = [float(edge) for edge in entry["bbox"]]
    area = None if entry.get("area") is None else float(entry["area"])
    if not all(map(isfinite, [*box, area or 0])):
        raise ValueError(f"bbox {short(entry['bbox'])} or area {area} is not finite")
    return entry["image_id"], ObjectAnnotation(
        names.get(int(entry["category_id"]), UNKNOWN),
        (left, top, left + width, top + height),
        entry.get("segmentation") or None,
        bool(entry.get("iscrowd", 0)),
        area=area,
    )


RunLengths = dict[str, Any]
"""COCO's: size [H, W] and compressed counts."""
FEWEST = 6
"""Numbers of the smallest polygon, a triangle."""
FAR = 4
"""Sides of an image that a corner may lie away: the library walks along every edge, wherever it leads."""
ERRORS = (TypeError, ValueError, KeyError, OverflowError, RuntimeError)
"""What numpy and the library raise for a mask that is none."""


def coco_library() -> Any:
    """The COCO evaluator, an extra of this package."""
    try:
        import faster_coco_eval  # heavy, and optional
        import faster_coco_eval.core.mask
    except ImportError as error:
        raise UserError("Detection needs a COCO evaluator; pip install 'logo-ssl[detect]'.") from error
    return faster_coco_eval


def has_outline(segmentation: Any) -> bool:
    """False for polygons of which none has three corners; `run_lengths` raises for what is not a mask at all."""
    return not isinstance(segmentation, list) or any(np.size(polygon) >= FEWEST for polygon in segmentation)


def run_lengths(segmentation: Any, height: int, width: int) -> RunLengths:
    """The run lengths of polygons, of uncompressed or of compressed run lengths."""
    masks = coco_library().core.mask
    try:
        if isinstance(segmentation, list):
            polygons = [np.asarray(numbers, np.float64) for numbers in segmentation if np.size(numbers) >= FEWEST]
            if not all((np.abs(polygon) <= FAR * max(height, width)).all() for polygon in polygons):
                raise ValueError(f"a corner is not in or near an image of {width} x {height} px")
            if not polygons:
                return encoded(np.zeros((height, width), np.uint8))
            return masks.merge(masks.frPyObjects([polygon.tolist() for polygon in polygons], height, width))
        if list(segmentation["size"]) != [height, width]:
            raise ValueError(f"size {segmentation['size']}, where height and width are {[height, width]}")
        if isinstance(segmentation["counts"], list):
            segmentation = masks.frPyObjects(segmentation, height, width)
        masks.decode(segmentation)  # raises unless the runs fill the image
        return segmentation
    except ERRORS as error:
        raise UserError(f"its mask is neither polygons nor run lengths of the image ({error}).") from error


def encoded(mask: UInt8[np.ndarray, "H W"]) -> RunLengths:
    """The run lengths of pixels that are 0 or 1."""
    return coco_library().core.mask.encode(np.asfortranarray(mask))


def decoded(segmentation: Any, height: int, width: int) -> UInt8[np.ndarray, "H W"]:
    """The pixels of a mask, 0 or 1."""
    return np.ascontiguousarray(coco_library().core.mask.decode(run_lengths(segmentation, height, width)))
