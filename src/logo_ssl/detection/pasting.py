"""Which pixels of a picture does the mask of a box cover? Those whose centre is inside rather than not.

torchvision rounds boxes to whole pixels and makes each one wider; masks of small objects would be a tenth too large.
"""

import torch
from jaxtyping import Bool, Float
from torch import Tensor

INSIDE = 0.5
AT_ONCE = 1 << 28
"""Pixels of all masks that are pasted together: 1 GiB of float32."""


def pasted(
    masks: Float[Tensor, "n M M"], boxes: Float[Tensor, "n 4"], height: int, width: int
) -> Bool[Tensor, "n {height} {width}"]:
    """Masks laid into their boxes, bilinear at the centre of every pixel, and nothing around them."""
    n = max(1, AT_ONCE // (height * width))
    parts = zip(masks.split(n), boxes.split(n), strict=True)
    with torch.autocast(masks.device.type, enabled=False):
        return torch.cat([_pasted(part.float(), places.float(), height, width) for part, places in parts])


def _pasted(masks: Tensor, boxes: Tensor, height: int, width: int) -> Tensor:
    left, top, right, bottom = boxes.unbind(1)
    cells = masks.shape[-1]
    rows, columns = _shares(top, bottom, height, cells), _shares(left, right, width, cells)
    return rows @ masks @ columns.mT >= INSIDE


def _shares(begin: Float[Tensor, " n"], end: Float[Tensor, " n"], pixels: int, cells: int) -> Float[Tensor, "n _ _"]:
    """How much of each cell a pixel's centre sees along one side: all at the cell's centre, none a cell further on."""
    centres = torch.arange(pixels, device=begin.device) + 0.5
    seen = (centres - begin[:, None]) / (end - begin)[:, None] * cells - 0.5
    return (1 - (seen[..., None] - torch.arange(cells, device=begin.device)).abs()).clamp(0)
