"""What training shows and writes besides checkpoints: steps, the bar, `metrics.jsonl`, `sessions.json`, TensorBoard.

None of it makes the device wait.
"""

import contextlib
import json
import math
import time
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

import lightning as L
import torch
from lightning.pytorch.loggers import MLFlowLogger, TensorBoardLogger, WandbLogger
from lightning.pytorch.loggers.logger import Logger
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn
from torch import Tensor

from ..errors import UserError
from ..files import write
from ..run import Run, other_losses
from ..system.distributed import all_mean
from ..system.terminal import counted, lasting
from ..types import ImageBatch
from .module import Pretraining
from .monitors import Diverged, is_finite, log

Say = Callable[[str], None]
STEPS_AHEAD = 4  # steps that Python may hand to a GPU before their turn
MOST_IN_A_ROW = 3
"""Steps in a row whose gradient may be left out before training counts as diverged."""
EPOCHS = 4  # whose pace tells the time that remains: that of a single one jumps with every pause
AT_LEAST = 50  # steps to look at, if these epochs have fewer
UNSETTLED, SETTLED = 2, 5  # first steps that tell nothing, and steps after them that tell the pace
SHOWN = {"l_gg": "gg", "l_lg": "lg", "l_ll": "ll", "omega": "omega"}
"""What each metric is called where there is little room."""


class Reading(NamedTuple):
    """Values on their way from the device."""

    step: int
    seen: int
    names: tuple[str, ...]
    values: Tensor
    known: dict[str, float]
    event: torch.cuda.Event | None
    """Whether they have arrived, so that reading them costs no waiting."""


class Steps(L.Callback):
    """Logs losses, learning rate and images/s every `log_every` steps, without ever making the device wait.

    On CUDA values are copied while later steps run, and logged a few steps after they were computed.
    """

    def __init__(self, say: Say = lambda sentence: None) -> None:
        self.say = say
        self.seen, self.since, self.began = 0, time.perf_counter(), False
        self.waiting: deque[Reading] = deque()
        self.behind: deque[torch.cuda.Event] = deque()
        self.skipped = 0

    def on_train_epoch_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Leave what happens between epochs (kNN, checkpoints) out of the speed."""
        self.seen, self.since = 0, time.perf_counter()

    def on_train_batch_start(
        self, trainer: L.Trainer, pl_module: L.LightningModule, batch: ImageBatch, batch_idx: int
    ) -> None:
        """Leave out of the speed what comes before the first step: choosing threads, compiling."""
        if not self.began:
            self.began, self.since = True, time.perf_counter()

    def on_train_batch_end(
        self, trainer: L.Trainer, pl_module: L.LightningModule, outputs: Any, batch: ImageBatch, batch_idx: int
    ) -> None:
        """Take a reading every so often and at the end of an epoch; log those that have arrived."""
        assert isinstance(pl_module, Pretraining)
        self.seen += len(batch.pixels) * trainer.world_size
        self._keep_close(pl_module.device)
        last = trainer.is_last_batch
        if trainer.global_step % pl_module.recipe.log_every == 0 or last:
            self.waiting.append(self._read(trainer, pl_module))
        while self.waiting and (last or self._due(trainer, self.waiting[0])):
            self._log(trainer, pl_module, self.waiting.popleft())

    def log_all(self, trainer: L.Trainer) -> None:
        """Log every reading, waiting for it if need be."""
        assert isinstance(trainer.lightning_module, Pretraining)
        while self.waiting:
            self._log(trainer, trainer.lightning_module, self.waiting.popleft())

    def _due(self, trainer: L.Trainer, reading: Reading) -> bool:
        """Whether a reading has arrived; of several processes, all look at it at the same step."""
        if trainer.world_size > 1:
            return trainer.global_step - reading.step >= STEPS_AHEAD
        return reading.event is None or reading.event.query()

    def _keep_close(self, device: torch.device) -> None:
        """Keep Python at most so many steps ahead of the device, or speed and remaining time would be fiction."""
        if device.type == "cuda":
            event = torch.cuda.Event()
            event.record()
            self.behind.append(event)
            if len(self.behind) > STEPS_AHEAD:
                self.behind.popleft().synchronize()

    def _read(self, trainer: L.Trainer, module: Pretraining) -> Reading:
        (values,) = all_mean([torch.stack([value.float() for value in module.logged.values()])])
        event = None
        if values.is_cuda:
            values = values.to("cpu", non_blocking=True)
            event = torch.cuda.Event()
            event.record()
        known = {"lr": module.lr, "epoch": trainer.current_epoch}
        return Reading(trainer.global_step, self.seen, tuple(module.logged), values, known, event)

    def _log(self, trainer: L.Trainer, module: Pretraining, reading: Reading) -> None:
        """Log a reading and print new skipped steps; Diverged if skipping does not help."""
        if reading.event is not None:
            reading.event.synchronize()
        values = dict(zip(reading.names, reading.values.tolist(), strict=True))
        skipped, in_a_row = int(values.pop("skipped")), values.pop("skipped_in_a_row")
        if skipped != self.skipped:
            if in_a_row >= MOST_IN_A_ROW or not is_finite(module):
                raise Diverged(reading.step)
            self.say(f"Up to step {reading.step}, {counted(skipped - self.skipped, 'step')} had no finite gradient.")
            self.skipped = skipped
        values = {name: value for name, value in values.items() if math.isfinite(value)}
        speed = reading.seen / (time.perf_counter() - self.since)  # now that the device is there
        log(trainer, values | reading.known | {"images_per_s": speed}, reading.step)


class JsonlLogger(Logger):
    """Appends one JSON object per line to a run's `metrics.jsonl`."""

    def __init__(self, run: Run) -> None:
        super().__init__()
        self.run = run
        self.latest: dict[str, Any] = {}

    @property
    def name(self) -> str:
        """As Lightning asks."""
        return "metrics.jsonl"

    @property
    def version(self) -> str:
        """There is but one."""
        return ""

    def log_hyperparams(self, *args: Any, **kwargs: Any) -> None:
        """Nothing: the recipe has a file of its own."""

    def log_metrics(self, metrics: dict[str, Any], step: int | None = None) -> None:
        """Append a line; a crash can tear the last one only."""
        self.latest |= metrics
        line = {"step": step, "time": round(time.time(), 3), **metrics}
        with self.run.metrics_file.open("a") as file:
            file.write(json.dumps(line) + "\n")

    def forget_after(self, step: int) -> None:
        """Drop what was logged after the checkpoint that training continues from; it will be logged again."""
        kept = [line for line in self.run.metrics() if line["step"] <= step]
        write(self.run.metrics_file, "".join(f"{json.dumps(line)}\n" for line in kept))
        self.latest = next((line for line in reversed(kept) if "knn" in line), {})  # the next one may be far


def other_logger(kind: str, run: Run) -> Logger:
    """TensorBoard or its like."""
    try:
        match kind:
            case "tensorboard":
                return TensorBoardLogger(run.path, name="tensorboard", version="")
            case "wandb":
                return WandbLogger(name=run.path.name, save_dir=run.path, project="logo-ssl")
            case _:
                return MLFlowLogger("logo-ssl", run_name=run.path.name, tracking_uri=f"file:{run.path / 'mlflow'}")
    except ModuleNotFoundError as error:
        raise UserError(f"loggers={kind}: is not installed; try `pip install {kind}`.") from error


class Sessions:
    """The sessions of a run so far, and the one that begins now: from a start of training to its end, or to the last
    checkpoint if it was killed.
    """

    def __init__(self, run: Run, *, resumed: bool = False, epochs: int | None = None) -> None:
        self.file, self.since = run.sessions_file, time.monotonic()
        self.now: dict[str, Any] = {"began": round(time.time(), 3), "seconds": 0.0, "step": 0, "checkpoints": 0}
        self.now |= {"ended": False, "epochs": epochs}
        self.earlier: list[dict[str, Any]] = []
        if resumed:
            try:
                self.earlier = json.loads(run.sessions_file.read_text())
            except (OSError, ValueError):  # gone or torn: there was one at least
                self.earlier = [self.now | {"epochs": None}]

    @property
    def all(self) -> list[dict[str, Any]]:
        """Every one, the newest last."""
        return [*self.earlier, self.now]

    def wrote(self, step: int) -> None:
        """Count a checkpoint, and write the file: this session may be killed any time."""
        self.now |= {"checkpoints": self.now["checkpoints"] + 1, "step": step}
        self.save()

    def save(self, *, ended: bool = False) -> None:
        """Write the file; a disk that is full must not stop what this only counts."""
        self.now |= {"seconds": round(time.monotonic() - self.since, 1), "ended": ended}
        with contextlib.suppress(OSError):
            write(self.file, json.dumps(self.all, indent=2) + "\n")

    def seconds(self) -> float:
        """Of all sessions, this one up to now."""
        return round(sum(session["seconds"] for session in self.earlier) + time.monotonic() - self.since, 1)

    def record(self) -> dict[str, Any]:
        """Seconds of all sessions, how many there were, and how many were killed: they count to the last checkpoint."""
        killed = sum(not session["ended"] for session in self.earlier)
        return {"seconds": self.seconds(), "sessions": len(self.all), "sessions_killed": killed}


class ProgressDisplay(L.Callback):
    """Epoch, losses, omega, images/s, the newest kNN and the time that remains: a bar, or a line per epoch."""

    def __init__(self, journal: JsonlLogger, console: Console, shown: dict[str, str] = SHOWN) -> None:
        self.journal, self.console, self.shown = journal, console, shown
        self.steps, self.epochs, self.made = 0, 0, 0
        self.ends: deque[float] = deque()  # when steps ended, as if kNN took no time
        self.spent_on_knn = 0.0
        self.bar: Progress | None = None

    def say(self, sentence: str) -> None:
        """Print a sentence above the bar."""
        self.console.print(sentence, markup=False, highlight=False)

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Show an empty bar."""
        steps_per_epoch = int(trainer.num_training_batches)
        self.epochs = trainer.max_epochs or 0
        self.steps = steps_per_epoch * self.epochs
        self.ends = deque(maxlen=max(EPOCHS * steps_per_epoch, AT_LEAST) + 1)
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
        self.made += 1
        if self.made > UNSETTLED:
            self.ends.append(time.perf_counter() - self.spent_on_knn)
        if self.bar is not None:
            epoch = trainer.current_epoch + 1
            news, left = self._news(), self._left(trainer.global_step, epoch - 1, pl_module)
            self._update(completed=trainer.global_step, epoch=epoch, news=news, time=left)

    def on_train_epoch_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Show the newest kNN in the bar or, without a terminal, a line."""
        done, latest = trainer.current_epoch + 1, self.journal.latest
        if latest.get("epochs_done") == done:
            self.spent_on_knn += latest["knn_s"]
        news, left = self._news(), self._left(trainer.global_step, done, pl_module)
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
        """The time for the remaining steps, at the pace of the last few epochs, and for the remaining kNN.

        The first steps are slower than others, and two tell no pace: an ETA is shown once it has settled.
        """
        assert isinstance(pl_module, Pretraining)
        steps, seen = self.steps - step, len(self.ends) - 1
        if steps and seen < SETTLED:
            return "ETA not yet known"
        pace = (self.ends[-1] - self.ends[0]) / seen if steps else 0.0
        evaluations = pl_module.recipe.evaluations_after(epochs_done)
        return f"ETA {lasting(steps * pace + evaluations * self.journal.latest.get('knn_s', 0.0))}"

    def _news(self) -> str:
        """The newest measurements."""
        latest = self.journal.latest
        terms = self.shown | {name: name.removeprefix("l_") for name in other_losses(self.shown, [latest])}
        parts = [f"{short} {latest[name]:.4g}" for name, short in terms.items() if name in latest]
        if "knn" in latest:
            protocol = f"k={latest['knn_k']}, tau={latest['knn_tau']}, epoch {latest['epochs_done']}"
            parts.append(f"kNN {latest['knn']:.1f}% ({protocol})")
        if "images_per_s" in latest:
            parts.append(f"{latest['images_per_s']:,.0f} images/s")
        return "  ".join(parts)
