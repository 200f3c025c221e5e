"""What does a folder in Pascal VOC's layout hold? XML in Annotations/, pictures in JPEGImages/, lists in ImageSets/."""

from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

from ..data.decode import BadImage, seen_size
from ..errors import UserError
from .pictures import Told, ToldPicture

CLASSES = (
    "aeroplane",
    "bicycle",
    "bird",
    "boat",
    "bottle",
    "bus",
    "car",
    "cat",
    "chair",
    "cow",
    "diningtable",
    "dog",
    "horse",
    "motorbike",
    "person",
    "pottedplant",
    "sheep",
    "sofa",
    "train",
    "tvmonitor",
)
SUFFIXES = (".jpg", ".jpeg", ".png", ".JPG", ".JPEG", ".PNG")


def read_voc(folder: Path, lists: tuple[str, ...] = ()) -> Iterator[ToldPicture]:
    """The pictures of the first of `lists` that ImageSets/Main/ has; without lists, all that have annotations."""
    annotations = folder / "Annotations"
    for name in names_in(folder, lists) if lists else sorted(file.stem for file in annotations.glob("*.xml")):
        yield _picture(folder, annotations / f"{name}.xml")


def has_list(folder: Path, lists: tuple[str, ...]) -> bool:
    """Whether the folder has one of the lists."""
    return any(_list_file(folder, name).is_file() for name in lists)


def _list_file(folder: Path, name: str) -> Path:
    return folder / "ImageSets" / "Main" / f"{name}.txt"


def names_in(folder: Path, lists: tuple[str, ...]) -> list[str]:
    """The pictures of the first of the lists that the folder has; a UserError where it has none."""
    for name in lists:
        if _list_file(folder, name).is_file():
            lines = _list_file(folder, name).read_text("utf-8").splitlines()
            return [line.split()[0] for line in lines if line.strip()]
    wanted = " or ".join(f"{name}.txt" for name in lists)
    raise UserError(f"{folder / 'ImageSets' / 'Main'} has no {wanted}; list the pictures there, one name per line.")


def _picture(folder: Path, file: Path) -> ToldPicture:
    try:
        root = ElementTree.fromstring(file.read_bytes())
        path = _image_file(folder, file.stem, root.findtext("filename", ""))
        width, height = (int(_number(root, f"size/{side}", "0")) for side in ("width", "height"))
        if width < 1 or height < 1:  # custom sets leave it out
            height, width = _size_of(path)
        return ToldPicture(path, height, width, [_told(found) for found in root.iter("object")], file.stem)
    except (OSError, ElementTree.ParseError, ValueError, OverflowError) as error:
        raise UserError(f"{file} is no VOC annotation ({error}); mend it, or take it out of the list.") from error


def _size_of(path: Path) -> tuple[int, int]:
    try:
        return seen_size(path)
    except (OSError, BadImage) as error:
        raise UserError(f"{path} cannot be read, and its annotation does not tell its size; mend either.") from error


def _number(of: ElementTree.Element, where: str, default: str = "") -> float:
    told = of.findtext(where, default).strip()
    try:
        return float(told)
    except ValueError:
        whose = f"the {where} of {of.findtext('name', 'an object')!r}" if of.tag == "object" else where
        raise ValueError(f"{whose} is {told!r}, no number") from None


def _told(found: ElementTree.Element) -> Told:
    # VOC counts pixels from 1 and its boxes include their last pixel
    left, top, right, bottom = (_number(found, f"bndbox/{edge}") for edge in ("xmin", "ymin", "xmax", "ymax"))
    category = found.findtext("name", "").strip()
    return Told(category, (left - 1, top - 1, right, bottom), difficult=found.findtext("difficult", "0").strip() == "1")


def _image_file(folder: Path, stem: str, named: str) -> Path:
    images = folder / "JPEGImages"
    tried = [images / f"{stem}{suffix}" for suffix in SUFFIXES] + ([images / Path(named).name] if named else [])
    for path in tried:
        if path.is_file():
            return path
    raise UserError(f"{images} has no picture {stem}{SUFFIXES[0]} (or {', '.join(SUFFIXES[1:3])}); place it there.")
