"""Who hears of it? Every logger of a value, the user of an alarm."""

from collections.abc import Callable
from typing import Any

import lightning as L

from ...errors import UserError
from ...recipes import Recipe


def log(trainer: L.Trainer, values: dict[str, Any], step: int | None = None) -> None:
    """Hand values to every logger, at a step or the current one; one process of several does."""
    if not trainer.is_global_zero:
        return
    for logger in trainer.loggers:
        logger.log_metrics(values, step=trainer.global_step if step is None else step)


def ring(alarm: str, recipe: Recipe, say: Callable[[str], None]) -> None:
    """Say that training collapses, or end it there, as the recipe asks."""
    if recipe.on_collapse == "stop":
        raise UserError(f"{alarm} Stopped, as on_collapse asks.")
    say(alarm)
