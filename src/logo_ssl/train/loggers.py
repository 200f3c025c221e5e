"""Who else is told? TensorBoard and its like: what they cannot write is their loss, not training's."""

from collections.abc import Callable
from typing import Any

from lightning.pytorch.loggers import MLFlowLogger, TensorBoardLogger, WandbLogger
from lightning.pytorch.loggers.logger import Logger

from ..errors import UserError
from ..run import Run


class Beside(Logger):
    """Another logger, left alone from when the disk refuses it: a full one must not end a training."""

    def __init__(self, kind: str, run: Run, say: Callable[[str], None]) -> None:
        super().__init__()
        self.kind, self.say, self.refused = kind, say, False
        self.logger = _logger(kind, run)

    @property
    def name(self) -> str | None:
        """What Lightning calls this logger."""
        return self.logger.name

    @property
    def version(self) -> int | str | None:
        """Lightning asks."""
        return self.logger.version

    def log_hyperparams(self, *args: Any, **kwargs: Any) -> None:
        """The recipe is saved elsewhere."""

    def log_metrics(self, metrics: dict[str, Any], step: int | None = None) -> None:
        """Hand values on."""
        self._if_there_is_room(lambda: self.logger.log_metrics(metrics, step))

    def save(self) -> None:
        """What is held back is written."""
        self._if_there_is_room(self.logger.save)

    def finalize(self, status: str) -> None:
        """The last of it is written."""
        self._if_there_is_room(lambda: self.logger.finalize(status))

    def _if_there_is_room(self, write: Callable[[], None]) -> None:
        if self.refused:
            return
        try:
            write()
        except (OSError, ValueError) as raised:
            error = raised.__cause__ or raised  # Lightning has a ValueError for whatever a value meets
            if not isinstance(error, OSError):
                raise
            self.refused = True
            why = error.strerror or error
            self.say(f"The log for {self.kind} cannot be written ({why}); training goes on without it.")


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
        raise UserError(f"The logger {kind} is not installed; try: pip install {kind}") from error
