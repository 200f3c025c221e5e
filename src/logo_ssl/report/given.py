"""Which runs are meant? Those that are named, and those in a folder of runs: the finished ones, or all that began."""

import math
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ..run import Run, runs_below
from ..text import counted, listed

MOST_NAMED = 3
MOST_RUNS = 50  # on a page
SEARCH_S = 10
"""How long the runs that were found are kept: a search opens thousands of folders, beside runs that go on."""


def runs_at(paths: Sequence[Path]) -> tuple[list[Run], list[str]]:
    """The runs at some paths, each once, and what to say of those that were not named themselves."""
    files = [path for path in paths if path.is_file()]
    folders = [path for path in paths if path not in files] or paths
    named = {os.path.realpath(path) for path in paths}
    runs, said = list[Run](), list[str]()
    for path in folders:
        below = [] if Run(path).recipe_file.is_file() else list(runs_below(path))
        finished = [run for run in below if run.provenance_file.is_file()]
        runs += finished or [Run.existing(path)]
        if finished:
            names = ", ".join(str(run.path.relative_to(path)) for run in finished)
            left = sum(run not in finished and os.path.realpath(run.path) not in named for run in below)
            other = f"; {left} unfinished, left out unless named" if left else ""
            said.append(f"{path} has {counted(len(finished), 'finished run')}: {names}{other}.")
    if files:
        more = f" and {len(files) - MOST_NAMED:,} more" if len(files) > MOST_NAMED else ""
        said.append(f"Files are no runs, and are left out: {', '.join(map(str, files[:MOST_NAMED]))}{more}.")
    return _each_once(runs), said


def begun_at(path: Path) -> list[Run]:
    """The run at a path or, where there is none, all that are below it by now."""
    run = Run(path)
    return [run] if run.recipe_file.is_file() else list(runs_below(path))


@dataclass
class Begun:
    """The runs at some paths by now; they are searched for anew every few seconds, and when one of them is gone."""

    paths: Sequence[Path]
    say: Callable[[str], None] = lambda sentence: None
    said: bool = field(default=False, init=False)
    kept: Sequence[Run] = field(default=(), init=False)
    there: Sequence[Run] = field(default=(), init=False)
    """Those of them that could be read when they were found."""
    until: float = field(default=-math.inf, init=False)

    def runs(self) -> Sequence[Run]:
        """Each once; where they are gone again, one that cannot be read, to tell of it."""
        if time.monotonic() >= self.until or not all(map(_is_there, self.there)):
            found = _each_once([run for path in self.paths for run in begun_at(path) or [Run(path)]])
            self.kept = found if len(found) <= MOST_RUNS else self._newest(found)
            self.there = [run for run in self.kept if _is_there(run)]
            self.until = time.monotonic() + SEARCH_S
        return self.kept

    def _newest(self, found: Sequence[Run]) -> list[Run]:
        """As many as fit on a page, in their order: those that are named, then the last that began; said once."""
        if not self.said:
            most = f"a page shows {MOST_RUNS}: those that you name, and the newest"
            self.say(f"{so_many(len(found), self.paths)}; {most}.")
            self.said = True
        named = {os.path.realpath(path) for path in self.paths}
        chosen = sorted(found, key=lambda run: (os.path.realpath(run.path) in named, _began(run)))[-MOST_RUNS:]
        return [run for run in found if run in chosen]


def so_many(runs: int, paths: Sequence[Path]) -> str:
    """How many runs paths stand for, and which folders they were found in."""
    folders = [str(path) for path in paths if path.is_dir() and not _is_there(Run(path))]
    if runs <= len(paths) or not folders:
        return f"{counted(runs, 'run')} were given"
    more = [f"{len(folders) - MOST_NAMED:,} more"] if len(folders) > MOST_NAMED else []
    return f"With those below {listed(folders[:MOST_NAMED] + more)} there are {counted(runs, 'run')}"


def _is_there(run: Run) -> bool:
    return os.path.isfile(run.recipe_file)


def _began(run: Run) -> float:
    """When its recipe was written, which happens when it begins, unlike most of what is in its folder."""
    try:
        return os.path.getmtime(run.recipe_file)
    except OSError:  # removed just now
        return 0.0


def _each_once(runs: Sequence[Run]) -> list[Run]:
    """Where a link leads to a run that is there, too, the run itself."""
    found = dict[str, Run]()
    for run in runs:
        real = os.path.realpath(run.path)
        if real not in found or found[real].path.is_symlink():
            found[real] = run
    return list(found.values())
