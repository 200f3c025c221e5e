"""The story of a run, from top to bottom: load the data, build the networks, check, fit, save."""

import json
import os
import re
import shlex
import shutil
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import lightning as L
import torch
from rich.console import Console

from ..data import BadImages, Batches, ImageSet, Photos, data_identity, load_data, locate, place
from ..errors import UserError
from ..files import write, write_together
from ..models.backbones import plain_weights, weight_bytes
from ..recipes import (
    AUTO,
    Recipe,
    as_python,
    check,
    differences,
    find_recipe,
    read_recipe,
    refuse_harmful,
)
from ..run import Run, standard_error
from ..system.hardware import hardware, provenance, threads_kept
from ..system.launch import is_first, is_restarted
from ..system.signals import Stopped, heeded
from ..system.terminal import counted, lasting, plain_console
from ..weights import load, named_heads, newest_whole
from .build import adapt_to_data, build, recipe_for, with_network_of
from .checkpoint import clear, interruptible
from .loggers import JsonlLogger, ProgressDisplay, Sessions
from .module import Pretraining
from .monitors import OnlineKNN, images_for_knn, knn_summary
from .trainer import build_trainer, check_processes, explain_end, processes_for, quiet

Say = Callable[[str], None]
FEW = 5_000  # images, of which ready-made weights know more
DURATION = re.compile(r"(\d+(?:\.\d+)?)([smh])")
SECONDS = {"s": 1, "m": 60, "h": 3600}


class Saved(NamedTuple):
    """A checkpoint to continue from."""

    file: Path
    step: int
    steps_per_epoch: int
    recipe: Recipe
    data: dict[str, Any]


def pretrain(
    recipe: Recipe | str | os.PathLike[str] = AUTO,
    out: str | os.PathLike[str] | None = None,
    *,
    finish_in: str | None = None,
    console: Console | None = None,
    verbose: bool = False,
    callbacks: Sequence[L.Callback] = (),
    **changes: Any,
) -> Run:
    """Pretrain an encoder by a recipe, its name, a run or a file, and leave everything in `out` (default: runs/RECIPE).

    Fields of the recipe can be changed by name, inner ones with two underscores: `epochs=5, strategy__lam=0.1`. So are
    its parts: `framework="simsiam", framework__layers=2`. `auto` chooses for the images at `data` and this machine;
    with `verbose` it says why, and training says more. With `finish_in="10m"` it has no more epochs than three timed
    steps promise in that time. `callbacks` are Lightning's, for diagnostics of one's own.
    """
    console = console or plain_console()
    changes = {name: as_python(value) for name, value in changes.items()}
    if recipe == AUTO:
        recipe = recipe_for(changes.get("data"), changes.get("device", "auto"), changes)
    else:
        recipe = recipe if isinstance(recipe, Recipe) else find_recipe(os.fspath(recipe))
        recipe = with_network_of(recipe, changes)
    recipe = recipe.changed(**changes)
    out = Path("runs") / recipe.name if out is None else Path(out)
    check(recipe)
    run = Run(out)
    if is_restarted() and run.recipe_file.is_file():
        return resume(out, console=console, verbose=verbose, callbacks=callbacks)
    with say_how_to_resume(run), run.hold(), threads_kept():
        if finish_in is not None:
            recipe = replace(recipe, epochs=epochs_within(finish_in, recipe, None))
        if is_first():
            Run.new(out)
        run_training(run, recipe, console, None, resumed=False, verbose=verbose, callbacks=callbacks)
    return run


def resume(
    path: str | Path,
    recipe: Recipe | None = None,
    *,
    finish_in: str | None = None,
    console: Console | None = None,
    verbose: bool = False,
    callbacks: Sequence[L.Callback] = (),
    **changes: object,
) -> Run:
    """Continue an interrupted run from its last checkpoint, or a finished one for more epochs.

    Fields that do not decide what is learned may change: `epochs=400, loading__workers=4`. Fewer epochs than planned,
    or a time such as `finish_in="10m"`, make the learning rate decay to its end from here.
    """
    console = console or plain_console()
    run, detail = Run.existing(path), console.print if verbose else _ignore
    recipe = (read_recipe(run) if recipe is None else recipe).changed(**changes)
    check(recipe)
    with say_how_to_resume(run), run.hold(), threads_kept():
        saved = newest_saved(run, console.print)
        before = read_recipe(run) if saved is None else saved.recipe
        if finish_in is not None:
            recipe = replace(recipe, epochs=epochs_within(finish_in, recipe, saved))
        recipe = replanned(recipe, before, saved)
        changed = differences(before, recipe)
        refuse_harmful({name: change for name, change in changed.items() if name != "replans"})
        if run.is_finished and recipe.epochs == before.epochs:
            console.print(f"{path} is finished, with {counted(before.epochs, 'epoch')}.")
            return run
        if run.is_finished and saved is None:
            raise UserError(f"{path} is finished and has no checkpoints, so it cannot be extended.")
        if recipe.replans != before.replans:
            console.print(
                f"Cut short: the learning rate decays to its end by epoch {recipe.epochs}, not {before.epochs}. A run "
                f"planned with {counted(recipe.epochs, 'epoch')} would be another one."
            )
        for field, (old, new) in changed.items():
            detail(f"{field}: {old} -> {new}")
        run_training(run, recipe, console, saved, resumed=True, verbose=verbose, callbacks=callbacks)
    return run


def replanned(recipe: Recipe, before: Recipe, saved: Saved | None) -> Recipe:
    """The recipe with a note of the step from which it has fewer epochs than before, if it has."""
    if saved is None or recipe.epochs >= before.epochs:
        return replace(recipe, replans=before.replans)
    if recipe.epochs < (least := saved.step // saved.steps_per_epoch + 1):
        raise UserError(f"epochs={recipe.epochs}: must be {least} or more, since {least - 1} are done.")
    return replace(recipe, replans=(*before.replans, (saved.step, before.epochs)))


def epochs_within(time_left: str, recipe: Recipe, saved: Saved | None) -> int:
    """In which epoch a run ends that goes on for so long, as three steps tell; in the present one at least."""
    from .bench import time_steps  # which trains as this module does

    if (given := DURATION.fullmatch(time_left)) is None:
        raise UserError(f"finish_in={time_left}: must be a time such as 90s, 10m or 1.5h.")
    recipe = replace(recipe, data=locate(recipe.data))
    pace = time_steps(recipe, load_data(recipe.data, recipe.crops.global_size))
    done = 0 if saved is None else saved.step
    last = done + float(given[1]) * SECONDS[given[2]] / pace.seconds_per_step
    return min(recipe.epochs, max(done // pace.steps_per_epoch + 1, int(last / pace.steps_per_epoch)))


def run_training(
    run: Run,
    recipe: Recipe,
    console: Console,
    saved: Saved | None,
    *,
    resumed: bool,
    verbose: bool,
    callbacks: Sequence[L.Callback] = (),
) -> None:
    """Load, build, check, fit and save."""
    say, detail = console.print, console.print if verbose else _ignore
    recipe = replace(recipe, data=locate(recipe.data))
    data = load_data(recipe.data, recipe.crops.global_size)
    images = data_identity(data)
    identity = {"images": images["train_images"], "fingerprint": images["fingerprint"]["train"]}
    if saved is not None and saved.data != identity:
        raise UserError(
            f"data={recipe.data}: holds other images than this run was trained on ({saved.data['images']:,} then, "
            f"{identity['images']:,} now); restore them, or start again in another --out."
        )
    recipe = adapt_to_data(recipe, data, say, processes_for(recipe).total)
    check_processes(recipe, recipe.batch_size)
    sessions, journal = Sessions(run, resumed=resumed, epochs=recipe.epochs), JsonlLogger(run)
    module = build(recipe, data, say, fresh=saved is None)
    module.data_identity = identity
    progress = ProgressDisplay(journal, console)
    others = [*callbacks, BestEncoder(run)] if recipe.init or recipe.framework_traits.teacher else callbacks
    trainer = build_trainer(run, recipe, data, journal, progress, sessions, detail, others=others)
    device = trainer.strategy.root_device
    if is_first():
        prepare_folder(run, recipe, images, saved)
        sessions.save()
        journal.forget_after(saved.step if saved else -1)
    announce(module, data, device, console, detail)
    if saved is None:
        say_few(recipe, data, say)
    bad = BadImages(len(data.train), recipe.loading.max_bad, run.bad_images_file, data.root, say)
    try:
        if saved is not None:
            say(f"Continuing after step {saved.step:,} of {module.steps:,}.")
        fit(trainer, module, data, bad, console, saved, run.how_to_resume(), detail)
        if is_first():
            save_encoder(run, module)
            bad.look_again()
            record = run_record(module, device, sessions) | {"resumed": resumed, "bad_images": len(bad)}
            write(run.provenance_file, json.dumps(record, indent=2) + "\n")
            print_result(run, bad, sessions.seconds(), console)
    finally:
        if is_first():
            sessions.save(ended=True)


def fit(
    trainer: L.Trainer,
    module: Pretraining,
    data: ImageSet,
    bad: BadImages,
    console: Console,
    saved: Saved | None = None,
    cure: str = "start again",
    detail: Say = lambda sentence: None,
) -> None:
    """Train a module on data, from a checkpoint or from the start."""
    recipe, device = module.recipe, trainer.strategy.root_device
    file, step = (saved.file, saved.step) if saved else (None, 0)
    with quiet(), explain_end(trainer, cure):
        with console.status("Reading images") as status:

            def say_progress(n: int) -> None:
                status.update(f"Decoding images: {n:,} of {len(data.train):,}")

            sharers = processes_for(recipe).devices
            feed, where = place(data.train.images, device, recipe.loading, bad, say_progress, sharers)
        detail(f"Data: {where}.")
        try:
            batches = Batches(
                feed,
                len(data.train),
                recipe.batch_size,
                recipe.seed,
                step % module.steps_per_epoch,
                part=(trainer.global_rank, trainer.world_size),
                waiting=partial(interruptible, trainer),
            )
            trainer.fit(module, batches, ckpt_path=file, weights_only=True)
        except torch.OutOfMemoryError as error:
            raise UserError(
                f"{hardware(device)} has too little memory for batch_size={recipe.batch_size}; lower batch_size or "
                "crops.global_size."
            ) from error
        finally:
            feed.close()


def newest_saved(run: Run, say: Say) -> Saved | None:
    """The newest whole checkpoint of a run, if there is one."""
    if (file := newest_whole(run.checkpoints, say)) is None:
        return None
    state = load(file)
    data = state["data"]
    if isinstance(data, str):  # of before 19 November 2026: "N images, FINGERPRINT"
        images, _, fingerprint = data.partition(" images, ")
        data = {"images": int(images), "fingerprint": fingerprint}
    return Saved(file, state["global_step"], state["steps_per_epoch"], Recipe.from_json(state["recipe"]), data)


def prepare_folder(run: Run, recipe: Recipe, images: dict[str, Any], saved: Saved | None) -> None:
    """Write what a run begins with, and remove what is newer than the checkpoint that it continues from."""
    clear(run.checkpoints, saved and saved.file)
    if saved is None:  # what ended here before its first checkpoint counts no more
        run.bad_images_file.unlink(missing_ok=True)
        shutil.rmtree(run.path / "tensorboard", ignore_errors=True)
    run.provenance_file.unlink(missing_ok=True)  # a finished run that goes on is unfinished
    write(run.recipe_file, recipe.to_json())
    write(run.images_file, json.dumps(images, indent=2) + "\n")


class BestEncoder(L.Callback):
    """Keeps the backbone with the highest online kNN, for runs that may spoil what they began with."""

    def __init__(self, run: Run) -> None:
        self.run, self.best = run, 0.0

    def state_dict(self) -> dict[str, float]:
        """The highest, for the checkpoint."""
        return {"best": self.best}

    def load_state_dict(self, state_dict: dict[str, float]) -> None:
        """Go on with it."""
        self.best = state_dict["best"]

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Note what training begins with, which counts as well."""
        if trainer.global_step == 0:
            self.best = self._latest(trainer)

    def on_train_epoch_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Write the backbone if it is better."""
        assert isinstance(pl_module, Pretraining)
        if (latest := self._latest(trainer)) > self.best:
            self.best, backbone = latest, pl_module.framework.final_encoder.backbone
            if is_first():
                write(self.run.best_file, weight_bytes(plain_weights(backbone.state_dict()), metadata_of(pl_module)))

    def _latest(self, trainer: L.Trainer) -> float:
        return next(each.latest for each in trainer.callbacks if isinstance(each, OnlineKNN))  # type: ignore[attr-defined]


def save_encoder(run: Run, module: Pretraining) -> None:
    """Write the backbone, which everybody loads, and the heads, which only LoGo needs: both or neither."""
    heads = named_heads(module.state_dict(), module.kept)
    # The backbone comes last: if power is cut between the two, the newest checkpoint is newer than it, and is taken.
    files = {run.heads_file: heads, run.backbone_file: module.framework.final_encoder.backbone.state_dict()}
    metadata = metadata_of(module)
    write_together({file: weight_bytes(plain_weights(weights), metadata) for file, weights in files.items()})


def metadata_of(module: Pretraining) -> dict[str, str]:
    """What a file says of the weights in it."""
    recipe = module.recipe
    return {
        "format": "pt",
        "backbone": recipe.backbone,
        "stem": recipe.stem,
        "pooling": recipe.pooling,
        "size": str(recipe.crops.global_size),
        "mean": json.dumps(module.mean),
        "std": json.dumps(module.std),
        "recipe": recipe.to_json(),
        "step": str(module.global_step),
    }


def announce(
    module: Pretraining, data: ImageSet, device: torch.device, console: Console, detail: Say = lambda sentence: None
) -> None:
    """Three lines before the progress bar: data and device; method; what is used as labels."""
    recipe, crops, total = module.recipe, module.recipe.crops, processes_for(module.recipe).total
    where = "the CPU" if device.type == "cpu" else hardware(device)  # threads are chosen later
    where = where if total == 1 else f"{total} processes, each with {where}"
    console.print(f"Data: {counted(len(data.train), 'image')} of {data.name}, on {where}.")
    views = f"{crops.n_global} x {crops.global_size} px"
    views += f" + {crops.n_local} x {crops.local_size} px" if crops.n_local else ""
    console.print(
        f"Method: {recipe.kind('framework')} with {recipe.kind('strategy')}, {recipe.backbone}, crops {views}, batch "
        f"{module.batch_size}, {counted(recipe.epochs, 'epoch')} of {counted(module.steps_per_epoch, 'step')}."
    )
    console.print(f"Labels: {_labels(data, recipe)}.")
    for sentence in data.says:
        console.print(sentence)
    for sentence in recipe.chosen:
        detail(sentence)
    if data.channels != 3:
        detail(f"{data.channels} channels are not colours: saturation, hue and greyscale are left out.")


def say_few(recipe: Recipe, data: ImageSet, say: Say) -> None:
    """One line if there are so few photographs, whatever the crops, that ready-made weights may serve better."""
    n = len(data.train)
    if n < FEW and recipe.init is None and isinstance(data.train.images, Photos):
        measure = "embed {} --out ready.npz" if data.train.labels is None else "eval knn {}"
        line = measure.format(f"torchvision/resnet18 --data {shlex.quote(recipe.data)}")
        say(
            f"{counted(n, 'image')} are few. Start from ready-made weights (--init torchvision/resnet18), or compare: "
            f"`logo-ssl {line}`."
        )


def _labels(data: ImageSet, recipe: Recipe) -> str:
    """What is used as labels, and for what."""
    found = images_for_knn(data, recipe.crops.global_size)
    if found is None:
        return "none, so there is no kNN"
    teach = " teach;" if recipe.framework_traits.labelled else ","
    if not recipe.knn_every:
        return f"{len(data.classes)} classes{teach} no kNN (knn_every=0)"
    bank, queries, _ = found
    which = "of them" if data.watched is None else data.watched[0]
    return f"{len(data.classes)} classes{teach} for kNN of {len(queries):,} {which} among {len(bank):,}"


def run_record(module: Pretraining, device: torch.device, sessions: Sessions) -> dict[str, Any]:
    """What was trained, by what, for how long, and what it cost."""
    recipe = module.recipe
    peak_gb = round(torch.cuda.max_memory_allocated(device) / 1e9, 2) if device.type == "cuda" else None
    return provenance(hardware(device)) | {
        "recipe": recipe.name,
        "seed": recipe.seed,
        "processes": processes_for(recipe).total,
        "epochs": recipe.epochs,
        "epochs_first_planned": sessions.all[0]["epochs"],  # with more, the rate would have fallen more slowly
        "crops": f"{recipe.crops.n_global} global + {recipe.crops.n_local} local",
        **sessions.record(),
        "checkpoints": sum(session["checkpoints"] for session in sessions.all),
        "peak_gpu_memory_gb": peak_gb,
    }


def print_result(run: Run, bad: BadImages, seconds: float, console: Console) -> None:
    """What went wrong, the result, and where the encoder is."""
    if len(bad):
        were = "was replaced by another" if len(bad) == 1 else "were replaced by others"
        console.print(f"{counted(len(bad), 'image')} could not be read and {were}: see {bad.file}.")
    lines = list(run.metrics())
    spread = next((line for line in reversed(lines) if "z_std" in line), None)
    result = knn_summary(lines) or f"no kNN; `logo-ssl compare {run.path} untrained` tells whether it learned."
    if spread and not any("knn" in line for line in lines):
        result = f"spread {spread['z_std']:.2f} (0: collapsed, 1: even); {result}"
    console.print(f"Result: {result}")
    console.print(f"Encoder: {run.backbone_file}, trained in {lasting(seconds)}.")
    measured = [line for line in lines if "knn" in line]
    best = max(measured, key=lambda line: line["knn"], default=None)
    clear = best and 2 * standard_error(best["knn"], best["knn_images"])  # the best of many epochs may be luck
    if best and clear and run.best_file.is_file() and best["knn"] > measured[-1]["knn"] + clear:
        console.print(f"Best: {run.best_file}, kNN {best['knn']:.1f} % after epoch {best['epochs_done']}.")


@contextmanager
def say_how_to_resume(run: Run) -> Iterator[None]:
    """End with what to do next after a signal before the first step or after the last."""
    try:
        with heeded():
            yield
    except (KeyboardInterrupt, Stopped) as error:
        stop = error if isinstance(error, Stopped) else Stopped(signal.SIGINT)
        raise stop.interrupted(run.how_to_resume() if run.recipe_file.is_file() else "start it again") from None


def _ignore(sentence: str) -> None:
    pass
