"""Run folders as the report reads them: which runs are meant, and what the files of each say."""

import csv
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from ..errors import UserError
from ..files import read_json
from ..run import Logged, Run, runs_below
from .gallery import Comparison, FeatureMap, Neighbourhood

MOST_RUNS = 50  # on a page
FIGURES = {
    "affinity": "Learned affinity and cosine similarity: a reference crop against crops of other images (from the "
    "command affinity, which chooses other images than the section Affinity)",
    "affinity-map": "Where windows of each image are alike to the reference crop (from the command affinity)",
}

Stamps = tuple[tuple[str, int, int], ...]
"""Name, time and size of files: with others, they were written anew."""


def find_runs(paths: Sequence[Path]) -> tuple[list[Run], list[Run]]:
    """The runs that are named with the finished ones below folders that are named, and the unfinished ones there.

    Files are passed over, since a pattern may give them. Raises UserError for a path without runs.
    """
    found, unfinished = list[Run](), list[Run]()
    for path in [path for path in paths if not path.is_file()] or paths:
        inside = [] if Run(path).recipe_file.is_file() else list(runs_below(path))
        finished = [run for run in inside if run.is_finished]
        unfinished += [run for run in inside if finished and not run.is_finished]
        found += finished or [Run.existing(path)]
    found = _each_once(found)
    if not 1 <= len(found) <= MOST_RUNS:
        raise UserError(f"runs: {len(found)} were given; a page shows 1 to {MOST_RUNS}.")
    named = {os.path.realpath(run.path) for run in found}
    return found, [run for run in unfinished if os.path.realpath(run.path) not in named]


def runs_at(path: Path) -> list[Run]:
    """The run at a path, or all below it by now, finished or not."""
    run = Run(path)
    return [run] if run.recipe_file.is_file() else list(runs_below(path))


def newest_runs(paths: Sequence[Path]) -> list[Run]:
    """The runs at some paths by now; if there are too many for a page, those that are named and the last that began.

    A path without a run stays in the list, so that whoever reads it says what is wrong.
    """
    found = _each_once(run for path in paths for run in runs_at(path) or [Run(path)])
    newest = sorted(found, key=lambda run: (run.path in paths, stamps(run.recipe_file)[0][1]))[-MOST_RUNS:]
    return [run for run in found if run in newest]


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


class Collected(NamedTuple):
    """What is shown of a run's images and features, and what cannot be."""

    crops: bytes | None = None
    """A picture of the crops as the network sees them, as PNG."""
    neighbourhood: Neighbourhood | None = None
    feature_map: FeatureMap | None = None
    comparisons: Sequence[Comparison] = ()
    missing: Sequence[Missing] = ()


NOTHING = Collected()


@dataclass(frozen=True, eq=False)
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
    collected: Collected = NOTHING
    """What its encoder makes of images."""

    @cached_property
    def provenance(self) -> dict[str, Any]:
        """Who made it; empty while the run is not finished."""
        return self.run.provenance()

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
        return self.run.images().get("fingerprint", {}).get("train")

    def older(self) -> dict[str, str]:
        """The evaluations of other weights than the present ones by the name of their file, and of which weights.

        Of a run that goes on, any checkpoint's may be the present ones; each figure names its own.
        """
        older = dict[str, str]()
        for name, record in self.evaluations.items():
            epochs, unfinished = record.get("epochs", self.epochs), record.get("unfinished")
            if epochs != self.epochs or (self.finished and unfinished):
                older[name] = unfinished or f"epoch {epochs}"
        return older

    def pictures(self) -> Iterator[tuple[str, bytes]]:
        """The pictures of the run, with what they show: its crops, and those that other commands left in its folder."""
        if self.collected.crops is not None:
            yield "Crops as the network sees them, and their boxes on the originals", self.collected.crops
        for stem, words in FIGURES.items():
            file = self.run.path / "figures" / f"{stem}.png"
            if file.is_file():
                yield words, file.read_bytes()
        folder, older = self.run.evaluation_file("x").parent.resolve(), self.older()
        for name, record in self.evaluations.items():
            for place in record.get("pictures", ()):
                file = (folder / place).resolve()
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


def _each_once(runs: Iterable[Run]) -> list[Run]:
    """Of several paths to one run, the first."""
    found = dict[str, Run]()
    for run in runs:
        found.setdefault(os.path.realpath(run.path), run)
    return list(found.values())
