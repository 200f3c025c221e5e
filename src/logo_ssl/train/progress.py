"""How far is it, and how long will it take? A bar in a terminal, a line per epoch elsewhere."""

import time
from collections.abc import Mapping
from typing import Any

import lightning as L
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from .journal import Journal
from .module import Pretraining

SHOWN = {"l_gg": "gg", "l_lg": "lg", "l_ll": "ll", "omega": "omega"}
"""What each metric is called where there is little room."""


class ProgressDisplay(L.Callback):
    """Epoch, losses, omega, images/s, the newest kNN and the time that remains."""

    def __init__(self, journal: Journal, console: Console, shown: Mapping[str, str] = SHOWN) -> None:
        self.journal, self.console, self.shown = journal, console, shown
        self.bar: Progress | None = None
        self.task: TaskID | None = None
        self.epoch_began = time.perf_counter()

    def say(self, sentence: str) -> None:
        """Show a sentence above the bar."""
        self.console.print(sentence, markup=False, highlight=False)

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Show an empty bar."""
        assert isinstance(pl_module, Pretraining)
        if self.console.is_terminal:
            columns = (
                TextColumn("epoch {task.fields[epoch]}/" + str(trainer.max_epochs)),
                BarColumn(bar_width=None),
                TextColumn("{task.percentage:>3.0f}% {task.fields[news]}"),
                TimeRemainingColumn(elapsed_when_finished=True),
            )
            self.bar = Progress(*columns, console=self.console)
            self.task = self.bar.add_task(
                "", total=pl_module.steps, completed=trainer.global_step, epoch=trainer.current_epoch + 1, news=""
            )
            self.bar.start()

    def on_train_epoch_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Take the time."""
        self.epoch_began = time.perf_counter()

    def on_train_batch_end(
        self, trainer: L.Trainer, pl_module: L.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Move the bar."""
        if self.bar is not None and self.task is not None:
            self.bar.update(
                self.task, completed=trainer.global_step, epoch=trainer.current_epoch + 1, news=self._news()
            )

    def on_train_epoch_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Show the newest kNN in the bar or, without a terminal, a line."""
        if self.bar is not None and self.task is not None:
            self.bar.update(self.task, news=self._news())
        else:
            done, total = trainer.current_epoch + 1, trainer.max_epochs or 0
            remaining = (time.perf_counter() - self.epoch_began) * (total - done)
            self.console.print(f"epoch {done}/{total}  {self._news()}  ETA {remaining:.0f} s", highlight=False)

    def on_train_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Leave the finished bar standing."""
        self._stop()

    def on_exception(self, trainer: L.Trainer, pl_module: L.LightningModule, exception: BaseException) -> None:
        """Give the terminal back."""
        self._stop()

    def _stop(self) -> None:
        if self.bar is not None:
            self.bar.stop()
            self.bar = None

    def _news(self) -> str:
        latest = self.journal.latest
        parts = [f"{short} {latest[name]:.3f}" for name, short in self.shown.items() if name in latest]
        if "knn" in latest:
            protocol = f"k={latest['knn_k']}, tau={latest['knn_tau']}, epoch {latest['epochs_done']}"
            parts.append(f"kNN {latest['knn']:.1f}% ({protocol})")
        if "images_per_s" in latest:
            parts.append(f"{latest['images_per_s']:,.0f} images/s")
        return "  ".join(parts)
