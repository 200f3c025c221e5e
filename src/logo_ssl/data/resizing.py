"""How are pixels resized on the CPU? By torch: Pillow's filters, in a fraction of its time (docs/decisions/0013)."""

from typing import Literal, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import UInt8

LONGEST = 8  # times the short side; torchvision would make 224 x 14,679,840 pixels of 1 x 65,535


class Middle(NamedTuple):
    """The way to an image's central square: cut a strip, resize it, cut the square."""

    strip: tuple[slice, slice]
    resized: tuple[int, int]
    square: tuple[slice, slice]


def middle_of(height: int, width: int, size: int) -> Middle:
    """The short side brought to `size`, the middle cut out: torchvision's `Resize(size)` and `CenterCrop(size)`.

    The strip is the image itself, but for one that is more than `LONGEST` times as long as wide.
    """
    short = min(height, width)
    rows, columns = (_without_ends(side, LONGEST * short) for side in (height, width))
    high, wide = ((part.stop - part.start) * size // short for part in (rows, columns))  # rounded down, as there
    return Middle((rows, columns), (high, wide), (_central(high, size), _central(wide, size)))


def _without_ends(length: int, enough: int) -> slice:
    end = max(0, length - enough) // 2  # as much on either side, so that the middle stays where it is
    return slice(end, length - end)


def _central(length: int, size: int) -> slice:
    start = round((length - size) / 2)  # a half to the even number beside it, as there
    return slice(start, start + size)


def square(image: UInt8[np.ndarray, "H W 3"], size: int) -> UInt8[np.ndarray, "S S 3"]:
    """The image with its short side brought to `size` and its middle cut out, for evaluation."""
    middle = middle_of(image.shape[0], image.shape[1], size)
    return np.ascontiguousarray(resized(image[middle.strip], middle.resized, "bicubic")[middle.square])


def resized(
    image: UInt8[np.ndarray, "H W C"], size: tuple[int, int], mode: Literal["bilinear", "bicubic"]
) -> UInt8[np.ndarray, "h w C"]:
    """The image in another height and width, antialiased."""
    pixels = torch.from_numpy(np.require(image, requirements=["C", "W"]))[None]
    channels_last = pixels.permute(0, 3, 1, 2)  # and so it comes out
    return F.interpolate(channels_last, size=size, mode=mode, antialias=True).permute(0, 2, 3, 1)[0].numpy()
