"""What does a run folder tell? Its files as they are; what is missing or torn is left out."""

import csv
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from ..errors import UserError
from ..run import Logged, Run, is_number
from .affinity_bars import Comparison
from .feature_map import FeatureMap
from .neighbours import Neighbourhood

FIGURES = {
    "affinity": "Learned affinity beside cosine similarity: a reference crop against crops of other images, drawn "
    "by the command affinity (the section Affinity draws other images beside the same reference)",
    "affinity-map": "Where windows of each image are alike to the reference crop",
}


@dataclass(frozen=True)
class Told:
    """A run as the page shows it, with what only other layers know."""

    run: Run
    name: str
    """What to call it on the page, different for each run."""
    crops: bytes | None = None
    """A picture of the crops as the network sees them."""
    rerun: str | None = None
    """The command that trains it again."""
    departures: Sequence[str] = ()
    """In what its settings differ from those of the recipe with the paper's."""
    alarms: Sequence[str] = ()
    """Signs of collapse, a sentence each."""
    most_directions: int | None = None
    """Of how many directions the rank of its latents is told."""
    verdict: str | None = None
    """Whether training has helped by its kNN, as the end of the run says it."""
    comparisons: Sequence[Comparison] = ()
    """Reference crops and how alike others are to them."""
    neighbourhood: Neighbourhood | None = None
    """Some images and their nearest ones."""
    feature_map: FeatureMap | None = None
    """Images in feature space."""
    without_effect: Callable[[str], bool] = lambda setting: False
    """Whether a setting, by its full name, changes nothing of what is learned."""
    missing: Sequence[str] = ()
    """What cannot be shown, and why."""
    fingerprint: str | None = None
    """Of its present weights, if it is known."""
    beside: Sequence[dict[str, Any]] = ()
    """The rows of the paper that it has settings of our choice for."""
    read: Logged | None = None
    """What was logged, if it was read already."""
    settings: Mapping[str, Any] | None = None
    """Every setting by its full name, also those that the file leaves out; None: as the file has them."""

    @cached_property
    def recipe(self) -> dict[str, Any]:
        """Every setting by its full name, inner ones with a dot."""
        if self.settings is not None:
            return dict(self.settings)
        record = _read(self.run.recipe_file)
        if not isinstance(record, dict):
            raise UserError(f"{self.run.recipe_file} is not a whole recipe; leave this run out of the report.")
        return dict(_flat(record))

    @cached_property
    def provenance(self) -> dict[str, Any]:
        """Who made it; empty while the run is not finished."""
        record = self.run.provenance()
        versions = record.get("versions")
        return _plain(record) | {"versions": _plain(versions) if isinstance(versions, dict) else {}} if record else {}

    @cached_property
    def logged(self) -> Logged:
        """What was logged, read once: a long run has many lines."""
        return self.run.logged() if self.read is None else self.read

    @property
    def metrics(self) -> list[dict[str, Any]]:
        """The lines that can be read."""
        return self.logged.lines

    @property
    def finished(self) -> bool:
        """Whether training came to its end."""
        return bool(self.provenance)

    @cached_property
    def epochs_told(self) -> int:
        """How many epochs its metrics tell to the end."""
        return max(map(epochs_ended, self.metrics), default=0)

    @property
    def told_to_the_end(self) -> bool:
        """Whether the last values that were logged are those of the end of training."""
        return self.finished and self.epochs_told >= self.recipe["epochs"]

    @cached_property
    def damages(self) -> list[str]:
        """What is wrong with its metrics, a sentence each."""
        name, said = self.run.metrics_file.name, []
        if lost := self.logged.unreadable:
            said.append(
                f"{lost} line{'s' * (lost > 1)} of {name} cannot be read and {'are' if lost > 1 else 'is'} left out."
            )
        if self.finished and not self.run.metrics_file.is_file():
            said.append(f"{name} is missing, so that nothing is known of how training went.")
        elif self.finished and not self.told_to_the_end:
            where = (
                f"ends after epoch {self.epochs_told} of {self.recipe['epochs']}" if self.metrics else "tells nothing"
            )
            said.append(f"{name} {where}, though the run is finished; how training ended is not known.")
        return said

    @cached_property
    def evaluations(self) -> dict[str, dict[str, Any]]:
        """Each result by the name of its file."""
        found = {file.stem: _read(file) for file in sorted(self.run.evaluation_file("x").parent.glob("*.json"))}
        return {name: {"evaluation": name} | record for name, record in found.items() if isinstance(record, dict)}

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
        return not overtaken and record.get("epochs") in (None, self.recipe["epochs"])

    def older(self) -> dict[str, str]:
        """The evaluations of other weights than the present ones, and of which, by the name of their file."""
        return {name: _of_which(record) for name, record in self.evaluations.items() if not self.is_present(record)}

    @cached_property
    def paper(self) -> list[dict[str, Any]]:
        """The rows of the paper that its recipe stands for."""
        rows = self.recipe.get("paper") or []
        return [row for row in rows if isinstance(row, dict)]

    def figures(self) -> Iterator[tuple[str, bytes]]:
        """Pictures that lie in the run, with what they show."""
        if self.crops is not None:
            yield "Crops as the network sees them, and their boxes on the originals", self.crops
        for stem, words in FIGURES.items():
            file = self.run.path / "figures" / f"{stem}.png"
            if file.is_file():
                yield words, file.read_bytes()
        folder = self.run.evaluation_file("x").parent.resolve()
        for name, record in self.evaluations.items():
            for place in record.get("pictures") or ():
                file = (folder / str(place)).resolve()
                if file.is_relative_to(folder) and file.is_file():
                    words = f"{name}, {file.stem} pictures: objects on the left, what was found on the right"
                    mark = "" if self.is_present(record) else f" ({_of_which(record)})"
                    yield words + mark, file.read_bytes()

    @cached_property
    def bad_images(self) -> list[tuple[str, str]]:
        """The images that could not be read, and why."""
        try:
            with self.run.bad_images_file.open(newline="", encoding="utf-8", errors="replace") as file:
                rows = [row for row in csv.reader(file) if row]
        except OSError:
            return []
        return [(row[0], ", ".join(row[1:])) for row in rows if row != ["image", "reason"]]

    def counts(self, setting: str) -> bool:
        """Whether a setting has a part in what is learned."""
        return not self.without_effect(setting)

    def online_knn(self) -> dict[str, Any] | None:
        """The last kNN that was logged while training."""
        lines = self._knn_lines()
        return lines[-1] if lines else None

    def untrained_knn(self) -> dict[str, Any] | None:
        """The kNN of epoch 0, which is that of the untrained encoder."""
        return next((line for line in self._knn_lines() if line.get("epochs_done") == 0), None)

    def _knn_lines(self) -> list[dict[str, Any]]:
        return [line for line in self.metrics if isinstance(line.get("knn"), int | float)]


def epochs_ended(line: dict[str, Any]) -> int:
    """How many epochs are over by a line that ends one (kNN or spread of latents); 0 by any other."""
    match line:
        case {"epochs_done": int(epochs)}:
            return epochs
        case {"z_std": _, "epoch": int(epoch)}:
            return epoch + 1
        case _:
            return 0


def _of_which(record: dict[str, Any]) -> str:
    """The weights that an evaluation measured, as it tells them."""
    after = record.get("unfinished") or f"epoch {record.get('epochs', 'unknown')}"
    return f"of the weights after {after}, not of the present ones"


def _read(file: Path) -> Any:
    try:
        return json.loads(file.read_text())
    except (OSError, ValueError, RecursionError):
        return None


def _plain(record: dict[str, Any]) -> dict[str, Any]:
    """What is text, a number, yes or no, or known to be nothing."""
    return {
        key: value
        for key, value in record.items()
        if value is None or isinstance(value, str | bool) or is_number(value)
    }


def _flat(part: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in part.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value
