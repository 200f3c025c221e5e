"""What was done to a crop, in numbers that compare between images and settings?"""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from .draw import Draws


def describe(
    draws: Draws, sizes: Int[Tensor, "N 2"], jitter: tuple[float, float, float, float], channels: int = 3
) -> Float[Tensor, "N 9"]:
    """Centre (down, right) and size (height, width) of the box in image sides; four colour changes; flipped or not.

    A colour change is its share of the range it was drawn from, 0 where nothing changed, as the saturation and hue of
    images without red, green and blue.
    """
    corner, extent = draws.boxes[:, :2] / sizes, draws.boxes[:, 2:] / sizes
    factors = torch.stack((draws.brightness - 1, draws.contrast - 1, draws.saturation - 1, draws.hue), dim=1)
    if channels != 3:
        factors[:, 2:] = 0
    range_ = torch.tensor([2 * strength if strength else 1.0 for strength in jitter])
    colours = factors / range_ * draws.jitter[:, None]
    return torch.cat([corner + extent / 2, extent, colours, draws.flip[:, None]], dim=1).float()
