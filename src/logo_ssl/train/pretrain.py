"""How is an encoder pretrained? From a recipe to a finished run folder."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console

from ..data import ImageSet, load_data, locate
from ..errors import UserError
from ..launch import is_first, is_restarted
from ..recipes import (
    AUTO,
    RECIPES,
    Recipe,
    as_python,
    check,
    differences,
    find_recipe,
    read_recipe,
    refuse_harmful,
    summary,
)
from ..run import Run
from ..signals import Stopped, heeded
from ..terminal import plain_console
from ..text import counted
from .automatic import recipe_for
from .building import fitted
from .checkpoints import load, newest_whole
from .folder import about_an_end_before_the_first_checkpoint, alone, cure, is_finished, refuse_held, vacant
from .processes import processes_for, refuse_another_number
from .running import carry_out


def pretrain(
    recipe: Recipe | str = AUTO,
    out: str | os.PathLike[str] | None = None,
    *,
    console: Console | None = None,
    **changes: Any,
) -> Run:
    """Pretrain an encoder by a recipe or its name and leave everything in the folder `out` (default: runs/RECIPE).

    Fields of the recipe can be changed by name, inner ones with two underscores: `epochs=5, strategy__lam=0.1`. So are
    its parts: `framework="simsiam", framework__layers=2`. `auto` chooses for the images at `data` and this machine, and
    says what and why.
    """
    if out == "":
        raise UserError("out is empty: give a folder.")
    changes = {name: as_python(value) for name, value in changes.items()}
    if isinstance(recipe, str) and recipe not in (AUTO, *RECIPES) and Path(recipe).exists():
        raise UserError(
            f"No recipe is called {recipe!r}; `logo-ssl recipes` lists them. If these are your images, say "
            f"data={recipe!r}."
        )
    if recipe == AUTO:
        recipe = recipe_for(changes.get("data"), changes.get("device", "auto"), changes)
    recipe = (find_recipe(recipe) if isinstance(recipe, str) else recipe).changed(**changes)
    return begin(recipe, Path("runs") / recipe.name if out is None else Path(out), console or plain_console())


def begin(recipe: Recipe, out: Path, console: Console, data: ImageSet | None = None) -> Run:
    """Pretrain by a recipe in a folder, on the images that it names; these may have been loaded before."""
    check(recipe)
    refuse_another_number(recipe)
    if is_restarted() and Run(out).recipe_file.is_file():
        return resume(out, console=console)
    refuse_held(Run(out))
    run = vacant(out) if is_first() else Run(out)
    if is_first() and (sentence := about_an_end_before_the_first_checkpoint(run)):
        console.print(sentence)
    if recipe.chosen:
        console.print(" ".join(recipe.chosen))
    with _told_how_to_go_on(run):
        recipe = replace(recipe, data=locate(recipe.data))
        data = data or load_data(recipe.data, recipe.crops.global_size)
        recipe = fitted(recipe, data, console, processes_for(recipe))
        if recipe.chosen:
            console.print(f"Settings: {summary(recipe)}")
        carry_out(run, recipe, data, console, None, begins=True)
    return run


def resume(path: str | Path, recipe: Recipe | None = None, *, console: Console | None = None, **changes: object) -> Run:
    """Go on with an interrupted run from its last checkpoint, or with a finished one for more epochs.

    Fields that do not decide what is learned may change: `epochs=400, loading__workers=4`.
    """
    recipe = (read_recipe(Run.existing(path)) if recipe is None else recipe).changed(**changes)
    return go_on(path, recipe, console or plain_console())


def go_on(path: str | Path, recipe: Recipe, console: Console, data: ImageSet | None = None) -> Run:
    """Go on with a run by a recipe, on the images that it names; these may have been loaded before."""
    run = Run.existing(path)
    saved = read_recipe(run)
    check(recipe)
    refuse_another_number(recipe)
    with alone(run), _told_how_to_go_on(run):
        checkpoint = newest_whole(run.checkpoints, console.print)
        before = saved if checkpoint is None else Recipe.from_json(load(checkpoint)["recipe"])
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
        data = data or load_data(recipe.data, recipe.crops.global_size)
        carry_out(run, recipe, data, console, checkpoint)
    return run


@contextmanager
def _told_how_to_go_on(run: Run) -> Iterator[None]:
    """End with a sentence: alone when a signal comes before the first step or after the last, or below a traceback."""
    try:
        with heeded():
            yield
    except (KeyboardInterrupt, Stopped) as stop:
        told = stop if isinstance(stop, Stopped) else Stopped(signal.SIGINT)
        raise told.interrupted(cure(run) if run.recipe_file.is_file() else "start it again") from None
    except UserError:
        raise
    except Exception as error:  # a mistake, ours or in somebody's own part: its traceback ends with this
        if run.saved():
            error.add_note(f"{run.path} is saved up to step {run.newest_step()}; once this is mended, {cure(run)}.")
        raise
