"""Who trains, and who watches? Lightning's trainer, with every callback, logger and plugin of a run."""

import lightning as L
from lightning.pytorch.utilities.exceptions import MisconfigurationException

from ..data import ImageSet
from ..errors import UserError
from ..hardware import best_device
from ..launch import is_first
from ..recipes import Recipe
from ..run import Run
from ..signals import StopSignals
from .acceleration import Acceleration
from .checkpoints import Checkpoints, Writer
from .compiling import first_line
from .folder import cure
from .journal import Journal
from .loggers import Beside
from .monitors import CollapseGauge, OnlineKNN, Pace, Steps
from .processes import DDP, processes_for, take_over_signals
from .progress import ProgressDisplay
from .quiet import quiet
from .sessions import Sessions


def trainer_for(
    run: Run,
    recipe: Recipe,
    data: ImageSet,
    journal: Journal,
    progress: ProgressDisplay,
    sessions: Sessions | None = None,
    *,
    benchmark: bool = True,
) -> L.Trainer:
    """The Lightning trainer of a run, with everything that watches it; `benchmark` lets the clock choose kernels."""
    best_device(recipe.device)  # refused, where it is not there
    sessions = sessions or Sessions(run)
    stop, processes = StopSignals(cure(run), speaks=is_first()), processes_for(recipe)
    callbacks = [
        Acceleration(),
        Steps(progress.say),
        Pace(progress.say, progress.clock),
        CollapseGauge(progress.say, recipe),
        OnlineKNN(data, recipe, run.bad_images_file, progress.say, progress.clock),
        progress,
        Checkpoints(run.checkpoints, recipe, stop, sessions),
    ]
    with quiet():
        try:
            trainer = L.Trainer(
                accelerator=recipe.device,
                devices=processes.devices,
                num_nodes=processes.nodes,
                strategy=DDP(cure(run)) if processes.total > 1 else "auto",
                use_distributed_sampler=False,
                max_epochs=recipe.epochs,
                callbacks=callbacks,
                logger=[journal, *(Beside(kind, run, progress.say) for kind in recipe.loggers)],
                enable_progress_bar=False,
                enable_model_summary=False,
                num_sanity_val_steps=0,
                benchmark=benchmark and not recipe.deterministic,
                deterministic=recipe.deterministic,
                plugins=[Writer(run.checkpoints, recipe.checkpoint_keep, progress.say, sessions)],
            )
        except (MisconfigurationException, RuntimeError) as error:
            if processes.total == 1:
                raise
            raise UserError(f"{processes.devices} devices cannot be used here: {first_line(error)}") from error
    take_over_signals(trainer)
    return trainer
