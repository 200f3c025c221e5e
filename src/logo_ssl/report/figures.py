"""Figures as SVG and PNG files, in one style: curves of runs, kNN of rows, affinity."""

import io
import warnings
from collections.abc import Sequence
from pathlib import Path
from statistics import mean
from typing import Any, NamedTuple

import matplotlib

matplotlib.use("agg")

import matplotlib.pyplot as plt
import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.offsetbox import AnnotationBbox, OffsetImage
from matplotlib.patches import Rectangle
from matplotlib.ticker import MaxNLocator

from ..files import write
from ..run import Run
from .gallery import COLOURS, MEASURES, Comparison, Group, HeatMap, Pixels
from .page import plots
from .summary import RunSummary

ON_WHITE = (*COLOURS, "#000000", "#56B4E9")  # more of Okabe and Ito's, for figures that are never dark
GREY = "#555555"
DPI = 144
KINDS = {"png": {"Software": "logo-ssl"}, "svg": {"Creator": "logo-ssl", "Date": None}}
"""Metadata of a file of each kind: without a date the same figure gives the same bytes."""
FEW = 25  # points of a curve that are marked each
WIDTH, HEIGHT = 5.5, 3.6  # inches: a column of a paper
LETTERS = 40  # that have room along the height

STYLES = {"learned": (COLOURS[0], ""), "cosine": (COLOURS[1], "////")}
BAR, GAP = 0.4, 0.8  # widths of a bar and between two images; a crop has room for 1
VEIL = 0.8  # how much of the image the heat hides: with less, small images look all alike


def save_figure(figure: Figure, file: Path) -> list[Path]:
    """Write a figure as .png and .svg."""
    files = {kind: file.with_suffix(f".{kind}") for kind in KINDS}
    with (
        plt.rc_context({"svg.hashsalt": "logo-ssl", "svg.fonttype": "none", "font.family": "DejaVu Sans"}),
        warnings.catch_warnings(),
    ):
        # Names have letters that the font lacks: boxes in the .png, and themselves in the .svg, which holds text.
        warnings.filterwarnings("ignore", r"Glyph \d+ .*missing from", UserWarning)
        for kind, place in files.items():
            content = io.BytesIO()
            figure.savefig(content, format=kind, dpi=DPI, metadata=KINDS[kind])
            write(place, content.getvalue())
    plt.close(figure)
    return [*files.values()]


def draw_curves(runs: Sequence[RunSummary], folder: Path) -> list[Path]:
    """The curves of the page, a figure for each quantity."""
    return [file for plot in plots(runs) for file in _draw_plot(plot, runs, folder / f"{plot['name']}.svg")]


def _draw_plot(plot: dict[str, Any], runs: Sequence[RunSummary], file: Path) -> list[Path]:
    figure, axes = plt.subplots(figsize=(WIDTH, HEIGHT), layout="constrained")
    for trace in plot["traces"]:
        marker = "o" if len(trace["x"]) <= FEW else None
        dashes = [float(length) / 2 for length in trace["dash"].split() if length != "none"]
        style = {"color": trace["color"], "linestyle": (0, dashes) if dashes else "-", "marker": marker}
        axes.plot(trace["x"], trace["y"], markersize=3, linewidth=1.4, label=runs[trace["run"]].name, **style)
    title = plot["title"] if len(plot["title"]) <= LETTERS else plot["title"].replace(", ", ",\n", 1)
    axes.set(xlabel="epoch", ylabel=title)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    if len(runs) > 1:
        for text in axes.legend(frameon=False, fontsize=8).get_texts():
            text.set_parse_math(False)  # a name with dollars is not a formula
    _plain(axes)
    return save_figure(figure, file)


def _plain(axes: Axes) -> None:
    """Only the lines that carry something."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", alpha=0.25)
    axes.set_axisbelow(True)


class Curve(NamedTuple):
    """A row's runs over seeds."""

    row: str
    label: str
    panel: str
    runs: tuple[Run, ...]

    def points(self) -> dict[int, list[float]]:
        """kNN of each run, at the epochs that all runs have."""
        found = [{line["epochs_done"]: line["knn"] for line in run.metrics() if "knn" in line} for run in self.runs]
        shared = set.intersection(*map(set, found)) if found else set()
        return {epoch: [run[epoch] for run in found] for epoch in sorted(shared)}

    def protocol(self) -> str:
        """k and tau, as they were logged."""
        line = next(line for run in self.runs for line in run.metrics() if "knn" in line)
        return f"k={line['knn_k']}, tau={line['knn_tau']}"


def draw_knn_curves(curves: Sequence[Curve], file: Path) -> list[Path]:
    """Draw the mean over seeds, and from the lowest to the highest as a band, a panel for each data set."""
    panels = list(dict.fromkeys(curve.panel for curve in curves))
    most = max(sum(curve.panel == panel for curve in curves) for panel in panels)
    size = (5 * len(panels), 4.8 + 0.21 * max(0, most - 4))  # inches: a panel with a legend of four lines, and one more
    figure, axes = plt.subplots(1, len(panels), figsize=size, layout="constrained", squeeze=False)
    markers = ("o", "s", "^", "D", "v")  # distinct in print as well
    for panel, ax in zip(panels, axes[0], strict=True):
        shown = [curve for curve in curves if curve.panel == panel]
        for i, curve in enumerate(shown):
            points = curve.points()
            values, colour = list(points.values()), ON_WHITE[i % len(ON_WHITE)]
            style = {"color": colour, "marker": markers[(i + i // len(markers)) % len(markers)], "markersize": 4}
            label = f"{curve.label} (n={len(curve.runs)})"
            (line,) = ax.plot(list(points), [mean(v) for v in values], label=label, **style)
            line.set_gid(f"row-{curve.row}")
            low, high = map(min, values), map(max, values)
            ax.fill_between(list(points), list(low), list(high), color=colour, alpha=0.2, linewidth=0)
        ylabel = f"kNN top-1 (%), {shown[0].protocol()}"
        ax.set(xlabel="epoch; bands: lowest to highest seed", ylabel=ylabel, title=panel)
        ax.xaxis.set_major_locator(MaxNLocator(integer=True))
        ax.legend(frameon=False, loc="upper center", bbox_to_anchor=(0.5, -0.14))  # inside it would hide some curves
        _plain(ax)
    return save_figure(figure, file)


def draw_affinity_bars(comparisons: Sequence[Comparison], file: Path, note: str) -> list[Path]:
    """The paper's Figure 3, a row for each reference: a bar for each crop and measure, crops on the axis."""
    rows = len(comparisons)
    figure = plt.figure(figsize=(15, 3.9 * rows + 0.8), layout="constrained")
    grid = figure.add_gridspec(rows, 2, width_ratios=[1, 8.2])
    for row, comparison in enumerate(comparisons):
        left = grid[row, 0].subgridspec(2, 1)
        _draw_reference(figure.add_subplot(left[0]), figure.add_subplot(left[1]), comparison)
        right = grid[row, 1].subgridspec(2, 1, height_ratios=[1, 4.2], hspace=0.02)
        bars = figure.add_subplot(right[1])
        _draw_images(figure.add_subplot(right[0], sharex=bars), comparison.groups)
        _draw_bars(bars, comparison.groups)
    handles = [Rectangle((0, 0), 1, 1, fc=c, hatch=h, ec="white", lw=0) for c, h in STYLES.values()]
    figure.legend(handles, list(MEASURES.values()), loc="outside upper right", ncols=2, frameon=False)
    figure.supxlabel(note, fontsize=8, color=GREY, parse_math=False)
    return save_figure(figure, file)


def _draw_reference(above: Axes, below: Axes, comparison: Comparison) -> None:
    above.imshow(comparison.image)
    _frame(above, comparison.box, (3.5, 1.5))
    above.set_title(comparison.title.replace(", ", "\n", 1), fontsize=9, parse_math=False)
    below.imshow(comparison.crop)
    below.set_title("reference crop", fontsize=9)
    for axes in (above, below):
        axes.set(xticks=[], yticks=[])


def _frame(axes: Axes, box: Sequence[float], widths: tuple[float, float]) -> None:
    """A box as a black line in a white one."""
    top, left, height, width = box
    for colour, line in zip(("white", "black"), widths, strict=True):
        axes.add_patch(Rectangle((left - 0.5, top - 0.5), width, height, fill=False, ec=colour, lw=line))


def _places(groups: Sequence[Group]) -> list[Float[np.ndarray, " _"]]:
    """Where the bars of each group stand."""
    starts = np.cumsum([0.0, *(len(group.crops) + GAP for group in groups)])
    return [start + np.arange(len(group.crops), dtype=float) for start, group in zip(starts, groups, strict=False)]


def _draw_images(axes: Axes, groups: Sequence[Group]) -> None:
    """The whole images, each above the middle of its crops, with what it is to the reference."""
    axes.set_axis_off()
    for place, group in zip(_places(groups), groups, strict=True):
        middle = (place[0] + place[-1]) / 2
        _draw_thumbnail(axes, group.image, (middle, 0), (0.5, 0.0), 52)
        place_above = {"xytext": (0, 57), "textcoords": "offset points", "ha": "center"}
        axes.annotate(group.title, (middle, 0), fontsize=9, parse_math=False, **place_above)
    axes.set_ylim(0, 1)


def _draw_bars(axes: Axes, groups: Sequence[Group]) -> None:
    places = _places(groups)
    for place, group in zip(places, groups, strict=True):
        for shift, (measure, (colour, hatch)) in zip((-BAR / 2, BAR / 2), STYLES.items(), strict=True):
            values = getattr(group, measure)
            axes.bar(place + shift, values, BAR, color=colour, hatch=hatch, edgecolor="white", linewidth=0)
            ends, average = [place[0] - 0.5, place[-1] + 0.5], values.mean()
            axes.plot(ends, [average, average], color=colour, lw=1.2, ls="-" if not hatch else "--", alpha=0.9)
        for x, crop in zip(place, group.crops, strict=True):
            _draw_thumbnail(axes, crop, (x, 0), (0.5, 1.18), 19)
    axes.set(xlim=(places[0][0] - 0.7, places[-1][-1] + 0.7), xticks=[], ylim=(0, 1.02), ylabel="normalised similarity")
    axes.set_xlabel("crops", labelpad=26, fontsize=9)
    _plain(axes)


def _draw_thumbnail(axes: Axes, image: Pixels, at: tuple[float, float], align: tuple[float, float], side: int) -> None:
    """An image whose longer side has so many points, at a place of the axes."""
    box = OffsetImage(image, zoom=side / max(image.shape[:2]), interpolation="nearest" if len(image) < 64 else "auto")
    axes.add_artist(AnnotationBbox(box, at, frameon=False, pad=0, box_alignment=align, annotation_clip=False))


def draw_affinity_map(maps: Sequence[HeatMap], file: Path, note: str) -> list[Path]:
    """Where images are alike to a reference crop, three rows for each: the images, learned affinity, cosine."""
    columns = 1 + max(len(each.images) for each in maps)
    size = (2.5 * columns + 0.6, 7.6 * len(maps) + 0.5)
    figure, axes = plt.subplots(3 * len(maps), columns, figsize=size, layout="constrained", squeeze=False)
    for each in axes.flat:
        each.set_axis_off()
    for i, each in enumerate(maps):
        rows = axes[3 * i : 3 * i + 3]
        rows[0, 0].imshow(each.crop)
        rows[0, 0].set_title(f"reference crop\n{each.title}", fontsize=9, parse_math=False)
        for row, name in zip(rows[1:], MEASURES.values(), strict=True):
            row[0].text(0.95, 0.5, name, ha="right", va="center", transform=row[0].transAxes, fontsize=10)
        for k, shown in enumerate(each.images, start=1):
            rows[0, k].imshow(shown.image)
            rows[0, k].set_title(shown.title.replace(": ", ":\n", 1), fontsize=9, parse_math=False)
            grey = shown.image.mean(axis=2)  # colour would mix with the heat's; it is drawn flat for the same reason
            for row, values in zip(rows[1:], (shown.learned, shown.cosine), strict=True):
                row[k].imshow(grey, cmap="gray", vmin=-128, vmax=384)
                row[k].imshow(values, cmap="cividis", vmin=0, vmax=1, alpha=VEIL)  # as light as it is warm
            for row in rows:
                _make_square(row[k], shown.image)
        for row in rows:
            _frame(row[1], each.box, (3, 1.2))
    bar = figure.colorbar(axes[1, 1].images[-1], ax=axes, shrink=0.5, aspect=30, pad=0.01)
    bar.set_label("normalised similarity of the windows over a pixel")
    figure.supxlabel(note, fontsize=8, color=GREY, parse_math=False)
    return save_figure(figure, file)


def _make_square(axes: Axes, image: Pixels) -> None:
    """Room as high as wide around an image of any shape, so that columns and titles line up."""
    tall, wide = image.shape[:2]
    half = max(tall, wide) / 2
    middle, centre = (wide - 1) / 2, (tall - 1) / 2
    axes.set(xlim=(middle - half, middle + half), ylim=(centre + half, centre - half))
