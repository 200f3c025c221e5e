"""Where is an image alike to a reference crop? Heat over each image, a row for each measure."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import matplotlib.pyplot as plt
import numpy as np
from jaxtyping import Float, UInt8
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

from .affinity_bars import NAMES
from .style import GREY, HEAT, save_figure

Pixels = UInt8[np.ndarray, "_ _ 3"]
VEIL = 0.8  # how much of the image the heat hides: with less, small images look all alike


class Heated(NamedTuple):
    """An image, and how alike each of its pixels is to the reference by each measure, from 0 to 1."""

    title: str
    image: Pixels
    learned: Float[np.ndarray, "H W"]
    cosine: Float[np.ndarray, "H W"]


class HeatMap(NamedTuple):
    """A reference crop, its box (top, left, height, width) in the first image, and the images it is sought in."""

    title: str
    box: Sequence[float]
    crop: Pixels
    images: Sequence[Heated]


def draw_affinity_map(maps: Sequence[HeatMap], file: Path, note: str = "") -> list[Path]:
    """Three rows for each reference: the images, the learned affinity, cosine; gives back PNG and SVG."""
    columns = 1 + max(len(each.images) for each in maps)
    size = (2.5 * columns + 0.6, 7.6 * len(maps) + 0.5)
    figure, axes = plt.subplots(3 * len(maps), columns, figsize=size, layout="constrained", squeeze=False)
    heat = None
    for each in axes.flat:
        each.set_axis_off()
    for i, each in enumerate(maps):
        rows = axes[3 * i : 3 * i + 3]
        rows[0, 0].imshow(each.crop)
        rows[0, 0].set_title(f"reference crop\n{each.title}", fontsize=9, parse_math=False)
        for row, name in zip(rows[1:], NAMES.values(), strict=True):
            row[0].text(0.95, 0.5, name, ha="right", va="center", transform=row[0].transAxes, fontsize=10)
        for k, shown in enumerate(each.images, start=1):
            rows[0, k].imshow(shown.image)
            rows[0, k].set_title(shown.title.replace(": ", ":\n", 1), fontsize=9, parse_math=False)
            for row, values in zip(rows[1:], (shown.learned, shown.cosine), strict=True):
                row[k].imshow(_grey(shown.image), cmap="gray", vmin=-128, vmax=384)
                heat = row[k].imshow(values, cmap=HEAT, vmin=0, vmax=1, alpha=VEIL)
            for row in rows:
                _square(row[k], shown.image)
        for row in rows:
            _frame(row[1], each.box)
    if heat is not None:
        bar = figure.colorbar(heat, ax=axes, shrink=0.5, aspect=30, pad=0.01)
        bar.set_label("normalised similarity of the windows over a pixel")
    if note:
        figure.supxlabel(note, fontsize=8, color=GREY, parse_math=False)
    return save_figure(figure, file)


def _square(axes: Axes, image: Pixels) -> None:
    """Room as high as wide about an image of any shape, so that columns and titles line up."""
    tall, wide = image.shape[:2]
    half = max(tall, wide) / 2
    middle, centre = (wide - 1) / 2, (tall - 1) / 2
    axes.set(xlim=(middle - half, middle + half), ylim=(centre + half, centre - half))


def _grey(image: Pixels) -> Float[np.ndarray, "H W"]:
    """Without colour, which would mix with the heat's; it is drawn flat for the same reason."""
    return image.mean(axis=2)


def _frame(axes: Axes, box: Sequence[float]) -> None:
    top, left, height, width = box
    for colour, line in (("white", 3), ("black", 1.2)):
        axes.add_patch(Rectangle((left - 0.5, top - 0.5), width, height, fill=False, ec=colour, lw=line))
