"""Where do images come from? A name or a path becomes an `ImageSet`."""

import os
from collections.abc import Callable
from pathlib import Path
from zipfile import BadZipFile

import numpy as np
import torch
import torchvision
from jaxtyping import Int, UInt8
from PIL import Image, UnidentifiedImageError
from torch import Tensor

from ..errors import UserError, nearest
from .images import ImageSet, Split
from .scenes import CLASSES, make_scenes

SUFFIXES = {".jpg", ".jpeg", ".png", ".webp", ".bmp", ".tif", ".tiff", ".ppm", ".pgm", ".gif"}
SCENES_TRAIN, SCENES_TEST = 5_000, 1_000


def locate(source: str) -> str:
    """A name as it is, a path made absolute: a run must find its data from any folder."""
    return source if source in NAMES else str(Path(source).expanduser().absolute())


def load_data(source: str, size: int) -> ImageSet:
    """The data set of that name, or at that path; images of varying size are brought to `size` x `size`."""
    path = Path(source).expanduser()
    if source in NAMES:
        return NAMES[source](size)
    if path.suffix == ".npz" and path.is_file():
        return _npz(path)
    if path.is_dir():
        return _folder(path, size)
    if path.exists():
        raise UserError(f"{source} is neither a folder of images nor an .npz file; give one of these or a name.")
    hint = nearest(path.name, NAMES)
    raise UserError(f"No data at {source!r}; give a folder, an .npz file, or a name: {', '.join(NAMES)}.{hint}")


def _scenes(size: int) -> ImageSet:
    size = min(max(size, 32), 96)
    splits = (make_scenes(n, size, seed) for seed, n in enumerate((SCENES_TRAIN, SCENES_TEST)))
    train, test = (Split(images, labels) for images, labels in splits)
    return ImageSet("scenes", train, test, CLASSES)


def _cifar(kind: type[torchvision.datasets.CIFAR10]) -> Callable[[int], ImageSet]:
    def load(size: int) -> ImageSet:
        train, test = _download(lambda root: [kind(root, train=part, download=True) for part in (True, False)])
        parts = [
            Split(torch.from_numpy(part.data).permute(0, 3, 1, 2).contiguous(), torch.tensor(part.targets))
            for part in (train, test)
        ]
        return ImageSet(kind.__name__.lower(), parts[0], parts[1], tuple(train.classes))

    return load


def _stl10(size: int) -> ImageSet:
    """All 105,000 images to train on; the 5,000 labelled ones stand first, the rest carry the label -1."""
    make = torchvision.datasets.STL10
    train, test = _download(lambda root: [make(root, split=s, download=True) for s in ("train+unlabeled", "test")])
    parts = [Split(torch.from_numpy(part.data), torch.from_numpy(part.labels).long()) for part in (train, test)]
    return ImageSet("stl10", parts[0], parts[1], tuple(train.classes))


def _imagenet100(size: int) -> ImageSet:
    root = data_root() / "imagenet100"
    if not (root / "train").is_dir():
        raise UserError(
            f"ImageNet cannot be downloaded freely; place the 100 classes as {root}/train/CLASS/*.JPEG and "
            f"{root}/val/CLASS/*.JPEG, or give a folder of that layout with --data."
        )
    return _folder(root, size)


NAMES: dict[str, Callable[[int], ImageSet]] = {
    "scenes": _scenes,
    "cifar10": _cifar(torchvision.datasets.CIFAR10),
    "cifar100": _cifar(torchvision.datasets.CIFAR100),
    "stl10": _stl10,
    "imagenet100": _imagenet100,
}


def data_root() -> Path:
    """Where named data sets are kept: $LOGO_DATA, or a folder in the user's cache."""
    return Path(os.environ.get("LOGO_DATA", "~/.cache/logo-ssl")).expanduser()


def _download(make: Callable[[Path], list]) -> list:
    root = data_root()
    try:
        return make(root)
    except (OSError, RuntimeError) as error:
        raise UserError(
            f"The data set is not in {root} and could not be downloaded ({error}); place its files there, point "
            "LOGO_DATA at them, or give a folder or .npz file with --data."
        ) from error


def _npz(path: Path) -> ImageSet:
    """MedMNIST's convention: train_images, train_labels, test_images, test_labels; N x H x W (x C), uint8."""
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = dict(file)
    except (OSError, ValueError, TypeError, EOFError, BadZipFile) as error:
        raise UserError(f"{path} is not a readable .npz file ({error}); save it with numpy.savez.") from error
    if "train_images" not in arrays:
        raise UserError(f"{path} holds {', '.join(arrays) or 'nothing'}; it needs the key train_images.")
    given = [arrays[name].reshape(-1) for name in ("train_labels", "test_labels") if name in arrays]
    classes = np.unique(np.concatenate(given)) if given else np.empty(0, int)
    if classes.dtype.kind in "if":
        classes = classes[classes >= 0]  # a negative label is none
    train = _npz_split(path, arrays, "train", classes)
    test = _npz_split(path, arrays, "test", classes) if "test_images" in arrays else None
    if test is not None and test.images.shape[1] != train.images.shape[1]:
        channels = f"{train.images.shape[1]} and {test.images.shape[1]}"
        raise UserError(f"train_images and test_images in {path} have {channels} channels; give both the same.")
    return ImageSet(path.stem, train, test, tuple(map(str, classes)))


def _npz_split(path: Path, arrays: dict[str, np.ndarray], part: str, classes: np.ndarray) -> Split:
    images, labels = arrays[f"{part}_images"], arrays.get(f"{part}_labels")
    if images.dtype != np.uint8 or images.ndim not in (3, 4) or len(images) == 0:
        cure = " Try (x * 255).astype('uint8')." if images.dtype.kind == "f" else ""
        raise UserError(
            f"{part}_images in {path} is {images.dtype} {images.shape}; it must be uint8, N x H x W (x C).{cure}"
        )
    if images.ndim == 4 and images.shape[1] < min(images.shape[2:]):
        raise UserError(
            f"{part}_images in {path} is {images.shape}, which looks like N x C x H x W; it must be N x H x W x C: "
            "transpose(0, 2, 3, 1)."
        )
    if labels is not None and labels.size != len(images):
        raise UserError(f"{path} has {len(images)} {part}_images but {labels.size} {part}_labels; give one each.")
    images = images[..., None] if images.ndim == 3 else images
    stacked = torch.from_numpy(images).permute(0, 3, 1, 2).contiguous()
    if labels is None:
        return Split(stacked)
    given = labels.reshape(-1)
    index = np.where(np.isin(given, classes), np.searchsorted(classes, given), -1)  # whatever labels were, count from 0
    return Split(stacked, torch.from_numpy(index.astype(np.int64)))


def _folder(path: Path, size: int) -> ImageSet:
    """Images at any depth. With train/ (and val/ or test/) these are the splits; class folders are labels."""
    train = path / "train" if (path / "train").is_dir() else path
    test = next((path / name for name in ("test", "val") if train != path and (path / name).is_dir()), None)
    classes = tuple(sorted(child.name for child in train.iterdir() if child.is_dir() and _files(child)))
    held_out = None if test is None else _folder_split(test, classes, size)
    return ImageSet(path.name, _folder_split(train, classes, size), held_out, classes)


def _files(folder: Path) -> list[Path]:
    return sorted(file for file in folder.rglob("*") if file.suffix.lower() in SUFFIXES)


def _folder_split(folder: Path, classes: tuple[str, ...], size: int) -> Split:
    files = _files(folder)
    if not files:
        raise UserError(f"No images in {folder} (looked for {', '.join(sorted(SUFFIXES))} at any depth).")
    images = torch.stack([_square(file, size) for file in files])
    folders = [file.relative_to(folder).parts[0] for file in files]
    labelled = len(classes) > 1 and all(name in classes for name in folders)
    labels: Int[Tensor, " N"] | None = torch.tensor([classes.index(name) for name in folders]) if labelled else None
    return Split(images, labels)


def _square(file: Path, size: int) -> UInt8[Tensor, "3 S S"]:
    """The image as RGB, its short side brought to `size`, its middle cut out."""
    try:
        with Image.open(file) as opened:
            image = opened.convert("RGB")
    except (OSError, UnidentifiedImageError, Image.DecompressionBombError) as error:
        raise UserError(f"{file} cannot be read as an image ({error}); remove it and start again.") from error
    scale = size / min(image.size)
    width, height = (max(size, round(side * scale)) for side in image.size)
    image = image.resize((width, height), Image.Resampling.BICUBIC)
    left, top = (width - size) // 2, (height - size) // 2
    cut = image.crop((left, top, left + size, top + size))
    return torch.from_numpy(np.array(cut)).permute(2, 0, 1).contiguous()
