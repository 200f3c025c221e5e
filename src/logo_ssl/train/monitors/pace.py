"""Has training become slow? Said once, on a CPU, which other programs may take away."""

from collections import deque
from collections.abc import Callable
from statistics import median
from typing import Any

import lightning as L

from ...hardware import about_a_slowdown
from ...types import ImageBatch
from ..time_left import Clock

WINDOW_S = 10.0  # of steps, for one measurement
USUAL = 3  # measurements that tell what is usual
REMEMBERED = 360  # of them: an hour's
FALL = 0.2  # of the usual speed
IN_A_ROW = 2  # slow measurements, since one may be chance


class Pace(L.Callback):
    """Compares images/s with what they had been in this session."""

    def __init__(self, say: Callable[[str], None], clock: Clock) -> None:
        self.say, self.clock = say, clock
        self.since, self.seconds, self.seen = 0.0, 0.0, 0
        self.speeds: deque[float] = deque(maxlen=REMEMBERED)
        self.slow, self.told = 0, False

    def on_train_epoch_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Leave out what happens between epochs."""
        self.since = self.clock()

    def on_train_batch_end(
        self, trainer: L.Trainer, pl_module: L.LightningModule, outputs: Any, batch: ImageBatch, batch_idx: int
    ) -> None:
        """Count a step's images and time."""
        if pl_module.device.type != "cpu" or self.told:
            return
        now = self.clock()
        self.seconds, self.since = self.seconds + now - self.since, now
        self.seen += len(batch.pixels) * trainer.world_size
        if self.seconds >= WINDOW_S:
            self.measured(self.seen / self.seconds)
            self.seconds, self.seen = 0.0, 0

    def measured(self, speed: float) -> None:
        """Take a speed into account; say it if it has fallen for good."""
        usual = median(self.speeds) if len(self.speeds) >= USUAL else 0.0
        if speed >= FALL * usual:
            self.slow = 0
            self.speeds.append(speed)
            return
        self.slow += 1
        if self.slow == IN_A_ROW:
            self.told = True
            self.say(f"Training has slowed down from {usual:,.0f} to {speed:,.1f} images/s{about_a_slowdown()}")
