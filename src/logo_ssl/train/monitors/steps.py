"""How does each step go? Losses, learning rate and speed, read without making the device wait."""

import math
import time
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

import lightning as L
import torch
from torch import Tensor

from ...ranks import averaged
from ...types import ImageBatch
from ..faults import MOST_IN_A_ROW, Diverged, is_finite, never_finite
from ..module import Pretraining
from .telling import log

STEPS_AHEAD = 4  # steps that Python may hand to a GPU before their turn


class Reading(NamedTuple):
    """Values on their way from the device."""

    step: int
    seen: int
    names: tuple[str, ...]
    values: Tensor
    known: dict[str, float]
    event: torch.cuda.Event | None

    def arrived(self) -> bool:
        """Whether reading them costs no waiting."""
        return self.event is None or self.event.query()

    def wait(self) -> dict[str, float]:
        """The values by name."""
        if self.event is not None:
            self.event.synchronize()
        return dict(zip(self.names, self.values.tolist(), strict=True))


class Steps(L.Callback):
    """Logs losses, learning rate and images/s every `log_every` steps, without ever making the device wait.

    On CUDA values are copied while later steps run, and logged a few steps after they were computed.
    """

    def __init__(self, say: Callable[[str], None] = lambda sentence: None) -> None:
        self.say = say
        self.seen, self.since = 0, time.perf_counter()
        self.waiting: deque[Reading] = deque()
        self.behind: deque[torch.cuda.Event] = deque()
        self.skipped = (0, 0)  # by the encoder, by the regressor

    def on_train_epoch_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Leave what happens between epochs (kNN, checkpoints) out of the speed."""
        self.seen, self.since = 0, time.perf_counter()

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
        if last:
            self.log_all(trainer)
        while self.waiting and self._due(trainer, self.waiting[0]):
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
        return reading.arrived()

    def _keep_close(self, device: torch.device) -> None:
        """Keep Python at most so many steps ahead of the device, or speed and remaining time would be fiction."""
        if device.type == "cuda":
            event = torch.cuda.Event()
            event.record()
            self.behind.append(event)
            if len(self.behind) > STEPS_AHEAD:
                self.behind.popleft().synchronize()

    def _read(self, trainer: L.Trainer, module: Pretraining) -> Reading:
        (values,) = averaged([torch.stack([value.float() for value in module.logged.values()])])
        event = None
        if values.is_cuda:
            values = values.to("cpu", non_blocking=True)
            event = torch.cuda.Event()
            event.record()
        known = {"lr": module.lr, "epoch": trainer.current_epoch}
        return Reading(trainer.global_step, self.seen, tuple(module.logged), values, known, event)

    def _log(self, trainer: L.Trainer, module: Pretraining, reading: Reading) -> None:
        values = reading.wait()
        self._watch(module, reading.step, values)
        values = {name: value for name, value in values.items() if math.isfinite(value)}
        speed = reading.seen / (time.perf_counter() - self.since)  # now that the device is there
        log(trainer, values | reading.known | {"images_per_s": speed}, reading.step)

    def _watch(self, module: Pretraining, step: int, values: dict[str, float]) -> None:
        """Say that steps were left out; raise `Diverged`, or what never was finite, if that does not help.

        Takes the counts out of the values.
        """
        skipped = int(values.pop("skipped")), int(values.pop("skipped_by_regressor"))
        in_a_row = int(values.pop("skipped_in_a_row"))
        if skipped == self.skipped:
            return
        broken = [name for name, value in values.items() if not math.isfinite(value)]
        if in_a_row >= MOST_IN_A_ROW or not is_finite(module):
            if skipped[0] == step and (sentence := never_finite(broken, module.recipe)):
                raise sentence
            raise Diverged(step, broken)
        encoder, regressor = (now - before for now, before in zip(skipped, self.skipped, strict=True))
        self.skipped = skipped
        if encoder:
            were = "was" if encoder == 1 else "were"
            self.say(f"{encoder} of the steps up to {step} had no finite gradient and {were} left out.")
        if regressor:
            times = "once" if regressor == 1 else f"{regressor} times"
            self.say(f"Up to step {step} the regressor had no finite gradient {times}, and learned nothing then.")
