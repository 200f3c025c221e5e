"""How are pixels resized on the CPU? By torch: Pillow's filters, in a fraction of its time (docs/decisions/0013)."""

from typing import Literal

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import UInt8


def resized(
    image: UInt8[np.ndarray, "H W C"], size: tuple[int, int], mode: Literal["bilinear", "bicubic"]
) -> UInt8[np.ndarray, "h w C"]:
    """The image in another height and width, antialiased."""
    pixels = torch.from_numpy(np.require(image, requirements=["C", "W"]))[None]
    channels_last = pixels.permute(0, 3, 1, 2)  # and so it comes out
    return F.interpolate(channels_last, size=size, mode=mode, antialias=True).permute(0, 2, 3, 1)[0].numpy()
