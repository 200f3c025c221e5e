"""The run folder: the only interface between training, evaluation and report."""

import contextlib
import json
import math
import os
import platform
import re
import shlex
import sys
from collections.abc import Container, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeGuard

from filelock import FileLock, Timeout

from .errors import UserError
from .files import read_json
from .system.launch import is_first

CHECKPOINT = re.compile(r"step-(\d+)-([0-9a-f]{16})\.ckpt")
"""Its step, and a digest of its bytes."""
LOCK = ".lock"
"""In a folder that is held."""
FOLDERS = ("checkpoints", "tensorboard", "wandb", "mlflow")
"""That a run makes when it begins."""


class Run:
    """A run folder, and the names of what is in it."""

    def __init__(self, path: str | Path) -> None:
        self.path = path = Path(path)
        self.recipe_file = path / "recipe.json"
        """The resolved recipe."""
        self.metrics_file = path / "metrics.jsonl"
        """One JSON object per line: what was logged while training."""
        self.checkpoints = path / "checkpoints"
        """The folder with everything that is needed to go on training."""
        self.backbone_file = path / "backbone.safetensors"
        """The pretrained network: what everybody loads."""
        self.best_file = path / "best.safetensors"
        """The backbone with the highest online kNN, of a run with `init` or a teacher."""
        self.heads_file = path / "heads.safetensors"
        """Projector, predictor, regressor, and what else framework and strategy name as their heads."""
        self.sessions_file = path / "sessions.json"
        """How often and how long the run was trained: one entry for each time."""
        self.images_file = path / "images.json"
        """What it learns from: how many images there are, and a fingerprint of each split."""
        self.bad_images_file = path / "bad-images.csv"
        """The images that could not be read, if there were any."""
        self.provenance_file = path / "provenance.json"
        """Who made the run and how long it took: the last file to be written, so a run that has it is finished."""

    def __repr__(self) -> str:
        return f"Run({str(self.path)!r})"

    def saved(self) -> list[Path]:
        """The checkpoints, whole or torn, newest first."""
        return found_checkpoints(self.checkpoints)

    def newest_step(self) -> int:
        """The step of the newest checkpoint by its name; 0 without one."""
        steps = [int(match[1]) for file in self.saved() if (match := CHECKPOINT.fullmatch(file.name))]
        return max(steps, default=0)

    @property
    def is_finished(self) -> bool:
        """Whether every epoch is done."""
        return self.provenance_file.is_file()

    def how_to_resume(self, *options: str) -> str:
        """What to do after an interruption."""
        return f"go on with `{' '.join(['logo-ssl resume', shlex.quote(str(self.path)), *options])}`"

    @contextmanager
    def hold(self) -> Iterator[None]:
        """Hold the folder, of several processes of a run the first one; leave no lock behind without a run."""
        if not is_first():
            yield
            return
        try:
            with locked(self.path):
                yield
        finally:
            if not self.recipe_file.is_file():  # it was refused
                (self.path / LOCK).unlink(missing_ok=True)
                with contextlib.suppress(OSError):
                    self.path.rmdir()

    def metrics(self) -> Iterator[dict[str, Any]]:
        """The lines of `metrics.jsonl`; a line torn by a crash is left out."""
        if not self.metrics_file.exists():
            return
        for line in self.metrics_file.read_text(errors="replace").splitlines():
            try:
                values = json.loads(line)
            except (ValueError, RecursionError):  # the second of lists in lists in lists
                continue
            if isinstance(values, dict) and isinstance(values.get("step"), int):
                yield values

    def images(self) -> dict[str, Any]:
        """What it learned from, as noted when it began."""
        return read_json(self.images_file)

    def provenance(self) -> dict[str, Any]:
        """Who made the run and how long it took; nothing before its end."""
        return read_json(self.provenance_file)

    def evaluation_file(self, name: str) -> Path:
        """An evaluation: `evaluation/NAME.json`."""
        return self.path / "evaluation" / f"{name}.json"

    @classmethod
    def existing(cls, path: str | Path) -> "Run":
        """The run at `path`, which must hold one."""
        if path == "":
            raise UserError("RUN is empty: give a folder.")
        run = cls(path)
        if run.recipe_file.is_file():
            return run
        below = next(run.path.glob("*/recipe.json"), None)
        hint = "" if below is None else f"; did you mean {below.parent}?"
        if (run.path / "model.safetensors").is_file():
            hint = ", but a model: `logo-ssl predict`, `embed`, `eval` and `export` take it"
        raise UserError(f"{path} is not a run: it has no {run.recipe_file.name}{hint}")

    @classmethod
    def new(cls, path: str | Path) -> "Run":
        """The run to be at `path`, where nothing may be but what a run leaves that never saved itself."""
        run = cls(path)
        if run.is_finished:
            raise UserError(f"{path} holds a finished run; choose another --out.")
        if run.saved():
            raise UserError(f"{path} holds an unfinished run; {run.how_to_resume()} or choose another --out.")
        early = {run.recipe_file, run.images_file, run.metrics_file, run.sessions_file, run.bad_images_file}
        early |= {run.path / name for name in FOLDERS if run.recipe_file.is_file()}
        others = {*run.path.iterdir()} - early if run.path.is_dir() else {run.path} if run.path.exists() else set()
        if any(not other.name.startswith(".") for other in others):  # the lock, drafts
            raise UserError(f"{path} exists and is not empty; choose another --out.")
        return run


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold a folder to train in, however this process ends; UserError if another process holds it."""
    folder.mkdir(parents=True, exist_ok=True)
    lock, owner = FileLock(folder / LOCK, timeout=0, fallback_to_soft=False), folder / LOCK
    try:
        lock.acquire()
    except Timeout:
        by = owner.read_text().strip() or "unknown"
        raise UserError(
            f"{folder} is being trained by another process ({by}); wait, or choose another --out."
        ) from None
    except OSError:  # a disk without locks (some network disks): better unlocked than not at all
        yield
        return
    try:
        owner.write_text(f"process {os.getpid()} on {platform.node()}")
        yield
    finally:
        lock.release()


def runs_below(folder: Path) -> Iterator[Run]:
    """The runs below a folder, by name; none inside a run, a hidden folder or a link."""
    for path, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        if "recipe.json" in files:
            folders.clear()
            yield Run(path)


def is_number(value: Any) -> TypeGuard[float]:
    """Whether a value is a float, nan included, or can become one."""
    if isinstance(value, int) and not isinstance(value, bool):
        return abs(value) <= sys.float_info.max
    return isinstance(value, float)


def other_losses(known: Container[str], lines: Iterable[Mapping[str, Any]]) -> list[str]:
    """The losses in a log that are not among those known: a strategy's own terms, which begin with `l_`, too."""
    return list(dict.fromkeys(name for line in lines for name in line if name.startswith("l_") and name not in known))


def found_checkpoints(folder: Path) -> list[Path]:
    """The checkpoints in a folder, whole or torn, newest first."""
    if not folder.is_dir():
        return []
    named: list[tuple[int, int, Path]] = []
    for file in folder.iterdir():
        with contextlib.suppress(FileNotFoundError):  # another process may have removed it just now
            if match := CHECKPOINT.fullmatch(file.name):
                named.append((int(match[1]), file.stat().st_mtime_ns, file))
    # of two at one step (a run that went back and diverged again) the later one
    return [file for *_, file in sorted(named, reverse=True)]


def standard_error(value: float, n_images: int) -> float:
    """Of a percentage; all or none of a few is taken for half an image less or more, since it is no certainty."""
    share = min(max(value / 100, 0.5 / n_images), 1 - 0.5 / n_images)
    return 100 * math.sqrt(share * (1 - share) / n_images)
