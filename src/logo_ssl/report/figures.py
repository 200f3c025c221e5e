"""How do the page's figures get into a paper? As SVG and PNG files, in the one style."""

import re
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
from matplotlib.ticker import MaxNLocator

from ..files import refuse_existing
from .affinity_bars import draw_affinity_bars
from .feature_map import FeatureMap, looks
from .plots import plots
from .reading import Told
from .style import ABOUT, plain, save_figure

DASHES = {"solid": "-", "dash": "--", "dot": ":", "dashdot": "-.", "longdash": (0, (8, 3))}
MARKERS = {"circle": "o", "square": "s", "diamond": "D", "cross": "P", "triangle-up": "^", "x": "X", "star": "*"}
LATER = ("pca", "t-sne", "affinity")
"""Figures that a run has once its encoder was looked at."""
WIDTH, HEIGHT = 5.5, 3.6  # inches: a column of a paper
LETTERS = 40  # that have room along the height


def claim_figures(runs: Sequence[Told], folder: Path, overwrite: bool = False, *, looked_at: bool = False) -> None:
    """UserError if a figure would replace a file; if runs will be looked at, also a later one."""
    later = {f"{_plain(run.name)}-{what}" for run in runs for what in LATER} if looked_at else set[str]()
    for stem in sorted({*_drawings(runs)} | later):
        for kind in ABOUT:
            refuse_existing(folder / f"{stem}.{kind}", overwrite)


def draw_figures(runs: Sequence[Told], folder: Path, overwrite: bool = False) -> list[Path]:
    """Each curve of all runs, and the maps and affinities of each run: all or, where one may not be, none."""
    claim_figures(runs, folder, overwrite)
    return [file for stem, draw in _drawings(runs).items() for file in draw(folder / f"{stem}.svg")]


def _drawings(runs: Sequence[Told]) -> dict[str, Callable[[Path], list[Path]]]:
    """What draws each figure, by the name of its file."""
    made = {plot["name"]: partial(_curve, plot, runs) for plot in plots(runs)}
    for run in runs:
        name = _plain(run.name)
        if (found := run.feature_map) is not None:
            made |= {f"{name}-{projection.lower()}": partial(_map, found, projection) for projection in found.places}
        if run.comparisons:
            made[f"{name}-affinity"] = partial(draw_affinity_bars, run.comparisons)
    return made


def _plain(name: str) -> str:
    return re.sub(r"[^\w.-]+", "-", name)


def _curve(plot: dict[str, Any], runs: Sequence[Told], file: Path) -> list[Path]:
    figure, axes = plt.subplots(figsize=(WIDTH, HEIGHT), layout="constrained")
    for trace in plot["traces"]:
        line, few = trace["line"], "markers" in trace["mode"]
        style = {"color": line["color"], "linestyle": DASHES[line["dash"]], "marker": "o" if few else None}
        axes.plot(trace["x"], trace["y"], markersize=3, linewidth=1.4, label=runs[trace["run"]].name, **style)
    title = plot["title"] if len(plot["title"]) <= LETTERS else plot["title"].replace(", ", ",\n", 1)
    axes.set(xlabel="epoch", ylabel=title)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    if len(runs) > 1:
        for text in axes.legend(frameon=False, fontsize=8).get_texts():
            text.set_parse_math(False)
    plain(axes)
    return save_figure(figure, file)


def _map(found: FeatureMap, projection: str, file: Path) -> list[Path]:
    figure, axes = plt.subplots(figsize=(WIDTH, WIDTH), layout="constrained")
    places, labels = found.places[projection], [image.label or "" for image in found.images]
    for k, label in enumerate(sorted(set(labels))):
        rows, look = [i for i, other in enumerate(labels) if other == label], looks(k)
        style = {"color": look["color"], "marker": MARKERS[look["symbol"]], "linewidths": 0}
        axes.scatter(places[rows, 0], places[rows, 1], s=18, alpha=0.85, label=label or None, **style)
    axes.set(xticks=[], yticks=[], aspect="equal", xlabel=f"{projection}, {len(labels)} {found.of}")
    axes.spines[:].set_visible(False)
    if 1 < len(set(labels)) <= len(MARKERS) * 2:
        for text in figure.legend(loc="outside lower center", ncols=4, frameon=False, fontsize=8).get_texts():
            text.set_parse_math(False)
    return save_figure(figure, file)
