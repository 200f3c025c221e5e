"""What does a torchvision data set hold? Paths or arrays where it shows them, otherwise images one by one."""

import io
import os
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Int64, UInt8
from torch import Tensor
from torch.utils.data import ConcatDataset

from .files import Files, Paths, Stamp
from .images import Photos, Split

PAIRS = ("_samples", "samples", "imgs")  # attributes that list (path, label)
PATHS = ("_image_files", "_images", "data")
LABELS = ("targets", "labels", "_labels", "y")
CLASSES = ("classes", "categories", "all_categories", "class_to_idx")


class Encoded(Files):
    """Images that only their data sets can read, as PNG; the sets are opened anew in each process."""

    def __init__(self, make: Callable[[], Sequence[Any]]) -> None:
        self.make, self.opened = make, None

    def __getstate__(self) -> dict[str, Any]:
        return {"make": self.make, "opened": None}

    @property
    def images(self) -> ConcatDataset:
        """The data sets as one."""
        if self.opened is None:
            self.opened = ConcatDataset(self.make())
        return self.opened

    def __len__(self) -> int:
        return len(self.images)

    def name(self, i: int) -> str:
        """The set's name, and the number."""
        return f"{type(self.images.datasets[0]).__name__}[{i}]"

    def read(self, i: int) -> bytes:
        """Image i, encoded losslessly and fast."""
        file = io.BytesIO()
        try:
            image: Any = self.images[i]
            image[0].convert("RGB").save(file, "PNG", compress_level=1)
        except Exception as error:  # whatever the set's own reader raises
            raise OSError(str(error)) from error
        return file.getvalue()

    def stamp(self, i: int) -> Stamp:
        """Nothing: these sets are published files that nobody writes anew."""
        return Stamp(0, 0, 0)


def unpack(make: Callable[[], Sequence[Any]]) -> tuple[Split, tuple[str, ...]]:
    """The images of the data sets that `make` opens, one after the other, and their classes; no file is decoded."""
    sets = make()
    pairs = [pair for data in sets for pair in _pairs(data)]
    if pairs and isinstance(pairs[0][0], str | os.PathLike):
        pairs = sorted(((os.fspath(path), label) for path, label in pairs), key=lambda pair: pair[0])
        split = Split(Photos.all(Paths([path for path, _ in pairs])), _numbers([label for _, label in pairs]))
    elif pairs:
        split = Split(_stacked(torch.stack([image for image, _ in pairs])), _numbers([label for _, label in pairs]))
    else:
        labels = _numbers([label for data in sets for label in _labels(data)])
        arrays = [getattr(data, "data", None) for data in sets]
        if all(isinstance(array, np.ndarray | Tensor) for array in arrays):
            split = Split(torch.cat([_stacked(torch.as_tensor(array)) for array in arrays]), labels)
        else:
            split = Split(Photos.all(Encoded(make)), labels)
    return split, () if split.labels is None else _classes(sets[0], int(split.labels.max()) + 1)


def _pairs(data: Any) -> list[tuple[Any, Any]]:
    match type(data).__name__:  # these put their paths together when an image is read
        case "Caltech101":
            folders = [os.path.join(data.root, "101_ObjectCategories", name) for name in data.categories]
            return [(f"{folders[y]}/image_{i:04d}.jpg", y) for i, y in zip(data.index, data.y, strict=True)]
        case "Caltech256":
            folders = [os.path.join(data.root, "256_ObjectCategories", name) for name in data.categories]
            return [(f"{folders[y]}/{y + 1:03d}_{i:04d}.jpg", y) for i, y in zip(data.index, data.y, strict=True)]
        case "CelebA":  # forty attributes for each, and no class
            return [(os.path.join(data.root, data.base_folder, "img_align_celeba", n), None) for n in data.filename]
        case "INaturalist":
            return [(os.path.join(data.root, data.all_categories[y], name), y) for y, name in data.index]
        case "Omniglot":  # numbers its classes in the order of the file system
            place = {name: i for i, name in enumerate(sorted(data._characters))}
            rows = [(data._characters[y], name) for name, y in data._flat_character_images]
            return [(os.path.join(data.target_folder, character, name), place[character]) for character, name in rows]
    for name in PAIRS:
        if isinstance(pairs := getattr(data, name, None), list):
            return pairs
    for name in PATHS:
        if isinstance(paths := getattr(data, name, None), list):
            return list(zip(paths, _labels(data), strict=True))
    return []


def _labels(data: Any) -> list[Any]:
    if type(data).__name__ == "PCAM":
        with data.h5py.File(data._base_folder / data._FILES[data._split]["targets"][0]) as file:
            return file["y"][:, 0, 0, 0].tolist()
    for name in LABELS:
        if (labels := getattr(data, name, None)) is not None:
            array = np.asarray(labels)
            return (array[:, 0] if array.ndim > 1 else array).tolist()  # QMNIST's first column is the digit
    return [None] * len(data)


def _numbers(labels: Sequence[int | None]) -> Int64[Tensor, " N"] | None:
    numbers = torch.tensor([-1 if label is None else int(label) for label in labels])
    return numbers if (numbers >= 0).any() else None


def _stacked(images: UInt8[Tensor, "N *shape"]) -> UInt8[Tensor, "N C H W"]:
    """Grey, channels-last or channels-first, as the set has them."""
    if images.ndim == 3:
        return images[:, None]
    return (images if images.shape[1] in (1, 3) else images.permute(0, 3, 1, 2)).contiguous()


def _classes(data: Any, n: int) -> tuple[str, ...]:
    names = next((found for name in CLASSES if (found := getattr(data, name, None))), range(n))
    return tuple(name[0] if isinstance(name, tuple) else str(name) for name in names)
