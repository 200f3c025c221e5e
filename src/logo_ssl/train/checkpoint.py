"""Checkpoints: the whole state of training, copied between two steps, written by a thread, whole or not at all.

A file's name ends with a digest of its bytes, so that one rename publishes both, and a torn file shows.
"""

import errno
import hashlib
import os
import shutil
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import lightning as L
import torch
import torch.distributed as dist
from lightning.pytorch.callbacks import Checkpoint
from lightning.pytorch.plugins.io import TorchCheckpointIO
from torch import Tensor
from torch.utils._pytree import tree_map_only

from ..errors import NO_SPACE, UserError
from ..files import sync_folder
from ..run import CHECKPOINT, found_checkpoints
from ..system.distributed import world_size
from ..system.signals import Stopped, StopSignals
from ..system.text import counted
from .loggers import Sessions, Steps
from .monitors import Diverged, is_finite

UNFINISHED = ".writing"
FULL = 1 << 20  # bytes left on a full disk
AGREE_S = 2.0  # seconds between two times that several processes ask each other whether to stop or to save
AGREE_STEPS = 20  # steps between them at most: the next ones may take longer than the last


def load(file: Path) -> dict[str, Any]:
    """What a checkpoint holds, without running any code in it."""
    try:
        return torch.load(file, map_location="cpu", weights_only=True, mmap=True)
    except Exception as error:  # torch raises whatever the torn bytes lead it to
        raise UserError(
            f"{file} cannot be read ({type(error).__name__}); remove it to continue from the one before it."
        ) from error


def is_whole(file: Path) -> bool:
    """Whether a checkpoint's bytes are those that were written."""
    match = CHECKPOINT.fullmatch(file.name)
    try:
        return match is not None and digest(file) == match[2]
    except OSError:
        return False


def newest_whole(folder: Path, say: Callable[[str], None]) -> Path | None:
    """The newest checkpoint that is whole; None if there is none at all."""
    files = found_checkpoints(folder)
    for file in files:
        if is_whole(file):
            return file
        say(f"{file} is damaged; the checkpoint before it is used.")
    if files:
        raise UserError(
            f"All {len(files)} checkpoints in {folder} are damaged; remove them to start from the beginning."
        )
    return None


def clear(folder: Path, newest: Path | None) -> None:
    """Remove what a killed process was writing, and whatever is newer than the checkpoint to continue from: damaged."""
    for file in folder.glob(f"{UNFINISHED}-*"):
        file.unlink(missing_ok=True)
    for file in found_checkpoints(folder):
        if file == newest:
            break
        file.unlink(missing_ok=True)


def with_room(folder: Path, write: Callable[[], None]) -> None:
    """Write; if the disk is full, once more without the older checkpoints."""
    try:
        write()
    except OSError as error:
        files = found_checkpoints(folder)
        newest = next((file for file in files if is_whole(file)), None)
        if error.errno not in NO_SPACE or newest is None or len(files) == 1:
            raise
        for file in files:
            if file != newest:
                file.unlink(missing_ok=True)
        write()


def digest(file: Path) -> str:
    """Sixteen hexadecimal digits that change with any byte of a file."""
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, partial(hashlib.blake2b, digest_size=8)).hexdigest()


def _write(checkpoint: dict[str, Any], folder: Path, keep: int) -> None:
    """Write a checkpoint under a temporary name, rename it, and remove all but the newest few."""
    folder.mkdir(parents=True, exist_ok=True)
    temporary = folder / f"{UNFINISHED}-{os.getpid()}"
    try:
        with temporary.open("wb") as file:
            torch.save(checkpoint, file)
            file.flush()
            os.fsync(file.fileno())
        final = folder / f"step-{checkpoint['global_step']:09d}-{digest(temporary)}.ckpt"
        os.replace(temporary, final)
        sync_folder(folder)
    except BaseException as error:
        full = folder.is_dir() and shutil.disk_usage(folder).free < FULL
        temporary.unlink(missing_ok=True)
        if isinstance(error, RuntimeError):  # how torch reports a full disk, among others
            reason = (errno.ENOSPC, os.strerror(errno.ENOSPC)) if full else (str(error).splitlines()[0],)
            raise OSError(*reason) from error
        raise
    for old in [file for file in found_checkpoints(folder) if file != final][keep - 1 :]:
        old.unlink(missing_ok=True)


class Writer(TorchCheckpointIO):
    """Copies the state while the step waits, and writes the copy while training goes on.

    A checkpoint that cannot be written costs nothing but itself: the one before stays.
    """

    def __init__(self, folder: Path, keep: int, say: Callable[[str], None], sessions: Sessions) -> None:
        super().__init__()
        self.folder, self.keep, self.say, self.sessions = folder, keep, say, sessions
        self.thread = ThreadPoolExecutor(1, thread_name_prefix="checkpoint")
        self.pending: Future[None] | None = None
        self.lost, self.reason = 0, ""  # how many since the newest one could not be written, and why

    def save_checkpoint(self, checkpoint: dict[str, Any], path: Any, storage_options: Any = None) -> None:
        """Take a copy and leave the rest to the thread."""
        self.wait()
        copy = tree_map_only(Tensor, lambda tensor: tensor.detach().to("cpu", copy=True), checkpoint)
        self.pending = self.thread.submit(self._save, copy)

    def wait(self) -> bool:
        """Whether the last checkpoint is safely on disk; says why if it is not, once for several in a row."""
        pending, self.pending = self.pending, None
        if pending is not None:
            try:
                pending.result()
                self.lost = 0
            except OSError as error:
                self.reason = str(error.strerror or error)
                self.lost += 1
                self.sessions.now.failed += 1
                if self.lost == 1:
                    self.say(f"The checkpoint could not be saved in {self.folder} ({self.reason}); training goes on.")
        return not self.lost

    def newest_step(self) -> int | None:
        """The step of the newest checkpoint on disk, if there is one."""
        files = found_checkpoints(self.folder)
        return int(files[0].name.split("-")[1]) if files else None

    def summary(self, steps: int) -> str | None:
        """A sentence for the end if the newest checkpoint is not of the last step."""
        if self.wait():
            return None
        newest = self.newest_step()
        age = "there is none" if newest is None else f"the newest is of step {newest} of {steps}"
        return f"The last {counted(self.lost, 'checkpoint')} could not be saved ({self.reason}), and {age}."

    def teardown(self) -> None:
        """Wait for the last one."""
        self.wait()

    def _save(self, checkpoint: dict[str, Any]) -> None:
        with_room(self.folder, lambda: _write(checkpoint, self.folder, self.keep))
        self.sessions.wrote(checkpoint["global_step"])


class Agreement:
    """When several processes ask each other whether to stop or save: after a step, every `AGREE_S` seconds or so.

    Clocks differ between processes, so they count steps: as many as the slowest of them will make in that time.
    """

    def __init__(self, step: int = 0) -> None:
        self.step, self.due, self.since = step, step + 1, time.monotonic()

    def is_due(self, step: int) -> bool:
        """Whether it is time; one process alone never minds."""
        return world_size() == 1 or step >= self.due

    def reach(self, wishes: tuple[int, int], step: int, device: torch.device) -> tuple[int, int]:
        """The largest of what all processes wish, in one message; with it they tell each other how long steps take."""
        each = (time.monotonic() - self.since) / max(1, step - self.step)
        values = torch.tensor([*wishes, each], dtype=torch.float32, device=device)
        dist.all_reduce(values, dist.ReduceOp.MAX)
        first, second, slowest = values.tolist()
        steps = min(AGREE_STEPS, max(1, int(AGREE_S / max(slowest, 1e-6))))
        self.step, self.due, self.since = step, step + steps, time.monotonic()
        return int(first), int(second)


class Checkpoints(Checkpoint):
    """Saves every so many epochs and minutes, after the last epoch, and if a signal asks to stop."""

    def __init__(self, folder: Path, every: int, minutes: float, stop: StopSignals, sessions: Sessions) -> None:
        self.folder, self.every, self.minutes, self.stop, self.sessions = folder, every, minutes, stop, sessions
        self.saved_at, self.began_at = time.monotonic(), 0
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
        self.saved_at = time.monotonic()

    def save_and_stop(self, trainer: L.Trainer) -> None:
        """Save, and end once the file is on disk."""
        self._save(trainer)
        io = trainer.strategy.checkpoint_io
        assert isinstance(io, Writer)
        kept, newest = io.wait(), io.newest_step()
        if trainer.world_size > 1:  # nobody leaves before the file is on disk, and all say the same
            kept, newest = trainer.strategy.broadcast((kept, newest))
        raise self.stop.interrupted(trainer.global_step, kept, newest)


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
