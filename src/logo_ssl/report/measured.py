"""What was measured? The numbers to take away, those beside the paper's, and every evaluation, whole."""

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from .markup import Html, folded, joined, table, tag
from .numbers import percent, result, words
from .paper_tables import Paper, detection_table, transfer_table
from .reading import Told
from .results import TOP1, accuracies, evaluations_of
from .results import rows as results

MEASURES = ("learned", "cosine")
HIDDEN = (
    "results",
    "protocol",
    "data_fingerprint",
    "about",
    "versions",
    "keys_not_in_checkpoint",
    "keys_without_place",
)


def headline(runs: Sequence[Told]) -> Html:
    """The numbers to take away, each with its protocol."""
    rows = []
    for run in runs:
        for protocol, value in _headlines(run):
            rows.append((run.name, value, protocol))
        if not run.provenance:
            done = max((line["epoch"] for line in run.metrics if "epoch" in line), default=0)
            told = f"{done} of {run.recipe['epochs']} epochs; if it does not run, logo-ssl resume goes on"
            rows.append((run.name, "not finished", told))
    return table("The numbers, and how they were measured", ("run", "figure", "protocol"), rows)


def _headlines(run: Told) -> Iterator[tuple[str, str]]:
    if line := run.online_knn():
        where = f"weighted kNN while training, k={line.get('knn_k')}, tau={line.get('knn_tau')}"
        told = f"{where}, after epoch {line.get('epochs_done')}, on {run.recipe.get('data')}"
        yield told, f"{percent(line['knn'])} %"
    for kind in TOP1:
        for what, value in accuracies(run, kind):
            yield what, f"{percent(value)} %"
    for record in evaluations_of(run, "transfer"):
        if "value" in record:
            yield f"transfer to {record.get('data')}, {record.get('metric')}", f"{percent(record['value'])} %"
    for kind in ("detect", "segment"):
        for record in evaluations_of(run, kind):
            for row in results(record):
                where = f"{row.get('measure')}, on {record.get('data')}"
                yield f"{kind}: AP of {row.get('of')}, {where}", f"{percent(row.get('AP'))} %"
    for record in evaluations_of(run, "affinity"):
        for row in results(record):
            if row.get("metric") == "AUC":
                where = f"{row.get('references')} references, on {record.get('data')}"
                told = [f"{measure} {words(row[measure])}" for measure in MEASURES if measure in row]
                yield f"AUC of {row.get('task')}, {where}, with 95 % intervals: {', '.join(told)}", _means(row)


def _means(row: dict[str, Any]) -> str:
    """Both measures of a row, without their intervals."""
    found = [(measure, row[measure]) for measure in MEASURES if isinstance(row.get(measure), dict)]
    return ", ".join(f"{measure} {value.get('mean', math.nan):.3f}" for measure, value in found)


def beside_the_paper(runs: Sequence[Told], paper: Paper) -> Html:
    """The paper's rows that the recipes stand for, and those of transfer and detection, beside what was measured."""
    rows = [
        (
            run.name,
            f"Table {row.get('table')}: {row.get('row')}",
            percent(row.get("knn")),
            _lines(accuracies(run, "knn")),
            percent(row.get("linear")),
            _lines(accuracies(run, "linear")),
            ", ".join(run.departures) or "none",
        )
        for run in runs
        for row in run.paper
    ]
    head = ("run", "paper", "paper's kNN", "kNN here", "paper's linear", "linear here", "departs from the recipe in")
    parts = [table("Top-1 in percent; the paper names no k and no temperature", head, rows)] if rows else []
    parts += [part for part in (transfer_table(runs, paper), detection_table(runs, paper)) if part]
    return joined(parts)


def _lines(found: Iterable[tuple[str, float]]) -> str:
    return "; ".join(f"{percent(value)} ({what})" for what, value in found) or "not measured"


def evaluations(runs: Sequence[Told]) -> Html:
    """Every evaluation, whole."""
    parts = []
    for run in runs:
        for name, record in run.evaluations.items():
            parts.append(tag("h3", f"{run.name}: {name}"))
            parts.append(tag("p", f"{record.get('protocol', 'no protocol was saved')}."))
            if found := results(record):
                head = list(dict.fromkeys(key for row in found for key in row))
                cells = [[result(key, row[key]) if key in row else "" for key in head] for row in found]
                parts.append(table(f"{run.name}: {name}", head, cells))
            parts.append(folded("Settings and provenance", tag("p", _settings(record)), f"{run.name}: {name}"))
    if not parts:
        parts.append(tag("p", "Nothing was evaluated yet; logo-ssl eval does it."))
    return joined(parts)


def _settings(record: dict[str, Any]) -> str:
    plain = {k: v for k, v in record.items() if k not in HIDDEN and isinstance(v, str | int | float)}
    return "; ".join(f"{key.replace('_', ' ')}: {result(key, value)}" for key, value in plain.items())
