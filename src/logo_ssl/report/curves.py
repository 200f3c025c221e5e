"""What happened over time? Losses and kNN accuracy of a run as one picture."""

from itertools import cycle
from pathlib import Path

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from ..run import Run, other_losses
from .style import COLOURS

LOSSES = {"l_gg": "global-to-global", "l_lg": "local-to-global", "l_ll": "local-to-local", "omega": "omega"}
SMOOTHING = 0.9


def draw_curves(run: Run, file: Path | None = None) -> Path:
    """Draw the losses and the kNN accuracy over epochs; gives back the PNG's path."""
    file = file or run.path / "curves.png"
    lines = list(run.metrics())
    last_step = max((line["step"] for line in lines), default=0)
    epochs = max((line.get("epochs_done", line.get("epoch", 0) + 1) for line in lines), default=1)
    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4), layout="constrained")
    drawn = LOSSES | {name: name for name in other_losses(LOSSES, lines)}
    for (name, label), colour in zip(drawn.items(), cycle(COLOURS), strict=False):
        points = [(line["step"] / max(last_step, 1) * epochs, line[name]) for line in lines if name in line]
        if points:
            x, y = zip(*points, strict=True)
            left.plot(x, y, color=colour, alpha=0.25, linewidth=0.8)
            left.plot(x, _smooth(y), color=colour, label=label)
    left.set(xlabel="epoch", ylabel="loss", title="Losses")
    left.legend(frameon=False, loc="upper center", bbox_to_anchor=(0.5, -0.14), ncols=2)
    _draw_knn(right, run, lines)
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(alpha=0.25)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    figure.savefig(file, dpi=144)
    plt.close(figure)
    return file


def _draw_knn(axes: Axes, run: Run, lines: list[dict]) -> None:
    points = [(line["epochs_done"], line["knn"]) for line in lines if "knn" in line]
    if points:
        k, tau = next((line["knn_k"], line["knn_tau"]) for line in lines if "knn" in line)
        axes.plot(*zip(*points, strict=True), color=COLOURS[0], marker="o", markersize=4, label="while training")
        axes.set_title(f"kNN accuracy (k={k}, tau={tau})")
        for result in (run.evaluation("knn") or {}).get("results", []):
            if (result["k"], result["tau"]) == (k, tau) and result["features"] != "trained encoder":
                colour = COLOURS[1] if "pixels" in result["features"] else COLOURS[4]
                axes.axhline(result["top1"], color=colour, linestyle="--", label=result["features"])
        axes.legend(frameon=False)
    axes.set(xlabel="epoch", ylabel="top-1 accuracy (%)")


def _smooth(values: tuple[float, ...]) -> list[float]:
    smooth, mean = [], values[0]
    for value in values:
        mean = SMOOTHING * mean + (1 - SMOOTHING) * value
        smooth.append(mean)
    return smooth
