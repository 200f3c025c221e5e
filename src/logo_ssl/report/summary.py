"""Run folders as the report reads them: which runs are meant, and what the files of each say."""

import csv
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path, PurePath
from statistics import median
from typing import Any, Literal, NamedTuple

from filelock import FileLock, Timeout

from ..files import read_json
from ..run import LOCK, Run, runs_below
from .gallery import Attention, Comparison, FeatureMap

MOST_RUNS = 50  # on a page
RECENT = 20  # lines of the log that tell how fast a run is now
Stamps = tuple[tuple[str, int, int], ...]
"""Name, time and size of files: with others, they were written anew."""


def find_runs(paths: Sequence[Path]) -> tuple[list[Run], int]:
    """The runs at or below some paths by now, and how many that began earlier are left out, if there are too many.

    Files are passed over, since a pattern may give them. Raises UserError for a path without runs.
    """
    below = {path: list(runs_below(path)) for path in paths}
    found = dict[str, Run]()  # of several paths to one run, the first
    for path, runs in below.items():
        for run in runs or ([] if path.is_file() and any(below.values()) else [Run.existing(path)]):
            found.setdefault(os.path.realpath(run.path), run)
    order = sorted(found.values(), key=lambda run: (run.path in paths, run.recipe_file.stat().st_mtime_ns))
    newest = order[-MOST_RUNS:]
    return [run for run in found.values() if run in newest], len(order) - len(newest)


class Missing(NamedTuple):
    """What cannot be shown of a run, and why."""

    what: str
    why: str


class Collected(NamedTuple):
    """What is shown of a run's images and features, and what cannot be."""

    crops: bytes | None = None
    """A picture of the crops as the network sees them, as PNG."""
    features: FeatureMap | None = None
    comparisons: Sequence[Comparison] = ()
    attention: Sequence[Attention] = ()
    """Of a vision transformer."""
    missing: Sequence[Missing] = ()


class Progress(NamedTuple):
    """How far a run is."""

    state: Literal["finished", "running", "stopped"]
    epochs: float
    """Done so far."""
    seconds_left: float | None = None
    """At the speed of the last lines of its log; evaluations in between take longer."""


@dataclass(frozen=True, eq=False)
class RunSummary:
    """A run as the page shows it: what its files say, and what a `RunCollector` found out with its recipe and encoder.

    What is missing or torn is left out.
    """

    run: Run
    name: str
    """What to call it on the page, different for each run."""
    metrics: Sequence[Mapping[str, Any]]
    """What was logged while training."""
    settings: Mapping[str, Any]
    """Every setting by its full name, inner ones with a dot."""
    without_effect: frozenset[str] = frozenset()
    """Settings that change nothing of what is learned."""
    departures: Sequence[str] = ()
    """In what its settings differ from those of the recipe with the paper's."""
    paper: Sequence[Mapping[str, Any]] = ()
    """The rows of the paper that its recipe stands for."""
    signs: Sequence[str] = ()
    """Signs of collapse at the end of the log."""
    most_directions: int | None = None
    """The largest rank that its latents can have."""
    collected: Collected = Collected()  # noqa: RUF009 (immutable)
    """What its encoder makes of images."""

    @cached_property
    def provenance(self) -> dict[str, Any]:
        """Who made it; empty while the run is not finished."""
        return self.run.provenance()

    @property
    def epochs(self) -> int:
        """How many it is to have."""
        return self.settings["epochs"]

    @property
    def data(self) -> str:
        """What to call its images, as evaluations do."""
        return PurePath(self.settings["data"]).name or self.settings["data"]

    @cached_property
    def epochs_per_step(self) -> float:
        """By the number of images, the rest of which after the last batch is left out."""
        return 1 / max(1, self.images.get("train_images", 0) // self.settings["batch_size"])

    @cached_property
    def progress(self) -> Progress:
        """How far it is, and when it will be done if it is being trained."""
        if self.provenance:
            return Progress("finished", self.epochs)
        done = min(self.epochs, self.epochs_per_step * max((line["step"] for line in self.metrics), default=0))
        if not is_held(self.run):
            return Progress("stopped", done)
        speeds = [line["images_per_s"] for line in self.metrics if "images_per_s" in line][-RECENT:]
        images = self.images.get("train_images")
        left = (self.epochs - done) * images / median(speeds) if speeds and images and median(speeds) else None
        return Progress("running", done, left)

    @cached_property
    def evaluations(self) -> dict[str, dict[str, Any]]:
        """Each result by the name of its file."""
        files = sorted(self.run.evaluation_file("x").parent.glob("*.json"))
        return {file.stem: {"evaluation": file.stem} | record for file in files if (record := read_json(file))}

    @cached_property
    def images(self) -> dict[str, Any]:
        """How many images it learned from, and their fingerprint."""
        return self.run.images()

    @cached_property
    def older(self) -> dict[str, str]:
        """The evaluations of other weights than the present ones by the name of their file, and of which weights.

        Of a run that goes on, any checkpoint's may be the present ones; each figure names its own.
        """
        return {
            name: record.get("unfinished") or f"epoch {record['epochs']}"
            for name, record in self.evaluations.items()
            if record.get("epochs", self.epochs) != self.epochs or (self.provenance and "unfinished" in record)
        }

    def pictures(self) -> Iterator[tuple[str, bytes]]:
        """The pictures of the run, with what they show: its crops, and those that other commands left in its folder."""
        if self.collected.crops is not None:
            yield "Crops as the network sees them, and their boxes on the originals", self.collected.crops
        for file in sorted((self.run.path / "figures").glob("*.png")):
            yield f"{file.name}, from the command affinity, which draws its own references", file.read_bytes()
        folder = self.run.evaluation_file("x").parent.resolve()
        for name, record in self.evaluations.items():
            for place in record.get("pictures", ()):
                file = (folder / place).resolve()
                if file.is_relative_to(folder) and file.is_file():  # nothing else of this machine
                    words = f"{name}, {file.stem} images: objects on the left, what was found on the right"
                    yield words + (f" (of older weights: {self.older[name]})" * (name in self.older)), file.read_bytes()

    @cached_property
    def bad_images(self) -> list[tuple[str, str]]:
        """The images that could not be read, and why."""
        if not self.run.bad_images_file.is_file():
            return []
        with self.run.bad_images_file.open(newline="", encoding="utf-8", errors="replace") as file:
            return [(row[0], row[1]) for row in csv.reader(file) if len(row) == 2 and row != ["image", "reason"]]


def is_held(run: Run) -> bool:
    """Whether a process trains in the folder now; on a disk without locks, whether one ever did is not known."""
    if not (run.path / LOCK).is_file():
        return False
    try:
        with FileLock(run.path / LOCK, timeout=0, fallback_to_soft=False):
            return False
    except Timeout:
        return True
    except OSError:
        return False


def stamps(*files: Path) -> Stamps:
    """What changes, without reading them, if files are written anew."""
    found = []
    for file in files:
        with suppress(FileNotFoundError):
            status = file.stat()
            found.append((str(file), status.st_mtime_ns, status.st_size))
    return tuple(found)
