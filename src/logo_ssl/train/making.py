"""What trains a run? Networks and a trainer, built from its recipe, and built anew when numbers break."""

from functools import cached_property
from typing import Any

import lightning as L
import torch
from rich.console import Console

from ..data import ImageSet, data_identity
from ..recipes import Recipe
from ..run import Run
from .building import build
from .faults import free_memory
from .journal import Journal
from .module import Pretraining
from .progress import ProgressDisplay
from .sessions import Sessions
from .trainer import trainer_for


class Making:
    """A run in the making. Nothing else may keep its module or trainer, so that `clear` frees what they hold."""

    module: Pretraining
    trainer: L.Trainer

    def __init__(self, run: Run, recipe: Recipe, data: ImageSet, console: Console, sessions: Sessions) -> None:
        self.run, self.recipe, self.data, self.console, self.sessions = run, recipe, data, console, sessions
        self.journal = Journal(run, console.print)

    @cached_property
    def images(self) -> dict[str, Any]:
        """What it is trained on."""
        return data_identity(self.data)

    @property
    def device(self) -> torch.device:
        """Where it is trained."""
        return self.trainer.strategy.root_device

    def build(self, *, fresh: bool) -> None:
        """Build what trains; if not `fresh`, its weights will be loaded."""
        self.module = build(self.recipe, self.data, self.console, fresh=fresh)
        self.module.data_identity = f"{self.images['train_images']} images, {self.images['fingerprint']['train']}"
        progress = ProgressDisplay(self.journal, self.console)  # a new one: Lightning ties callbacks to the module
        self.trainer = trainer_for(self.run, self.recipe, self.data, self.journal, progress, self.sessions)

    def clear(self) -> None:
        """Let go of both, and give their memory back before others are built."""
        del self.module, self.trainer
        free_memory()
