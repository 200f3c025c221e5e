"""Arrays in an .npz file, by MedMNIST's convention: train_images, train_labels, and the same of val and test."""

from pathlib import Path

import numpy as np
import torch
from jaxtyping import Int, Shaped, UInt8
from torch import Tensor

from ..errors import UserError
from .images import ImageSet, Split, test_and_val

PARTS = ("train", "test", "val")


def load_npz(path: Path) -> ImageSet:
    """Arrays N x H x W (x C), uint8, with any number of channels; without test_images, val_images are tested on."""
    arrays = _read(path)
    parts = [part for part in PARTS if f"{part}_images" in arrays]
    images = {part: _images(path, part, arrays[f"{part}_images"]) for part in parts}
    if len(channels := {of.shape[1] for of in images.values()}) > 1:
        raise UserError(f"{path}: {' and '.join(parts)} images must have as many channels, not {sorted(channels)}.")
    labels = {part: _labels(path, part, arrays.get(f"{part}_labels"), len(images[part])) for part in parts}
    given = [values for values in labels.values() if values is not None]
    classes = _classes(np.unique(np.concatenate(given))) if given else np.empty(0, int)
    splits = {part: Split(images[part], _numbered(labels[part], classes)) for part in parts}
    train = splits.pop("train")
    test, val = test_and_val(splits)
    unread = [f"{part}_labels" for part in parts if labels[part] is None and f"{part}_labels" in arrays]
    says = (f"Passed over in {path}: {', '.join(unread)}, with several labels for an image.",) if unread else ()
    return ImageSet(path.stem, train, test, tuple(map(str, classes)), val, says=says)


def _read(path: Path) -> dict[str, np.ndarray]:
    """The arrays that have our keys."""
    try:
        with np.load(path, allow_pickle=False) as file:
            known = [f"{part}_{what}" for part in PARTS for what in ("images", "labels")]
            arrays, keys = {name: np.asarray(file[name]) for name in known if name in file}, list(file)
    except (PermissionError, MemoryError):
        raise
    except Exception as error:  # of zip's and numpy's readers, at bytes that are none of their own
        raise UserError(f"{path} is not a readable .npz file ({error}); save it with numpy.savez.") from error
    if "train_images" not in arrays:
        raise UserError(f"{path}: must have the key train_images; it has {', '.join(keys) or 'none'}.")
    return arrays


def _images(path: Path, part: str, images: np.ndarray) -> UInt8[Tensor, "N C H W"]:
    is_first = images.ndim == 4 and _channels_first(*images.shape[1:])
    if images.dtype != np.uint8 or images.ndim not in (3, 4) or images.size == 0 or is_first:
        looks = ", which looks like N x C x H x W" if is_first else ""
        raise UserError(
            f"{path}: {part}_images must be uint8, N x H x W (x C); they are {images.dtype} {images.shape}{looks}."
        )
    images = images[..., None] if images.ndim == 3 else images
    return torch.from_numpy(images).permute(0, 3, 1, 2).contiguous()


def _channels_first(a: int, b: int, c: int) -> bool:
    """Whether (a, b, c) is rather C x H x W than H x W x C, which may have more channels than rows."""
    return a < min(b, c) and (a <= 4 or b == c)


def _labels(path: Path, part: str, labels: np.ndarray | None, n: int) -> Shaped[np.ndarray, " N"] | None:
    """One label for each image; None if each has several, as in ChestMNIST."""
    if labels is None or (labels.ndim > 1 and len(labels) == n and labels.size > n):
        return None
    if labels.size != n:
        raise UserError(f"{path}: {part}_labels must be one for each of {n} {part}_images; there are {labels.size}.")
    return labels.reshape(-1)


def _classes(values: Shaped[np.ndarray, " values"]) -> Shaped[np.ndarray, " classes"]:
    """The classes among all values, ascending; a negative number or NaN stands for no label."""
    return values[values >= 0] if values.dtype.kind in "if" else values


def _numbered(labels: np.ndarray | None, classes: np.ndarray) -> Int[Tensor, " N"] | None:
    """Each label's place among the classes: words and gaps between numbers are gone."""
    if labels is None:
        return None
    index = np.where(np.isin(labels, classes), np.searchsorted(classes, labels), -1)
    return torch.from_numpy(index.astype(np.int64))
