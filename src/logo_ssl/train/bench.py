"""The speed of training: whole epochs, and data, crops and networks alone."""

import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from itertools import chain, repeat
from pathlib import Path
from statistics import mean
from typing import Any

import lightning as L
import torch
from rich.console import Console

from ..data import BadImages, Batches, ImageSet, load_data, locate
from ..errors import Interrupted
from ..recipes import Recipe, check
from ..run import Run
from ..system.hardware import hardware, provenance
from ..system.randomness import stream
from ..system.signals import Stopped
from ..system.terminal import plain_console
from ..types import Crops
from .build import adapt_to_data, build
from .compile import WARM_UP, Replay
from .loggers import JsonlLogger, ProgressDisplay
from .module import Pretraining
from .pretrain import fit
from .trainer import build_trainer

EPOCHS = 4  # the first one warms up and the last one ends with a checkpoint; those between count
MOST_STEPS = 200  # of an epoch: a million photographs need not be seen
SECONDS = 2.0  # to spend on each part alone


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
        journal = JsonlLogger(run)
        trainer = build_trainer(run, brief, data, journal, ProgressDisplay(journal, console))
        trainer.limit_train_batches = min(MOST_STEPS, module.steps_per_epoch)
        device = trainer.strategy.root_device
        timer = Timer()
        trainer.callbacks.append(timer)  # type: ignore[attr-defined] (a list)
        _train(trainer, module, data, console)
    n = trainer.limit_train_batches * module.batch_size
    epoch_s = mean(timer.epochs[1:-1])
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
        "epoch_s": [round(seconds, 3) for seconds in timer.epochs],
        "steps_per_epoch": trainer.limit_train_batches,
        "peak_memory_gb": timer.peak_gb,
    }
    return result | provenance(hardware(device))


def _train(trainer: L.Trainer, module: Pretraining, data: ImageSet, console: Console) -> None:
    """Train as any run."""
    try:
        fit(trainer, module, data, BadImages(len(data.train), module.recipe.loading.max_bad), console)
    except Interrupted as stop:  # it names a checkpoint in the temporary folder
        raise Stopped(stop.code - 128).interrupted("nothing is kept, and the same command starts again") from None


class Timer(L.Callback):
    """Times epochs from start to start and, when they are over, the parts alone."""

    def __init__(self) -> None:
        self.starts: list[float] = []
        self.parts: dict[str, float] = {}
        self.peak_gb: float | None = None

    @property
    def epochs(self) -> list[float]:
        """Seconds of each."""
        return [after - before for before, after in zip(self.starts, self.starts[1:], strict=False)]

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
