"""What does a JSON file in COCO's layout hold? Images, categories, and annotations that belong to both."""

import json
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ..errors import UserError
from .masks import packed
from .pictures import Told, ToldPicture

UNKNOWN = ""
"""The category of an annotation whose number the file does not explain: no class is called so."""


class Coco(NamedTuple):
    """The content of a file."""

    categories: tuple[str, ...]
    """By their numbers in the file."""
    pictures: list[ToldPicture]


def read_coco(file: Path, folders: Sequence[Path]) -> Coco:
    """Read a file; its pictures lie in the first of `folders` that has the first of them."""
    try:
        content = json.loads(file.read_bytes(), object_hook=_small)
        names = {int(category["id"]): str(category["name"]) for category in content["categories"]}
        images = {image["id"]: image for image in content["images"]}
        objects: dict[Any, list[Told]] = defaultdict(list)
        for annotation in content["annotations"]:
            objects[annotation["image_id"]].append(_told(annotation, names))
        sizes = {number: (int(image["height"]), int(image["width"])) for number, image in images.items()}
        files = {number: str(image["file_name"]) for number, image in images.items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        said = f"no {error}" if isinstance(error, KeyError) else str(error)
        raise UserError(
            f"{file} is no COCO annotation ({said}); it needs images, annotations and categories."
        ) from error
    if len(set(names.values())) < len(names) or UNKNOWN in names.values():
        raise UserError(f"{file} has categories of one name, or of none; give each a name of its own.")
    if lost := sorted(map(str, objects.keys() - images.keys())):
        raise UserError(f"{file} has annotations of images that it does not list, such as {lost[0]}; list them.")
    folder = _folder(file, folders, next(iter(files.values()), None))
    pictures = [ToldPicture(folder / name, *sizes[number], objects.get(number, [])) for number, name in files.items()]
    return Coco(tuple(names[number] for number in sorted(names)), pictures)


def _small(content: dict[str, Any]) -> dict[str, Any]:
    """Whatever has a mask keeps it packed, from the moment that it is read."""
    if "segmentation" in content:
        content["segmentation"] = packed(content["segmentation"])
    return content


def _told(annotation: dict[str, Any], names: dict[int, str]) -> Told:
    left, top, width, height = map(float, annotation["bbox"])
    return Told(
        names.get(int(annotation["category_id"]), UNKNOWN),
        (left, top, left + width, top + height),
        annotation.get("segmentation") or None,
        bool(annotation.get("iscrowd", 0)),
        area=None if annotation.get("area") is None else float(annotation["area"]),
    )


def _folder(file: Path, folders: Sequence[Path], first: str | None) -> Path:
    for folder in folders:
        if first is None or (folder / first).is_file():
            return folder
    raise UserError(f"{first} of {file} is in none of {', '.join(map(str, folders))}; place its pictures in one.")
