"""Curves of the page: one small plot for each quantity that was logged, every run in it, over epochs."""

from collections.abc import Sequence
from typing import Any

from ..run import other_losses
from .gallery import COLOURS
from .summary import RunSummary, epochs_ended

MOST_POINTS = 1000  # of a curve; more cannot be told apart on a screen
FEW = 25  # points that are marked each
DASHES = ("solid", "dash", "dot", "dashdot", "longdash")
QUANTITIES = {
    "knn": ("kNN top-1 while training", "%"),
    "loss": ("loss", ""),
    "l_gg": ("global-to-global loss", ""),
    "l_lg": ("local-to-global loss", ""),
    "l_ll": ("local-to-local loss", ""),
    "omega": ("omega, what the regressor gains", ""),
    "ratio": ("ratio of gradients", ""),
    "lr": ("learning rate", ""),
    "z_std": ("spread of the latents", ""),
    "z_rank": ("rank of the latents", ""),
    "images_per_s": ("images per second", ""),
}


def plots(runs: Sequence[RunSummary]) -> list[dict[str, Any]]:
    """For each quantity that any run has: its title, a sentence about its last values, and the traces."""
    made = []
    others = other_losses(QUANTITIES, (line for run in runs for line in run.metrics))
    for name, (title, unit) in (QUANTITIES | {name: (name, "") for name in others}).items():
        traces = [trace for i, run in enumerate(runs) if (trace := _trace(run, i, name))]
        if traces:
            ends = ", ".join(f"{runs[t['run']].name}: {_end(t)}{' ' * bool(unit)}{unit}" for t in traces)
            axis = title + (_protocol(runs) if name == "knn" else "") + (f" ({unit})" if unit else "")
            made.append({"name": name, "title": axis, "summary": f"{axis} over epochs; last {ends}", "traces": traces})
    return made


def looks(i: int) -> dict[str, str]:
    """Colour and dashes of run i, told apart without colour, too."""
    return {"color": COLOURS[i % len(COLOURS)], "dash": DASHES[(i // len(COLOURS) + i) % len(DASHES)]}


def _protocol(runs: Sequence[RunSummary]) -> str:
    """k and tau, as they were logged."""
    lines = (line for run in runs for line in run.metrics if {"knn", "knn_k", "knn_tau"} <= set(line))
    known = dict.fromkeys(f"k={line['knn_k']}, tau={line['knn_tau']}" for line in lines)
    return f", {' or '.join(known)}" if known else ""


def _trace(run: RunSummary, i: int, name: str) -> dict[str, Any] | None:
    points = [(line["step"], line[name]) for line in run.metrics if isinstance(line.get(name), int | float)]
    if not points:
        return None
    thin = [*points[:: -(-len(points) // MOST_POINTS)], points[-1]] if len(points) > MOST_POINTS else points
    scale = _epochs_per_step(run)
    return {
        "run": i,
        "x": [round(step * scale, 4) for step, _ in thin],
        "y": [float(f"{value:.6g}") for _, value in thin],
        "mode": "lines+markers" if len(thin) <= FEW else "lines",
        "line": looks(i),
    }


def _epochs_per_step(run: RunSummary) -> float:
    """From the last line that ends an epoch (kNN or spread of latents), else as many epochs as the last line began."""
    for line in reversed(run.metrics):
        if (epochs := epochs_ended(line)) and line["step"]:
            return epochs / line["step"]
    last = run.metrics[-1]
    return (last.get("epoch", 0) + 1) / last["step"] if last["step"] else 1.0


def _end(trace: dict[str, Any]) -> str:
    return f"{trace['y'][-1]:.4g}"
