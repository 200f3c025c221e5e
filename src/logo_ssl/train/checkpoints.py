"""What survives an interruption? The whole state of training, saved after an epoch, whole or not at all."""

import os

import lightning as L
from lightning.pytorch.callbacks import Checkpoint

from ..run import Run


class Checkpoints(Checkpoint):
    """Replaces `checkpoints/last.ckpt` every n epochs and after the last one."""

    def __init__(self, run: Run, every: int) -> None:
        self.file, self.every = run.checkpoint, every

    def on_train_epoch_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Save under a temporary name, then rename: a crash in between leaves the former checkpoint."""
        epoch = trainer.current_epoch + 1
        if epoch % self.every and epoch != trainer.max_epochs:
            return
        temporary = self.file.with_suffix(".writing")
        try:
            trainer.save_checkpoint(temporary)  # every process takes part, the first one writes
            if not trainer.is_global_zero:
                return
            with temporary.open("rb") as file:
                os.fsync(file.fileno())
            os.replace(temporary, self.file)
        except BaseException:
            if trainer.is_global_zero:
                temporary.unlink(missing_ok=True)
            raise
