"""Checkpoints: the whole state of training, copied between two steps, written by a thread, whole or not at all.

A file's name ends with a digest of its bytes, so that one rename publishes both, and a torn file shows.
"""

import errno
import os
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import lightning as L
import torch
import torch.distributed as dist
from lightning.pytorch.callbacks import Checkpoint
from lightning.pytorch.plugins.io import TorchCheckpointIO
from torch import Tensor
from torch.utils._pytree import tree_map_only

from ..files import sync_folder
from ..run import found_checkpoints
from ..system.signals import Stopped, StopSignals
from ..weights import digest
from .loggers import Sessions, Steps
from .monitors import Diverged, is_finite

UNFINISHED = ".writing"
AGREE_EVERY = 20  # steps after which several processes ask each other whether to stop or to save: a GPU waits for it


def clear(folder: Path, newest: Path | None) -> None:
    """Remove what a killed process was writing, and whatever is newer than the checkpoint to continue from: damaged."""
    for file in folder.glob(f"{UNFINISHED}-*"):
        file.unlink(missing_ok=True)
    for file in found_checkpoints(folder):
        if file == newest:
            break
        file.unlink(missing_ok=True)


class Writer(TorchCheckpointIO):
    """Copies the state while the step waits, and writes the copy while training goes on.

    If it cannot be written, training stops before the next one; the checkpoint before it stays.
    """

    def __init__(self, folder: Path, keep: int, sessions: Sessions) -> None:
        super().__init__()
        self.folder, self.keep, self.sessions = folder, keep, sessions
        self.thread = ThreadPoolExecutor(1, thread_name_prefix="checkpoint")
        self.pending: Future[None] | None = None

    def save_checkpoint(self, checkpoint: dict[str, Any], path: Any, storage_options: Any = None) -> None:
        """Take a copy and leave the rest to the thread."""
        self.wait()
        copy = tree_map_only(Tensor, lambda tensor: tensor.detach().to("cpu", copy=True), checkpoint)
        self.pending = self.thread.submit(self._save, copy)

    def wait(self) -> None:
        """Until the last checkpoint is safely on disk; OSError if it could not be written."""
        pending, self.pending = self.pending, None
        if pending is not None:
            pending.result()

    def teardown(self) -> None:
        """Wait for the last one."""
        self.wait()

    def _save(self, checkpoint: dict[str, Any]) -> None:
        """Write a checkpoint under a temporary name, rename it, and remove all but the newest few."""
        self.folder.mkdir(parents=True, exist_ok=True)
        temporary = self.folder / f"{UNFINISHED}-{os.getpid()}"
        try:
            with temporary.open("wb") as file:
                torch.save(checkpoint, file)
                file.flush()
                os.fsync(file.fileno())
            final = self.folder / f"step-{checkpoint['global_step']:09d}-{digest(temporary)}.ckpt"
            os.replace(temporary, final)
            sync_folder(self.folder)
        except (OSError, RuntimeError) as error:  # the second is how torch reports a full disk
            reason = error.strerror if isinstance(error, OSError) else str(error).splitlines()[0]
            raise OSError(errno.EIO, reason, str(self.folder)) from error
        finally:
            temporary.unlink(missing_ok=True)
        for old in [file for file in found_checkpoints(self.folder) if file != final][self.keep - 1 :]:
            old.unlink(missing_ok=True)
        self.sessions.wrote(checkpoint["global_step"])


class Checkpoints(Checkpoint):
    """Saves every so many epochs and minutes, after the last epoch, and if a signal asks to stop."""

    def __init__(self, folder: Path, every: int, minutes: float, stop: StopSignals) -> None:
        self.folder, self.every, self.minutes, self.stop = folder, every, minutes, stop
        self.saved_at, self.began_at = time.monotonic(), 0

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Begin to listen and to count the minutes."""
        self.stop.listen()
        self.saved_at, self.began_at = time.monotonic(), trainer.global_step

    def on_train_batch_end(
        self, trainer: L.Trainer, pl_module: L.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Save inside an epoch if it is time or the end; after its last step the epoch's own checkpoint comes."""
        if trainer.is_last_batch or (trainer.world_size > 1 and trainer.global_step % AGREE_EVERY):
            return
        stops, saves = self._agree(trainer)
        if stops:
            self.save_and_stop(trainer)
        elif saves:
            self._save(trainer)

    def on_train_epoch_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Save if this epoch's turn has come."""
        epoch = trainer.current_epoch + 1
        stops, saves = self._agree(trainer)
        if stops and epoch != trainer.max_epochs:
            self.save_and_stop(trainer)
        if saves or epoch % self.every == 0 or epoch == trainer.max_epochs:
            self._save(trainer)

    def teardown(self, trainer: L.Trainer, pl_module: L.LightningModule, stage: str) -> None:
        """Listen no more."""
        self.stop.ignore()

    def on_exception(self, trainer: L.Trainer, pl_module: L.LightningModule, exception: BaseException) -> None:
        """Listen no more."""
        self.stop.ignore()

    def has_learned(self, trainer: L.Trainer) -> bool:
        """Whether a step was made since training began, so that there is something new to save."""
        return trainer.global_step != self.began_at

    def _agree(self, trainer: L.Trainer) -> tuple[bool, bool]:
        """Whether any process was asked to stop, and whether any wishes to save."""
        number = self.stop.received or 0
        saves = self.minutes > 0 and time.monotonic() - self.saved_at >= 60 * self.minutes
        if trainer.world_size > 1:
            wishes = torch.tensor([number, saves], dtype=torch.int32, device=trainer.strategy.root_device)
            dist.all_reduce(wishes, dist.ReduceOp.MAX)
            number, saves = wishes.tolist()
        return self.stop.hear(number), bool(saves)

    def _save(self, trainer: L.Trainer) -> None:
        for callback in trainer.callbacks:  # type: ignore[attr-defined] (a list)
            if isinstance(callback, Steps):
                callback.log_all(trainer)  # or the lines of the last steps would be lost with this process
        if not is_finite(trainer.lightning_module):
            raise Diverged(trainer.global_step)
        trainer.save_checkpoint(self.folder / f"step-{trainer.global_step:09d}")
        self.saved_at = time.monotonic()

    def save_and_stop(self, trainer: L.Trainer) -> None:
        """Save, and end once the file is on disk."""
        self._save(trainer)
        io = trainer.strategy.checkpoint_io
        assert isinstance(io, Writer)
        io.wait()
        trainer.strategy.barrier()  # nobody leaves before the file is on disk
        raise self.stop.interrupted(trainer.global_step)


@contextmanager
def interruptible(trainer: L.Trainer) -> Iterator[None]:
    """Wait outside a step for what may never come; if one process trains, a signal ends the wait and saves the state.

    A disk that is gone gives no batch, and the compiler no code whose own processes the same signal ended. Of several
    processes, some may be in the middle of a step that needs this one, so all stop after it; unless it would be the
    first one, before which there is nothing to save.
    """
    keeper = trainer.checkpoint_callback
    if not isinstance(keeper, Checkpoints) or (trainer.world_size > 1 and keeper.has_learned(trainer)):
        yield
        return
    try:
        with keeper.stop.end_the_wait():
            yield
    except Stopped:
        if not keeper.has_learned(trainer):
            raise
        keeper.stop.acknowledge()
        keeper.save_and_stop(trainer)
