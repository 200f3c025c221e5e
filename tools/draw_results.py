"""How do large crops, local crops and L2L compare, epoch by epoch? The curves of docs/results, from what is kept.

python tools/draw_results.py docs/results/raw docs/images
"""

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from logo_ssl.report import Curve, draw_knn_curves
from logo_ssl.reproduce.beside import with_finished
from logo_ssl.reproduce.figures import curves_of, strange_pictures
from logo_ssl.reproduce.tables import choose
from logo_ssl.run import Run


class Row(NamedTuple):
    """A curve, and where its kNN is kept: in records of all its seeds, or by tools/keep_runs.py."""

    panel: str
    label: str
    kept: str
    line: int = 1
    paper: float | None = None

    @property
    def look(self) -> int:
        """One colour for what is the same in every panel."""
        return LOOKS.get(self.label, 4)

    @property
    def name(self) -> str:
        """What tells it from the others."""
        return f"{self.kept}:{self.line}"


LOOKS = {
    "2 crops": 0,
    "2 crops of 20-100 %": 0,
    "2 + 2 crops, without L2L": 1,
    "2 + 2 crops, LoGo": 2,
    "2 of 40-100 % + 2 of 5-40 %, LoGo": 2,
    "4 large crops": 3,
    "2 crops of 40-100 %": 3,
}
BY_PAPER, DECAYED = "cifar10-paper", "2026-11-17-simsiam-weight-decay.jsonl"
AREAS = "2026-11-17-crop-areas.jsonl"
PICTURES = {
    "cifar10-crops": (
        Row("MoCo", "2 crops", "cifar10-tuned/cifar10-tuned-moco/seed*"),
        Row("MoCo", "2 + 2 crops, without L2L", "cifar10-tuned/cifar10-tuned-moco-multicrop/seed*"),
        Row("MoCo", "2 + 2 crops, LoGo", "cifar10-tuned/cifar10-tuned-moco-logo/seed*"),
        Row("MoCo", "4 large crops", "cifar10-four-large/cifar10-tuned-moco/seed*"),
        Row("MoCo", "6 large crops", "2026-11-16-cifar10-best-six.jsonl"),
        Row("SimSiam", "2 crops", "cifar10-tuned/cifar10-tuned-simsiam/seed*"),
        Row("SimSiam", "2 + 2 crops, without L2L", "cifar10-tuned/cifar10-tuned-simsiam-multicrop/seed*"),
        Row("SimSiam", "2 + 2 crops, LoGo", "cifar10-tuned/cifar10-tuned-simsiam-logo/seed*"),
        Row("SimSiam", "4 large crops", "2026-11-16-simsiam-four-large-crops.jsonl"),
    ),
    "cifar10-paper": (
        Row("MoCo, the paper's settings", "2 crops", f"{BY_PAPER}/cifar10-moco/seed0", paper=79.58),
        Row(
            "MoCo, the paper's settings",
            "2 + 2 crops, without L2L",
            f"{BY_PAPER}/cifar10-moco-multicrop/seed*",
            paper=82.31,
        ),
        Row("MoCo, the paper's settings", "2 + 2 crops, LoGo", f"{BY_PAPER}/cifar10-moco-logo/seed0", paper=84.44),
        Row("SimSiam, the paper's settings", "2 crops", f"{BY_PAPER}/cifar10-simsiam/seed0", paper=80.48),
        Row(
            "SimSiam, the paper's settings",
            "2 + 2 crops, without L2L",
            f"{BY_PAPER}/cifar10-simsiam-multicrop/seed*",
            paper=83.33,
        ),
        Row(
            "SimSiam, the paper's settings", "2 + 2 crops, LoGo", f"{BY_PAPER}/cifar10-simsiam-logo/seed0", paper=87.67
        ),
        Row("SimSiam, weight decay 5e-4", "2 crops of 20-100 %", DECAYED, 1),
        Row("SimSiam, weight decay 5e-4", "2 crops of 40-100 %", AREAS, 1),
        Row("SimSiam, weight decay 5e-4", "2 of 20-100 % + 2 of 20-80 %, LoGo", AREAS, 2),
        Row("SimSiam, weight decay 5e-4", "2 of 40-100 % + 2 of 5-40 %, LoGo", DECAYED, 2),
    ),
    "imagenette-knn": (
        Row("Imagenette, MoCo", "2 crops", "2026-11-16-imagenette-equal-crops.jsonl", 1),
        Row("Imagenette, MoCo", "4 large crops", "2026-11-16-imagenette-equal-crops.jsonl", 2),
        Row("Imagenette, MoCo", "2 + 2 crops, without L2L", "2026-11-17-imagenette-without-l2l.jsonl"),
        Row("Imagenette, MoCo", "2 + 2 crops, LoGo", "2026-11-16-imagenette-equal-crops.jsonl", 3),
    ),
}
FIGURE_1B, OUR_CHOICE = "cifar10-knn", "Settings are of our choice."


class Kept(Run):
    """What is kept of one run."""

    def __init__(self, path: Path, line: int = 1) -> None:
        super().__init__(path)
        self.line = line

    def metrics(self) -> Iterator[dict[str, Any]]:
        """Its kNN with k=20, once it has learned something."""
        for epoch, knn in sorted(self.by_epoch().items()):
            if epoch:
                yield {"epochs_done": epoch, "knn": knn, "knn_k": 20, "knn_tau": 0.07}

    def by_epoch(self) -> dict[int, float]:
        """kNN, wherever it is kept."""
        if self.path.suffix == ".jsonl":
            kept = json.loads(self.path.read_text().splitlines()[self.line - 1])
            return {int(epoch): knn for epoch, knn in kept["knn_k20_by_epoch"].items()}
        return {line["epochs_done"]: line["knn"] for line in super().metrics() if "knn" in line}


def main(arguments: list[str] | None = None) -> None:
    """Draw every picture, as .png and .svg."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("raw", type=Path, help="docs/results/raw")
    parser.add_argument("folder", type=Path, help="where the pictures go")
    options = parser.parse_args(arguments)
    for name, rows in PICTURES.items():
        curves = [Curve(row.name, row.label, row.panel, runs(options.raw, row), row.look, row.paper) for row in rows]
        draw_knn_curves(curves, options.folder / name, one_scale=True)
    curves, title = figure_1b(options.raw / "cifar10-tuned")
    draw_knn_curves(curves, options.folder / FIGURE_1B, title)


def figure_1b(records: Path) -> tuple[list[Curve], str]:
    """Figure 1b as `reproduce` would draw it of records, and what stands above it."""
    (table,) = choose(["fig1b"], own=True)
    table, ended = with_finished(table._replace(rows=()), table, [], records)
    return curves_of(table, ended), " ".join((*strange_pictures([table]), OUR_CHOICE))


def runs(raw: Path, row: Row) -> tuple[Kept, ...]:
    """What is kept of a row's seeds."""
    places = sorted(place for place in raw.glob(row.kept) if place.suffix != ".json")
    return tuple(Kept(place, row.line) for place in places)


if __name__ == "__main__":
    main()
