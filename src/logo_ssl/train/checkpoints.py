"""What survives an interruption? The whole state of training, written beside the step, whole or not at all.

A checkpoint's name ends with a digest of its bytes, so one rename publishes both, and a torn file tells on itself.
"""

import contextlib
import hashlib
import os
import shutil
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import lightning as L
import torch
from lightning.pytorch.callbacks import Checkpoint
from lightning.pytorch.plugins.io import TorchCheckpointIO
from torch import Tensor
from torch.utils._pytree import tree_map_only

from ..errors import UserError
from ..run import CHECKPOINT, found_checkpoints
from .faults import Diverged, is_finite
from .monitors import Steps
from .signals import StopSignals

UNFINISHED = ".writing"
CHUNK = 1 << 22  # bytes
FULL = 1 << 20  # bytes left on a full disk


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

    @property
    def log_every(self) -> int:
        """Steps after which several processes ask each other whether to save or to stop."""
        ...


class Checkpoints(Checkpoint):
    """Says when to save: every so many epochs and minutes, after the last epoch, and when a signal asks to stop."""

    def __init__(self, folder: Path, rhythm: Rhythm, stop: StopSignals) -> None:
        self.folder, self.rhythm, self.stop = folder, rhythm, stop
        self.saved_at = time.monotonic()
        self.blocked_s: list[float] = []

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Begin to listen and to count the minutes."""
        self.stop.listen()
        self.saved_at = time.monotonic()

    def on_train_batch_end(
        self, trainer: L.Trainer, pl_module: L.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Save inside an epoch if it is time or the end; after its last step the epoch's own checkpoint comes."""
        if trainer.is_last_batch:
            return
        if self._agreed(trainer, self.stop.received is not None):
            self._save_and_stop(trainer)
        elif self._agreed(trainer, self._is_time()):
            self._save(trainer)

    def on_train_epoch_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Save if this epoch's turn has come."""
        epoch = trainer.current_epoch + 1
        if self._agreed(trainer, self.stop.received is not None) and epoch != trainer.max_epochs:
            self._save_and_stop(trainer)
        due = epoch % self.rhythm.checkpoint_every == 0 or epoch == trainer.max_epochs
        if due or self._agreed(trainer, self._is_time()):
            self._save(trainer)

    def teardown(self, trainer: L.Trainer, pl_module: L.LightningModule, stage: str) -> None:
        """Listen no more."""
        self.stop.ignore()

    def _is_time(self) -> bool:
        minutes = self.rhythm.checkpoint_minutes
        return minutes > 0 and time.monotonic() - self.saved_at >= 60 * minutes

    def _agreed(self, trainer: L.Trainer, wish: bool) -> bool:
        """Whether any process wishes so; several processes ask each other now and then only."""
        if trainer.world_size == 1:
            return wish
        if trainer.global_step % self.rhythm.log_every and not trainer.is_last_batch:
            return False
        return trainer.strategy.reduce_boolean_decision(wish, all=False)

    def _save(self, trainer: L.Trainer) -> None:
        for callback in trainer.callbacks:  # type: ignore[attr-defined] (a list)
            if isinstance(callback, Steps):
                callback.log_all(trainer)  # or the lines of the last steps would be lost with this process
        if not is_finite(trainer.lightning_module):
            raise Diverged(trainer.global_step, ["a weight"])
        began = time.perf_counter()
        trainer.save_checkpoint(self.folder / f"step-{trainer.global_step:09d}")
        self.blocked_s.append(time.perf_counter() - began)
        self.saved_at = time.monotonic()

    def _save_and_stop(self, trainer: L.Trainer) -> None:
        self._save(trainer)
        io = trainer.strategy.checkpoint_io
        kept = io.wait() if isinstance(io, Writer) else True
        if trainer.world_size > 1:  # nobody leaves before the file is on disk, and all tell the same
            kept, number = trainer.strategy.broadcast((kept, self.stop.received))
            self.stop.received = number or self.stop.received
        raise self.stop.interrupted(trainer.global_step, kept)


class Writer(TorchCheckpointIO):
    """Copies the state while the step waits, and writes the copy while training goes on.

    A checkpoint that cannot be written is said, and costs nothing but itself: the one before stays.
    """

    def __init__(self, folder: Path, keep: int, say: Callable[[str], None]) -> None:
        super().__init__()
        self.folder, self.keep, self.say = folder, keep, say
        self.thread = ThreadPoolExecutor(1, thread_name_prefix="checkpoint")
        self.pending: Future[Path] | None = None
        self.newest_mb: float | None = None

    def save_checkpoint(self, checkpoint: dict[str, Any], path: Any, storage_options: Any = None) -> None:
        """Take a copy and leave the rest to the thread."""
        self.wait()
        copy = tree_map_only(Tensor, lambda tensor: tensor.detach().to("cpu", copy=True), checkpoint)
        self.pending = self.thread.submit(write, copy, self.folder, self.keep)

    def wait(self) -> bool:
        """Whether the last checkpoint is safely on disk; says why if it is not."""
        pending, self.pending = self.pending, None
        if pending is None:
            return True
        try:
            self.newest_mb = pending.result().stat().st_size / 1e6
        except OSError as error:
            self.say(
                f"The checkpoint could not be saved ({error.strerror or error}); training goes on, and the next one "
                f"is tried in its turn. Make room in {self.folder}, or make it writable."
            )
            return False
        return True

    def teardown(self) -> None:
        """Wait for the last one."""
        self.wait()


def write(checkpoint: dict[str, Any], folder: Path, keep: int) -> Path:
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
        _sync_folder(folder)
    except BaseException as error:
        full = folder.is_dir() and shutil.disk_usage(folder).free < FULL
        temporary.unlink(missing_ok=True)
        if isinstance(error, RuntimeError):  # how torch tells of a full disk, among others
            raise OSError("No space left on device" if full else str(error).splitlines()[0]) from error
        raise
    for old in [file for file in found_checkpoints(folder) if file != final][keep - 1 :]:
        old.unlink(missing_ok=True)
    return final


def newest_whole(folder: Path, say: Callable[[str], None]) -> Path | None:
    """The newest checkpoint whose bytes are those that were written; None if there is none at all."""
    files = found_checkpoints(folder)
    for file in files:
        if _is_whole(file):
            return file
        say(f"{file} is damaged and left out; the one before it is tried.")
    if files:
        raise UserError(
            f"None of the {len(files)} checkpoints in {folder} is whole; remove them to start this run from the "
            "beginning."
        )
    return None


def clear(folder: Path, newest: Path | None) -> None:
    """Remove what a killed process was writing, and whatever is newer than the checkpoint to go on from: damaged."""
    for file in folder.glob(f"{UNFINISHED}-*"):
        file.unlink(missing_ok=True)
    for file in found_checkpoints(folder):
        if file == newest:
            break
        file.unlink(missing_ok=True)


def digest(file: Path) -> str:
    """Sixteen hexadecimal digits that change with any byte of a file."""
    sum_ = hashlib.blake2b(digest_size=8)
    with file.open("rb") as stream:
        while chunk := stream.read(CHUNK):
            sum_.update(chunk)
    return sum_.hexdigest()


def load(file: Path) -> dict[str, Any]:
    """What a checkpoint holds, without running any code in it."""
    try:
        return torch.load(file, map_location="cpu", weights_only=True, mmap=True)
    except Exception as error:  # torch raises whatever the torn bytes lead it to
        raise UserError(
            f"{file} cannot be read ({type(error).__name__}); remove it to go on from the one before it."
        ) from error


def _is_whole(file: Path) -> bool:
    match = CHECKPOINT.fullmatch(file.name)
    try:
        if match is None:
            return {"global_step", "state_dict", "pytorch-lightning_version"} <= load(file).keys()
        return digest(file) == match[2]
    except (OSError, UserError):
        return False


def _sync_folder(folder: Path) -> None:
    """Make a rename last through a power cut."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        with contextlib.suppress(OSError):  # some network disks cannot
            os.fsync(handle)
    finally:
        os.close(handle)
