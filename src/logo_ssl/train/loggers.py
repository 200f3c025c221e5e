"""What training writes besides checkpoints: `metrics.jsonl`, `sessions.json`, TensorBoard and its like.

None of it ends a training if the disk is full.
"""

import contextlib
import json
import os
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, fields
from typing import Any

from lightning.pytorch.loggers import MLFlowLogger, TensorBoardLogger, WandbLogger
from lightning.pytorch.loggers.logger import Logger

from ..errors import UserError
from ..files import write
from ..run import Run


class JsonlLogger(Logger):
    """Appends one JSON object per line to a run's `metrics.jsonl`."""

    def __init__(self, run: Run, say: Callable[[str], None] = lambda sentence: None) -> None:
        super().__init__()
        self.run, self.say = run, say
        self.unwritten: list[str] = []
        self.latest: dict[str, Any] = {}

    @property
    def name(self) -> str:
        """What Lightning calls this logger."""
        return "metrics.jsonl"

    @property
    def version(self) -> str:
        """There is but one."""
        return ""

    def log_hyperparams(self, *args: Any, **kwargs: Any) -> None:
        """Nothing: the recipe has a file of its own."""

    def log_metrics(self, metrics: dict[str, Any], step: int | None = None) -> None:
        """Append a line; a crash can tear the last one only. While the disk is full, lines wait in memory."""
        self.latest |= metrics
        line = {"step": step, "time": round(time.time(), 3), **metrics}
        self.unwritten.append(json.dumps(line) + "\n")
        size = None
        try:
            with self.run.metrics_file.open("a") as file:
                size = file.tell()
                file.write("".join(self.unwritten))
        except OSError as error:
            if size is not None:  # half a line may have found room
                with contextlib.suppress(OSError):
                    os.truncate(self.run.metrics_file, size)
            if len(self.unwritten) == 1:
                self.say(f"{self.run.metrics_file} cannot be written ({error.strerror}); its lines wait in memory.")
        else:
            self.unwritten.clear()

    def forget_after(self, step: int) -> None:
        """Drop what was logged after the checkpoint that training continues from; it will be logged again."""
        logged = [*self.run.metrics(), *map(json.loads, self.unwritten)]
        kept = [line for line in logged if line["step"] <= step]
        write(self.run.metrics_file, "".join(f"{json.dumps(line)}\n" for line in kept))
        self.unwritten.clear()
        self.latest = next((line for line in reversed(kept) if "knn" in line), {})  # the next one may be far


@dataclass
class Session:
    """From a start of training to its end, or to the last checkpoint if it was killed."""

    began: float | None = None
    """Seconds since 1970."""
    seconds: float = 0.0
    step: int = 0
    """Of the last checkpoint."""
    checkpoints: int = 0
    """How many were written."""
    failed: int = 0
    """How many could not be."""
    longest_blocked_s: float | None = None
    """The longest time that one of them held training up."""
    ended: bool = False
    """By itself: not killed."""
    epochs: int | None = None
    """As many as were planned then; of a run without epochs, none."""


class Sessions:
    """The sessions of a run so far, and the one that begins now."""

    def __init__(self, run: Run, *, resumed: bool = False, epochs: int | None = None) -> None:
        self.file, self.since = run.sessions_file, time.monotonic()
        self.earlier = _earlier(run, resumed)
        self.now = Session(began=round(time.time(), 3), epochs=epochs)

    def blocked(self, seconds: float) -> None:
        """Count the time for which a checkpoint held training up."""
        self.now.longest_blocked_s = round(max(seconds, self.now.longest_blocked_s or 0.0), 4)

    def wrote(self, step: int) -> None:
        """Count a checkpoint, and write the file: this session may be killed any time."""
        self.now.checkpoints, self.now.step = self.now.checkpoints + 1, step
        self.save()

    def save(self, *, ended: bool = False) -> None:
        """Write the file; a disk that is full must not stop what this only counts."""
        self.now.seconds, self.now.ended = round(time.monotonic() - self.since, 1), ended
        entries = [asdict(session) for session in (*self.earlier, self.now)]
        with contextlib.suppress(OSError):
            write(self.file, json.dumps(entries, indent=2) + "\n")

    def seconds(self) -> float:
        """Of all sessions, this one up to now."""
        return round(sum(session.seconds for session in self.earlier) + time.monotonic() - self.since, 1)

    def number(self) -> int:
        """How many there were."""
        return len(self.earlier) + 1

    def killed(self) -> int:
        """Of how many the seconds after their last checkpoint are not known."""
        return sum(not session.ended for session in self.earlier)

    def first_planned(self) -> int | None:
        """The epochs that were planned when it began; with more, the learning rate would have fallen more slowly."""
        return (*self.earlier, self.now)[0].epochs

    def checkpoints(self) -> dict[str, Any]:
        """How many were written and could not be, and how long one held training up at most."""
        every = [*self.earlier, self.now]
        return {
            "saved": sum(session.checkpoints for session in every),
            "failed": sum(session.failed for session in every),
            "longest_blocked_s": max((s.longest_blocked_s for s in every if s.longest_blocked_s), default=None),
        }


def _earlier(run: Run, resumed: bool) -> list[Session]:
    """The sessions in a run folder; one at least, if the run was begun before and its file is gone."""
    if not resumed:
        return []
    known = {field.name for field in fields(Session)}
    try:
        return [Session(**{name: entry[name] for name in known & entry.keys()}) for entry in run.sessions()]
    except (OSError, ValueError, TypeError, AttributeError, RecursionError):
        return [Session()]


class FaultTolerantLogger(Logger):
    """Another logger, left alone once the disk refuses it: a full disk must not end a training."""

    def __init__(self, kind: str, run: Run, say: Callable[[str], None]) -> None:
        super().__init__()
        self.kind, self.say, self.refused = kind, say, False
        self.logger = _logger(kind, run)

    @property
    def name(self) -> str | None:
        """The logger's own name."""
        return self.logger.name

    @property
    def version(self) -> int | str | None:
        """The logger's own version."""
        return self.logger.version

    def log_hyperparams(self, *args: Any, **kwargs: Any) -> None:
        """Nothing: the recipe has a file of its own."""

    def log_metrics(self, metrics: dict[str, Any], step: int | None = None) -> None:
        """Pass values on."""
        self._try(lambda: self.logger.log_metrics(metrics, step))

    def save(self) -> None:
        """Write what is buffered."""
        self._try(self.logger.save)

    def finalize(self, status: str) -> None:
        """Write the last of it."""
        self._try(lambda: self.logger.finalize(status))

    def _try(self, write: Callable[[], None]) -> None:
        if self.refused:
            return
        try:
            write()
        except (OSError, ValueError) as raised:
            error = raised.__cause__ or raised  # Lightning wraps every error of a logger in a ValueError
            if not isinstance(error, OSError):
                raise
            self.refused = True
            self.say(
                f"The log for {self.kind} cannot be written ({error.strerror or error}); training goes on without it."
            )


def _logger(kind: str, run: Run) -> Logger:
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
