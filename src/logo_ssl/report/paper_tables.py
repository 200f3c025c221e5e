"""How do transfer and detection stand beside the paper's rows? Its Tables 5 and 6, with what was measured here."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from .markup import Html, table
from .numbers import percent
from .reading import Told
from .results import evaluations_of, precision, rows

ALIKE = "Only encoders that were trained on the same data can be compared"


class Paper(NamedTuple):
    """The paper's rows, by the names of sets and columns that evaluations have."""

    sets: Mapping[str, str]
    """The sets of Table 5, with their titles."""
    transfer: Mapping[str, Sequence[float]]
    """The rows of Table 5, in the order of the sets."""
    columns: Sequence[str]
    """The figures of Table 6."""
    detection: Mapping[tuple[str, str], Mapping[str, Sequence[float]]]
    """The rows of Table 6, by data and what is found."""
    measures: Mapping[str, str]
    """By which measure Table 6 tells each set."""


NOTHING = Paper({}, {}, (), {}, {})


def transfer_table(runs: Sequence[Told], paper: Paper) -> Html:
    """Ours above the paper's, for the sets that were measured; nothing where none was."""
    measured: dict[str, dict[str, float]] = {}
    for run in runs:
        for record in evaluations_of(run, "transfer"):
            if isinstance(record.get("value"), int | float):
                measured.setdefault(run.name, {})[str(record.get("metric"))] = record["value"]
    metrics = list(dict.fromkeys(metric for found in measured.values() for metric in found))
    if not metrics:
        return Html("")
    known = {metric: _set_of(metric, paper) for metric in metrics}
    head = [metric if name is None else paper.sets[name] + metric.removeprefix(name) for metric, name in known.items()]
    told = [(name, *(percent(found.get(metric)) for metric in metrics)) for name, found in measured.items()]
    for row, numbers in paper.transfer.items() if any(known.values()) else ():
        by_set = dict(zip(paper.sets, numbers, strict=True))
        told.append((f"paper, Table 5: {row}", *(percent(by_set.get(name or "")) for name in known.values())))
    return table(f"Transfer: linear classifiers on frozen features, percent. {ALIKE}", ("encoder", *head), told)


def detection_table(runs: Sequence[Told], paper: Paper) -> Html:
    """Ours above the paper's, for the data and objects that were measured; nothing where none was."""
    ours, wanted = list[tuple[Any, ...]](), dict[tuple[str, str], str]()
    for run in runs:
        for kind in ("detect", "segment"):
            for record in evaluations_of(run, kind):
                for row in rows(record):
                    source, of, measure = str(record.get("data")), str(row.get("of")), str(row.get("measure"))
                    ours.append(
                        (run.name, source, of, measure, *(percent(precision(row).get(c)) for c in paper.columns))
                    )
                    if record.get("official") and paper.measures.get(source) == measure:
                        wanted[source, of] = measure
    if not ours:
        return Html("")
    theirs = [
        (f"paper, Table 6: {row}", source, of, measure, *map(percent, numbers))
        for (source, of), measure in wanted.items()
        for row, numbers in paper.detection.get((source, of), {}).items()
    ]
    head = ("encoder", "data", "of", "measure", *paper.columns)
    return table(f"Detection: average precision, percent. {ALIKE}", head, ours + theirs)


def _set_of(metric: str, paper: Paper) -> str | None:
    return next((name for name in paper.sets if metric.startswith(f"{name} ")), None)
