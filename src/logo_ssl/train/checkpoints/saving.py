"""When is training saved? Every so many epochs and minutes, after the last epoch, and when a signal asks to stop."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import lightning as L
from lightning.pytorch.callbacks import Checkpoint

from ...signals import Stopped, StopSignals
from ..faults import Diverged, is_finite
from ..monitors import Steps
from ..sessions import Sessions
from .agreement import Agreement
from .writer import Writer


@runtime_checkable
class Rhythm(Protocol):
    """How often a training is saved; a recipe says so, among other things."""

    @property
    def checkpoint_every(self) -> int:
        """Epochs between checkpoints."""
        ...

    @property
    def checkpoint_minutes(self) -> float:
        """Minutes between checkpoints inside an epoch; 0: none."""
        ...


FIRST = 0.1
"""The share of the minutes after which a run's first checkpoint comes."""


class Checkpoints(Checkpoint):
    """Says when to save: every so many epochs and minutes, after the last epoch, and when a signal asks to stop."""

    def __init__(self, folder: Path, rhythm: Rhythm, stop: StopSignals, sessions: Sessions) -> None:
        self.folder, self.rhythm, self.stop, self.sessions = folder, rhythm, stop, sessions
        self.saved_at, self.began_at, self.has_saved = time.monotonic(), 0, False
        self.agreement = Agreement()

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Begin to listen and to count the minutes."""
        self.stop.listen()
        self.saved_at, self.began_at = time.monotonic(), trainer.global_step
        self.agreement = Agreement(trainer.global_step)

    def on_train_batch_end(
        self, trainer: L.Trainer, pl_module: L.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Save inside an epoch if it is time or the end; after its last step the epoch's own checkpoint comes."""
        if trainer.is_last_batch or not self.agreement.is_due(trainer.global_step):
            return
        stops, saves = self._agreed(trainer)
        if stops:
            self._save_and_stop(trainer)
        elif saves:
            self._save(trainer)

    def on_train_epoch_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Save if this epoch's turn has come."""
        epoch = trainer.current_epoch + 1
        stops, saves = self._agreed(trainer)
        if stops and epoch != trainer.max_epochs:
            self._save_and_stop(trainer)
        if saves or epoch % self.rhythm.checkpoint_every == 0 or epoch == trainer.max_epochs:
            self._save(trainer)

    def teardown(self, trainer: L.Trainer, pl_module: L.LightningModule, stage: str) -> None:
        """Listen no more."""
        self.stop.ignore()

    def on_exception(self, trainer: L.Trainer, pl_module: L.LightningModule, exception: BaseException) -> None:
        """Nor here."""
        self.stop.ignore()

    def has_learned(self, trainer: L.Trainer) -> bool:
        """Whether a step was made since training began, so that there is something new to save."""
        return trainer.global_step != self.began_at

    @contextmanager
    def waiting(self, trainer: L.Trainer) -> Iterator[None]:
        """Save and stop when a signal comes while something is waited for that may never come.

        A disk that is gone gives no batch, and the compiler no code whose own processes the same signal ended.
        """
        try:
            with self.stop.end_the_wait():
                yield
        except Stopped:
            if not self.has_learned(trainer):
                raise
            self.stop.acknowledge()
            self._save_and_stop(trainer)

    def _is_time(self) -> bool:
        minutes = self.rhythm.checkpoint_minutes
        if not (self.has_saved or self.began_at):
            minutes *= FIRST  # until then a crash costs everything
        return minutes > 0 and time.monotonic() - self.saved_at >= 60 * minutes

    def _agreed(self, trainer: L.Trainer) -> tuple[bool, bool]:
        """Whether any process was told to stop, and whether any wishes to save."""
        number, saves = self.stop.received or 0, self._is_time()
        if trainer.world_size > 1:
            number, saves = self.agreement.reach((number, saves), trainer.global_step, trainer.strategy.root_device)
        return self.stop.hear(number), bool(saves)

    def _save(self, trainer: L.Trainer) -> None:
        for callback in trainer.callbacks:  # type: ignore[attr-defined] (a list)
            if isinstance(callback, Steps):
                callback.log_all(trainer)  # or the lines of the last steps would be lost with this process
        if not is_finite(trainer.lightning_module):
            raise Diverged(trainer.global_step, ["a weight"])
        began = time.perf_counter()
        trainer.save_checkpoint(self.folder / f"step-{trainer.global_step:09d}")
        self.sessions.blocked(time.perf_counter() - began)
        self.saved_at, self.has_saved = time.monotonic(), True

    def _save_and_stop(self, trainer: L.Trainer) -> None:
        self._save(trainer)
        io = trainer.strategy.checkpoint_io
        assert isinstance(io, Writer)
        kept, newest = io.wait(), io.newest_step()
        if trainer.world_size > 1:  # nobody leaves before the file is on disk, and all tell the same
            kept, newest = trainer.strategy.broadcast((kept, newest))
        raise self.stop.interrupted(trainer.global_step, kept, newest)


@contextmanager
def awaited(trainer: L.Trainer) -> Iterator[None]:
    """Wait for something outside a step; a signal ends that where one process trains, and what it learned is saved.

    Of several, some may be in the middle of a step that needs this one, so all stop after it; unless it would be the
    first one, before which there is nothing to save.
    """
    keeper = trainer.checkpoint_callback
    if isinstance(keeper, Checkpoints) and (trainer.world_size == 1 or not keeper.has_learned(trainer)):
        with keeper.waiting(trainer):
            yield
    else:
        yield
