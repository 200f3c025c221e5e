"""What is there to do? One task for each recipe and seed, whichever tables share it, and how far each one is."""

import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from math import isfinite
from pathlib import Path
from typing import Any, NamedTuple

from ..errors import UserError
from ..files import read_json, write
from ..recipes import Differences, Recipe
from ..run import IMAGES_TOLD, Run
from .settings import decisive_differences
from .tables import PaperTable

MOST_TOLD = 3  # settings that a sentence names
CUT = ("batch_size", "framework.queue", "optimiser.warmup_epochs")
"""Fields that a run has lower than they were asked for, where the data are few."""
KINDS = {"asked": dict, "jobs": int, "figures": dict, "measured_at": dict, "images": dict}
"""What is noted beside a run."""
MORE_FACTS = {
    "labels",
    "test_images_compared",
    "test_images_in_train",
    "test_images_in_val",
    "val_images_compared",
    "val_images_in_train",
}
"""What is noted of its images beside what every run tells, where it is known."""
TOLD = {"commit", "hardware", "seconds"}
"""What a finished run tells of its making."""


class Place:
    """Where a run lies, OUT/ROW/seedK/, and beside it what was asked for and what was measured: seedK.json."""

    def __init__(self, folder: Path) -> None:
        self.run = Run(folder)
        self.file = folder.with_name(f"{folder.name}.json")
        self.log = folder.with_name(f"{folder.name}.log")
        self.lock = folder.with_name(f".{folder.name}.lock")

    @property
    def finished(self) -> bool:
        """Whether every epoch is done; a run that tells no more who made it goes on from its last checkpoint."""
        return read_json(self.run.provenance_file).keys() >= TOLD

    @property
    def begun(self) -> bool:
        """Whether there is anything to go on with, if only the folder of a logger: then no new run can begin here."""
        if not self.run.recipe_file.is_file():
            return False
        return any(True for _ in self.run.metrics()) or any(child.is_dir() for child in self.run.path.iterdir())

    def epochs_done(self, recipe: Recipe) -> int:
        """Whole epochs that need not be run again, by the newest checkpoint and the log."""
        if self.finished:
            return recipe.epochs
        step = self.run.newest_step()
        return sum("z_rank" in line and line["step"] <= step for line in self.run.metrics())  # the rank ends an epoch

    def record(self) -> dict[str, Any]:
        """What stands beside the run, as far as it can be used."""
        told = read_json(self.file)
        known = {name: told[name] for name, kind in KINDS.items() if isinstance(told.get(name), kind)}
        figures = {name: of for name, of in known.get("figures", {}).items() if _are_figures(of)}
        return known | {"figures": figures}

    def images(self) -> dict[str, Any]:
        """On which images the run was begun: as it was noted, or as the run itself tells; else nothing."""
        if not (self.begun or self.finished):
            return {}
        noted = self.record().get("images", {})
        found = noted if noted.keys() >= IMAGES_TOLD else self.run.images()
        return {name: value for name, value in found.items() if name in IMAGES_TOLD | MORE_FACTS}

    def provenance(self) -> dict[str, Any] | None:
        """Who made the run, once it is finished."""
        return self.run.provenance() if self.finished else None

    def recipe(self) -> Recipe:
        """The run's own recipe, as the data cut it."""
        try:
            return Recipe.from_json(self.run.recipe_file.read_text())
        except (OSError, ValueError, RecursionError, UserError) as error:
            raise UserError(
                f"{self.run.recipe_file} cannot be read ({error}); place the file back, or remove {self.run.path} to "
                "train it again."
            ) from error

    def start(self, asked: Recipe, jobs: int) -> None:
        """Note what is asked for; whatever an earlier run left is kept if that run is, and forgotten if it is gone."""
        earlier = self.record() if self.begun or self.finished else {}
        at_once = 1 if self.finished else jobs
        noted = {"asked": json.loads(asked.to_json()), "jobs": max(at_once, earlier.get("jobs", 1))}
        write(self.file, json.dumps(earlier | noted, indent=2) + "\n")

    def note(self, **entries: Any) -> None:
        """Add to what stands beside the run."""
        write(self.file, json.dumps(self.record() | entries, indent=2) + "\n")

    def asked(self) -> Recipe | None:
        """The recipe as it was asked for, before data cut it; the run's own where nobody noted it."""
        return self.noted() or (self.recipe() if self.run.recipe_file.is_file() else None)

    def noted(self) -> Recipe | None:
        """The recipe as it was noted before the run, if that can be used."""
        with suppress(KeyError, TypeError, ValueError, UserError):
            return Recipe.from_json(json.dumps(self.record()["asked"]))
        return None

    @property
    def weightless(self) -> bool:
        """Whether it is finished and its weights are gone, so that nothing more can be measured."""
        return self.finished and not (self.run.backbone_file.is_file() or self.run.saved())

    def figures(self) -> dict[str, dict[str, float]]:
        """What was measured: (metric, percent) by measurement; what is no number is measured again."""
        return self.record()["figures"]


def _are_figures(measured: object) -> bool:
    if not isinstance(measured, dict) or not measured:
        return False
    return all(isinstance(value, int | float) and isfinite(value) for value in measured.values())


class Task(NamedTuple):
    """A recipe and seed to pretrain, and what is to be measured then."""

    recipe: Recipe
    place: Place
    measurements: tuple[str, ...]

    @property
    def name(self) -> str:
        """What it is called on a screen."""
        return f"{self.recipe.name}, seed {self.recipe.seed}"

    @property
    def unmeasured(self) -> list[str]:
        """Measurements that are still to be made; none of a run that has some of them and no weights."""
        lacking = self.lacking
        return [] if self.place.weightless and len(lacking) < len(self.measurements) else lacking

    @property
    def lacking(self) -> list[str]:
        """Measurements that are not there."""
        known = self.place.figures()
        return [measurement for measurement in self.measurements if measurement not in known]

    @property
    def done(self) -> bool:
        """Whether nothing is left to do."""
        return self.place.finished and not self.unmeasured


def tasks_for(tables: Sequence[PaperTable], seeds: int, out: Path) -> list[Task]:
    """One task for each recipe and seed, with the measurements of all tables that it stands in."""
    recipes: dict[str, Recipe] = {}
    wanted: dict[str, dict[str, None]] = {}
    for table in tables:
        for row in table.rows:
            name = recipes.setdefault(row.recipe.name, row.recipe).name
            wanted.setdefault(name, {}).update((figure.measurement, None) for figure in row.figures)
    return [
        Task(replace(recipe, seed=seed), Place(out / name / f"seed{seed}"), tuple(wanted[name]))
        for name, recipe in recipes.items()
        for seed in range(seeds)
    ]


def refuse_occupied(tasks: Sequence[Task]) -> None:
    """Refuse, before anything is trained, what lies in the place of a run and is none."""
    for place in (task.place for task in tasks):
        row = place.run.path.parent
        if row.exists() and not row.is_dir():
            raise UserError(f"{row} is to be a folder, and is none; move it, or choose another --out.")
        if place.file.is_dir():
            raise UserError(f"{place.file} is to be a file, and is a folder; move it, or choose another --out.")
        if place.run.path.exists() and not (place.begun or place.finished):
            from ..train.folder import vacant  # slow to import: only where it is needed

            vacant(place.run.path)


def changed_since(task: Task) -> Differences:
    """Settings that were others when the run was begun, with both values; nothing where it was not."""
    known = task.place.asked() if task.place.begun or task.place.finished else None
    changed = {} if known is None else decisive_differences(task.recipe, known)
    if task.place.noted() is None:  # then it is the run's own recipe, which the data may have cut
        changed = {name: pair for name, pair in changed.items() if name not in CUT or pair[0] < pair[1]}
    return changed


def refuse_other_settings(tasks: Sequence[Task]) -> None:
    """Refuse to go on with, or to show, a run that was begun with other settings than those asked for now."""
    for task in tasks:
        if task.place.finished:
            task.place.recipe()  # a table tells it; where it is lost, nothing is to be done first
        if changed := changed_since(task):
            told = [f"{name} {before}, now {now}" for name, (now, before) in changed.items()]
            more = f", and {len(told) - MOST_TOLD} more" if len(told) > MOST_TOLD else ""
            raise UserError(
                f"{task.place.run.path} was begun with other settings ({'; '.join(told[:MOST_TOLD])}{more}); choose "
                "another --out, or remove it."
            )
