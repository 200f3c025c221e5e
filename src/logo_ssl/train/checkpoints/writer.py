"""How is a checkpoint written while training goes on? From a copy, by a thread; one that fails is told."""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

from lightning.pytorch.plugins.io import TorchCheckpointIO
from torch import Tensor
from torch.utils._pytree import tree_map_only

from ...run import CHECKPOINT, found_checkpoints
from ...text import counted
from ..sessions import Sessions
from .files import with_room, write


class Writer(TorchCheckpointIO):
    """Copies the state while the step waits, and writes the copy while training goes on.

    A checkpoint that cannot be written costs nothing but itself: the one before stays. Of several in a row the first is
    said, and that there is one again.
    """

    def __init__(self, folder: Path, keep: int, say: Callable[[str], None], sessions: Sessions) -> None:
        super().__init__()
        self.folder, self.keep, self.say, self.sessions = folder, keep, say, sessions
        self.thread = ThreadPoolExecutor(1, thread_name_prefix="checkpoint")
        self.pending: Future[Path] | None = None
        self.newest_mb: float | None = None
        self.lost, self.reason = 0, ""  # how many since the newest one could not be written, and why

    def save_checkpoint(self, checkpoint: dict[str, Any], path: Any, storage_options: Any = None) -> None:
        """Take a copy and leave the rest to the thread."""
        self.wait()
        copy = tree_map_only(Tensor, lambda tensor: tensor.detach().to("cpu", copy=True), checkpoint)
        self.pending = self.thread.submit(self._write, copy)

    def wait(self) -> bool:
        """Whether the last checkpoint is safely on disk; says why if it is not."""
        pending, self.pending = self.pending, None
        if pending is None:
            return not self.lost
        try:
            self.newest_mb = pending.result().stat().st_size / 1e6
        except OSError as error:
            before, self.reason = self.reason if self.lost else "", str(error.strerror or error)
            self.lost += 1
            self.sessions.now.failed += 1
            if self.reason != before:
                self.say(
                    f"The checkpoint could not be saved ({self.reason}); training goes on, the next ones are tried in "
                    f"their turn, and one that succeeds is told. Make room in {self.folder}, or make it writable."
                )
            return False
        if self.lost:
            self.say("Checkpoints are saved again.")
        self.lost = 0
        return True

    def newest_step(self) -> int | None:
        """The step of the newest checkpoint on disk, if there is one."""
        matches = (CHECKPOINT.fullmatch(file.name) for file in found_checkpoints(self.folder))
        return next((int(match[1]) for match in matches if match), None)

    def summary(self, steps: int) -> str | None:
        """A sentence for the end if the newest checkpoint is not of the last step: how old it is, and what to do."""
        if self.wait():
            return None
        newest = self.newest_step()
        age = "there is none" if newest is None else f"the newest is of step {newest} of {steps}"
        return (
            f"The last {counted(self.lost, 'checkpoint')} could not be saved ({self.reason}), and {age}. The encoder "
            f"is whole, but more epochs would begin there: make room in {self.folder}, or make it writable."
        )

    def teardown(self) -> None:
        """Wait for the last one."""
        self.wait()

    def _write(self, checkpoint: dict[str, Any]) -> Path:
        file = with_room(self.folder, lambda: write(checkpoint, self.folder, self.keep))
        self.sessions.wrote(checkpoint["global_step"])
        return file
