"""Callbacks that show progress and compile the step; others are in `monitors` and `checkpoint`."""

import time
from collections import deque
from collections.abc import Callable
from typing import Any

import lightning as L
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn
from torch import Tensor

from ..randomness import stream
from ..run import other_losses
from ..text import lasting
from ..types import ImageBatch
from .checkpoint import interruptible
from .compile import Replay, compile_in_all_processes, has_compiler
from .loggers import JsonlLogger
from .module import Pretraining

Clock = Callable[[], float]
"""Seconds since whenever."""
EPOCHS = 4  # whose pace counts: that of a single one jumps with every pause
AT_LEAST = 50  # steps to look at, if these epochs have fewer
RUN_AWAY = 1e6
"""A loss beyond it is shown by its order."""
SHOWN = {"l_gg": "gg", "l_lg": "lg", "l_ll": "ll", "omega": "omega"}
"""What each metric is called where there is little room."""


class Acceleration(L.Callback):
    """Compiles networks and crops before the first step, and records the step on CUDA, if the recipe allows it."""

    def __init__(self, detail: Callable[[str], None] = lambda sentence: None) -> None:
        self.detail, self.tried = detail, False

    def on_train_batch_start(
        self, trainer: L.Trainer, pl_module: L.LightningModule, batch: Any, batch_idx: int
    ) -> None:
        """Compile, once; without a compiler the step stays as it is."""
        assert isinstance(pl_module, Pretraining)
        if not self.tried:
            self.tried = True
            self._compile(trainer, pl_module, batch)
            if pl_module.compiled and pl_module.device.type == "cuda" and trainer.world_size == 1:
                pl_module.learn = Replay(pl_module.algorithm_1, pl_module.say)

    def _compile(self, trainer: L.Trainer, module: Pretraining, batch: ImageBatch) -> None:
        wanted = module.recipe.compile
        if wanted == "off" or (wanted == "auto" and not has_compiler(module.device)):
            return
        self.detail("Compiling takes a minute or two; without it (compile=off) training begins at once and is slower.")
        with interruptible(trainer):  # for the compiler's processes, which a signal may end
            failure = compile_in_all_processes(module.framework, lambda: _trial(module, batch), module.device)
        module.compiled = module.cropper.compiled = failure is None
        if failure:
            module.say(f"Compiling is off, and training slower: {failure}")


def _trial(module: Pretraining, batch: ImageBatch) -> Tensor:
    """Something to differentiate, by compiled crops and networks."""
    p = module.project(module.cropper.make(batch, stream(0, "trial"), bf16=module.bf16, compiled=True))
    return p.q_g.sum() + p.q_l.sum()


class TimeLeft:
    """Estimates the time for the remaining steps at the pace of the last few epochs, and for the remaining kNN.

    Until there are twice as many epochs, the pace is that of the newer half of the steps: the first one may wait for a
    compiler. A resumed epoch is short, and one with kNN long, so steps are timed, without kNN.
    """

    def __init__(self, clock: Clock) -> None:
        self.clock, self.left_out = clock, 0.0
        self.ticks: deque[float] = deque()

    def begin(self, steps_per_epoch: int) -> None:
        """Now the first step begins."""
        self.ticks = deque(maxlen=2 * max(EPOCHS * steps_per_epoch, AT_LEAST) + 1)
        self.tick()

    def tick(self) -> None:
        """Now a step has ended, and the next one begins."""
        self.ticks.append(self.clock() - self.left_out)

    def leave_out(self, seconds: float) -> None:
        """Do not count these seconds, in which nothing was learned."""
        self.left_out += seconds

    def seconds(self, steps: int, evaluations: int, each: float) -> float | None:
        """What so many steps take, and evaluations of so many seconds each; None before the second step."""
        seen = len(self.ticks) - 1
        older = seen // 2
        if steps and seen < 2:
            return None
        pace = (self.ticks[-1] - self.ticks[older]) / max(1, seen - older)
        return steps * pace + evaluations * each


class ProgressDisplay(L.Callback):
    """Epoch, losses, omega, images/s, the newest kNN and the time that remains: a bar, or a line per epoch."""

    def __init__(
        self,
        journal: JsonlLogger,
        console: Console,
        shown: dict[str, str] = SHOWN,
        clock: Clock = time.perf_counter,
    ) -> None:
        self.journal, self.console, self.shown = journal, console, shown
        self.clock, self.time_left = clock, TimeLeft(clock)
        self.steps, self.epochs = 0, 0
        self.bar: Progress | None = None

    def say(self, sentence: str) -> None:
        """Print a sentence above the bar."""
        self.console.print(sentence, markup=False, highlight=False)

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Take the time, and show an empty bar."""
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
            epoch = trainer.current_epoch + 1
            self.bar.add_task("", total=self.steps, completed=trainer.global_step, epoch=epoch, news="", time="")
            self.bar.start()

    def on_train_batch_end(
        self, trainer: L.Trainer, pl_module: L.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Move the bar."""
        self.time_left.tick()
        if self.bar is not None:
            epoch = trainer.current_epoch + 1
            news, left = self._news(epoch), self._left(trainer.global_step, epoch - 1, pl_module)
            self._update(completed=trainer.global_step, epoch=epoch, news=news, time=left)

    def on_train_epoch_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Show the newest kNN in the bar or, without a terminal, a line."""
        done, latest = trainer.current_epoch + 1, self.journal.latest
        if latest.get("epochs_done") == done:
            self.time_left.leave_out(latest.get("knn_s", 0.0))
        news, left = self._news(done), self._left(trainer.global_step, done, pl_module)
        if self.bar is not None:
            self._update(news=news, time=left)
        else:
            self.console.print(f"epoch {done}/{self.epochs}  {news}  {left}", highlight=False)

    def on_train_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Leave the finished bar on the screen, with the time that it took."""
        if self.bar is not None:
            self._update(time=lasting(self.bar.tasks[0].elapsed or 0))
        self._stop()

    def on_exception(self, trainer: L.Trainer, pl_module: L.LightningModule, exception: BaseException) -> None:
        """Give the terminal back."""
        self._stop()

    def _update(self, **fields: Any) -> None:
        assert self.bar is not None
        self.bar.update(self.bar.tasks[0].id, **fields)

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
        """The newest measurements; a kNN of an earlier epoch is marked as such, and short."""
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
