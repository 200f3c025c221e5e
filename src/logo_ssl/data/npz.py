"""Arrays in an .npz file, by MedMNIST's convention: train_images, train_labels, and the same of val and test."""

from itertools import chain
from pathlib import Path

import numpy as np
import torch
from jaxtyping import UInt8
from torch import Tensor

from ..errors import UserError
from .images import ImageSet, Split, classes_of, numbers_of, test_and_val

PARTS = ("train", "test", "val")


def load_npz(path: Path) -> ImageSet:
    """Arrays N x H x W (x C), uint8, with any number of channels; without test_images, val_images are tested on."""
    arrays = _read(path)
    parts = [part for part in PARTS if f"{part}_images" in arrays]
    images = {part: _images(path, part, arrays[f"{part}_images"]) for part in parts}
    if len(channels := {of.shape[1] for of in images.values()}) > 1:
        raise UserError(f"{path}: {' and '.join(parts)} images must have as many channels, not {sorted(channels)}.")
    names = {part: _names(path, part, arrays.get(f"{part}_labels"), len(images[part])) for part in parts}
    classes = classes_of(chain.from_iterable(names.values()))
    splits = {part: Split(images[part], numbers_of(names[part], classes)) for part in parts}
    train = splits.pop("train")
    test, val = test_and_val(splits)
    unread = [f"{part}_labels" for part in parts if not names[part] and f"{part}_labels" in arrays]
    says = (f"Passed over in {path}: {', '.join(unread)}, with several labels for an image.",) if unread else ()
    return ImageSet(path.stem, train, test, classes, val, says=says)


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


def _names(path: Path, part: str, labels: np.ndarray | None, n: int) -> list[str | None]:
    """What each image's label is called, None for a negative number or NaN; none if each has several (ChestMNIST)."""
    if labels is None or (labels.ndim > 1 and len(labels) == n and labels.size > n):
        return []
    if labels.size != n:
        raise UserError(f"{path}: {part}_labels must be one for each of {n} {part}_images; there are {labels.size}.")
    numbers = labels.dtype.kind in "biuf"
    if labels.dtype.kind == "f" and (broken := labels[np.isfinite(labels) & (labels % 1 != 0)]).size:
        raise UserError(f"{path}: {part}_labels has {broken[0]:g}; must be whole numbers or names.")
    return [None if numbers and not y >= 0 else str(int(y) if numbers else y) for y in labels.flatten().tolist()]
