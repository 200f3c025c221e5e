"""Runs and their figures, from results/records (results/README.md describes the fields)."""

import json
from pathlib import Path
from typing import Any

RECORDS = Path(__file__).parents[1] / "results" / "records"
MEASURES = {"k=20": ("knn-20",), "k=200": ("knn-200",), "linear": ("linear-sgd", "linear-lbfgs")}
"""What tables show, and the figures that count as it, the preferred one first."""

Run = dict[str, Any]


def family(name: str) -> list[Run]:
    """All lines of one file."""
    return [json.loads(line) for line in (RECORDS / f"{name}.jsonl").read_text().splitlines()]


def runs(place: str) -> list[Run]:
    """The runs of FAMILY/NAME, one for each seed; FAMILY/NAME:SEED gives that seed alone."""
    file, _, rest = place.partition("/")
    name, _, seed = rest.partition(":")
    found = [run for run in family(file) if run["name"] == name and seed in ("", str(run["seed"]))]
    if not found:
        raise SystemExit(f"results/records has no {place}")
    return sorted(found, key=lambda run: run["seed"])


def figure(run: Run, kind: str) -> float | None:
    """Top-1 after the last epoch by `eval`; if it has none, kNN (k=20) as training measured it."""
    if kind in run.get("figures", {}):
        return run["figures"][kind]
    if kind == "knn-20" and "stopped" not in run:
        return run.get("knn_by_epoch", {}).get(str(run["epochs"]))
    return None


def figures(place: str, measure: str) -> list[float]:
    """The figures that the runs of a place have, by one measure."""
    for kind in MEASURES[measure]:
        found = [value for value in (figure(run, kind) for run in runs(place)) if value is not None]
        if found:
            return found
    return []
