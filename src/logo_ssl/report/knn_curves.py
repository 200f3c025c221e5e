"""How does kNN accuracy grow over epochs, row beside row? One panel for each data set, one line for each row."""

from collections.abc import Sequence
from pathlib import Path
from statistics import mean
from textwrap import fill
from typing import NamedTuple

import matplotlib.pyplot as plt
from matplotlib.ticker import MaxNLocator

from ..run import Run
from .style import ON_WHITE, save_figure

MARKERS = ("o", "s", "^", "D", "v")  # told apart in print, too
WIDTH, HEIGHT = 5, 4.8  # inches of a panel, with a legend of
FEW, LINE = 4, 0.21  # lines, and inches for each one more
LETTERS = 62  # of a heading that have room along the width


class Curve(NamedTuple):
    """A row's runs over seeds."""

    row: str
    label: str
    panel: str
    runs: tuple[Run, ...]
    look: int | None = None
    """Which colour and marker: those of its place in the panel, if nothing is said."""
    paper: float | None = None
    """What the paper reports for it; a dashed line."""

    def points(self) -> dict[int, list[float]]:
        """kNN of each run, at the epochs that all runs have."""
        found = [{line["epochs_done"]: line["knn"] for line in run.metrics() if "knn" in line} for run in self.runs]
        shared = set.intersection(*map(set, found)) if found else set()
        return {epoch: [run[epoch] for run in found] for epoch in sorted(shared)}

    def protocol(self) -> str:
        """k and tau, as they were logged."""
        line = next(line for run in self.runs for line in run.metrics() if "knn" in line)
        return f"k={line['knn_k']}, tau={line['knn_tau']}"


def draw_knn_curves(curves: Sequence[Curve], stem: Path, title: str = "", *, one_scale: bool = False) -> list[Path]:
    """Draw the mean over seeds, and from the lowest to the highest as a band; gives back STEM.png and STEM.svg.

    With `one_scale` heights compare between panels, as they should where all are of one data set.
    """
    panels = list(dict.fromkeys(curve.panel for curve in curves))
    most = max(sum(curve.panel == panel for curve in curves) for panel in panels)
    size = (WIDTH * len(panels), HEIGHT + LINE * max(0, most - FEW))
    figure, axes = plt.subplots(1, len(panels), figsize=size, layout="constrained", squeeze=False, sharey=one_scale)
    for panel, ax in zip(panels, axes[0], strict=True):
        shown = [curve for curve in curves if curve.panel == panel]
        several = any(len(curve.runs) > 1 for curve in shown)
        for i, curve in enumerate(shown):
            points, look = curve.points(), i if curve.look is None else curve.look
            values, colour = list(points.values()), ON_WHITE[look % len(ON_WHITE)]
            n = f" (n={len(curve.runs)})" if several else ""
            marker = MARKERS[(look + look // len(MARKERS)) % len(MARKERS)]  # in another order when they begin again
            style = {"color": colour, "marker": marker, "markersize": 4}
            (line,) = ax.plot(list(points), [mean(v) for v in values], label=curve.label + n, **style)
            line.set_gid(f"row-{curve.row}")
            if len(curve.runs) > 1:
                low, high = [min(v) for v in values], [max(v) for v in values]
                ax.fill_between(list(points), low, high, color=colour, alpha=0.2, linewidth=0)
            if curve.paper:
                ax.axhline(curve.paper, color=colour, linestyle="--", linewidth=0.9)
        seeds = "bands: lowest to highest seed" if several else "one seed each"
        dashes = "; dashed: the paper's last" if any(curve.paper for curve in shown) else ""
        ax.set(xlabel=f"epoch; {seeds}{dashes}", ylabel=f"kNN top-1 (%), {shown[0].protocol()}", title=panel)
        ax.tick_params(labelleft=True)
        ax.spines[["top", "right"]].set_visible(False)
        ax.grid(alpha=0.25)
        ax.xaxis.set_major_locator(MaxNLocator(integer=True))
        below = {"loc": "upper center", "bbox_to_anchor": (0.5, -0.14)}  # inside it would lie on some curves
        ax.legend(frameon=False, **below)
    if title:
        figure.suptitle(fill(title, LETTERS * len(panels)), fontsize="small")
    return save_figure(figure, stem.with_name(f"{stem.name}.png"))
