"""Draw the figures of docs/results from results/records.

python tools/draw_results.py [docs/images]
"""

import argparse
from itertools import pairwise
from pathlib import Path
from statistics import mean
from textwrap import fill
from typing import NamedTuple

import matplotlib

matplotlib.use("agg")

import matplotlib.pyplot as plt
from l2l_trials import TRIALS, Change, Trial, change
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from records import runs

COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#D55E00")  # Okabe & Ito: readable by the colour-blind
MARKERS = ("o", "s", "^", "D", "v")  # distinct in print too
GREY = "#555555"


class Curve(NamedTuple):
    """kNN over epochs of one record name: the mean over its seeds."""

    panel: str
    label: str
    place: str
    look: int
    """Index of colour and marker: one for what is the same in every panel."""
    paper: float | None = None

    def points(self) -> dict[int, list[float]]:
        """kNN of each seed, by epoch."""
        found = [run["knn_by_epoch"] for run in runs(self.place)]
        return {int(epoch): [run[epoch] for run in found] for epoch in found[0] if all(epoch in run for run in found)}


TWO, LOCAL, LOGO, FOUR = "2 crops", "2 + 2 crops, without L2L", "2 + 2 crops, LoGo", "4 large crops"
BY_PAPER, DECAYED = "the paper's settings", "SimSiam, weight decay 5e-4"
FIGURE_1B = "The paper's Figure 1b is ImageNet-100 with ResNet-34; this one is CIFAR-10 with ResNet-18."
CURVES = {
    "cifar10-crops": (
        Curve("MoCo", TWO, "cifar10-tuned/moco", 0),
        Curve("MoCo", LOCAL, "cifar10-tuned/moco-multicrop", 1),
        Curve("MoCo", LOGO, "cifar10-tuned/moco-logo", 2),
        Curve("MoCo", FOUR, "cifar10-tuned/moco-four-large", 3),
        Curve("MoCo", "6 large crops", "cifar10-tuned/moco-six-large", 4),
        Curve("SimSiam", TWO, "cifar10-tuned/simsiam", 0),
        Curve("SimSiam", LOCAL, "cifar10-tuned/simsiam-multicrop", 1),
        Curve("SimSiam", LOGO, "cifar10-tuned/simsiam-logo", 2),
        Curve("SimSiam", FOUR, "cifar10-tuned/simsiam-four-large", 3),
    ),
    "cifar10-paper": (
        Curve(f"MoCo, {BY_PAPER}", TWO, "cifar10-paper/moco", 0, 79.58),
        Curve(f"MoCo, {BY_PAPER}", LOCAL, "cifar10-paper/moco-multicrop", 1, 82.31),
        Curve(f"MoCo, {BY_PAPER}", LOGO, "cifar10-paper/moco-logo", 2, 84.44),
        Curve(f"SimSiam, {BY_PAPER}", TWO, "cifar10-paper/simsiam", 0, 80.48),
        Curve(f"SimSiam, {BY_PAPER}", LOCAL, "cifar10-paper/simsiam-multicrop", 1, 83.33),
        Curve(f"SimSiam, {BY_PAPER}", LOGO, "cifar10-paper/simsiam-logo", 2, 87.67),
        Curve(DECAYED, "2 crops of 20-100 %", "cifar10-paper/simsiam-decay-5e-4", 0),
        Curve(DECAYED, "2 crops of 40-100 %", "cifar10-paper/simsiam-decay-5e-4-global-40-100", 3),
        Curve(DECAYED, "2 of 20-100 % + 2 of 20-80 %, LoGo",
              "cifar10-paper/simsiam-logo-decay-5e-4-global-20-100-local-20-80", 4),
        Curve(DECAYED, "2 of 40-100 % + 2 of 5-40 %, LoGo", "cifar10-paper/simsiam-logo-decay-5e-4", 2),
    ),
    "imagenette-knn": (
        Curve("Imagenette, MoCo", TWO, "imagenette/moco", 0),
        Curve("Imagenette, MoCo", FOUR, "imagenette/moco-four-large", 3),
        Curve("Imagenette, MoCo", LOCAL, "imagenette/moco-multicrop", 1),
        Curve("Imagenette, MoCo", LOGO, "imagenette/moco-logo", 2),
    ),
    "cifar10-knn": (
        Curve("cifar10", "MoCo, tuned", "cifar10-tuned/moco", 0),
        Curve("cifar10", "MoCo+LoGo, tuned", "cifar10-tuned/moco-logo", 1),
        Curve("cifar10", "SimSiam, tuned", "cifar10-tuned/simsiam", 2),
        Curve("cifar10", "SimSiam+LoGo, tuned", "cifar10-tuned/simsiam-logo", 3),
    ),
}  # fmt: skip


def main(arguments: list[str] | None = None) -> None:
    """Draw every figure, as .png."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, nargs="?", default=Path("docs/images"), help="where the figures go")
    folder = parser.parse_args(arguments).folder
    for name, curves in CURVES.items():
        whole = name == "cifar10-knn"  # with the untrained encoder, and a title, as `reproduce fig1b` draws it
        save(
            draw_curves(curves, f"{FIGURE_1B} Settings are of our choice." if whole else "", from_untrained=whole),
            folder / f"{name}.png",
        )
    save(draw_l2l([change(trial, "k=20") for trial in TRIALS]), folder / "l2l.png")


def save(figure: Figure, file: Path) -> None:
    """Write a figure; the same figure gives the same bytes."""
    with plt.rc_context({"font.family": "DejaVu Sans"}):
        figure.savefig(file, dpi=144, metadata={"Software": "logo-ssl"})
    plt.close(figure)


def draw_curves(curves: tuple[Curve, ...], title: str = "", *, from_untrained: bool = False) -> Figure:
    """Draw the mean over seeds, and a band from the lowest to the highest seed."""
    panels = list(dict.fromkeys(curve.panel for curve in curves))
    most = max(sum(curve.panel == panel for curve in curves) for panel in panels)
    size = (5 * len(panels), 4.8 + 0.21 * max(0, most - 4))
    figure, axes = plt.subplots(1, len(panels), figsize=size, layout="constrained", squeeze=False, sharey=True)
    for panel, ax in zip(panels, axes[0], strict=True):
        shown = [curve for curve in curves if curve.panel == panel]
        several = any(len(runs(curve.place)) > 1 for curve in shown)
        for curve in shown:
            points = {epoch: knn for epoch, knn in curve.points().items() if epoch or from_untrained}
            colour, seeds = COLOURS[curve.look], list(points.values())
            n = f" (n={len(seeds[0])})" if several else ""
            style = {"color": colour, "marker": MARKERS[curve.look], "markersize": 4}
            ax.plot(list(points), [mean(knn) for knn in seeds], label=curve.label + n, **style)
            if len(seeds[0]) > 1:
                low, high = map(min, seeds), map(max, seeds)
                ax.fill_between(list(points), list(low), list(high), color=colour, alpha=0.2, linewidth=0)
            if curve.paper:
                ax.axhline(curve.paper, color=colour, linestyle="--", linewidth=0.9)
        bands = "bands: lowest to highest seed" if several else "one seed each"
        dashes = "; dashed: the paper's last" if any(curve.paper for curve in shown) else ""
        ax.set(xlabel=f"epoch; {bands}{dashes}", ylabel="kNN top-1 (%), k=20, tau=0.07", title=panel)
        ax.tick_params(labelleft=True)
        ax.spines[["top", "right"]].set_visible(False)
        ax.grid(alpha=0.25)
        ax.xaxis.set_major_locator(MaxNLocator(integer=True))
        ax.legend(frameon=False, loc="upper center", bbox_to_anchor=(0.5, -0.14))  # inside it would hide curves
    if title:
        figure.suptitle(fill(title, 62 * len(panels)), fontsize="small")
    return figure


LEFT, RIGHT = -7.2, 5.2  # points; a change further left is an arrow
LINE = 0.27  # inches of a trial
COLUMNS = {"epochs": -1.4, "on": -1.22, "images": -1.03, "local crops, %": -0.69, "lambda": -0.41, "": -0.28}
"""The columns left of the axes, and where each begins, in widths of the axes."""
FRAMEWORKS = {"MoCo": ("o", COLOURS[0]), "SimSiam": ("s", COLOURS[4])}


def draw_l2l(changes: list[Change | None]) -> Figure:
    """A line for each trial: what it was, and the change by L2L with two standard errors to either side."""
    figure, axes = plt.subplots(figsize=(9, LINE * (len(changes) + 5)))
    figure.subplots_adjust(left=0.58, right=0.99, top=1 - 1.4 / (len(changes) + 5), bottom=3.4 / (len(changes) + 5))
    for y, (trial, changed) in enumerate(zip(TRIALS, changes, strict=True)):
        _write_cells(axes, y, trial.cells())
        _draw_change(axes, y, trial, changed)
    _write_cells(axes, -1, tuple(COLUMNS), weight="bold")
    for y, (one, other) in enumerate(pairwise(TRIALS)):
        if one.epochs != other.epochs:
            across = axes.get_yaxis_transform()
            axes.plot((-1.41, 1), (y + 0.5, y + 0.5), color=GREY, linewidth=0.4, clip_on=False, transform=across)
    axes.axvline(0, color=GREY, linewidth=0.8)
    axes.set(xlim=(LEFT, RIGHT), ylim=(len(changes) - 0.5, -0.5), xlabel="change of kNN top-1 (k=20) by L2L, in points")
    axes.set_yticks([])
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.grid(axis="x", alpha=0.25)
    for framework, (marker, colour) in FRAMEWORKS.items():
        axes.plot([], [], marker, color=colour, label=framework)
    axes.plot([], [], "*", color=COLOURS[1], markersize=10, label="what the paper reports")
    axes.errorbar([], [], xerr=1, color=GREY, linewidth=2.5, label="two standard errors, of seeds")
    axes.errorbar([], [], xerr=1, color=GREY, linewidth=0.8, label="two standard errors, of test images alone")
    place = {"loc": "upper right", "bbox_to_anchor": (1.0, -1.9 / len(TRIALS)), "borderaxespad": 0.0}
    axes.legend(frameon=False, fontsize=8, ncols=3, **place)
    return figure


def _write_cells(axes: Axes, y: float, cells: tuple[str, ...], weight: str = "normal") -> None:
    for x, cell in zip(COLUMNS.values(), cells, strict=True):
        axes.text(x, y, cell, transform=axes.get_yaxis_transform(), va="center", fontsize=8, fontweight=weight)


def _draw_change(axes: Axes, y: int, trial: Trial, changed: Change | None) -> None:
    marker, colour = FRAMEWORKS[trial.framework]
    if changed is None:
        return
    if changed.points < LEFT:
        arrow = {"arrowstyle": "->", "color": colour}
        axes.annotate(f"{changed.points:.1f}", (LEFT, y), (LEFT + 0.6, y), arrowprops=arrow, va="center", color=colour)
        return
    width = 2.5 if changed.over_seeds else 0.8
    axes.errorbar(changed.points, y, xerr=2 * changed.error, fmt=marker, color=colour, linewidth=width, markersize=5)
    if trial.paper:
        axes.plot(trial.paper, y, "*", color=COLOURS[1], markersize=10)


if __name__ == "__main__":
    main()
