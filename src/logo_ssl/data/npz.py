"""What does an .npz file hold? MedMNIST's convention: train_images, train_labels, and the same of val and test."""

from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from zipfile import ZipFile

import numpy as np
import torch
from jaxtyping import Shaped, UInt8
from torch import Tensor

from ..errors import UserError
from .images import ImageSet, Split
from .labels import test_and_val

PARTS = ("train", "test", "val")
KEYS = tuple(f"{part}_{what}" for part in PARTS for what in ("images", "labels"))
ALIKE = 0.85  # of two keys: train_label or valid_labels is meant for one of ours, train_names (0.78) is not
CURES = {  # by the kind of number
    "f": "(x * 255).astype('uint8') if x lies in 0 to 1",
    "u": "(x / x.max() * 255).astype('uint8')",
    "i": "(x / x.max() * 255).astype('uint8')",
    "b": "x.astype('uint8') * 255",
}


def load_npz(path: Path) -> ImageSet:
    """Arrays N x H x W (x C), uint8, with any number of channels; without test_images, val_images are tested on."""
    arrays, unread = _read(path)
    if "train_images" not in arrays:
        raise UserError(f"{path} holds {', '.join(arrays) or 'nothing'}; it needs the key train_images.")
    parts = [part for part in PARTS if f"{part}_images" in arrays]
    images = [_images(path, part, arrays[f"{part}_images"]) for part in parts]
    labels = [_labels(path, part, arrays.get(f"{part}_labels"), len(i)) for part, i in zip(parts, images, strict=True)]
    several = [part for part, given in zip(parts, labels, strict=True) if given is None and f"{part}_labels" in arrays]
    told = [*_misnamed(path, unread, arrays), *_with_several_labels(path, several, arrays)]
    if len({split.shape[1] for split in images}) > 1:
        channels = " and ".join(str(split.shape[1]) for split in images)
        raise UserError(f"{' and '.join(parts)} images in {path} have {channels} channels; give all the same.")
    known = [values for values in labels if values is not None]
    classes = _classes(path, np.unique(np.concatenate(known)) if known else np.empty(0, int))
    train, *held_out = (Split(i, _numbered(given, classes)) for i, given in zip(images, labels, strict=True))
    splits = dict(zip(parts[1:], held_out, strict=True))
    test, val = test_and_val({part: split.has_labels for part, split in splits.items()})
    tested, chosen_by = (None if part is None else splits[part] for part in (test, val))
    named, says = tuple(map(str, classes)), tuple(sentence for _, sentence in told)
    why = " ".join(sentence for key, sentence in told if key == "train_labels")
    return ImageSet(path.stem, train, tested, named, chosen_by, says=says, why_unlabelled=why, test_is=test)


def _read(path: Path) -> tuple[dict[str, np.ndarray], list[str]]:
    """The arrays that are known by their keys, and the keys of others; without train_images, all arrays."""
    try:
        ZipFile(path).close()  # what is none, numpy would take for a pickle
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: np.asarray(file[name]) for name in file if name in KEYS or "train_images" not in file}
            return arrays, [name for name in file if name not in KEYS]
    except MemoryError as error:
        raise UserError(
            f"{path} does not fit into memory ({error}); if it holds less, save it again with numpy.savez, else give "
            "its images as a folder or as .tar shards."
        ) from error
    except PermissionError as error:
        raise UserError(
            f"{path} cannot be read ({error.strerror}); make it readable, or give a copy that is."
        ) from error
    except Exception as error:  # of zip's and numpy's readers, at bytes that are none of their own
        raise UserError(f"{path} is not a readable .npz file ({error}); save it with numpy.savez.") from error


def _images(path: Path, part: str, images: np.ndarray) -> UInt8[Tensor, "N C H W"]:
    if images.dtype != np.uint8 or images.ndim not in (3, 4) or images.size == 0:
        cure = f" Try {CURES[images.dtype.kind]}." if images.dtype != np.uint8 and images.dtype.kind in CURES else ""
        raise UserError(
            f"{part}_images in {path} is {images.dtype} {images.shape}; it must be uint8, N x H x W (x C).{cure}"
        )
    if images.ndim == 4 and _channels_first(*images.shape[1:]):
        raise UserError(
            f"{part}_images in {path} is {images.shape}, which looks like N x C x H x W; it must be N x H x W x C: "
            "transpose(0, 2, 3, 1)."
        )
    images = images[..., None] if images.ndim == 3 else images
    return torch.from_numpy(images).permute(0, 3, 1, 2).contiguous()


def _channels_first(a: int, b: int, c: int) -> bool:
    """Whether (a, b, c) is rather C x H x W than H x W x C, which may have more channels than rows."""
    return a < min(b, c) and (a <= 4 or b == c)


def _labels(path: Path, part: str, labels: np.ndarray | None, n: int) -> Shaped[np.ndarray, " N"] | None:
    """One label for each image; none where each has several, as in ChestMNIST."""
    if labels is None or (labels.ndim > 1 and len(labels) == n and labels.size > n):
        return None
    if labels.size != n:
        raise UserError(f"{path} has {n} {part}_images but {labels.size} {part}_labels; give one each.")
    return labels.reshape(-1)


def _misnamed(path: Path, unread: Sequence[str], arrays: Mapping[str, np.ndarray]) -> Iterator[tuple[str, str]]:
    """Keys that we miss, each with a sentence about one that is nearly it."""
    missing = [key for key in KEYS if key not in arrays]
    for name in unread:
        for key in get_close_matches(name.lower(), missing, n=1, cutoff=ALIKE):
            yield key, f"{name} in {path} is not read; did you mean {key}?"


def _with_several_labels(
    path: Path, parts: Sequence[str], arrays: Mapping[str, np.ndarray]
) -> Iterator[tuple[str, str]]:
    """The key of the first of the parts, if there is any, with a sentence: what is wrong with it is so with all."""
    for key in [f"{part}_labels" for part in parts[:1]]:
        yield (
            key,
            f"{key} in {path} is {arrays[key].shape}, so it is not read; give one number for each image, by argmax(1) "
            "of one-hot rows, say.",
        )


def _classes(path: Path, values: Shaped[np.ndarray, " values"]) -> Shaped[np.ndarray, " classes"]:
    """The classes among all values, ascending; numbers start at 0, and one negative number may stand for no label."""
    if values.dtype.kind not in "uif":
        return values
    if len(broken := values[~np.isnan(values) & (values != np.floor(values))]):
        raise UserError(
            f"The labels in {path} are {values.dtype}, such as {broken[0]!s}, and labels are whole numbers from 0, one "
            "for each class; give these, or leave the labels out: training needs none."
        )
    classes = values[values >= 0]
    smallest = values[0] if len(values[values < 0]) > 1 else next(iter(classes), 0)
    if smallest != 0:
        cure = f"add {-smallest} to" if smallest < 0 else f"subtract {smallest} from"
        raise UserError(f"The smallest label in {path} is {smallest}, and labels start at 0; {cure} all.")
    return classes


def _numbered(labels: np.ndarray | None, classes: np.ndarray) -> Tensor | None:
    """Each label's place among the classes: words and gaps between numbers are gone."""
    if labels is None:
        return None
    index = np.where(np.isin(labels, classes), np.searchsorted(classes, labels), -1)
    return torch.from_numpy(index.astype(np.int64))
