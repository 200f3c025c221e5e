"""What was measured, and when? `metrics.jsonl`: one JSON object per line, appended as training goes."""

import contextlib
import json
import os
import time
from collections.abc import Callable
from typing import Any

from lightning.pytorch.loggers.logger import Logger

from ..files import write
from ..run import Run


class Journal(Logger):
    """A Lightning logger that appends to a run's `metrics.jsonl`."""

    def __init__(self, run: Run, say: Callable[[str], None] = lambda sentence: None) -> None:
        super().__init__()
        self.run, self.say = run, say
        self.unwritten: list[str] = []
        self.latest: dict[str, Any] = {}
        self.started = time.time()

    @property
    def name(self) -> str:
        """What Lightning calls this logger."""
        return "journal"

    @property
    def version(self) -> str:
        """Lightning asks; there is but one."""
        return ""

    def log_hyperparams(self, *args: Any, **kwargs: Any) -> None:
        """The recipe is saved elsewhere."""

    def log_metrics(self, metrics: dict[str, Any], step: int | None = None) -> None:
        """Append a line; a crash can tear the last one only. While the disk is full, lines wait in memory."""
        self.latest |= metrics
        line = {"step": step, "time": round(time.time(), 3), **metrics}
        self.unwritten.append(json.dumps(line) + "\n")
        whole = None
        try:
            with self.run.metrics_file.open("a") as file:
                whole = file.tell()
                file.write("".join(self.unwritten))
        except OSError as error:
            if whole is not None:  # half a line may have found room
                with contextlib.suppress(OSError):
                    os.truncate(self.run.metrics_file, whole)
            if len(self.unwritten) == 1:
                self.say(f"{self.run.metrics_file} cannot be written ({error.strerror}); its lines wait in memory.")
        else:
            self.unwritten.clear()

    def forget_after(self, step: int) -> None:
        """Drop what was logged after the checkpoint that training goes on from; it will be logged again."""
        logged = [*self.run.metrics(), *map(json.loads, self.unwritten)]
        kept = [line for line in logged if line["step"] <= step]
        write(self.run.metrics_file, "".join(f"{json.dumps(line)}\n" for line in kept))
        self.unwritten.clear()
        self.latest = next((line for line in reversed(kept) if "knn" in line), {})  # the next one may be far
