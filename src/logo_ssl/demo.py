"""Does it work here? A small encoder, pretrained on made-up scenes, beside pixels and an untrained one."""

import shlex
import shutil
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from .errors import Interrupted, UserError
from .eval import compare_knn
from .lock import FILE as LOCK
from .recipes import differences, find_recipe, is_harmless, read_recipe
from .report import draw_curves
from .report.report import Report
from .run import Run
from .signals import Stopped
from .terminal import plain_console
from .train import pretrain, resume
from .train.folder import alone, cure, is_finished, is_left_of, refuse_held, was_saved

CURVES = "curves.png"
"""What only a demo draws into a run."""
BESIDE = (LOCK, CURVES, "report.html", "checkpoints", "evaluation", "figures", "tensorboard")
"""What may lie in a demo beside the files that only training writes."""
OF_A_DEMO = ("seed", "framework.queue", "optimiser.warmup_epochs")
"""In what demos may differ beside what any run may change on its way: what is asked for, and what is cut to fit."""


@dataclass(frozen=True)
class Demo:
    """Pretrain the recipe `tiny` on synthetic scenes and compare its encoder with pixels and an untrained one.

    One whose training was interrupted goes on where it ended.

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
        again = self._command(self.seed, self.epochs)
        with self._interrupted(f"go on with `{again}`"):
            run = self._trained(console)
        with self._interrupted(f"the encoder is trained; begin anew with `{again} --fresh` to see it compared"):
            self._show(run, console)

    def _trained(self, console: Console) -> Run:
        """The run, trained to its end; how far an interrupted demo came is not lost."""
        run, changes = Run(self.out), {"seed": self.seed} | ({} if self.epochs is None else {"epochs": self.epochs})
        if is_finished(run) and (run.path / CURVES).is_file():
            raise UserError(f"{run.path} holds a demo that is over; --fresh replaces it, or choose another --out.")
        if not self._is_left(run):
            return pretrain(find_recipe("tiny"), self.out, console=console, **changes)
        saved = read_recipe(run)
        if self.seed != saved.seed or self.epochs not in (None, saved.epochs):
            raise UserError(
                f"{run.path} holds an unfinished demo with --seed {saved.seed} and --epochs {saved.epochs}; go on with "
                f"`{self._command(saved.seed, saved.epochs)}`, replace it with --fresh, or choose another --out."
            )
        console.print(f"{run.path} holds a demo that was interrupted; it goes on.")
        return resume(run.path, console=console)

    def _is_left(self, run: Run) -> bool:
        """Whether a demo lies there whose training was interrupted; what else lies there, `pretrain` tells."""
        if not run.recipe_file.is_file() or not was_saved(run) or is_finished(run):
            return False
        refuse_held(run)
        tiny, saved = find_recipe("tiny"), read_recipe(run)
        alike = all(field in OF_A_DEMO or is_harmless(field) for field in differences(tiny, saved))
        return alike and (saved.name, saved.data) == (tiny.name, tiny.data)

    def _show(self, run: Run, console: Console) -> None:
        table = Table("features", "k", "tau", "kNN top-1 (%)", title="Held-out scenes, 10 classes")
        for metric, value in compare_knn(run):
            features, k, tau = metric.split(", ")
            bold = "bold" if features == "trained encoder" else ""
            table.add_row(features, k.removeprefix("k="), tau.removeprefix("tau="), f"{value:.1f}", style=bold)
        console.print(table)
        console.print(f"Curves: {draw_curves(run)}")
        console.print(f"Encoder: {run.backbone_file}")
        Report((run.path,), run.path / "report.html", overwrite=True).run()
        console.print(
            "Next, with photographs of your own in a folder: logo-ssl pretrain --data photos/ --out runs/photos"
        )

    @contextmanager
    def _interrupted(self, again: str) -> Iterator[None]:
        """Say how to go on as a demo: `resume` would end where that begins to show something."""
        try:
            yield
        except (KeyboardInterrupt, Stopped) as stop:
            told = stop if isinstance(stop, Stopped) else Stopped(signal.SIGINT)
            raise told.interrupted(again) from None
        except Interrupted as stop:
            stop.args = (str(stop).replace(cure(Run(self.out)), again),)
            raise

    def _command(self, seed: int, epochs: int | None) -> str:
        """What is typed for a demo in this folder."""
        out = () if self.out == Demo.out else ("--out", str(self.out))
        passes = () if epochs is None else ("--epochs", str(epochs))
        seeded = () if seed == Demo.seed else ("--seed", str(seed))
        return f"logo-ssl {shlex.join(['demo', *out, *passes, *seeded])}"


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
