"""Which measure of affinity ranks crops better, the learned one or cosine? A table, and a sentence for each task."""

from collections.abc import Sequence
from typing import Any

from rich.box import SIMPLE
from rich.table import Table

from ..eval.affinity import MEASURES

ABOUT_TABLE = (
    "Means over n reference crops, and below them 95 % bootstrap intervals. AUC: how often a crop that belongs to the "
    "reference is put before one that does not; 1 is perfect, and what chance gives stands in the last column."
)


def table_of(results: Sequence[dict[str, Any]]) -> Table:
    """The ranking as a table that fits 80 columns, intervals below the means."""
    head = ("task", *MEASURES, "learned\n- cosine", "chance")
    table = Table(*head, title="Ranking of crops", box=SIMPLE, padding=(0, 1, 0, 0))
    for row in results:
        cells = [_words(row[measure]) for measure in (*MEASURES, "difference")]
        table.add_row(f"{row['task']}\n{row['metric']}", *cells, f"{row['chance']:.3f}\nn={row['references']}")
    return table


def verdicts(results: Sequence[dict[str, Any]]) -> list[str]:
    """For each task, which measure ranks better by each metric, if either does; whether the metrics say the same."""
    told = []
    for task in dict.fromkeys(row["task"] for row in results):
        differences = {row["metric"]: row["difference"] for row in results if row["task"] == task}
        found = "; ".join(f"by {metric}, {_verdict(difference)}" for metric, difference in differences.items())
        agree = len({_better(difference) for difference in differences.values()}) == 1
        told.append(f"{task.capitalize()}: {found}." + ("" if agree else " The two metrics do not say the same."))
    return told


def _better(difference: dict[str, float]) -> str | None:
    """The measure that ranks better: none where the interval of the difference holds 0."""
    if difference["low"] <= 0 <= difference["high"]:
        return None
    return MEASURES[0] if difference["mean"] > 0 else MEASURES[1]


def _verdict(difference: dict[str, float]) -> str:
    better = _better(difference)
    if better is None:
        return "no measure ranks better than the other (the interval of their difference holds 0)"
    words = "the learned affinity ranks better than cosine" if better == "learned" else "cosine ranks better"
    return f"{words}, by {abs(difference['mean']):.3f} (the interval does not hold 0)"


def _words(value: dict[str, float]) -> str:
    return f"{value['mean']:.3f}\n{value['low']:.3f} to {value['high']:.3f}"
