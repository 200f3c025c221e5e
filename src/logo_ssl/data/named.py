"""Which data sets have names of their own? Made-up scenes, and ImageNet and its excerpts in their public layouts."""

import os
from collections.abc import Iterable
from importlib.resources import files
from pathlib import Path

from ..errors import DataMissing, UserError
from .downloads import found_or_fetched
from .folders import find_images, split_of
from .images import ImageSet, Split
from .scenes import CLASSES, make_scenes

SCENES_TRAIN, SCENES_TEST = 5_000, 1_000
SCENES_SIZES = (32, 96)
IMAGENETS = ("imagenet", "ILSVRC2012")  # what people call the folder
TINY = "tiny-imagenet-200"
TINY_URL = f"http://cs231n.stanford.edu/{TINY}.zip"
TINY_MD5 = "90528d7ca1a48142e341f4ef8d21d0de"


def scenes(root: Path, size: int) -> ImageSet:
    """Scenes painted at about the size of a crop; nothing is read."""
    size = min(max(size, SCENES_SIZES[0]), SCENES_SIZES[1])
    splits = (make_scenes(n, size, seed) for seed, n in enumerate((SCENES_TRAIN, SCENES_TEST)))
    train, test = (Split(images, labels) for images, labels in splits)
    return ImageSet("scenes", train, test, CLASSES)


def imagenet100(root: Path, size: int) -> ImageSet:
    """The 100 classes of CMC (Tian et al. 2020) out of an ImageNet folder."""
    text = files("logo_ssl.data").joinpath("imagenet100.txt").read_text("utf-8")
    return _imagenet(root, "imagenet100", ("imagenet100", *IMAGENETS), text.split())


def imagenet(root: Path, size: int) -> ImageSet:
    """All classes that the folder has."""
    return _imagenet(root, "imagenet", IMAGENETS, None)


def tiny_imagenet(root: Path, size: int) -> ImageSet:
    """200 classes at 64 px; what val/ shows stands in a text file."""
    folder = root / TINY

    def find() -> list[str]:
        return (folder / "wnids.txt").read_text("utf-8").split()

    def fetch() -> list[str]:
        from torchvision.datasets.utils import download_and_extract_archive  # slow to import: only where it is needed

        download_and_extract_archive(TINY_URL, str(root), md5=TINY_MD5)
        return find()

    try:
        wnids = found_or_fetched(root, "tiny-imagenet", find, fetch)
        lines = (folder / "val" / "val_annotations.txt").read_text("utf-8").splitlines()
    except Exception as error:  # of the network, the archive or the disk
        raise DataMissing(
            f"tiny-imagenet is not in {root} and could not be downloaded ({error}); unpack {TINY_URL} there, so that "
            f"{folder / 'wnids.txt'}, train/ and val/ exist, or point LOGO_DATA at the folder that holds {TINY}/."
        ) from error
    classes = tuple(sorted(wnids))
    rows = [line.split("\t")[:2] for line in lines if line]  # the file and its class; a box follows
    images = os.path.join(folder, "val", "images", "")
    test = split_of([images + row[0] for row in rows], [row[-1] for row in rows], classes)
    return ImageSet("tiny-imagenet", _classes_in(folder / "train", classes), test, classes)


def mit67(root: Path, size: int) -> ImageSet:
    """MIT Indoor-67 with its official lists of 80 training and 20 test images a class."""
    folder = root / "mit67"
    parts = []
    for part in ("Train", "Test"):
        file = folder / f"{part}Images.txt"
        try:
            parts.append([line.strip() for line in file.read_text("utf-8").splitlines() if line.strip()])
        except OSError as error:
            raise DataMissing(
                f"mit67 is not in {root}; unpack indoorCVPR_09 there, so that {folder}/Images/CLASS/*.jpg and {file} "
                "exist (web.mit.edu/torralba/www/indoor.html), or point LOGO_DATA at the folder that holds mit67/."
            ) from error
    classes = tuple(sorted({line.split("/")[0] for lines in parts for line in lines}))
    images = os.path.join(folder, "Images", "")
    train, test = (
        split_of([images + line for line in part], [line.split("/")[0] for line in part], classes) for part in parts
    )
    return ImageSet("mit67", train, test, classes)


def _imagenet(root: Path, name: str, places: Iterable[str], wnids: Iterable[str] | None) -> ImageSet:
    folder = next((root / place for place in places if (root / place / "train").is_dir()), None)
    if folder is None:
        place = root / next(iter(places))
        raise DataMissing(
            f"{name} cannot be downloaded freely; place ImageNet as {place}/train/CLASS/*.JPEG and "
            f"{place}/val/CLASS/*.JPEG (CLASS is n01558993 and so on), point LOGO_DATA at another folder than {root}, "
            "or give a folder of that layout with --data."
        )
    train, val = folder / "train", folder / "val"
    for part in (train, val):
        if part.is_dir() and not _folders(part):
            raise UserError(f"{part} has no class folders; sort its images into {part}/CLASS/*.JPEG, or move it away.")
    classes = tuple(sorted(_folders(train) if wnids is None else wnids))
    return ImageSet(name, _classes_in(train, classes), _classes_in(val, classes) if val.is_dir() else None, classes)


def _folders(folder: Path) -> list[str]:
    return [entry.name for entry in os.scandir(folder) if entry.is_dir() and not entry.name.startswith(".")]


def _classes_in(folder: Path, classes: tuple[str, ...]) -> Split:
    present = set(_folders(folder))
    found = {name: find_images(str(folder / name)) if name in present else [] for name in classes}
    missing = [name for name in classes if not found[name]]
    if missing:
        raise DataMissing(
            f"{folder} has no images of {len(missing)} of {len(classes)} classes, the first is {missing[0]}; place "
            f"them as {folder}/CLASS/*.JPEG."
        )
    paths = [path for name in classes for path in found[name]]
    return split_of(paths, [name for name in classes for _ in found[name]], classes)
