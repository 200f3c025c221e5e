"""How does a module learn from images? They are placed, Lightning fits, and what can be mended is told."""

import traceback
from functools import partial
from pathlib import Path
from typing import Any

import lightning as L
import torch
from rich.console import Console

from ..data import BadImages, Batches, ImageSet, place
from ..data.workers import Feed
from ..errors import UserError
from ..hardware import hardware
from ..recipes import Recipe
from ..text import counted
from .checkpoints import awaited, load
from .endings import ends_in_a_sentence
from .faults import free_memory, too_large
from .module import Pretraining
from .optimisers import rate_at
from .processes import processes_for
from .quiet import quiet

SLOW = 10  # steps to fill a queue: fewer, and nobody sees the loss rise
FEWER_WORKERS = "fewer --loading.workers, or --loading.placement disk if memory is short"


def learn(
    trainer: L.Trainer,
    module: Pretraining,
    data: ImageSet,
    bad: BadImages,
    console: Console,
    checkpoint: Path | None = None,
    cure: str = "start again",
    fewer_workers: str = FEWER_WORKERS,
) -> None:
    """Train a module on data; what can be mended is told in a sentence."""
    recipe, device = module.recipe, trainer.strategy.root_device
    before = {"global_step": 0} if checkpoint is None else load(checkpoint)
    done = before["global_step"]
    if checkpoint is not None:
        console.print(f"Going on after {_epochs(done, module.steps_per_epoch)}.{_new_rate(module, before)}")
    _say_how_the_queue_fills(module, done, console)
    memory_ran_out = False
    with quiet():
        try:
            with ends_in_a_sentence(trainer, cure, fewer_workers):
                _fit(trainer, module, data, bad, console, checkpoint, done % module.steps_per_epoch)
        except torch.OutOfMemoryError as error:
            if trainer.world_size > 1:  # the others would not try smaller batches with it
                raise UserError(
                    f"{hardware(device)} has too little memory for {recipe.batch_size // trainer.world_size} images "
                    f"of the batch of {recipe.batch_size}; lower batch_size, or use more devices."
                ) from error
            traceback.clear_frames(error.__traceback__)  # they hold the step that did not fit
            memory_ran_out = True
    if memory_ran_out:
        module.learn = module.algorithm_1  # a recorded step would hold its memory
        free_memory()
        raise too_large(recipe.batch_size, device, module.try_batch)


def _fit(
    trainer: L.Trainer,
    module: Pretraining,
    data: ImageSet,
    bad: BadImages,
    console: Console,
    checkpoint: Path | None,
    steps_before: int,
) -> None:
    """Train from so many steps into an epoch on."""
    recipe, part = module.recipe, (trainer.global_rank, trainer.world_size)
    feed = place_images(data, trainer.strategy.root_device, recipe, bad, console)
    try:
        batches = Batches(
            feed,
            len(data.train),
            recipe.batch_size,
            recipe.seed,
            steps_before,
            part=part,
            waiting=partial(awaited, trainer),
        )
        trainer.fit(module, batches, ckpt_path=checkpoint, weights_only=True)
    finally:
        feed.close()


def place_images(data: ImageSet, device: torch.device, recipe: Recipe, bad: BadImages, console: Console) -> Feed:
    """Bring the images to where they will wait, and say where that is."""
    with console.status("Reading images") as status:

        def say_progress(done: int) -> None:
            status.update(f"Decoding images: {done:,} of {len(data.train):,}")

        sharers = processes_for(recipe).devices
        feed, where = place(data.train.images, device, recipe.loading, bad, say_progress, sharers)
    console.print(f"Data: {where}.")
    if data.channels != 3:
        console.print(f"{data.channels} channels are no colours: saturation, hue and greyscale are left out.")
    return feed


def _say_how_the_queue_fills(module: Pretraining, done: int, console: Console) -> None:
    if queue := module.recipe.framework_traits.queue:
        full = -(-queue // (module.recipe.batch_size * len(module.strategy.roles.targets)))
        if done < full >= SLOW:
            console.print(f"The loss rises until the queue of {queue:,} keys is full, at step {full}.")


def _new_rate(module: Pretraining, checkpoint: dict[str, Any]) -> str:
    """What the learning rate does in a run that was made longer: to go on with it is a warm restart."""
    before, done, per_epoch = Recipe.from_json(checkpoint["recipe"]), checkpoint["global_step"], module.steps_per_epoch
    if rate_at(before, done, per_epoch) == rate_at(module.recipe, done, per_epoch):
        return ""
    scale = checkpoint["lr_scale"]
    was = scale * rate_at(before, done - 1, per_epoch)
    now = min(module.lr_scale, scale) * rate_at(module.recipe, done, per_epoch)
    if now <= was:
        return ""
    return f" The learning rate goes from {was:.2g} back to {now:.2g}, where it stands on the longer cosine."


def _epochs(steps: int, per_epoch: int) -> str:
    epochs, more = divmod(steps, per_epoch)
    return counted(epochs, "epoch") + (f" and {counted(more, 'step')}" if more else "")
