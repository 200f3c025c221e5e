"""How is a run carried out? Checked, trained, taken back where numbers break, and left whole in its folder."""

import json
import shutil
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from ..data import BadImages, ImageSet
from ..data.loader import check_loading
from ..errors import UserError
from ..files import write
from ..hardware import about_busy_cores, hardware
from ..launch import is_first
from ..provenance import provenance
from ..ranks import meet
from ..recipes import Recipe
from ..run import Run
from ..terminal import wants_advice
from ..text import counted
from .building import about_splits
from .checkpoints import Writer, clear, load, newest_whole, with_room
from .faults import TRIES, Diverged, diagnosis
from .folder import alone, cure, vacant
from .last_words import last_words
from .learning import learn
from .making import Making
from .memory import about_memory
from .misfit import refuse_misfit
from .monitors import rows_for_knn
from .processes import about_few_cores, processes_for, refuse_uneven
from .sessions import Sessions
from .weights import save_encoder


def carry_out(
    run: Run, recipe: Recipe, data: ImageSet, console: Console, checkpoint: Path | None, *, begins: bool = False
) -> None:
    """Train. Whatever can fail for its settings fails before the first file is written."""
    refuse_uneven(recipe.batch_size, processes_for(recipe))
    making = Making(run, recipe, data, console, Sessions(run, resumed=not begins, epochs=recipe.epochs))
    making.build(fresh=checkpoint is None)
    for sentence in about_memory(making.module, making.device):
        console.print(sentence)
    refuse_misfit(making.module, data.channels, making.device)
    if checkpoint is not None:
        _refuse_other_data(checkpoint, making)
    check_loading(data.train.images, making.device, recipe.loading)
    if not begins:
        _train(making, checkpoint)
        return
    with alone(run):
        if is_first():
            vacant(run.path)  # another process may have begun there meanwhile
        _train(making, checkpoint)


def _refuse_other_data(checkpoint: Path, making: Making) -> None:
    """A run that goes on with other images would be neither run."""
    before, now = load(checkpoint)["data"], making.module.data_identity
    if before == now:
        return
    raise UserError(
        f"{making.recipe.data} does not hold the images that this run was trained on ({before} then, {now} now); "
        "restore them, or start again in another --out."
    )


def _train(making: Making, checkpoint: Path | None) -> None:
    """Train in a folder of one's own, and leave there what was learned; of several processes, the first one does."""
    run, recipe, resumed = making.run, making.recipe, checkpoint is not None
    if is_first():
        clear(run.checkpoints, checkpoint)
        if checkpoint is None:  # what ended here before its first checkpoint counts no more
            run.bad_images_file.unlink(missing_ok=True)
            shutil.rmtree(run.path / "tensorboard", ignore_errors=True)
        run.provenance_file.unlink(missing_ok=True)  # a finished run that goes on is unfinished
        write(run.recipe_file, recipe.to_json())
        write(run.images_file, json.dumps(making.images, indent=2) + "\n")
        making.sessions.save()
    splits = about_splits(making.module, processes_for(recipe))
    cores = (*about_busy_cores(making.device), *about_few_cores(making.device, processes_for(recipe)))
    told = [sentence for sentence in (_announcement(making), splits) if sentence]
    for sentence in (*making.data.says, *told, *cores):
        making.console.print(sentence)
    where, say = (run.bad_images_file, making.data.root), making.console.print
    bad = BadImages(len(making.data.train), recipe.loading.max_bad, *where, say)
    try:
        _learn_or_go_back(making, bad, checkpoint)
        if is_first():
            _leave(making, bad, resumed)
    finally:
        if is_first():
            making.sessions.save(ended=True)


def _announcement(making: Making) -> str:
    """What will be trained on what, and where."""
    recipe, data, processes = making.recipe, making.data, processes_for(making.recipe)
    several = f"{processes.total} processes, each with " if processes.total > 1 else ""
    return (
        f"{recipe.name}: {counted(len(data.train), 'image')} of {data.name} {_about_knn(recipe, data)}, "
        f"{counted(recipe.epochs, 'epoch')} of {counted(making.module.steps_per_epoch, 'step')} on "
        f"{several}{hardware(making.device)}"
    )


def _about_knn(recipe: Recipe, data: ImageSet) -> str:
    """How many images the online kNN classifies, among how many."""
    found = rows_for_knn(data, recipe.crops.global_size)
    if found is None or not recipe.knn_every:
        return "without online kNN (no labels)" if found is None else "without online kNN"
    bank, queries = (
        f"{len(used):,}" if len(used) == whole else f"{len(used):,} of {whole:,}"
        for used, whole in zip(*found, strict=True)
    )
    which = "of them" if data.watched is None else data.watched[0]  # of them: trained on, too, without labels
    return f"with online kNN of {queries} {which} among {bank}"


def _learn_or_go_back(making: Making, bad: BadImages, checkpoint: Path | None) -> None:
    """Train to the end; when numbers break, go back to the last checkpoint with half the learning rate."""
    run, recipe, console, how = making.run, making.recipe, making.console, cure(making.run)
    returns, furthest = 0, 0
    while True:
        if is_first():
            making.journal.forget_after(-1 if checkpoint is None else load(checkpoint)["global_step"])
        try:
            learn(making.trainer, making.module, making.data, bad, console, checkpoint, how)
            return
        except Diverged as error:
            diverged = error.without_traceback()
        returns = returns + 1 if diverged.step <= furthest + making.module.steps_per_epoch else 1
        furthest = max(furthest, diverged.step)
        if returns > TRIES:
            raise diagnosis(diverged, recipe)
        scale = making.module.lr_scale
        making.clear()
        _meet(how)  # the first process may have been writing a checkpoint
        checkpoint = newest_whole(run.checkpoints, console.print)
        console.print(
            f"Training diverged at step {diverged.step} ({', '.join(diverged.broken)} not finite): back to "
            f"{'the beginning' if checkpoint is None else checkpoint.name}, with half the learning rate."
        )
        making.build(fresh=checkpoint is None)
        making.module.lr_scale = scale / 2


def _meet(how: str) -> None:
    try:
        meet()
    except RuntimeError as error:
        raise UserError(f"Another process of this run has ended; {how}.") from error


def _leave(making: Making, bad: BadImages, resumed: bool) -> None:
    """Write what was learned and how, and say what went wrong on the way."""
    run, module = making.run, making.module
    with_room(run.checkpoints, lambda: save_encoder(run, module))
    bad.look_again()
    if len(bad):
        were = "was replaced by another" if len(bad) == 1 else "were replaced by others"
        making.console.print(f"{counted(len(bad), 'image')} could not be read and {were}: see {bad.file}.")
    writer = making.trainer.strategy.checkpoint_io
    assert isinstance(writer, Writer)
    if making.recipe.framework_traits.queue and module.steps == 1:
        making.console.print(
            "A queue holds images of earlier steps to compare with, and this run had one step: it compared nothing, "
            "and its encoder is as good as untrained. Use more epochs or a smaller --batch-size."
        )
    for sentence in last_words(run, module, making.data, making.journal.latest, wants_advice(making.console)):
        making.console.print(sentence)
    if sentence := writer.summary(module.steps):
        making.console.print(sentence)
    write(run.provenance_file, json.dumps(_record(making, bad, writer, resumed), indent=2) + "\n")


def _record(making: Making, bad: BadImages, writer: Writer, resumed: bool) -> dict[str, Any]:
    """What was trained, by what, for how long, and what it cost."""
    recipe, sessions, device = making.recipe, making.sessions, making.device
    saved = {"mb": writer.newest_mb and round(writer.newest_mb, 2), "newest_step": writer.newest_step()}
    peak_gb = round(torch.cuda.max_memory_allocated(device) / 1e9, 2) if device.type == "cuda" else None
    return provenance(hardware(device)) | {
        "recipe": recipe.name,
        "seed": recipe.seed,
        "processes": processes_for(recipe).total,
        "epochs": recipe.epochs,
        "epochs_first_planned": sessions.first_planned(),
        "crops": f"{recipe.crops.n_global} global + {recipe.crops.n_local} local",
        "seconds": sessions.seconds(),
        "sessions": sessions.number(),
        "sessions_killed": sessions.killed(),
        "resumed": resumed,
        "lr_scale": making.module.lr_scale,
        "bad_images": len(bad),
        "checkpoints": sessions.about_checkpoints() | saved,
        "peak_gpu_memory_gb": peak_gb,
    }
