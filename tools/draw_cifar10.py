"""How do large crops, local crops and L2L compare on CIFAR-10, epoch by epoch? docs/images/cifar10-crops.png.

python tools/draw_cifar10.py docs/results/raw docs/images/cifar10-crops
"""

import argparse
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from logo_ssl.report import Curve, draw_knn_curves
from logo_ssl.run import Run

# Panel, label, and where its kNN is kept: a run's records, a line of tools/keep_runs.py, or what a run printed.
ROWS = (
    ("MoCo", "2 crops", "cifar10-tuned/cifar10-tuned-moco/seed0"),
    ("MoCo", "2 + 2 crops, without L2L", "cifar10-tuned/cifar10-tuned-moco-multicrop/seed0"),
    ("MoCo", "2 + 2 crops, LoGo", "cifar10-tuned/cifar10-tuned-moco-logo/seed0"),
    ("MoCo", "4 large crops", "2026-11-15-cifar10-best.txt"),
    ("MoCo", "6 large crops, weight decay x 2", "2026-11-16-cifar10-best-six.jsonl"),
    ("SimSiam", "2 crops", "cifar10-tuned/cifar10-tuned-simsiam/seed0"),
    ("SimSiam", "2 + 2 crops, without L2L", "cifar10-tuned/cifar10-tuned-simsiam-multicrop/seed0"),
    ("SimSiam", "2 + 2 crops, LoGo", "cifar10-tuned/cifar10-tuned-simsiam-logo/seed0"),
    ("SimSiam", "4 large crops", "2026-11-16-simsiam-four-large-crops.jsonl"),
)
PRINTED = re.compile(r"kNN ([\d.]+)% \(k=20, tau=0.07, epoch (\d+)\)")


class Kept(Run):
    """What is kept of one run."""

    def metrics(self) -> Iterator[dict[str, Any]]:
        """Its kNN with k=20, once it has learned something."""
        for epoch, knn in sorted(self.by_epoch().items()):
            if epoch:
                yield {"epochs_done": epoch, "knn": knn, "knn_k": 20, "knn_tau": 0.07}

    def by_epoch(self) -> dict[int, float]:
        """kNN, wherever it is kept."""
        match self.path.suffix:
            case ".txt":
                return {int(epoch): float(knn) for knn, epoch in PRINTED.findall(self.path.read_text())}
            case ".jsonl":
                (line,) = self.path.read_text().splitlines()
                return {int(epoch): knn for epoch, knn in json.loads(line)["knn_k20_by_epoch"].items()}
            case _:
                return {line["epochs_done"]: line["knn"] for line in super().metrics() if "knn" in line}


def main(arguments: list[str] | None = None) -> None:
    """Draw both frameworks side by side."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("raw", type=Path, help="docs/results/raw")
    parser.add_argument("stem", type=Path, help="the picture, without .png")
    options = parser.parse_args(arguments)
    draw_knn_curves(
        [Curve(name, label, panel, (Kept(options.raw / name),)) for panel, label, name in ROWS], options.stem
    )


if __name__ == "__main__":
    main()
