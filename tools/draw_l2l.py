"""What did pushing local crops apart change, wherever it was tried? A picture and a table, from what is kept.

python tools/draw_l2l.py docs/results/raw docs/images
"""

import argparse
import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from itertools import compress, pairwise
from math import sqrt
from pathlib import Path
from statistics import mean, stdev
from typing import Any, NamedTuple

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.transforms import Transform

from logo_ssl.report.style import COLOURS, GREY, save_figure

LEFT, RIGHT = -7.2, 5.2  # points; what lies further left is an arrow
SEVERAL = 3  # seeds, which then give a standard error of their own
LONG = 200  # epochs of the trials that are pooled
PUSHES = 0.05  # lambda: those below it hardly show in any figure
MEASURES = {"k=20": ("k=20",), "k=200": ("k=200",), "linear": ("linear-sgd", "linear-lbfgs")}
"""What L2L is judged by: top-1 of kNN, and of a linear classifier by a protocol that both sides have."""
LINE = 0.27  # inches of a trial
COLUMNS = {"epochs": -1.4, "on": -1.22, "images": -1.03, "local crops, %": -0.69, "lambda": -0.41, "": -0.28}
"""What a trial is told by, and where that stands in the picture, in widths of its axes."""
MARKS = {"MoCo": ("o", COLOURS[0]), "SimSiam": ("s", COLOURS[4])}


class Trial(NamedTuple):
    """A setting with L2L and without it: where its runs are kept, by seed, as FOLDER/SEED or FILE:LINE."""

    epochs: int
    framework: str
    images: str
    local: str
    lam: float
    pushed: tuple[str, ...]
    left_alone: tuple[str, ...]
    tested: int = 10_000
    remark: str = ""
    paper: float | None = None

    def cells(self) -> tuple[str, ...]:
        """What it is, column by column."""
        return (str(self.epochs), self.framework, self.images, self.local, f"{self.lam:g}", self.remark)


class Change(NamedTuple):
    """kNN with L2L and without it, by seed, in percent."""

    pushed: list[float]
    left_alone: list[float]
    tested: int

    @property
    def points(self) -> float:
        """By how much L2L changed it, over the seeds of each."""
        return mean(self.pushed) - mean(self.left_alone)

    @property
    def over_seeds(self) -> bool:
        """Whether seeds, rather than test images, say how far that may be chance."""
        return len(self.pushed) == len(self.left_alone) >= SEVERAL

    @property
    def error(self) -> float:
        """Its standard error: of differences by seed or, with few seeds, by what a draw of test images varies."""
        if self.over_seeds:
            by_seed = [one - other for one, other in zip(self.pushed, self.left_alone, strict=True)]
            return stdev(by_seed) / sqrt(len(by_seed))
        shares = [mean(side) / 100 for side in (self.pushed, self.left_alone)]
        return 100 * sqrt(sum(share * (1 - share) for share in shares) / self.tested)


def _lines(name: str, *lines: int) -> tuple[str, ...]:
    return tuple(f"{name}.jsonl:{line}" for line in lines)


def _record(folder: str, row: str) -> tuple[str, ...]:
    return (f"cifar10-{folder}/{row}/seed0",)


SWEEP, MORE, SCENES = "2026-11-16-lambda-twenty-epochs", "2026-11-16-l2l-twenty-epochs", "2026-11-17-scenes-crops"
LAST = "2026-11-18-cosine-and-lambda"
VARIED, AREAS = "2026-11-17-simsiam-local-crops", "5-40"
PHOTOGRAPHS, MORE_PHOTOGRAPHS = "2026-11-17-photographs-crops", "2026-11-17-more-photographs"
HELD_OUT = (40, "SimSiam", "CIFAR-10, held out", "20-80", 0.05)
WITHOUT = _lines("2026-11-17-simsiam-crops", 2)
SMALL, LARGE = (20, "MoCo", "CIFAR-10", AREAS), (20, "MoCo", "CIFAR-10", "20-80")
LARGER = "global 40-100 %"
LARGE_SIMSIAM = (20, "SimSiam", "CIFAR-10", "20-80")
TRIALS = (
    Trial(200, "MoCo", "CIFAR-10", AREAS, 5e-4, _record("paper", "cifar10-moco-logo"),
          _record("paper", "cifar10-moco-multicrop"), remark="paper's settings", paper=2.13),
    Trial(200, "SimSiam", "CIFAR-10", AREAS, 1e-4, _record("paper", "cifar10-simsiam-logo"),
          _record("paper", "cifar10-simsiam-multicrop"), remark="paper's settings", paper=4.34),
    Trial(200, "MoCo", "CIFAR-10", AREAS, 0.05, _record("tuned", "cifar10-tuned-moco-logo"),
          _record("tuned", "cifar10-tuned-moco-multicrop"), remark="16 px, decay 1e-3"),
    Trial(200, "MoCo", "CIFAR-10", AREAS, 0.05, _record("half-decay", "cifar10-tuned-moco-logo"),
          _record("half-decay", "cifar10-tuned-moco-multicrop"), remark="16 px"),
    Trial(200, "MoCo", "CIFAR-10", "20-80", 0.05, _record("large-local", "cifar10-tuned-moco-logo"),
          _record("large-local", "cifar10-tuned-moco-multicrop")),
    Trial(200, "SimSiam", "CIFAR-10", "20-80", 0.05, _record("tuned", "cifar10-tuned-simsiam-logo"),
          _record("tuned", "cifar10-tuned-simsiam-multicrop")),
    Trial(200, "MoCo", "Imagenette", AREAS, 0.05, _lines("2026-11-16-imagenette-equal-crops", 3),
          _lines("2026-11-17-imagenette-without-l2l", 1), 3_925),
    Trial(*HELD_OUT, _lines("2026-11-17-rate-and-weight-decay", 8), WITHOUT, 5_000),
    Trial(*HELD_OUT, _lines(VARIED, 4), WITHOUT, 5_000, "slower regressor"),
    Trial(*HELD_OUT, _lines(VARIED, 5), WITHOUT, 5_000, "at parameters"),
    Trial(*HELD_OUT, _lines(VARIED, 3), WITHOUT, 5_000, "noise"),
    Trial(25, "MoCo", "photographs, tiny", AREAS, 0.05,
          (*_lines(PHOTOGRAPHS, 5, 6), *_lines(MORE_PHOTOGRAPHS, *range(7, 13))),
          (*_lines(PHOTOGRAPHS, 3, 4), *_lines(MORE_PHOTOGRAPHS, *range(1, 7))), 800),
    Trial(20, "MoCo", "scenes, tiny", AREAS, 0.05, _lines(SCENES, *range(11, 16)), _lines(SCENES, *range(6, 11)),
          1_000),
    Trial(20, "MoCo", "scenes, tiny", AREAS, 0.5, _lines(SCENES, *range(16, 21)), _lines(SCENES, *range(6, 11)),
          1_000),
    Trial(*SMALL, 0.05, _lines("2026-11-17-half-size-crops", 1), _lines("2026-11-17-small-local-crops", 2),
          remark="16 px"),
    Trial(*SMALL, 0.005, _lines(LAST, 3), _lines("2026-11-17-small-local-crops", 2), remark="16 px"),
    Trial(*SMALL, 0.5, _lines(LAST, 4), _lines("2026-11-17-small-local-crops", 2), remark="16 px"),
    Trial(*SMALL, 0.05, _lines("2026-11-17-lambda-of-local-crops", 1), _lines("2026-11-16-local-crops-lambda", 1),
          remark=LARGER),
    Trial(*SMALL, 0.2, _lines("2026-11-17-lambda-of-local-crops", 2), _lines("2026-11-16-local-crops-lambda", 1),
          remark=LARGER),
    Trial(20, "SimSiam", "CIFAR-10", "8-50", 0.05, _lines("2026-11-15-twenty-epochs", 7),
          _lines("2026-11-15-twenty-epochs", 4)),
    Trial(*LARGE, 0.005, _lines(MORE, 6), _lines(SWEEP, 1)),
    Trial(*LARGE, 0.05, (*_lines(SWEEP, 2), *_lines(MORE, 8)), (*_lines(SWEEP, 1), *_lines(MORE, 7))),
    Trial(*LARGE, 0.5, _lines(SWEEP, 3), _lines(SWEEP, 1)),
    Trial(*LARGE, 0.5, _lines(MORE, 2), _lines(SWEEP, 1), remark="cosine"),
    Trial(*LARGE_SIMSIAM, 0.05, _lines(MORE, 4), _lines(MORE, 3)),
    Trial(*LARGE_SIMSIAM, 0.05, _lines("2026-11-18-cosine-and-no-bound", 1), _lines(MORE, 3), remark="cosine"),
    Trial(*LARGE_SIMSIAM, 0.5, _lines(MORE, 5), _lines(MORE, 3)),
    Trial(*LARGE_SIMSIAM, 0.5, _lines(LAST, 1), _lines(MORE, 3), remark="cosine"),
    Trial(*LARGE_SIMSIAM, 1, _lines(LAST, 2), _lines(MORE, 3), remark="cosine, weight"),
)  # fmt: skip


def main(arguments: list[str] | None = None) -> None:
    """Draw the picture, as .png and .svg, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("raw", type=Path, help="docs/results/raw")
    parser.add_argument("folder", type=Path, help="where the picture goes")
    options = parser.parse_args(arguments)
    told = gather(options.raw)
    draw(told["k=20"], options.folder / "l2l.png")
    sys.stdout.write(table(told))


def gather(raw: Path) -> dict[str, list[Change | None]]:
    """What is kept of each trial, by each measure that all of its runs have."""
    return {measure: [change(raw, trial, kinds) for trial in TRIALS] for measure, kinds in MEASURES.items()}


def change(raw: Path, trial: Trial, kinds: Sequence[str]) -> Change | None:
    """What is kept of a trial, by the first of some kinds of measurement that all of its runs have."""
    for kind in kinds:
        sides = [[figure(raw, place, kind) for place in side] for side in (trial.pushed, trial.left_alone)]
        pushed, left_alone = ([figure for figure in side if figure is not None] for side in sides)
        if [pushed, left_alone] == sides:
            return Change(pushed, left_alone, trial.tested)
    return None


def figure(raw: Path, place: str, kind: str) -> float | None:
    """Top-1 of a run at its last epoch by `eval`, or else, of kNN, as training measured it."""
    file, _, line = place.partition(":")
    if not line:
        records = [json.loads(record.read_text()) for record in (raw / file / "evaluation").glob("*.json")]
        return _evaluated(records, kind)
    kept = json.loads((raw / file).read_text().splitlines()[int(line) - 1])
    if (found := _evaluated(kept.get("evaluations", []), kind)) is not None:
        return found
    if "knn" in kept and kind.startswith("k="):
        return kept["knn"][("k=20", "k=200").index(kind)]
    return list(kept["knn_k20_by_epoch"].values())[-1] if kind == "k=20" and "knn_k20_by_epoch" in kept else None


def _evaluated(records: Iterable[dict[str, Any]], kind: str) -> float | None:
    for record in records:
        results = record["results"]
        if record["evaluation"] == "knn":
            found = [result["top1"] for result in results if f"k={result['k']}" == kind]
        else:
            found = [results["top-1"]] if record["evaluation"] == kind else []
        if found:
            return found[0]
    return None


def table(told: Mapping[str, list[Change | None]]) -> str:
    """All of it in Markdown, and below it the means of the long trials."""
    names = (*COLUMNS, "with L2L", "without", *told)
    head = f"| {' | '.join(names)} |\n{'|---' * len(names)}|\n"
    rows = "".join(_row(trial, *changes) for trial, *changes in zip(TRIALS, *told.values(), strict=True))
    return f"{head}{rows}\n{means(told)}"


def means(told: Mapping[str, list[Change | None]]) -> str:
    """A table of what the long trials come to, all of them and those that push."""
    head = f"| mean over pairs of {LONG} epochs | {' | '.join(told)} |\n{'|---' * (len(told) + 1)}|\n"
    chosen = {"all": [trial.epochs == LONG for trial in TRIALS]}
    chosen[f"those with lambda {PUSHES:g}"] = [trial.epochs == LONG and trial.lam == PUSHES for trial in TRIALS]
    rows = ""
    for name, those in chosen.items():
        long = [[each for each in compress(changes, those) if each] for changes in told.values()]
        rows += f"| {name} | {' | '.join(map(_mean, long))} |\n"
    return head + rows


def _mean(changes: Sequence[Change]) -> str:
    points, error, scatter, n = pooled(changes)
    return f"{points:+.2f} ± {error:.2f}{'' if scatter is None else f'; ± {scatter:.2f}'} (n={n})"


def pooled(changes: Sequence[Change]) -> tuple[float, float, float | None, int]:
    """The mean of changes by inverse variances, its standard error, that by scatter (of one: none), and how many."""
    weights = [1 / change.error**2 for change in changes]
    points = sum(weight * change.points for weight, change in zip(weights, changes, strict=True)) / sum(weights)
    scatter = sum(weight * (change.points - points) ** 2 for weight, change in zip(weights, changes, strict=True))
    by_scatter = sqrt(scatter / (len(changes) - 1) / sum(weights)) if len(changes) > 1 else None
    return points, 1 / sqrt(sum(weights)), by_scatter, len(changes)


def _row(trial: Trial, knn: Change, *others: Change | None) -> str:
    sides = (f"{mean(side):.2f}{f' (n={len(side)})' if len(side) > 1 else ''}" for side in knn[:2])
    changes = (f"{each.points:+.2f} ± {each.error:.2f}" if each else "" for each in (knn, *others))
    return f"| {' | '.join((*trial.cells(), *sides, *changes))} |\n"


def draw(changes: Sequence[Change | None], file: Path) -> None:
    """A line for each trial: what it was, the change with two standard errors to either side, the paper's beside it."""
    figure, axes = plt.subplots(figsize=(9, LINE * (len(changes) + 5)))
    figure.subplots_adjust(left=0.58, right=0.99, top=1 - 1.4 / (len(changes) + 5), bottom=3.4 / (len(changes) + 5))
    for y, (trial, change) in enumerate(zip(TRIALS, changes, strict=True)):
        _write_cells(axes, y, trial.cells())
        _draw_change(axes, y, trial, change)
    _write_cells(axes, -1, tuple(COLUMNS), weight="bold")
    for y, (one, other) in enumerate(pairwise(TRIALS)):
        if one.epochs != other.epochs:
            axes.plot((-1.41, 1), (y + 0.5, y + 0.5), color=GREY, linewidth=0.4, clip_on=False, transform=_across(axes))
    axes.axvline(0, color=GREY, linewidth=0.8)
    axes.set(xlim=(LEFT, RIGHT), ylim=(len(changes) - 0.5, -0.5), xlabel="change of kNN top-1 (k=20) by L2L, in points")
    axes.set_yticks([])
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.grid(axis="x", alpha=0.25)
    _explain(axes)
    save_figure(figure, file)


def _across(axes: Axes) -> Transform:
    """Along the picture by shares of the axes' width, down it by trials."""
    return axes.get_yaxis_transform()


def _write_cells(axes: Axes, y: float, cells: tuple[str, ...], weight: str = "normal") -> None:
    for x, cell in zip(COLUMNS.values(), cells, strict=True):
        axes.text(x, y, cell, transform=_across(axes), va="center", fontsize=8, fontweight=weight)


def _draw_change(axes: Axes, y: int, trial: Trial, change: Change) -> None:
    marker, colour = MARKS[trial.framework]
    if change.points < LEFT:
        arrow = {"arrowstyle": "->", "color": colour}
        axes.annotate(f"{change.points:.1f}", (LEFT, y), (LEFT + 0.6, y), arrowprops=arrow, va="center", color=colour)
        return
    width = 2.5 if change.over_seeds else 0.8
    axes.errorbar(change.points, y, xerr=2 * change.error, fmt=marker, color=colour, linewidth=width, markersize=5)
    if trial.paper:
        axes.plot(trial.paper, y, "*", color=COLOURS[1], markersize=10)


def _explain(axes: Axes) -> None:
    for framework, (marker, colour) in MARKS.items():
        axes.plot([], [], marker, color=colour, label=framework)
    axes.plot([], [], "*", color=COLOURS[1], markersize=10, label="what the paper reports")
    axes.errorbar([], [], xerr=1, color=GREY, linewidth=2.5, label="two standard errors, of seeds")
    axes.errorbar([], [], xerr=1, color=GREY, linewidth=0.8, label="two standard errors, of test images alone")
    place = {"loc": "upper right", "bbox_to_anchor": (1.0, -1.9 / len(TRIALS)), "borderaxespad": 0.0}
    axes.legend(frameon=False, fontsize=8, ncols=3, **place)


if __name__ == "__main__":
    main()
