"""How is an encoder pretrained? From a recipe to a finished run folder."""

import json
import os
import traceback
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import lightning as L
import torch
from rich.console import Console

from ..data import BadImages, Batches, ImageSet, load_data, locate, place
from ..data.feed import Feed
from ..data.placement import refuse_unfit
from ..errors import Interrupted, UserError
from ..hardware import hardware
from ..launch import is_first, is_restarted
from ..ranks import meet
from ..recipes import AUTO, Recipe, check, differences, find_recipe, read_recipe, refuse_harmful, summary
from ..run import Run, provenance, write
from ..signals import Stopped, heeded
from ..terminal import counted, plain_console
from .automatic import recipe_for
from .building import fitted, refuse_misfit
from .checkpoints import Writer, clear, load, newest_whole
from .faults import TRIES, Diverged, dead_worker, diagnosis, free_memory, too_large
from .lock import FILE as LOCK
from .lock import locked
from .making import Making
from .module import Pretraining
from .processes import (
    lost_another,
    processes_for,
    refuse_another_number,
    refuse_uneven,
    whose_end,
)
from .quiet import quiet
from .sittings import Sittings
from .weights import save_encoder


def pretrain(
    recipe: Recipe | str = AUTO,
    out: str | os.PathLike[str] | None = None,
    *,
    console: Console | None = None,
    **changes: Any,
) -> Run:
    """Pretrain an encoder by a recipe or its name and leave everything in the folder `out` (default: runs/RECIPE).

    Fields of the recipe can be changed by name, inner ones with two underscores: `epochs=5, strategy__lam=0.1`. The
    recipe `auto` chooses for the images at `data` and this machine, and says what and why.
    """
    changes = {name: os.fspath(value) if isinstance(value, Path) else value for name, value in changes.items()}
    if recipe == AUTO or (isinstance(recipe, Recipe) and recipe.name == AUTO and not recipe.chosen):
        recipe = recipe_for(changes.get("data"), changes.get("device", "auto"), changes)
    recipe = (find_recipe(recipe) if isinstance(recipe, str) else recipe).changed(**changes)
    out = Path("runs") / recipe.name if out is None else Path(out)
    check(recipe)
    refuse_another_number(recipe)
    if is_restarted() and Run(out).recipe_file.is_file():
        return resume(out, console=console)
    run = _vacant(out) if is_first() else Run(out)
    console = console or plain_console()
    if recipe.chosen:
        console.print(" ".join(recipe.chosen))
        console.print(f"Settings: {summary(recipe)}")
    with _told_how_to_go_on(run):
        recipe = replace(recipe, data=locate(recipe.data))
        data = load_data(recipe.data, recipe.crops.global_size)
        _fit(run, fitted(recipe, data, console, processes_for(recipe)), data, console, None, begins=True)
    return run


def resume(path: str | Path, recipe: Recipe | None = None, *, console: Console | None = None, **changes: object) -> Run:
    """Go on with an interrupted run from its last checkpoint, or with a finished one for more epochs.

    Fields that do not decide what is learned may change: `epochs=400, loading__workers=4`.
    """
    run = Run.existing(path)
    console = console or plain_console()
    saved = read_recipe(run)
    recipe = (saved if recipe is None else recipe).changed(**changes)
    check(recipe)
    refuse_another_number(recipe)
    with _alone(run), _told_how_to_go_on(run):
        checkpoint = newest_whole(run.checkpoints, console.print)
        before = saved if checkpoint is None else _recipe_of(checkpoint, saved)
        changed = differences(before, recipe)
        refuse_harmful(changed)
        if is_finished(run) and recipe.epochs == before.epochs:
            console.print(
                f"{path} is finished, with {counted(before.epochs, 'epoch')}. For more: --epochs {2 * before.epochs}."
            )
            return run
        if checkpoint is None and is_finished(run):
            raise UserError(
                f"{path} is finished and its checkpoints are gone, so it cannot be extended; start another with "
                f"`logo-ssl pretrain {recipe.name} --init {path}` and its own --out."
            )
        for field, (old, new) in changed.items():
            console.print(f"{field.replace('_', '-')}: {old} -> {new}", markup=False)
        if checkpoint is None:
            console.print(f"{path} was interrupted before its first checkpoint; it starts again.")
        recipe = replace(recipe, data=locate(recipe.data))
        _fit(run, recipe, load_data(recipe.data, recipe.crops.global_size), console, checkpoint)
    return run


def _alone(run: Run) -> AbstractContextManager[None]:
    """Hold the run's folder; of several processes the first one does."""
    return locked(run.path) if is_first() else nullcontext()


@contextmanager
def _told_how_to_go_on(run: Run) -> Iterator[None]:
    """End with a sentence when a signal comes before the first step or after the last one."""
    try:
        with heeded():
            yield
    except Stopped as stop:
        raise stop.interrupted(_cure(run) if run.recipe_file.is_file() else "start it again") from None


def _cure(run: Run) -> str:
    return f"go on with `logo-ssl resume {run.path}`"


def _recipe_of(checkpoint: Path, saved: Recipe) -> Recipe:
    """The recipe that a checkpoint was trained by; one of version 0.1.0 does not tell, so the folder's counts."""
    text = load(checkpoint).get("recipe")
    return saved if text is None else Recipe.from_json(text)


def is_finished(run: Run) -> bool:
    """Whether every epoch of a run is done: its provenance is the last file to be written."""
    return run.provenance_file.is_file()


def _fit(
    run: Run, recipe: Recipe, data: ImageSet, console: Console, checkpoint: Path | None, *, begins: bool = False
) -> None:
    """Train. Whatever can fail for its settings fails before the first file is written."""
    refuse_uneven(recipe.batch_size, processes_for(recipe))
    making = Making(run, recipe, data, console, Sittings(run, resumed=not begins))
    making.build(fresh=checkpoint is None)
    refuse_misfit(making.module, data.channels)
    if checkpoint is not None:
        _refuse_other_data(checkpoint, data, recipe)
    refuse_unfit(data.train.images, making.device, recipe.loading)
    if not begins:
        _train(making, checkpoint)
        return
    with _alone(run):
        if is_first():
            _vacant(run.path)  # another process may have begun there meanwhile
        _train(making, checkpoint)


def _train(making: Making, checkpoint: Path | None) -> None:
    """Train in a folder of one's own, and leave there what was learned; of several processes, the first one does."""
    run, recipe, resumed = making.run, making.recipe, checkpoint is not None
    if is_first():
        clear(run.checkpoints, checkpoint)
        run.provenance_file.unlink(missing_ok=True)  # a finished run that goes on is unfinished
        write(run.recipe_file, recipe.to_json())
        making.sittings.save()
    for sentence in (*making.data.says, _announcement(making)):
        making.console.print(sentence)
    bad = BadImages(len(making.data.train), recipe.loading.max_bad, run.bad_images_file)
    try:
        _learn_or_go_back(making, bad, checkpoint)
        if is_first():
            _leave(making, bad, resumed)
    finally:
        if is_first():
            making.sittings.save(ended=True)


def _announcement(making: Making) -> str:
    """What will be trained on what, and where."""
    recipe, data, processes = making.recipe, making.data, processes_for(making.recipe)
    splits = data.for_knn() if recipe.knn_every else None
    labelled = "without online kNN (no labels)" if data.for_knn() is None else "without online kNN"
    if splits is not None:
        labelled = f"with online kNN of {len(splits[1]):,} held-out images among {len(splits[0]):,}"
    several = f"{processes.total} processes, each with " if processes.total > 1 else ""
    return (
        f"{recipe.name}: {counted(len(data.train), 'image')} of {data.name} {labelled}, "
        f"{counted(recipe.epochs, 'epoch')} of {counted(making.module.steps_per_epoch, 'step')} on "
        f"{several}{hardware(making.device)}"
    )


def _learn_or_go_back(making: Making, bad: BadImages, checkpoint: Path | None) -> None:
    """Train to the end; when numbers break, go back to the last checkpoint with half the learning rate."""
    run, recipe, console, cure = making.run, making.recipe, making.console, _cure(making.run)
    returns, furthest = 0, 0
    while True:
        if is_first():
            making.journal.forget_after(-1 if checkpoint is None else load(checkpoint)["global_step"])
        try:
            learn(making.trainer, making.module, making.data, bad, console, checkpoint, cure)
            return
        except Diverged as error:
            diverged = error.without_traceback()
        returns = returns + 1 if diverged.step <= furthest + making.module.steps_per_epoch else 1
        furthest = max(furthest, diverged.step)
        if returns > TRIES:
            raise diagnosis(diverged, recipe)
        scale = making.module.lr_scale
        making.clear()
        _meet(cure)  # the first process may have been writing a checkpoint
        checkpoint = newest_whole(run.checkpoints, console.print)
        console.print(
            f"Training diverged at step {diverged.step} ({', '.join(diverged.broken)} not finite): back to "
            f"{'the beginning' if checkpoint is None else checkpoint.name}, with half the learning rate."
        )
        making.build(fresh=checkpoint is None)
        making.module.lr_scale = scale / 2


def _leave(making: Making, bad: BadImages, resumed: bool) -> None:
    """Write what was learned and how, and say what went wrong on the way."""
    run, recipe, module, sittings, device = making.run, making.recipe, making.module, making.sittings, making.device
    save_encoder(run, module)
    bad.look_again()
    if len(bad):
        were = "was replaced by another" if len(bad) == 1 else "were replaced by others"
        making.console.print(f"{counted(len(bad), 'image')} could not be read and {were}: see {bad.file}.")
    writer = making.trainer.strategy.checkpoint_io
    assert isinstance(writer, Writer)
    if sentence := writer.summary(module.steps):
        making.console.print(sentence)
    record = provenance(hardware(device)) | {
        "recipe": recipe.name,
        "seed": recipe.seed,
        "processes": processes_for(recipe).total,
        "epochs": recipe.epochs,
        "crops": f"{recipe.crops.n_global} global + {recipe.crops.n_local} local",
        "seconds": sittings.seconds(),
        "sittings": sittings.number(),
        "sittings_killed": sittings.killed(),
        "resumed": resumed,
        "lr_scale": module.lr_scale,
        "bad_images": len(bad),
        "checkpoints": sittings.about_checkpoints()
        | {"mb": writer.newest_mb and round(writer.newest_mb, 2), "newest_step": writer.newest_step()},
        "peak_gpu_memory_gb": round(torch.cuda.max_memory_allocated(device) / 1e9, 2)
        if device.type == "cuda"
        else None,
    }
    write(run.provenance_file, json.dumps(record, indent=2) + "\n")


def _meet(cure: str) -> None:
    try:
        meet()
    except RuntimeError as error:
        raise UserError(f"Another process of this run has ended; {cure}.") from error


def _refuse_other_data(checkpoint: Path, data: ImageSet, recipe: Recipe) -> None:
    """A run that goes on with other images would be neither run."""
    before = load(checkpoint).get("data")
    now = data.train.identity()
    if before is not None and before != now:
        counts = [text.split(" images")[0] for text in (before, now)]
        told = f"{counts[0]} images then, {counts[1]} now" if counts[0] != counts[1] else "other names or other pixels"
        raise UserError(
            f"{recipe.data} does not hold the images that this run was trained on ({told}); restore them, or start "
            "again in another --out."
        )


def learn(
    trainer: L.Trainer,
    module: Pretraining,
    data: ImageSet,
    bad: BadImages,
    console: Console,
    checkpoint: Path | None = None,
    cure: str = "start again",
) -> None:
    """Train a module on data; what can be mended is told in a sentence."""
    recipe, device = module.recipe, trainer.strategy.root_device
    module.data_identity = data.train.identity()
    done = 0 if checkpoint is None else load(checkpoint)["global_step"]
    if checkpoint is not None:
        console.print(f"Going on after {_epochs(done, module.steps_per_epoch)}.")
    if queue := getattr(recipe.framework, "queue", 0):
        full = -(-queue // (recipe.batch_size * recipe.crops.n_global))
        if done < full:
            console.print(f"MoCo's loss rises until its queue of {queue:,} keys is full, at step {full}.")
    feed: Feed | None = None
    memory_ran_out = False
    with quiet():
        try:
            feed = place_images(data, device, recipe, bad, console)
            part, before = (trainer.global_rank, trainer.world_size), done % module.steps_per_epoch
            batches = Batches(feed, len(data.train), recipe.batch_size, recipe.seed, before, part=part)
            trainer.fit(module, batches, ckpt_path=checkpoint, weights_only=True)
        except torch.OutOfMemoryError as error:
            if trainer.world_size > 1:  # the others would not try smaller batches with it
                raise UserError(
                    f"{hardware(device)} has too little memory for {recipe.batch_size // trainer.world_size} images "
                    f"of the batch of {recipe.batch_size}; lower batch-size, or use more devices."
                ) from error
            traceback.clear_frames(error.__traceback__)  # they hold the step that did not fit
            memory_ran_out = True
        except (KeyboardInterrupt, SystemExit):  # the second is how Lightning ends after Ctrl-C
            raise Interrupted(f"Interrupted; {cure}.") from None
        except RuntimeError as error:
            if trainer.world_size > 1 and lost_another(error):
                raise UserError(f"{whose_end(trainer.strategy)}; {cure}.") from error
            raise (dead_worker(error) or error) from error
        finally:
            if feed is not None:
                feed.close()
    if memory_ran_out:
        module.learn = module.algorithm_1  # a recorded step would hold its memory
        free_memory()
        raise too_large(recipe.batch_size, device, module.try_batch)


def _epochs(steps: int, per_epoch: int) -> str:
    epochs, more = divmod(steps, per_epoch)
    return counted(epochs, "epoch") + (f" and {counted(more, 'step')}" if more else "")


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


def _vacant(out: Path) -> Run:
    """The run folder to be, which must not hold anything yet."""
    run = Run(out)
    if run.recipe_file.is_file() and (run.saved() or any(True for _ in run.metrics())):
        if is_finished(run):
            raise UserError(f"{out} holds a finished run; choose another --out.")
        raise UserError(f"{out} holds an unfinished run; go on with `logo-ssl resume {out}` or choose another --out.")
    begun = (run.recipe_file, run.metrics_file, run.bad_images_file, run.sittings_file, run.path / LOCK)
    if out.exists() and (not out.is_dir() or any(not _is_left_of(child.name, begun) for child in out.iterdir())):
        if run.recipe_file.is_file():
            raise UserError(f"{out} holds a run that has only begun; go on with `logo-ssl resume {out}`.")
        raise UserError(f"{out} exists and holds no run; choose a new or empty folder for --out.")
    return run


def _is_left_of(name: str, files: tuple[Path, ...]) -> bool:
    """Whether a run that was refused or killed at once left it: one of these files, or what was to become one."""
    return any(name == file.name or name.startswith(f".{file.name}.") for file in files)
