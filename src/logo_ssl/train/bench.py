"""The speed of training: a few steps of it, whole epochs, and data, crops and networks alone."""

import contextlib
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from itertools import chain, pairwise, repeat
from pathlib import Path
from statistics import mean
from typing import Any, NamedTuple

import lightning as L
import torch
from rich.console import Console

from ..data import BadImages, Batches, ImageSet, load_data, locate
from ..errors import Interrupted
from ..recipes import Recipe, check
from ..run import Run
from ..system.hardware import best_device, hardware, provenance, threads_kept
from ..system.randomness import stream
from ..system.signals import Stopped
from ..system.terminal import lasting, plain_console
from ..types import Crops
from .build import adapt_to_data, build
from .compile import WARM_UP, Replay
from .loggers import JsonlLogger, ProgressDisplay
from .module import Pretraining
from .pretrain import announce, fit, say_few
from .trainer import build_trainer, check_processes, processes_for

EPOCHS = 4  # the first one warms up and the last one ends with a checkpoint; those between count
MOST_STEPS = 200  # of an epoch: a million photographs need not be seen
SECONDS = 2.0  # to spend on each part alone
TIMED_STEPS = 3


def bench(recipe: Recipe) -> dict[str, Any]:
    """Images per second of each part and of whole epochs; `ratio` is the whole step over the raw one."""
    check(recipe)
    data = load_data(locate(recipe.data), recipe.crops.global_size)
    with tempfile.TemporaryDirectory() as folder:
        run, console = Run(Path(folder)), plain_console(stderr=True)
        brief = replace(recipe, knn_every=0, checkpoint_every=10**6, loggers=(), epochs=EPOCHS, devices=1)
        console.print(
            f"Training {EPOCHS} epochs of {MOST_STEPS} steps at most, whatever --epochs says: the first one warms up, "
            "and those between it and the last are measured."
        )
        brief = adapt_to_data(brief, data, console.print)
        module = build(brief, data, console.print)
        journal, timer = JsonlLogger(run), Timer()
        trainer = build_trainer(run, brief, data, journal, ProgressDisplay(journal, console), others=[timer])
        trainer.limit_train_batches = min(MOST_STEPS, module.steps_per_epoch)
        device = trainer.strategy.root_device
        try:
            fit(trainer, module, data, BadImages(len(data.train), recipe.loading.max_bad), console)
        except Interrupted as stop:  # it names a checkpoint in the temporary folder
            raise Stopped(stop.code - 128).interrupted("nothing is kept, and the same command starts again") from None
    n = trainer.limit_train_batches * module.batch_size
    epochs = [after - before for before, after in pairwise(timer.starts)]
    epoch_s = mean(epochs[1:-1])
    whole = n / epoch_s
    crops = recipe.crops
    result: dict[str, Any] = {
        "recipe": recipe.name,
        "data": data.name,
        "backbone": recipe.backbone,
        "batch_size": module.batch_size,
        "crops": f"{crops.n_global} x {crops.global_size} px + {crops.n_local} x {crops.local_size} px",
        "pairs": recipe.strategy_traits.pairs,
        "compiled": module.compiled,
        "images_per_s": {name: round(value) for name, value in (timer.parts | {"whole_step": whole}).items()},
        "ratio": round(whole / timer.parts["raw_forward_backward"], 3),
        "epoch_s": [round(seconds, 3) for seconds in epochs],
        "steps_per_epoch": trainer.limit_train_batches,
        "peak_memory_gb": timer.peak_gb,
    }
    return result | provenance(hardware(device))


class Pace(NamedTuple):
    """How fast training is, as a few steps of it tell."""

    seconds_per_step: float
    steps_per_epoch: int
    images_per_s: float
    minutes: float
    """Of the whole training, with its evaluations."""

    def __str__(self) -> str:
        long = lasting(60 * self.minutes) if self.minutes > 90 else f"{max(1, round(self.minutes))} min"
        return f"about {long}, at {self.images_per_s:,.0f} images/s"


class StepTimer(L.Callback):
    """Ends training by `EnoughSteps` once a few steps are timed."""

    def __init__(self) -> None:
        self.ends: list[float] = []

    def on_train_batch_end(
        self, trainer: L.Trainer, pl_module: L.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Take the time."""
        untimed = 1
        if pl_module.device.type == "cuda":
            torch.cuda.synchronize(pl_module.device)
            untimed += WARM_UP  # and recording
        self.ends.append(time.perf_counter())
        if len(self.ends) == untimed + TIMED_STEPS:
            raise EnoughSteps


class EnoughSteps(Exception):  # noqa: N818 (no error)
    """A few steps were timed."""


def time_steps(recipe: Recipe, data: ImageSet) -> Pace:
    """How fast this recipe trains here: the first steps of a real training, of which nothing is kept."""
    recipe = adapt_to_data(recipe, data, processes=processes_for(recipe).total)
    with threads_kept(), tempfile.TemporaryDirectory() as folder:
        run, silent, timer = Run(Path(folder)), Console(quiet=True), StepTimer()
        brief = replace(recipe, loggers=(), epochs=max(recipe.epochs, 2 * (TIMED_STEPS + WARM_UP)))
        module, journal = build(brief, data), JsonlLogger(run)
        trainer = build_trainer(run, brief, data, journal, ProgressDisplay(journal, silent), others=[timer])
        with contextlib.suppress(EnoughSteps):
            fit(trainer, module, data, BadImages(len(data.train), recipe.loading.max_bad), silent)
    each = (timer.ends[-1] - timer.ends[-1 - TIMED_STEPS]) / TIMED_STEPS
    seconds = recipe.epochs * module.steps_per_epoch * each
    seconds += recipe.evaluations_after(0) * journal.latest.get("knn_s", 0.0)
    return Pace(each, module.steps_per_epoch, recipe.batch_size / each, seconds / 60)


def dry_run(recipe: Recipe, console: Console) -> None:
    """Print what a training would be and how long it would take, and write nothing."""
    recipe = replace(recipe, data=locate(recipe.data))
    data = load_data(recipe.data, recipe.crops.global_size)
    recipe = adapt_to_data(recipe, data, console.print, processes_for(recipe).total)
    check_processes(recipe, recipe.batch_size)
    announce(build(recipe, data), data, best_device(recipe.device), console)
    say_few(recipe, data, console.print)
    console.print(f"Time: {time_steps(recipe, data)}. Nothing was written.")


class Timer(L.Callback):
    """Times epochs from start to start and, when they are over, the parts alone."""

    def __init__(self) -> None:
        self.starts: list[float] = []
        self.parts: dict[str, float] = {}
        self.peak_gb: float | None = None

    def on_train_epoch_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Take the time."""
        self._mark(pl_module.device)

    def on_train_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Take the last time, then time each part."""
        assert isinstance(pl_module, Pretraining)
        device, batches = pl_module.device, trainer.train_dataloader
        assert isinstance(batches, Batches)
        self._mark(device)
        if device.type == "cuda":
            self.peak_gb = round(torch.cuda.max_memory_allocated(device) / 1e9, 2)
        module, size = pl_module, pl_module.batch_size
        without_end = chain.from_iterable(repeat(batches))
        self.parts["data"] = size / _seconds(lambda: next(without_end), device)
        batch = next(iter(batches))
        self.parts["augmentation"] = size / _seconds(lambda: module.crop(batch, stream(0, "bench")), device)
        crops, raw = module.crop(batch, stream(0, "bench")), raw_step(module)
        self.parts["raw_forward_backward"] = size / _seconds(lambda: raw(crops), device)
        randomness = module.strategy.draw(size, stream(0, "bench"))
        self.parts["learning"] = size / _seconds(lambda: module.learn_from(crops, randomness), device)

    def _mark(self, device: torch.device) -> None:
        _wait(device)
        self.starts.append(time.perf_counter())


def raw_step(module: Pretraining) -> Callable[[Crops], Any]:
    """Forward and backward of every network that the framework runs on the crops, and nothing else."""

    def step(crops: Crops) -> None:
        module.framework.zero_grad()
        with torch.enable_grad():
            p = module.project(crops)
        (p.q_g.sum() + p.q_l.sum()).backward()

    recorded = isinstance(module.learn, Replay)
    return Replay(step, module.say) if recorded else step


def _seconds(part: Callable[[], Any], device: torch.device) -> float:
    """Mean time of a call, over about two seconds."""
    for _ in range(WARM_UP + 2):
        part()
    _wait(device)
    began, calls = time.perf_counter(), 0
    while time.perf_counter() - began < SECONDS:
        for _ in range(5):
            part()
        _wait(device)
        calls += 5
    return (time.perf_counter() - began) / calls


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
