"""What else is finished here? Rows and seeds of a table that were not asked for now, and have the same settings."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from ..errors import UserError
from .figures import needs_weights
from .images import differ, images_there
from .launch import Outcome
from .plan import Place, Task, changed_since
from .results import Ended
from .settings import name_of
from .tables import PaperTable, Row


def with_finished(asked: PaperTable, whole: PaperTable, tasks: Sequence[Task], out: Path) -> tuple[PaperTable, Ended]:
    """The table with every row of `whole` that is finished in a folder, and the tasks that were done before."""
    there = {task.place.run.path: task for row in whole.rows for task in _finished(row, tasks, out)}.values()
    there = [task for task in there if not (needs_weights(whole) and task.place.weightless)]
    found = [task for task in there if not changed_since(task)]
    images = {name_of(task.recipe.data): task.place.images() or images_there(task.recipe) for task in tasks if found}
    others = []
    for task in found:
        name, theirs = name_of(task.recipe.data), task.place.images()
        images[name] = images.get(name) or theirs
        if not differ(images[name], theirs):
            others.append(task)
    rows = {task.recipe.name: task.recipe for task in others} | {row.recipe.name: row.recipe for row in asked.rows}
    shown = (row._replace(recipe=rows[row.recipe.name]) for row in whole.rows if row.recipe.name in rows)
    otherwise = frozenset(task.recipe.name for task in there if task not in others)
    return asked._replace(rows=tuple(shown), otherwise=otherwise), [(task, Outcome("done")) for task in others]


def _finished(row: Row, tasks: Sequence[Task], out: Path) -> list[Task]:
    """The seeds of a row that are trained and measured, and are none of the tasks; what cannot be read is left out."""
    known = {task.place.run.path for task in tasks}
    measurements = tuple(dict.fromkeys(figure.measurement for figure in row.figures))
    found = []
    for folder in out.glob(f"{row.recipe.name}/seed*"):
        place = Place(folder)
        if folder in known or not place.finished:
            continue
        with suppress(UserError):
            task = Task(replace(row.recipe, seed=place.recipe().seed), place, measurements)
            copied = folder.name != f"seed{task.recipe.seed}"
            if task.done and not copied:
                found.append(task)
    return sorted(found, key=lambda task: task.recipe.seed)
