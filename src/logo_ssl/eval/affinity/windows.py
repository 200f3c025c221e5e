"""Where in an image is it alike to a reference crop? Windows that slide over it, and the mean of those over a pixel."""

from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int, UInt8
from torch import Tensor

from .measures import MEASURES, Measures

STEPS = 4  # windows that begin within the length of one, each way


class Heat(NamedTuple):
    """How alike the windows over each pixel are to the reference, on average, by each measure."""

    learned: Float[np.ndarray, "H W"]
    cosine: Float[np.ndarray, "H W"]


def slide(
    measures: Measures,
    reference: Float[Tensor, "1 D"],
    image: UInt8[Tensor, "C H W"],
    window: tuple[float, float],
) -> Heat:
    """The heat of windows of so large a share of the image's height and width."""
    size = (image.shape[1], image.shape[2])
    boxes = window_boxes(size, window)
    found = measures.affinities(reference, measures.boxes_seen(image, boxes).z)
    return Heat(*(spread_over(found[measure][0], boxes, size) for measure in MEASURES))


def window_boxes(size: tuple[int, int], window: tuple[float, float]) -> Int[Tensor, "n 4"]:
    """Windows from edge to edge, a quarter of their side apart."""
    lines = []
    for length, share in zip(size, window, strict=True):
        side = max(1, min(length, round(length * share)))
        n = 1 + -(-(length - side) * STEPS // side)
        lines.append((torch.linspace(0, length - side, n).round().long().unique(), side))
    (tops, height), (lefts, width) = lines
    grid = torch.cartesian_prod(tops, lefts).view(-1, 2)
    return torch.cat([grid, torch.tensor([[height, width]]).expand(len(grid), 2)], dim=1)


def spread_over(
    values: Float[np.ndarray, " n"], boxes: Int[Tensor, "n 4"], size: tuple[int, int]
) -> Float[np.ndarray, "H W"]:
    """At each pixel the mean of the boxes that cover it."""
    total, count = np.zeros(size), np.zeros(size)
    for value, (top, left, height, width) in zip(values, boxes.tolist(), strict=True):
        total[top : top + height, left : left + width] += value
        count[top : top + height, left : left + width] += 1
    return total / np.maximum(count, 1)
