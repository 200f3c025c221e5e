"""Which images are to be embedded? Those of a name, a path, paths or an array, each with what it is called."""

import os
from collections.abc import Callable, Sequence
from itertools import chain
from reprlib import repr as short
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ..data import ImageSet, Photos, Split
from ..errors import UserError
from ..eval import Extraction, FrozenEncoder, data_for
from .tables import Part

Which = Literal["all", "train", "val", "test"]
Data = str | os.PathLike[str] | Sequence[str | os.PathLike[str]] | Tensor | np.ndarray | Split | ImageSet


class Images(NamedTuple):
    """A split that is to be embedded, and what its images and classes are called."""

    part: str
    split: Split
    classes: tuple[str, ...]
    source: str | None = None
    """The name or path that `data` was, if it was one."""

    def name(self, row: int) -> str:
        """The path of an image; its number where it has none."""
        images = self.split.images
        return images.name(row) if isinstance(images, Photos) else f"{self.part}[{row}]"

    def longest_name(self) -> int:
        """How many characters the longest name has, of an image or a class."""
        names = (self.name(row) for row in range(len(self.split)))
        return max(map(len, chain(names, self.classes)), default=0)

    def labels(self, rows: Tensor) -> list[str | None]:
        """The class of each image, if it has one."""
        numbers = [-1] * len(rows) if self.split.labels is None else self.split.labels[rows].tolist()
        return [
            None if number < 0 else self.classes[number] if number < len(self.classes) else str(number)
            for number in numbers
        ]

    def told(self, rows: Tensor, features: Tensor) -> Part:
        """The rows of a table, without those of images that could not be read."""
        good = ~features[:, 0].isnan()
        kept = rows[good]
        names = [self.name(row) for row in kept.tolist()]
        return Part(names, self.labels(kept), [self.part] * len(names), features[good].numpy())


def images_of(
    encoder: FrozenEncoder, data: Data | None, which: Which, say: Callable[[str], Any] = Extraction.say
) -> list[Images]:
    """The images that a name, a path, paths or arrays stand for: train, then val, then test."""
    data = _listed(data)
    if isinstance(data, np.ndarray | Tensor):
        pixels = torch.as_tensor(data)
        if pixels.dtype != torch.uint8 or pixels.dim() != 4:
            raise UserError(f"data is {pixels.dtype} {tuple(pixels.shape)}; give images as uint8 [N C H W], or paths.")
        data = Split(pixels)
    if isinstance(data, Sequence) and not isinstance(data, str):
        paths = [os.fspath(path) for path in data]
        data = Split.from_paths(paths)
    if isinstance(data, Split):
        data = ImageSet("images", data)
    if not isinstance(data, ImageSet):
        data = data_for(encoder, None if data is None else os.fspath(data), say)
    parts = {"train": data.train, "val": data.val, "test": data.test}
    chosen = [
        Images(name, part, data.classes, data.source)
        for name, part in parts.items()
        if part is not None and which in ("all", name)
    ]
    if not any(len(images.split) for images in chosen):
        others = [name for name, part in parts.items() if part is not None and len(part)]
        cure = f"use --split {' or '.join(['all', *others])}" if others else "give at least one"
        raise UserError(f"{data.name} has no {'' if which == 'all' else which + ' '}images to embed; {cure}.")
    return [images for images in chosen if len(images.split)]


def _listed(data: Any) -> Any:
    """An array of paths as a list; all else as it is."""
    return data.ravel().tolist() if isinstance(data, np.ndarray) and data.dtype.kind in "OU" else data


def refuse_no_data(data: Any) -> None:
    """Raise a UserError for what stands for no images."""
    data = _listed(data)
    if isinstance(data, Sequence) and not isinstance(data, str | bytes):
        if strange := [path for path in data if not isinstance(path, str | os.PathLike)]:
            raise UserError(
                f"data holds {short(strange[0])} among its paths; give paths as text, or images as one array."
            )
    elif data is not None and not isinstance(data, str | os.PathLike | Tensor | np.ndarray | Split | ImageSet):
        raise UserError(f"data is of type {type(data).__name__}; give a name or a path, a list of paths, or an array.")
