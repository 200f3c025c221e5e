"""How far is it, and how long will it take? A bar in a terminal, a line per epoch elsewhere."""

import time
from typing import Any

import lightning as L
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn

from ..run import other_losses
from ..text import lasting
from .journal import Journal
from .module import Pretraining
from .time_left import Clock, TimeLeft

RUN_AWAY = 1e6
"""A loss beyond it is shown by its order."""
SHOWN = {"l_gg": "gg", "l_lg": "lg", "l_ll": "ll", "omega": "omega"}
"""What each metric is called where there is little room."""


class ProgressDisplay(L.Callback):
    """Epoch, losses, omega, images/s, the newest kNN and the time that remains."""

    def __init__(
        self,
        journal: Journal,
        console: Console,
        shown: dict[str, str] = SHOWN,
        clock: Clock = time.perf_counter,
    ) -> None:
        self.journal, self.console, self.shown = journal, console, shown
        self.clock, self.time_left = clock, TimeLeft(clock)
        self.steps, self.epochs = 0, 0
        self.bar: Progress | None = None
        self.task: TaskID | None = None

    def say(self, sentence: str) -> None:
        """Show a sentence above the bar."""
        self.console.print(sentence, markup=False, highlight=False)

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Take the time, and show an empty bar."""
        assert isinstance(pl_module, Pretraining)
        steps_per_epoch = int(trainer.num_training_batches)
        self.epochs = trainer.max_epochs or 0
        self.steps = steps_per_epoch * self.epochs
        self.time_left.begin(steps_per_epoch)
        if self.console.is_terminal:
            columns = (
                TextColumn("epoch {task.fields[epoch]}/" + str(self.epochs)),
                BarColumn(bar_width=None),
                TextColumn("{task.percentage:>3.0f}% {task.fields[news]}"),
                TextColumn("{task.fields[time]}"),
            )
            self.bar = Progress(*columns, console=self.console)
            self.task = self.bar.add_task(
                "", total=self.steps, completed=trainer.global_step, epoch=trainer.current_epoch + 1, news="", time=""
            )
            self.bar.start()

    def on_train_batch_end(
        self, trainer: L.Trainer, pl_module: L.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Move the bar."""
        self.time_left.tick()
        if self.bar is not None and self.task is not None:
            epoch = trainer.current_epoch + 1
            news, left = self._news(epoch), self._left(trainer.global_step, epoch - 1, pl_module)
            self.bar.update(self.task, completed=trainer.global_step, epoch=epoch, news=news, time=left)

    def on_train_epoch_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Show the newest kNN in the bar or, without a terminal, a line."""
        done, latest = trainer.current_epoch + 1, self.journal.latest
        if latest.get("epochs_done") == done:
            self.time_left.leave_out(latest.get("knn_s", 0.0))
        news, left = self._news(done), self._left(trainer.global_step, done, pl_module)
        if self.bar is not None and self.task is not None:
            self.bar.update(self.task, news=news, time=left)
        else:
            self.console.print(f"epoch {done}/{self.epochs}  {news}  {left}", highlight=False)

    def on_train_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Leave the finished bar standing, with the time that it took."""
        if self.bar is not None and self.task is not None:
            self.bar.update(self.task, time=lasting(self.bar.tasks[0].elapsed or 0))
        self._stop()

    def on_exception(self, trainer: L.Trainer, pl_module: L.LightningModule, exception: BaseException) -> None:
        """Give the terminal back."""
        self._stop()

    def _stop(self) -> None:
        if self.bar is not None:
            self.bar.stop()
            self.bar = None

    def _left(self, step: int, epochs_done: int, pl_module: L.LightningModule) -> str:
        """The time that remains after a step, and after the kNN of so many epochs."""
        assert isinstance(pl_module, Pretraining)
        evaluations = pl_module.recipe.evaluations_after(epochs_done)
        seconds = self.time_left.seconds(self.steps - step, evaluations, self.journal.latest.get("knn_s", 0.0))
        return "ETA unknown" if seconds is None else f"ETA {lasting(seconds)}"

    def _news(self, epoch: int) -> str:
        """What is known in an epoch; a kNN of an earlier one is told as such, and shortly."""
        latest = self.journal.latest
        terms = self.shown | {name: name.removeprefix("l_") for name in other_losses(self.shown, [latest])}
        parts = [f"{short} {_rounded(latest[name])}" for name, short in terms.items() if name in latest]
        if "knn" in latest:
            fresh, measured = latest["epochs_done"] == epoch, f"epoch {latest['epochs_done']}"
            protocol = f"k={latest['knn_k']}, tau={latest['knn_tau']}, {measured}" if fresh else measured
            parts.append(f"{'' if fresh else 'last '}kNN {latest['knn']:.1f}% ({protocol})")
        if "images_per_s" in latest:
            parts.append(f"{latest['images_per_s']:,.0f} images/s")
        return "  ".join(parts)


def _rounded(value: float) -> str:
    """0.512, -12.000, 1.82e+17: what has run away takes no more room than what has not."""
    return f"{value:.3f}" if abs(value) < RUN_AWAY else f"{value:.2e}"
