"""Run folders as the report reads them: which runs are meant, and what the files of each say."""

import csv
import math
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from ..errors import UserError
from ..files import read_json
from ..run import Logged, Run, is_number, runs_below
from .gallery import Comparison, Neighbourhood
from .maps import FeatureMap

MOST_RUNS = 50  # on a page
SEARCH_S = 10
"""How long the runs that were found are kept: a search opens thousands of folders while runs go on."""
FIGURES = {
    "affinity": "Learned affinity and cosine similarity: a reference crop against crops of other images (from the "
    "command affinity, which chooses other images than the section Affinity)",
    "affinity-map": "Where windows of each image are alike to the reference crop (from the command affinity)",
}

Stamps = tuple[tuple[str, int, int], ...]
"""Name, time and size of files: with others, they were written anew."""


class Found(NamedTuple):
    """The runs at some paths."""

    runs: list[Run]
    below: dict[Path, int]
    """How many of them each folder of runs has."""
    unfinished: list[Run]
    """Runs in such folders that are left out."""


def find_runs(paths: Sequence[Path]) -> Found:
    """The runs that are named, and the finished ones below folders that are named; files, as a pattern may give, not.

    Raises UserError for a path without runs.
    """
    found, below, unfinished = list[Run](), dict[Path, int](), list[Run]()
    for path in [path for path in paths if not path.is_file()] or paths:
        inside = [] if Run(path).recipe_file.is_file() else list(runs_below(path))
        finished = [run for run in inside if run.provenance_file.is_file()]
        if finished:
            below[path] = len(finished)
            unfinished += [run for run in inside if run not in finished]
        found += finished or [Run.existing(path)]
    found = _each_once(found)
    named = {os.path.realpath(run.path) for run in found}
    return Found(found, below, [run for run in unfinished if os.path.realpath(run.path) not in named])


def runs_at(path: Path) -> list[Run]:
    """The run at a path, or all below it by now, finished or not."""
    run = Run(path)
    return [run] if run.recipe_file.is_file() else list(runs_below(path))


@dataclass
class RunDiscovery:
    """The runs at some paths by now; it searches again every few seconds, and when one of them is gone."""

    paths: Sequence[Path]
    kept: Sequence[Run] = field(default=(), init=False)
    there: Sequence[Run] = field(default=(), init=False)
    """Those of them that could be read when they were found."""
    until: float = field(default=-math.inf, init=False)

    def runs(self) -> Sequence[Run]:
        """Each once: if there are too many for a page, those that are named, and the last that began."""
        if time.monotonic() >= self.until or not all(map(_is_there, self.there)):
            # a path without a run stays in the list, so that whoever reads it says what is wrong
            found = _each_once([run for path in self.paths for run in runs_at(path) or [Run(path)]])
            named = {os.path.realpath(path) for path in self.paths}
            newest = sorted(found, key=lambda run: (os.path.realpath(run.path) in named, _began(run)))[-MOST_RUNS:]
            self.kept = [run for run in found if run in newest]
            self.there = [run for run in self.kept if _is_there(run)]
            self.until = time.monotonic() + SEARCH_S
        return self.kept


def names_of(runs: Sequence[Run]) -> list[str]:
    """The folders' names, with as much of the path before them as tells the runs apart."""
    parts, depth = [run.path.absolute().parts for run in runs], 1
    while len({part[-depth:] for part in parts}) < len(set(parts)):
        depth += 1
    names = ["/".join(part[-depth:]) for part in parts]
    return [name if names.index(name) == i else f"{name} ({i + 1})" for i, name in enumerate(names)]


class Missing(NamedTuple):
    """What cannot be shown of a run, and why."""

    what: str
    why: str


@dataclass(frozen=True)
class RunSummary:
    """A run as the page shows it: what its files say, and what a `RunCollector` found out with its recipe and encoder.

    What is missing or torn is left out.
    """

    run: Run
    name: str
    """What to call it on the page, different for each run."""
    logged: Logged
    """What was logged while training."""
    settings: Mapping[str, Any]
    """Every setting by its full name, inner ones with a dot."""
    without_effect: frozenset[str] = frozenset()
    """Settings that change nothing of what is learned."""
    command: str | None = None
    """The command that trains it again."""
    departures: Sequence[str] = ()
    """In what its settings differ from those of the recipe with the paper's."""
    paper: Sequence[Mapping[str, Any]] = ()
    """The rows of the paper that its recipe stands for."""
    tuned: bool = False
    """Whether it has settings of our choice for these rows."""
    signs: Sequence[str] = ()
    """Signs of collapse at the end of the log."""
    most_directions: int | None = None
    """The largest rank that its latents can have."""
    fingerprint: str | None = None
    """Of its present weights, if it is known."""
    crops: bytes | None = None
    """A picture of the crops as the network sees them, as PNG."""
    comparisons: Sequence[Comparison] = ()
    """Reference crops and how alike others are to them."""
    neighbourhood: Neighbourhood | None = None
    """Some images and their nearest ones."""
    feature_map: FeatureMap | None = None
    """Images in feature space."""
    missing: Sequence[Missing] = ()
    """What cannot be shown, and why."""

    @cached_property
    def provenance(self) -> dict[str, Any]:
        """Who made it; empty while the run is not finished."""
        record = self.run.provenance()
        return {key: value for key, value in record.items() if value is None or isinstance(value, str | int | float)}

    @cached_property
    def versions(self) -> dict[str, Any]:
        """The libraries that it was made with."""
        found = self.run.provenance().get("versions")
        return found if isinstance(found, dict) else {}

    @property
    def metrics(self) -> list[dict[str, Any]]:
        """The lines that can be read."""
        return self.logged.lines

    @property
    def finished(self) -> bool:
        """Whether training came to its end."""
        return bool(self.provenance)

    @property
    def epochs(self) -> int:
        """How many it is to have."""
        return self.settings["epochs"]

    @cached_property
    def epochs_logged(self) -> int:
        """How many epochs its metrics cover to the end."""
        return max(map(epochs_ended, self.metrics), default=0)

    @property
    def logged_to_the_end(self) -> bool:
        """Whether the last values that were logged are those of the end of training."""
        return self.finished and self.epochs_logged >= self.epochs

    @cached_property
    def damages(self) -> list[str]:
        """What is wrong with its metrics, a sentence each."""
        name, found = self.run.metrics_file.name, []
        if lost := self.logged.unreadable:
            found.append(f"{name}: {lost} unreadable line{'s' * (lost > 1)}, left out.")
        if self.finished and not self.logged_to_the_end:
            there = f"ends after epoch {self.epochs_logged} of {self.epochs}" if self.metrics else "is missing or empty"
            found.append(f"{name} {there}, though the run is finished.")
        return found

    @cached_property
    def evaluations(self) -> dict[str, dict[str, Any]]:
        """Each result by the name of its file."""
        files = sorted(self.run.evaluation_file("x").parent.glob("*.json"))
        return {file.stem: {"evaluation": file.stem} | record for file in files if (record := read_json(file))}

    @cached_property
    def images(self) -> str | None:
        """The fingerprint of what it learned from, if it is known."""
        found = self.run.images().get("fingerprint", {}).get("train")
        return found if isinstance(found, str) else None

    def is_present(self, record: dict[str, Any]) -> bool:
        """Whether an evaluation is of the run's present weights: by their fingerprint, or else by its epochs."""
        if self.fingerprint and record.get("fingerprint"):
            return record["fingerprint"] == self.fingerprint
        overtaken = self.finished and record.get("unfinished")
        return not overtaken and record.get("epochs") in (None, self.epochs)

    def older(self) -> dict[str, str]:
        """The evaluations of other weights than the present ones by the name of their file, and of which weights."""
        return {
            name: str(record.get("unfinished") or f"epoch {record.get('epochs', 'unknown')}")
            for name, record in self.evaluations.items()
            if not self.is_present(record)
        }

    def figures(self) -> Iterator[tuple[str, bytes]]:
        """The pictures in the run's folder, with what they show."""
        if self.crops is not None:
            yield "Crops as the network sees them, and their boxes on the originals", self.crops
        for stem, words in FIGURES.items():
            file = self.run.path / "figures" / f"{stem}.png"
            if file.is_file():
                yield words, file.read_bytes()
        folder, older = self.run.evaluation_file("x").parent.resolve(), self.older()
        for name, record in self.evaluations.items():
            for place in record.get("pictures") or ():
                file = (folder / str(place)).resolve()
                if file.is_relative_to(folder) and file.is_file():  # nothing else of this machine
                    words = f"{name}, {file.stem} images: objects on the left, what was found on the right"
                    yield words + (f" (of older weights: {older[name]})" if name in older else ""), file.read_bytes()

    @cached_property
    def bad_images(self) -> list[tuple[str, str]]:
        """The images that could not be read, and why."""
        try:
            with self.run.bad_images_file.open(newline="", encoding="utf-8", errors="replace") as file:
                rows = [row for row in csv.reader(file) if row]
        except OSError:
            return []
        return [(row[0], ", ".join(row[1:])) for row in rows if row != ["image", "reason"]]

    @cached_property
    def knn_lines(self) -> list[dict[str, Any]]:
        """The lines with a kNN, which was measured while training."""
        return [line for line in self.metrics if is_number(line.get("knn"))]


def epochs_ended(line: Mapping[str, Any]) -> int:
    """How many epochs are over by a line that ends one (kNN or spread of latents); 0 by any other."""
    match line:
        case {"epochs_done": int(epochs)}:
            return epochs
        case {"z_std": _, "epoch": int(epoch)}:
            return epoch + 1
        case _:
            return 0


def stamps(*files: Path) -> Stamps:
    """What changes, without reading them, if files are written anew."""
    found = []
    for file in files:
        try:
            seen = file.stat()
            found.append((str(file), seen.st_mtime_ns, seen.st_size))
        except OSError:
            found.append((str(file), 0, -1))
    return tuple(found)


def refuse_count(n: int) -> None:
    """UserError if so many runs make no page."""
    if not 1 <= n <= MOST_RUNS:
        raise UserError(f"runs: {n} were given; a page shows 1 to {MOST_RUNS}.")


def _is_there(run: Run) -> bool:
    return os.path.isfile(run.recipe_file)


def _began(run: Run) -> float:
    """When its recipe was written, which happens when it begins, unlike most of what is in its folder."""
    try:
        return os.path.getmtime(run.recipe_file)
    except OSError:  # removed just now
        return 0.0


def _each_once(runs: Sequence[Run]) -> list[Run]:
    """Of a run and links to it, the run itself."""
    found = dict[str, Run]()
    for run in runs:
        real = os.path.realpath(run.path)
        if real not in found or found[real].path.is_symlink():
            found[real] = run
    return list(found.values())
