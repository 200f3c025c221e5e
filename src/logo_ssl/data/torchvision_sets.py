"""Which of torchvision's classification sets can be trained on, and what does each call its splits?"""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool
from torch import Tensor

from ..errors import DataMissing
from .downloads import found_or_fetched
from .files import Paths
from .images import ImageSet, Photos, Split
from .unpack import unpack

Arguments = dict[str, Any]


class Kind(NamedTuple):
    """A class of torchvision.datasets."""

    name: str
    places: tuple[str, ...]
    """What it looks for below the root, for those who must bring it themselves."""
    train: Sequence[Arguments] = ({},)
    """Arguments for each split to train on."""
    test: Sequence[Arguments] = ()
    val: Sequence[Arguments] = ()
    """Of the split that its authors chose by, the last of those to train on."""


def by_split(*train: str, test: str = "test", val: str | None = None, **always: Any) -> Sequence[Sequence[Arguments]]:
    """Arguments of sets whose splits have names: to train on, to test on, and to choose by."""
    chosen_by = () if val is None else (val,)
    return [[{"split": split, **always} for split in splits] for splits in (train, (test,), chosen_by)]


BY_FLAG = [{"train": True}], [{"train": False}]
KINDS = (
    Kind("CIFAR10", ("cifar-10-batches-py",), *BY_FLAG),
    Kind("CIFAR100", ("cifar-100-python",), *BY_FLAG),
    Kind("STL10", ("stl10_binary",), *by_split("train+unlabeled")),  # 5,000 with labels first, then 100,000 with -1
    Kind("Caltech101", ("caltech101/101_ObjectCategories",)),
    Kind("Caltech256", ("caltech256/256_ObjectCategories",)),
    Kind("CelebA", ("celeba",), *by_split("train")),
    Kind("CLEVRClassification", ("clevr",), *by_split("train", test="val")),  # its test split has no labels
    Kind("Country211", ("country211",), *by_split("train", "valid", val="valid")),
    Kind("DTD", ("dtd/dtd",), *by_split("train", "val", val="val")),
    Kind("EMNIST", ("EMNIST/raw",), *([{"split": "balanced", "train": train}] for train in (True, False))),
    Kind("EuroSAT", ("eurosat/2750",)),
    Kind("FashionMNIST", ("FashionMNIST/raw",), *BY_FLAG),
    Kind("FER2013", ("fer2013",), *by_split("train")),
    Kind("FGVCAircraft", ("fgvc-aircraft-2013b",), *by_split("trainval", val="val")),
    Kind("Flowers102", ("flowers-102",), *by_split("train", "val", val="val")),
    Kind("Food101", ("food-101",), *by_split("train")),
    Kind("GTSRB", ("gtsrb/GTSRB",), *by_split("train")),
    Kind("Imagenette", ("imagenette2",), *by_split("train", test="val")),
    Kind("INaturalist", ("2021_train", "2021_valid"), [{"version": "2021_train"}], [{"version": "2021_valid"}]),
    Kind("KMNIST", ("KMNIST/raw",), *BY_FLAG),
    Kind("LFWPeople", ("lfw-py",)),  # its train and test people are not the same
    Kind("MNIST", ("MNIST/raw",), *BY_FLAG),
    Kind("Omniglot", ("omniglot-py",)),  # nor are its background and evaluation characters
    Kind("OxfordIIITPet", ("oxford-iiit-pet",), *by_split("trainval")),
    Kind("PCAM", ("pcam",), *by_split("train", "val", val="val")),
    Kind("Places365", ("data_256_standard", "val_256"), *by_split("train-standard", test="val", small=True)),
    Kind("QMNIST", ("QMNIST/raw",), *BY_FLAG),
    Kind("RenderedSST2", ("rendered-sst2",), *by_split("train", "val", val="val")),
    Kind("SEMEION", ("semeion.data",)),
    Kind("StanfordCars", ("stanford_cars",), *by_split("train")),
    Kind("SUN397", ("SUN397",)),
    Kind("SVHN", ("train_32x32.mat", "test_32x32.mat"), *by_split("train")),
    Kind("USPS", ("usps.bz2", "usps.t.bz2"), *BY_FLAG),
)
NOT_DOWNLOADED = ("FER2013", "LFWPeople", "StanfordCars")  # gone from the network, or asking for a login


def torchvision_set(kind: Kind) -> Callable[[Path, int], ImageSet]:
    """A loader of that set."""

    def load(root: Path, size: int) -> ImageSet:
        try:
            train, classes = unpack(partial(_open, kind.name, root, kind.train))
            test = unpack(partial(_open, kind.name, root, kind.test))[0] if kind.test else None
            val = unpack(partial(_open, kind.name, root, kind.val))[0] if kind.val else None
        except Exception as error:  # of the network, an archive, a checksum, a missing package
            raise DataMissing(_cure(kind, root, error)) from error
        within = None if val is None else _within(train, val)
        return ImageSet(kind.name.lower(), train, test, classes, val_in_train=within)

    return load


def _within(train: Split, val: Split) -> Bool[Tensor, " N"]:
    """Which images of train are those of val: files by their names, the last of others."""
    if isinstance(train.images, Photos) and isinstance(val.images, Photos) and isinstance(val.images.files, Paths):
        names = {val.images.name(row) for row in range(len(val))}
        return torch.tensor([train.images.name(row) in names for row in range(len(train))])
    return torch.arange(len(train)) >= len(train) - len(val)


def _open(name: str, root: Path, splits: Sequence[Arguments]) -> list[Any]:
    from torchvision import datasets  # slow to import: only where it is needed

    def opened(**download: bool) -> list[Any]:
        return [getattr(datasets, name)(str(root), **arguments, **download) for arguments in splits]

    if name in NOT_DOWNLOADED:
        return opened()
    return found_or_fetched(root, name.lower(), partial(opened, download=False), partial(opened, download=True))


def _cure(kind: Kind, root: Path, error: Exception) -> str:
    name, place = kind.name.lower(), " and ".join(str(root / place) for place in kind.places)
    package = error if isinstance(error, ImportError) else error.__context__
    if isinstance(package, ImportError) and package.name:
        return (
            f"{name} needs the package {package.name}; install it (pip install {package.name}), and have the files in "
            f"{place} or point LOGO_DATA elsewhere than {root}."
        )
    placed = (
        f"place {place} as torchvision.datasets.{kind.name} unpacks it, or point LOGO_DATA at the folder that holds "
        f"{' and '.join(kind.places)}"
    )
    if kind.name in NOT_DOWNLOADED:
        return f"{name} is not in {root}, or not all of it, and torchvision does not download it; {placed}."
    reason = " ".join(str(error).split()) or type(error).__name__
    return (
        f"{name} is not in {root}, or not all of it, and could not be downloaded ({reason}); where there is a --data, "
        f"give it there (--data {name}.npz, or a folder), or {placed}."
    )
