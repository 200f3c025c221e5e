"""Training of a detector: SGD with steps through Lightning, exact resume, new statistics of batch norms at the end."""

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple

import lightning as L
import torch
from lightning.pytorch.utilities.exceptions import MisconfigurationException
from torch import Tensor

from ..distributed import rank
from ..errors import UserError
from ..launch import is_first
from ..models.batch_norm import BatchNorm, set_synchronised
from ..run import CHECKPOINT, Run, locked
from ..signals import StopSignals
from ..train.checkpoint import UNFINISHED, Checkpoints, Writer, clear, interruptible, load, newest_whole
from ..train.compile import first_line
from ..train.loggers import Sessions
from ..train.monitors import Diverged
from ..train.trainer import DDP, check_processes, explain_end, processes_for, quiet, take_over_signals
from .config import DetectionRecipe, learning_rate
from .model import Detector
from .samples import Batches, Progress, Read, Sample, Say, TrainingImages, raise_errors

LOOK_EVERY = 50
"""Iterations between looks at the loss: each look waits for the device."""
LINES = 10
"""Printed lines about the loss in a training."""
KEPT = re.compile(rf"{CHECKPOINT.pattern}|{re.escape(UNFINISHED)}-\d+|\.?(sessions|sittings)\.json(\.\w+)?|\.lock")
"""How the files of a training's folder are called."""
CURE = "the same command goes on"


@dataclass(frozen=True)
class TrainerConfig:
    """Where a detector is trained, and how often that is saved; nothing here changes what it learns."""

    device: str = "auto"
    devices: int | Literal["auto"] = 1
    """Processes that share each batch."""
    nodes: int = 1
    workers: int = -1
    """Processes that decode images, on each machine in all; -1: one per core."""
    folder: Path | None = None
    """Where an interrupted training can go on from; None: nowhere."""
    identity: str = ""
    """What is trained on what; a training of another identity is not continued."""
    checkpoint_every: int = 1
    checkpoint_minutes: float = 10.0
    checkpoint_keep: int = 1


class TrainingSummary(NamedTuple):
    """How a training went."""

    resumed_at: int
    """Iterations done by earlier sessions."""
    seconds: float
    """Of all sessions; one that was killed counts up to its last checkpoint."""
    sessions: int
    killed: int
    """Sessions of which the end is not known."""


class DetectorModule(L.LightningModule):
    """A detector in training."""

    def __init__(
        self, detector: Detector, recipe: DetectionRecipe, identity: str, progress: Progress, say: Say
    ) -> None:
        super().__init__()
        self.detector, self.recipe, self.identity, self.progress, self.say = detector, recipe, identity, progress, say

    def training_step(self, batch: list[Read], batch_idx: int) -> Tensor:
        """The sum of all losses of a batch; the draws of an iteration come from its number."""
        iteration = self.global_step
        self.detector.draws.begin(self.recipe.seed, iteration, rank() * len(batch))
        loss = torch.stack(list(losses_of(self.detector, batch).values())).sum()
        if iteration % LOOK_EVERY == 0 and not loss.isfinite():
            raise UserError(f"The loss is not finite at iteration {iteration}; lower lr, or warm up for longer.")
        self.progress("training", done := iteration + 1, self.recipe.iterations)
        if done % max(self.recipe.iterations // LINES, 1) == 0:
            rate = learning_rate(self.recipe, iteration)
            self.say(
                f"Iteration {done:,}/{self.recipe.iterations:,}: loss {loss.item():.3f}, learning rate {rate:.2g}."
            )
        return loss

    def configure_optimizers(self) -> Any:
        """SGD with momentum; weights of batch norms do not decay."""
        norms = {
            id(weight)
            for module in self.detector.modules()
            if isinstance(module, BatchNorm)
            for weight in module.parameters()
        }
        weights = [weight for weight in self.detector.parameters() if weight.requires_grad]
        groups = [
            {"params": [weight for weight in weights if id(weight) not in norms]},
            {"params": [weight for weight in weights if id(weight) in norms], "weight_decay": 0.0},
        ]
        recipe = self.recipe
        sgd = torch.optim.SGD(groups, recipe.lr, recipe.momentum, weight_decay=recipe.weight_decay)
        rates = torch.optim.lr_scheduler.LambdaLR(sgd, lambda i: learning_rate(recipe, i) / recipe.lr)
        return {"optimizer": sgd, "lr_scheduler": {"scheduler": rates, "interval": "step"}}

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Keep what is trained."""
        checkpoint["identity"] = self.identity


def losses_of(detector: Detector, batch: Sequence[Read]) -> dict[str, Tensor]:
    """What the detector makes of a batch in train mode."""
    there = raise_errors(batch)
    return detector([sample.pixels for sample in there], [sample.target for sample in there])


def train_detector(
    detector: Detector,
    images: TrainingImages,
    recipe: DetectionRecipe,
    where: TrainerConfig = TrainerConfig(),  # noqa: B008 (frozen)
    progress: Progress = lambda what, done, total: None,
    say: Say = lambda sentence: None,
) -> TrainingSummary:
    """Train a detector in place, in bfloat16 on CUDA, and refresh its batch norms.

    With a folder, it continues a training that was interrupted there. Of several processes, only the first has a
    detector to test in the end.
    """
    check_processes(where, recipe.batch_size)
    processes = processes_for(where)
    checkpoint = _checkpoint(where, say)
    done = 0 if checkpoint is None else load(checkpoint)["global_step"]
    if done:
        say(f"Continuing after {done:,} iterations.")
    with quiet(), _session(where, resumed=checkpoint is not None) as sessions:
        trainer = _trainer(where, say, sessions)
        device = trainer.strategy.root_device
        cuda = [device] if device.type == "cuda" else []
        if cuda:
            detector.to(memory_format=torch.channels_last)  # type: ignore[call-overload] (an overload of Module.to)
        part = (trainer.global_rank, trainer.world_size)
        waiting = partial(interruptible, trainer)
        batches = Batches(images, recipe.iterations, where.workers, done, part, processes.devices, waiting)
        module = DetectorModule(detector.train(), recipe, where.identity, progress, say)
        with torch.random.fork_rng(cuda), _user_errors(recipe, where, trainer):
            trainer.fit(module, batches, ckpt_path=checkpoint, weights_only=True)
            if is_first():
                again = Batches(images, recipe.norm_batches, where.workers)
                refresh_norms(detector.to(device), again, device, recipe.seed)
        return TrainingSummary(done, sessions.seconds(), sessions.number(), sessions.killed())


@torch.no_grad()
def refresh_norms(detector: Detector, batches: Iterable[list[Read]], device: torch.device, seed: int = 0) -> None:
    """Make the running statistics of batch norms plain means over batches, with the weights as they are now."""
    norms = [module for module in detector.modules() if isinstance(module, BatchNorm)]
    momenta = [norm.momentum for norm in norms]
    set_synchronised(detector, False)  # whole batches, by one process
    detector.train()
    for n, batch in enumerate(batches, 1):
        detector.draws.begin(seed, n - 1)
        for norm in norms:
            norm.momentum = 1 / n  # the n-th of a running mean
        with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
            losses_of(detector, [_to_device(sample, device) for sample in raise_errors(batch)])
    for norm, momentum in zip(norms, momenta, strict=True):
        norm.momentum = momentum
    set_synchronised(detector, True)
    detector.eval()


@contextmanager
def claim_folder(folder: Path | None) -> Iterator[None]:
    """Hold the folder of a training; of several processes the first one does."""
    with locked(folder) if folder is not None and is_first() else nullcontext():
        yield


def _checkpoint(where: TrainerConfig, say: Say) -> Path | None:
    """The checkpoint to go on from, if there is one."""
    if where.folder is None:
        return None
    checkpoint = newest_whole(where.folder, say)
    if checkpoint is not None and load(checkpoint).get("identity") != where.identity:
        raise UserError(f"{where.folder} has a training of another encoder, data or settings: choose another --out.")
    if is_first():
        clear(where.folder, checkpoint)
    return checkpoint


@contextmanager
def _session(where: TrainerConfig, *, resumed: bool) -> Iterator[Sessions]:
    """Count the time from now on, and keep the account where the training is kept."""
    sessions = Sessions(Run(where.folder or Path()), resumed=resumed)
    try:
        yield sessions
    finally:
        if where.folder is not None and is_first():
            sessions.save(ended=True)


def _trainer(where: TrainerConfig, say: Say, sessions: Sessions) -> L.Trainer:
    processes = processes_for(where)
    kept = where.folder is not None
    folder = where.folder or Path()
    stop = StopSignals(CURE, speaks=is_first())
    keeper = Checkpoints(folder, where.checkpoint_every, where.checkpoint_minutes, stop, sessions)
    try:
        trainer = L.Trainer(
            accelerator=where.device,
            devices=processes.devices,
            num_nodes=processes.nodes,
            strategy=DDP(CURE) if processes.total > 1 else "auto",
            precision="bf16-mixed" if _on_cuda(where) else "32-true",
            use_distributed_sampler=False,
            max_epochs=1,
            callbacks=[keeper] if kept else [],
            plugins=[Writer(folder, where.checkpoint_keep, say, sessions)] if kept else [],
            logger=False,
            enable_checkpointing=kept,
            enable_progress_bar=False,
            enable_model_summary=False,
        )
    except (MisconfigurationException, RuntimeError) as error:
        raise UserError(f"{processes.devices} devices cannot be used here: {first_line(error)}") from error
    take_over_signals(trainer)
    return trainer


def _on_cuda(where: TrainerConfig) -> bool:
    return where.device == "cuda" or (where.device == "auto" and torch.cuda.is_available())


@contextmanager
def _user_errors(recipe: DetectionRecipe, where: TrainerConfig, trainer: L.Trainer) -> Iterator[None]:
    """Turn out-of-memory and divergence into a UserError."""
    try:
        with explain_end(trainer, CURE if where.folder else "start again"):
            yield
    except torch.OutOfMemoryError as error:
        raise UserError(f"Out of memory: lower batch_size={recipe.batch_size} or short_sides.") from error
    except Diverged as error:
        raise UserError(
            f"A weight is not finite at iteration {error.step}; lower lr, or warm up for longer."
        ) from error


def _to_device(sample: Sample, device: torch.device) -> Sample:
    target = {name: value.to(device, non_blocking=True) for name, value in sample.target.items()}
    return Sample(sample.pixels.to(device, non_blocking=True), target)
