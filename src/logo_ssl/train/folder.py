"""May a run be made here? Only in a vacant folder, held by one process at a time."""

import shlex
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

from ..errors import UserError
from ..launch import is_first
from ..lock import FILE as LOCK
from ..lock import locked
from ..run import Run
from .sessions import Sessions

FOLDERS = ("checkpoints", "tensorboard", "wandb", "mlflow")
"""Of a run that has begun, the first of them empty until it saves itself."""


def vacant(out: Path) -> Run:
    """The run folder to be, which must not hold anything yet but what a run leaves that never saved itself."""
    run = Run(out)
    if run.recipe_file.is_file() and was_saved(run):
        if is_finished(run):
            raise UserError(f"{out} holds a finished run; choose another --out.")
        raise UserError(f"{out} holds an unfinished run; go on with `logo-ssl resume {out}` or choose another --out.")
    told = (run.recipe_file, run.images_file, run.metrics_file, run.bad_images_file, run.sessions_file)
    begun = (*told, run.path / LOCK, *(run.path / name for name in FOLDERS if run.recipe_file.is_file()))
    if out.exists() and (not out.is_dir() or any(not is_left_of(child.name, begun) for child in out.iterdir())):
        if run.recipe_file.is_file():
            raise UserError(
                f"{out} holds a run that has only begun, and other files; {cure(run)} or choose another --out."
            )
        raise UserError(f"{out} exists and holds no run; choose a new or empty folder for --out.")
    return run


def about_an_end_before_the_first_checkpoint(run: Run) -> str | None:
    """What to say of a vacant folder that is not empty."""
    if not run.recipe_file.is_file():
        return None
    return f"{run.path} holds a run that ended before its first checkpoint; another one begins in its place."


def was_saved(run: Run) -> bool:
    """Whether there is, or was, something that a run could go on from."""
    if run.saved() or run.backbone_file.is_file() or is_finished(run):
        return True
    return any(session.checkpoints for session in Sessions(run, resumed=True).earlier)


def is_left_of(name: str, files: tuple[Path, ...]) -> bool:
    """Whether a run that was refused or killed left it: one of these files, or what was to become one."""
    return any(name == file.name or name.startswith(f".{file.name}.") for file in files)


def is_finished(run: Run) -> bool:
    """Whether every epoch of a run is done: its provenance is the last file to be written."""
    return run.provenance_file.is_file()


def alone(run: Run) -> AbstractContextManager[None]:
    """Hold the run's folder; of several processes the first one does."""
    return locked(run.path / LOCK, f"{run.path} is being trained") if is_first() else nullcontext()


def refuse_held(run: Run) -> None:
    """Say that a run is being trained, before anything else is said of its folder."""
    if (run.path / LOCK).is_file():
        with alone(run):
            pass


def cure(run: Run, *options: str) -> str:
    """What to do after an interruption."""
    return f"go on with `{' '.join(['logo-ssl resume', shlex.quote(str(run.path)), *options])}`"
