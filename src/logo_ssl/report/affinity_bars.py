"""How alike is a reference crop to others? The paper's Figure 3: a bar for each crop and measure, crops on the axis."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import matplotlib.pyplot as plt
import numpy as np
from jaxtyping import Float, UInt8
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

from .style import COLOURS, GREY, plain, save_figure

Pixels = UInt8[np.ndarray, "_ _ 3"]
STYLES = {"learned": (COLOURS[0], ""), "cosine": (COLOURS[1], "////")}
NAMES = {"learned": "learned affinity", "cosine": "cosine similarity"}
WIDTH = 0.4  # of a bar; a crop has room for 1
GAP = 0.8  # between two images


class Group(NamedTuple):
    """An image and its crops, with how alike each is to the reference, from 0 to 1."""

    title: str
    image: Pixels
    crops: Sequence[Pixels]
    learned: Float[np.ndarray, " n"]
    cosine: Float[np.ndarray, " n"]


class Comparison(NamedTuple):
    """A reference: its image, its crop and the crop's box (top, left, height, width), and whom it is compared with."""

    title: str
    image: Pixels
    box: Sequence[float]
    crop: Pixels
    groups: Sequence[Group]


def draw_affinity_bars(comparisons: Sequence[Comparison], file: Path, note: str = "") -> list[Path]:
    """A row for each reference; gives back the PNG's and the SVG's path."""
    rows = len(comparisons)
    figure = plt.figure(figsize=(15, 3.9 * rows + 0.8), layout="constrained")
    grid = figure.add_gridspec(rows, 2, width_ratios=[1, 8.2])
    for row, comparison in enumerate(comparisons):
        left = grid[row, 0].subgridspec(2, 1)
        _reference(figure.add_subplot(left[0]), figure.add_subplot(left[1]), comparison)
        right = grid[row, 1].subgridspec(2, 1, height_ratios=[1, 4.2], hspace=0.02)
        bars = figure.add_subplot(right[1])
        _images(figure.add_subplot(right[0], sharex=bars), comparison.groups)
        _bars(bars, comparison.groups)
    handles = [Rectangle((0, 0), 1, 1, fc=c, hatch=h, ec="white", lw=0) for c, h in STYLES.values()]
    figure.legend(handles, list(NAMES.values()), loc="outside upper right", ncols=2, frameon=False)
    if note:
        figure.supxlabel(note, fontsize=8, color=GREY, parse_math=False)
    return save_figure(figure, file)


def _reference(above: Axes, below: Axes, comparison: Comparison) -> None:
    above.imshow(comparison.image)
    top, left, height, width = comparison.box
    for colour, line in (("white", 3.5), ("black", 1.5)):
        above.add_patch(Rectangle((left - 0.5, top - 0.5), width, height, fill=False, ec=colour, lw=line))
    above.set_title(comparison.title, fontsize=9, parse_math=False)
    below.imshow(comparison.crop)
    below.set_title("reference crop", fontsize=9)
    for axes in (above, below):
        axes.set_xticks([])
        axes.set_yticks([])


def _places(groups: Sequence[Group]) -> list[Float[np.ndarray, " _"]]:
    """Where the bars of each group stand."""
    starts = np.cumsum([0.0, *(len(group.crops) + GAP for group in groups)])
    return [start + np.arange(len(group.crops), dtype=float) for start, group in zip(starts, groups, strict=False)]


def _images(axes: Axes, groups: Sequence[Group]) -> None:
    """The whole images, each above the middle of its crops, with what it is to the reference."""
    axes.set_axis_off()
    for place, group in zip(_places(groups), groups, strict=True):
        middle = (place[0] + place[-1]) / 2
        _thumbnail(axes, group.image, (middle, 0), (0.5, 0.0), 52)
        place_above = {"xytext": (0, 57), "textcoords": "offset points", "ha": "center"}
        axes.annotate(group.title, (middle, 0), fontsize=9, parse_math=False, **place_above)
    axes.set_ylim(0, 1)


def _bars(axes: Axes, groups: Sequence[Group]) -> None:
    for place, group in zip(_places(groups), groups, strict=True):
        for shift, (measure, (colour, hatch)) in zip((-WIDTH / 2, WIDTH / 2), STYLES.items(), strict=True):
            values = getattr(group, measure)
            axes.bar(place + shift, values, WIDTH, color=colour, hatch=hatch, edgecolor="white", linewidth=0)
            mean = values.mean()
            ends = [place[0] - 0.5, place[-1] + 0.5]
            axes.plot(ends, [mean, mean], color=colour, lw=1.2, ls="-" if not hatch else "--", alpha=0.9)
        for x, crop in zip(place, group.crops, strict=True):
            _thumbnail(axes, crop, (x, 0), (0.5, 1.18), 19)
    ends = _places(groups)
    axes.set(xlim=(ends[0][0] - 0.7, ends[-1][-1] + 0.7), ylim=(0, 1.02), ylabel="normalised similarity")
    axes.set_xticks([])
    axes.set_xlabel("crops", labelpad=26, fontsize=9)
    plain(axes)


def _thumbnail(axes: Axes, image: Pixels, at: tuple[float, float], alignment: tuple[float, float], side: float) -> None:
    """A picture whose longer side has so many points, at a place of the axes."""
    from matplotlib.offsetbox import AnnotationBbox, OffsetImage

    box = OffsetImage(image, zoom=side / max(image.shape[:2]), interpolation="nearest" if len(image) < 64 else "auto")
    axes.add_artist(AnnotationBbox(box, at, frameon=False, pad=0, box_alignment=alignment, annotation_clip=False))
