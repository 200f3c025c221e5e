"""What does a run leave behind? A folder: the only interface between training, evaluation and report."""

import contextlib
import json
import os
import re
import sys
from collections import deque
from collections.abc import Container, Iterable, Iterator, Mapping
from difflib import get_close_matches
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple, TypeGuard

from .errors import UserError
from .files import read_json, write

CHECKPOINT = re.compile(r"step-(\d+)-([0-9a-f]{16})\.ckpt")
"""Its step, and a digest of its bytes."""

MOST_NAMED, MOST_LOOKED_AT, MOST_FOLDERS = 3, 1000, 5000
"""Runs in a sentence; entries of a folder that is searched for runs; folders in which they are looked for."""

OLD_SESSIONS = "sittings.json"
RENAMED = {"sittings": "sessions", "sittings_killed": "sessions_killed"}
"""How runs of November 2026 call their sessions: file, and entries of the provenance."""
IMAGES_TOLD = {"train_images", "test_images", "fingerprint"}
"""What is known of the images of a run."""

WORDS = {"knn_of"}
"""What is logged in words; all else that is logged are numbers."""


class Logged(NamedTuple):
    """What was logged while training."""

    lines: list[dict[str, Any]]
    unreadable: int
    """Lines that cannot be read, and are left out."""


class Run:
    """A run folder, and the names of what is in it."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)

    def __repr__(self) -> str:
        return f"Run({str(self.path)!r})"

    @property
    def recipe_file(self) -> Path:
        """The resolved recipe, as JSON."""
        return self.path / "recipe.json"

    @property
    def metrics_file(self) -> Path:
        """One JSON object per line: what was logged while training."""
        return self.path / "metrics.jsonl"

    @property
    def checkpoints(self) -> Path:
        """The folder with everything that is needed to go on training."""
        return self.path / "checkpoints"

    def saved(self) -> list[Path]:
        """The checkpoints, whole or torn, newest first."""
        return found_checkpoints(self.checkpoints)

    def newest_step(self) -> int:
        """The step of the newest checkpoint by its name; 0 without one."""
        steps = [int(match[1]) for file in self.saved() if (match := CHECKPOINT.fullmatch(file.name))]
        return max(steps, default=0)

    @property
    def backbone_file(self) -> Path:
        """The pretrained network: what everybody loads."""
        return self.path / "backbone.safetensors"

    @property
    def sessions_file(self) -> Path:
        """How often and how long the run was trained: one entry for each time."""
        return self.path / "sessions.json"

    @property
    def images_file(self) -> Path:
        """What it learns from: how many images there are, and a fingerprint of each split."""
        return self.path / "images.json"

    @property
    def bad_images_file(self) -> Path:
        """The images that could not be read, if there were any."""
        return self.path / "bad-images.csv"

    @property
    def heads_file(self) -> Path:
        """Projector, predictor, regressor, and what else framework and strategy name as their heads."""
        return self.path / "heads.safetensors"

    @property
    def provenance_file(self) -> Path:
        """Who made the run and how long it took: the last file to be written, so a run that has it is finished."""
        return self.path / "provenance.json"

    def own_files(self) -> tuple[Path, ...]:
        """What only training writes."""
        told = (self.recipe_file, self.images_file, self.metrics_file, self.sessions_file, self.bad_images_file)
        return (*told, self.path / OLD_SESSIONS, self.provenance_file, self.backbone_file, self.heads_file)

    def metrics(self) -> Iterator[dict[str, Any]]:
        """The lines of `metrics.jsonl`; a line torn by a crash is left out."""
        yield from (values for line in self._lines() if (values := _logged(line)) is not None)

    def logged(self) -> "Logged":
        """The same, and how many lines are left out; the last one of a run that goes on may be half written."""
        lines = [line for line in self._lines() if line.strip()]
        told = [_logged(line) for line in lines]
        if lines and told[-1] is None and not lines[-1].endswith("\n") and not self.provenance_file.is_file():
            told.pop()
        return Logged([values for values in told if values is not None], told.count(None))

    def _lines(self) -> list[str]:
        if not self.metrics_file.exists():
            return []
        return self.metrics_file.read_text(errors="replace").splitlines(keepends=True)

    def images(self) -> dict[str, Any]:
        """What it learned from, as noted when it began."""
        noted = read_json(self.images_file)
        return noted if noted.keys() >= IMAGES_TOLD and isinstance(noted["fingerprint"], dict) else {}

    def sessions(self) -> list[dict[str, Any]]:
        """One entry for each time that it was trained; LookupError or OSError if nothing tells."""
        file = self.sessions_file if self.sessions_file.is_file() else self.path / OLD_SESSIONS
        return json.loads(file.read_text())

    def provenance(self) -> dict[str, Any]:
        """Who made the run and how long it took; nothing before its end."""
        return {RENAMED.get(name, name): value for name, value in read_json(self.provenance_file).items()}

    def evaluation_file(self, name: str) -> Path:
        """An evaluation: `evaluation/NAME.json`."""
        return self.path / "evaluation" / f"{name}.json"

    def write_evaluation(self, name: str, result: dict[str, Any]) -> Path:
        """Save an evaluation."""
        return write(self.evaluation_file(name), json.dumps(result, indent=2) + "\n")

    def evaluation(self, name: str) -> dict[str, Any] | None:
        """A saved evaluation, if there is a whole one."""
        return read_json(self.evaluation_file(name)) or None

    @classmethod
    def existing(cls, path: str | Path) -> "Run":
        """The run at `path`, which must hold one."""
        if path == "":
            raise UserError("RUN is empty: give a folder.")
        run = cls(path)
        if run.recipe_file.is_file():
            return run
        lacks = f"{path} holds no run (no {run.recipe_file.name})"
        if below := [str(other.path) for other in runs_below(run.path)]:
            more = f" and {len(below) - MOST_NAMED:,} more" if len(below) > MOST_NAMED else ""
            named = ", ".join(below[:MOST_NAMED])
            raise UserError(f"{lacks}, but runs lie below it; name one: {named}{more}.")
        raise UserError(f"{lacks}; give the --out folder of a pretraining.{run_called_like(run.path)}")


def run_called_like(path: Path) -> str:
    """A hint at a run, or a folder of runs, beside a path where nothing lies, if its name is much like it."""
    if os.path.lexists(path):
        return ""
    for name in get_close_matches(path.name, [folder.name for folder in _folders(path.parent)]):
        folder = path.parent / name
        if os.path.isfile(Run(folder).recipe_file) or any(True for _ in runs_below(folder)):
            return f" Did you mean {folder}?"
    return ""


def runs_below(folder: Path) -> Iterator[Run]:
    """The runs in folders of a folder, in theirs, and so on, nearest first; each once, then those links alone lead to.

    Links wait, however near: what they lead to may lie deeper, and keeps its own name when they move.
    """
    left, links, seen = deque([folder]), deque[Path](), {os.path.realpath(folder)}
    while (left or links) and len(seen) <= MOST_FOLDERS:
        following = not left
        for path in [links.popleft()] if following else _folders(left.popleft()):
            if os.path.islink(path) and not following:
                links.append(path)
                continue
            if (real := os.path.realpath(path)) in seen:
                continue
            seen.add(real)
            run = Run(path)
            if os.path.isfile(run.recipe_file):  # a folder that may not be looked into holds none
                yield run
            else:
                left.append(path)


def _folders(folder: Path) -> list[Path]:
    """The folders in a folder that are not hidden, in order; of very many entries, as of photographs, some."""
    try:
        with os.scandir(folder) as entries:
            some = (entry for entry in islice(entries, MOST_LOOKED_AT) if not entry.name.startswith("."))
            return sorted(Path(entry.path) for entry in some if entry.is_dir())
    except OSError:
        return []


def _logged(line: str) -> dict[str, Any] | None:
    """A line of metrics, if it is one, without values that are none."""
    try:
        values = json.loads(line)
    except (ValueError, RecursionError):  # lists in lists in lists
        return None
    if not isinstance(values, dict):
        return None
    sound = {
        key: value for key, value in values.items() if (isinstance(value, str) if key in WORDS else is_number(value))
    }
    return sound if isinstance(sound.get("step"), int) else None


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
