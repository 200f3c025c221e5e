"""torchvision's classification sets: what each calls its splits, and its paths or arrays without decoding an image."""

import os
from collections.abc import Sequence
from contextlib import suppress
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple

import torch
from filelock import FileLock
from jaxtyping import Bool, UInt8
from torch import Tensor

from ..errors import DataMissing
from .images import ImageSet, Photos, Split

Arguments = dict[str, Any]
Splits = tuple[Sequence[Arguments], Sequence[Arguments], Sequence[Arguments]]
PAIRS = ("_samples", "samples", "imgs")  # attributes of torchvision's sets that list (path, label)
PATHS = ("_image_files", "_images", "data")
LABELS = ("targets", "labels", "_labels", "y")
CLASSES = ("classes", "categories", "all_categories", "class_to_idx")


class TorchvisionSet(NamedTuple):
    """A class of torchvision.datasets."""

    name: str
    places: tuple[str, ...]
    """What it looks for below the root, for those who must bring it themselves."""
    train: Sequence[Arguments] = ({},)
    """Arguments for each split to train on."""
    test: Sequence[Arguments] = ()
    val: Sequence[Arguments] = ()
    """Of the split that its authors chose by, the last of those to train on."""


def by_split(*train: str, test: str = "test", val: str | None = None, **always: Any) -> Splits:
    """Arguments of sets whose splits have names: to train on, to test on, and to choose by."""
    parts = (train, (test,), () if val is None else (val,))
    to_train, to_test, to_choose = ([{"split": split, **always} for split in splits] for splits in parts)
    return to_train, to_test, to_choose


BY_FLAG = [{"train": True}], [{"train": False}]
EMNIST = [{"split": "balanced", "train": True}], [{"split": "balanced", "train": False}]
_SETS = (
    TorchvisionSet("CIFAR10", ("cifar-10-batches-py",), *BY_FLAG),
    TorchvisionSet("CIFAR100", ("cifar-100-python",), *BY_FLAG),
    TorchvisionSet("STL10", ("stl10_binary",), *by_split("train+unlabeled")),  # 5,000 with labels, then 100,000 with -1
    TorchvisionSet("Caltech101", ("caltech101/101_ObjectCategories",)),
    TorchvisionSet("Caltech256", ("caltech256/256_ObjectCategories",)),
    TorchvisionSet("CLEVRClassification", ("clevr",), *by_split("train", test="val")),  # its test split has no labels
    TorchvisionSet("Country211", ("country211",), *by_split("train", "valid", val="valid")),
    TorchvisionSet("DTD", ("dtd/dtd",), *by_split("train", "val", val="val")),
    TorchvisionSet("EMNIST", ("EMNIST/raw",), *EMNIST),
    TorchvisionSet("EuroSAT", ("eurosat/2750",)),
    TorchvisionSet("FashionMNIST", ("FashionMNIST/raw",), *BY_FLAG),
    TorchvisionSet("FGVCAircraft", ("fgvc-aircraft-2013b",), *by_split("trainval", val="val")),
    TorchvisionSet("Flowers102", ("flowers-102",), *by_split("train", "val", val="val")),
    TorchvisionSet("Food101", ("food-101",), *by_split("train")),
    TorchvisionSet("GTSRB", ("gtsrb/GTSRB",), *by_split("train")),
    TorchvisionSet("Imagenette", ("imagenette2",), *by_split("train", test="val")),
    TorchvisionSet(
        "INaturalist", ("2021_train", "2021_valid"), [{"version": "2021_train"}], [{"version": "2021_valid"}]
    ),
    TorchvisionSet("KMNIST", ("KMNIST/raw",), *BY_FLAG),
    TorchvisionSet("MNIST", ("MNIST/raw",), *BY_FLAG),
    TorchvisionSet("OxfordIIITPet", ("oxford-iiit-pet",), *by_split("trainval")),
    TorchvisionSet("Places365", ("data_256_standard", "val_256"), *by_split("train-standard", test="val", small=True)),
    TorchvisionSet("RenderedSST2", ("rendered-sst2",), *by_split("train", "val", val="val")),
    TorchvisionSet("StanfordCars", ("stanford_cars",), *by_split("train")),
    TorchvisionSet("SUN397", ("SUN397",)),
    TorchvisionSet("SVHN", ("train_32x32.mat", "test_32x32.mat"), *by_split("train")),
)
SETS = {kind.name.lower(): kind for kind in _SETS}


def load_torchvision_set(name: str, root: Path, size: int) -> ImageSet:
    """The set of that name, downloaded if it is not there."""
    kind = SETS[name]
    try:
        parts = [_open(kind, root, splits) if splits else None for splits in (kind.train, kind.test, kind.val)]
        (train, classes), (test, _), (val, _) = ((None, ()) if part is None else unpack(part) for part in parts)
    except Exception as error:  # of the network, an archive, a checksum, a missing package
        raise DataMissing(
            f"{name} is not in {root}, or not all of it, and could not be downloaded "
            f"({' '.join(str(error).split()) or type(error).__name__}); place "
            f"{' and '.join(str(root / place) for place in kind.places)} as torchvision.datasets.{kind.name} unpacks "
            "it, or set LOGO_DATA to the folder that has it."
        ) from error
    assert train is not None
    return ImageSet(name, train, test, classes, val_in_train=None if val is None else _within(train, val))


def _open(kind: TorchvisionSet, root: Path, splits: Sequence[Arguments]) -> list[Any]:
    """What torchvision finds, else what it downloads; of several processes, one does."""
    from torchvision import datasets  # slow to import: only where it is needed

    def opened(download: bool) -> list[Any]:
        return [getattr(datasets, kind.name)(str(root), **arguments, download=download) for arguments in splits]

    lock = FileLock(root / f".{kind.name.lower()}.lock")
    with suppress(OSError, NotImplementedError):  # of a disk that may only be read, or has no locks
        root.mkdir(parents=True, exist_ok=True)
        lock.acquire()
    try:
        with suppress(RuntimeError, OSError):  # as torchvision tells of a set that is not there, or not whole
            return opened(download=False)
        return opened(download=True)
    finally:
        lock.release()


def _within(train: Split, val: Split) -> Bool[Tensor, " N"]:
    """Which images of train are those of val, by their files."""
    assert isinstance(train.images, Photos)
    assert isinstance(val.images, Photos)
    names = set(map(val.images.name, range(len(val))))
    return torch.tensor([train.images.name(row) in names for row in range(len(train))])


def unpack(sets: Sequence[Any]) -> tuple[Split, tuple[str, ...]]:
    """The images of data sets, one after the other, and their classes; no file is decoded."""
    if pairs := sorted(((os.fspath(path), label) for data in sets for path, label in _pairs(data)), key=itemgetter(0)):
        images, numbers = Photos.from_paths(path for path, _ in pairs), [label for _, label in pairs]
    else:
        images = torch.cat([_stacked(torch.as_tensor(data.data)) for data in sets])
        numbers = [label for data in sets for label in _labels(data)]
    labels = torch.tensor([int(number) for number in numbers])
    names = next((found for name in CLASSES if (found := getattr(sets[0], name, None))), range(int(labels.max()) + 1))
    return Split(images, labels), tuple(name[0] if isinstance(name, tuple) else str(name) for name in names)


def _pairs(data: Any) -> list[tuple[Any, Any]]:
    match type(data).__name__:  # these put their paths together when an image is read
        case "Caltech101":
            folders = [os.path.join(data.root, "101_ObjectCategories", name) for name in data.categories]
            return [(f"{folders[y]}/image_{i:04d}.jpg", y) for i, y in zip(data.index, data.y, strict=True)]
        case "Caltech256":
            folders = [os.path.join(data.root, "256_ObjectCategories", name) for name in data.categories]
            return [(f"{folders[y]}/{y + 1:03d}_{i:04d}.jpg", y) for i, y in zip(data.index, data.y, strict=True)]
        case "INaturalist":
            return [(os.path.join(data.root, data.all_categories[y], name), y) for y, name in data.index]
    for name in PAIRS:
        if isinstance(pairs := getattr(data, name, None), list):
            return pairs
    for name in PATHS:
        if isinstance(paths := getattr(data, name, None), list):
            return list(zip(paths, _labels(data), strict=True))
    return []


def _labels(data: Any) -> Any:
    return next(labels for name in LABELS if (labels := getattr(data, name, None)) is not None)


def _stacked(images: UInt8[Tensor, "N *shape"]) -> UInt8[Tensor, "N C H W"]:
    """Grey, channels-last or channels-first, as the set has them."""
    if images.ndim == 3:
        return images[:, None]
    return (images if images.shape[1] in (1, 3) else images.permute(0, 3, 1, 2)).contiguous()
