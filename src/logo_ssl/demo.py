"""The demo: a small encoder, pretrained on made-up scenes and compared with pixels and an untrained encoder."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from .errors import UserError
from .eval.knn import KNN
from .recipes import find_recipe, read_recipe
from .report.commands import Report
from .run import Run
from .system.terminal import plain_console
from .train import pretrain, resume

RECIPE = "tiny"
PAGE = "report.html"
LOCAL_CROPS = (
    "Over five seeds two crops alone reach 69 % (k=20), with local crops 82 %. Pushing them apart makes no measurable "
    "difference here (83 %)."
)
"""Measured: results/experiments/55-demo.md."""


@dataclass(frozen=True)
class Demo:
    """Pretrain the recipe tiny on made-up scenes and compare its encoder with pixels and an untrained encoder.

    The same command continues a demo that was interrupted, and shows one that is done again.

    example: logo-ssl demo --out runs/demo
    """

    out: Path = Path("runs/demo")
    """Run folder."""
    epochs: int | None = None
    """Passes over the data (default: the recipe's)."""
    seed: int = 0
    """Decides initial weights, order and augmentation."""

    def run(self) -> None:
        """Train, compare, and report."""
        console, run = plain_console(), Run(self.out)
        self._train(run, console)
        _show(run, console)

    def _train(self, run: Run, console: Console) -> None:
        """Train the run to its end, from where it was interrupted."""
        changes: dict[str, Any] = {"seed": self.seed} | ({} if self.epochs is None else {"epochs": self.epochs})
        saved = read_recipe(run) if run.recipe_file.is_file() and run.saved() else None
        if saved is None or saved.name != RECIPE:
            pretrain(find_recipe(RECIPE), run.path, console=console, **changes)
            return
        if saved.seed != self.seed or self.epochs not in (None, saved.epochs):
            raise UserError(f"out={run.path}: holds a demo of --seed {saved.seed} --epochs {saved.epochs}; give these.")
        if not run.is_finished:
            console.print(f"{run.path} holds an interrupted demo, which continues.")
            resume(run.path, console=console)


def _show(run: Run, console: Console) -> None:
    """Compare the encoder, and write the report."""
    KNN(str(run.path), device=read_recipe(run).device).run()  # type: ignore[arg-type] (one of the names)
    console.print(LOCAL_CROPS)
    Report((run.path,), run.path / PAGE, images=1000, overwrite=True).run()
    console.print("Next, with photographs of your own in a folder: logo-ssl pretrain --data photos/ --out runs/photos")
