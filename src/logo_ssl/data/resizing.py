"""How are pixels resized on the CPU? By torch: Pillow's filters, in a fraction of its time (docs/decisions/0013)."""

from typing import Literal, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import UInt8

LONGEST = 2  # times the short side: what lies further out is no part of a central square


class Middle(NamedTuple):
    """The way to an image's central square: cut a strip, resize it, cut the square."""

    strip: tuple[slice, slice]
    resized: tuple[int, int]
    square: tuple[slice, slice]


def middle_of(height: int, width: int, size: int) -> Middle:
    """How the short side is brought to `size` and the middle cut out; the strip keeps long images from growing huge."""
    short = min(height, width)
    rows, columns = (_central(side, LONGEST * short) for side in (height, width))
    high, wide = (max(size, round((part.stop - part.start) * size / short)) for part in (rows, columns))
    return Middle((rows, columns), (high, wide), (_central(high, size), _central(wide, size)))


def _central(length: int, most: int) -> slice:
    start = max(0, length - most) // 2
    return slice(start, start + min(length, most))


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
