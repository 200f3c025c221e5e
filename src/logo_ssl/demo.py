"""Does it work here? A small encoder, pretrained on made-up scenes, beside pixels and an untrained one."""

import shutil
from dataclasses import dataclass
from pathlib import Path

from rich.table import Table

from .command_name import command
from .errors import UserError
from .evaluate import compare_knn
from .lock import FILE as LOCK
from .recipes import find_recipe, read_recipe
from .report import draw_curves
from .run import Run
from .show.report import Report
from .terminal import plain_console
from .train import pretrain
from .train.folder import alone, is_left_of, refuse_held

BESIDE = (LOCK, "curves.png", "report.html", "checkpoints", "evaluation", "figures", "tensorboard")
"""What may lie in a demo beside the files that only training writes."""


@dataclass(frozen=True)
class Demo:
    """Pretrain the recipe `tiny` on synthetic scenes and compare its encoder with pixels and an untrained one.

    example: logo-ssl demo --out runs/demo --fresh
    """

    out: Path = Path("runs/demo")
    """Run folder."""
    epochs: int | None = None
    """Passes over the data (default: the recipe's)."""
    seed: int = 0
    """Decides initial weights, order and augmentation."""
    fresh: bool = False
    """Replace the run that --out holds."""

    def run(self) -> None:
        """Pretrain, measure, and draw."""
        console = plain_console()
        if self.fresh and Run(self.out).recipe_file.is_file():
            _clear(Run(self.out))
        changes = {"seed": self.seed} | ({} if self.epochs is None else {"epochs": self.epochs})
        run = pretrain(find_recipe("tiny"), self.out, console=console, **changes)
        table = Table("features", "k", "tau", "kNN top-1 (%)", title="Held-out scenes, 10 classes")
        for metric, value in compare_knn(run):
            features, k, tau = metric.split(", ")
            bold = "bold" if features == "trained encoder" else ""
            table.add_row(features, k.removeprefix("k="), tau.removeprefix("tau="), f"{value:.1f}", style=bold)
        console.print(table)
        console.print(f"Curves: {draw_curves(run)}")
        console.print(f"Encoder: {run.backbone_file}")
        Report((run.path,), run.path / "report.html").run()
        console.print(
            f"Next, with photographs of your own in a folder: {command()} pretrain --data photos/ --out runs/photos"
        )


def _clear(run: Run) -> None:
    """Remove an earlier demo, and nothing that is not one, or that is being trained."""
    refuse_held(run)
    ours = (*run.own_files(), *(run.path / name for name in BESIDE))
    foreign = sorted(child.name for child in run.path.iterdir() if not is_left_of(child.name, ours))
    if read_recipe(run).name != "tiny" or foreign:
        what = f"holds {foreign[0]}" if foreign else "holds a run that is no demo"
        raise UserError(f"{run.path} {what}, so --fresh will not clear it; choose another --out.")
    with alone(run):
        for child in run.path.iterdir():
            if child.is_dir():
                shutil.rmtree(child)
            elif child.name != LOCK:
                child.unlink()
    shutil.rmtree(run.path)  # with the lock, which network disks keep while it is held
