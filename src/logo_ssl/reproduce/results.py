"""What came out? A table as one record: the paper's figures, ours for each seed, and who made them."""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from statistics import mean, stdev
from typing import Any

from ..files import read_json
from ..recipes import Differences, Recipe, find_recipe, literal
from ..run import Run
from .launch import Outcome
from .plan import Task
from .settings import decisive_differences
from .tables import Figure, PaperTable, Row

Ended = Sequence[tuple[Task, Outcome]]


def gather(table: PaperTable, ended: Ended) -> dict[str, Any]:
    """The record of a table; a run that is not finished, or a figure that was not measured, is left out."""
    not_run, otherwise = table.left_out()
    return {
        "table": table.name,
        "title": table.title,
        "rows": [_row(row, [pair for pair in ended if pair[0].recipe.name == row.recipe.name]) for row in table.rows],
        "not_run": not_run,
        "finished_otherwise": otherwise,
    }


def _row(row: Row, ended: Ended) -> dict[str, Any]:
    runs = [_run(task, outcome) for task, outcome in ended]
    recipes = [Recipe.from_json(json.dumps(run["recipe"])) for run in runs if run["recipe"]] or [row.recipe]
    book, own = literal(row.recipe), find_recipe(row.recipe.name)
    return {
        "row": row.label,
        "recipe": row.recipe.name,
        "note": "; ".join(filter(None, (row.note, *_left_out(row, runs)))),
        "departures": _pairs(decisive_differences(recipes[0], book)),
        "changed": {} if own == book else _pairs(decisive_differences(recipes[0], own)),
        "data": recipes[0].data,
        "crops": f"{recipes[0].crops.n_global} + {recipes[0].crops.n_local}",
        "epochs": recipes[0].epochs,
        "figures": [_figure(figure, runs) for figure in row.figures],
        "runs": runs,
    }


def _left_out(row: Row, runs: Sequence[Mapping[str, Any]]) -> list[str]:
    """What is said of a kNN whose neighbours would be all the images there were."""
    measured = [run["figures"]["knn"] for run in runs if "knn" in run["figures"]]
    asked = [figure for figure in row.figures if figure.measurement == "knn"]
    lacking = [figure.protocol for figure in asked if any(figure.metric not in found for found in measured)]
    return [f"{protocol} is left out, since there are too few images to compare with" for protocol in lacking]


def _pairs(found: Differences) -> dict[str, Any]:
    return {name: {"ours": ours, "recipe": theirs} for name, (ours, theirs) in found.items()}


def _run(task: Task, outcome: Outcome) -> dict[str, Any]:
    from ..show.alarms import alarms_at_last  # slow to import: only where a table is written

    place, finished = task.place, task.place.finished
    outcome = Outcome("done") if task.done else outcome  # by another command, meanwhile
    noted: Mapping[str, Any] = place.record() if finished else {}
    alarms = alarms_at_last(place.run.metrics(), place.recipe()) if finished else []
    return {
        "seed": task.recipe.seed,
        "folder": str(place.run.path),
        "state": outcome.state,
        "sentence": outcome.sentence,
        "jobs": noted.get("jobs"),
        "figures": place.figures() if finished else {},
        "not_to_be_had": task.lacking if task.done else [],
        "measured_at": noted.get("measured_at", {}),
        "images": place.images(),
        "provenance": place.provenance(),
        "remarks": list(_of_probes(place.run)) if finished else [],
        "alarms": list(alarms),
        "recipe": json.loads(place.recipe().to_json()) if finished else None,
    }


def _of_probes(run: Run) -> Iterator[str]:
    """What is to be said of linear classifiers whose learning rate lies at an end of those that were tried."""
    from ..eval.linear import at_edge  # slow to import, likewise

    for file in sorted(run.evaluation_file("x").parent.glob("linear-*.json")):
        told = read_json(file)
        with suppress(KeyError, TypeError, ValueError, AttributeError):
            tried = {float(rate): float(reached) for rate, reached in told["validation"].items()}
            if edge := at_edge(float(told["lr"]), tried):
                yield f"the linear classifier's learning rate, {told['lr']:g}, {edge}"


def _figure(figure: Figure, runs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    values = {
        str(run["seed"]): run["figures"][figure.measurement][figure.metric]
        for run in runs
        if figure.metric in run["figures"].get(figure.measurement, {})
    }
    known = list(values.values())
    return {
        "measurement": figure.measurement,
        "protocol": figure.protocol,
        "paper": figure.paper,
        "values": values,
        "n": len(known),
        "mean": mean(known) if known else None,
        "spread": stdev(known) if len(known) > 1 else None,
    }
