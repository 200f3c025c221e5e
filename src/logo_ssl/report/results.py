"""What logs and evaluations measured: figures with their protocol, and their spread over runs that differ in seed."""

import json
import math
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from ..run import is_number, standard_error
from .gallery import MEASURES
from .summary import RunSummary

PERCENTS = ("top1", "top-1", "top5", "top-5", "value", "knn", "linear", "validation", "chance", "commonest")
"""Names of results that are percentages; so are AP, AP50 and the like."""
TOP_1 = ("top1", "top-1")
CHOSEN = {"lr": "lr", "l2_weight": "L2 weight"}
"""What a probe may choose on validation images."""
NAMING = ("name", "chosen", "seed")

Kind = tuple[str, tuple[str, ...], str]
"""What was measured and how: only figures of one kind can be compared."""


class Figure(NamedTuple):
    """A number, what it measures, and how."""

    name: str
    value: float
    unit: str = "%"
    details: tuple[str, ...] = ()
    """What to know of the protocol."""
    how: str = ""
    """What tells protocols of the same details apart: the name of the file, which has a hash of images and settings."""
    n_images: int | None = None
    """On how many images a share of right answers was counted."""
    baselines: tuple[tuple[str, float], ...] = ()
    """What else was measured in the same way, and what guessing gives."""
    note: str = ""
    """What was chosen on validation images, or an interval."""

    @property
    def kind(self) -> Kind:
        """What it shares with the figures that it can be compared with."""
        return self.name, self.details, self.how

    @property
    def error(self) -> float | None:
        """The standard error by the number of images."""
        return None if self.n_images is None else standard_error(self.value, self.n_images)

    def written(self, value: float | None = None) -> str:
        """The number, or another of its kind, as it is always written."""
        number = self.value if value is None else value
        return f"{number:.2f}" if self.unit == "%" else f"{number:.3f}"


def figures(run: RunSummary) -> list[Figure]:
    """All that tells runs apart, one of each kind."""
    found: dict[Kind, Figure] = {}
    for figure in (*_while_training(run), *_evaluated(run)):
        if math.isfinite(figure.value):
            found.setdefault(figure.kind, figure)
    return list(found.values())


def labels(kinds: Collection[Kind]) -> dict[Kind, str]:
    """What to call each kind among those shown, without its name; of those called alike, also the file."""
    often = Counter(kind[:2] for kind in kinds)
    return {kind: ", ".join(kind[1]) + (f" ({kind[2]})" if often[kind[:2]] > 1 else "") for kind in kinds}


def _while_training(run: RunSummary) -> Iterator[Figure]:
    """The last kNN that was logged, with the untrained encoder's if it was measured in the same way."""
    lines = [line for line in run.metrics if "knn" in line]
    if not lines:
        return
    first, last = lines[0], lines[-1]
    epoch, n = last.get("epochs_done"), last.get("knn_images")
    when = "after the last epoch" if run.provenance and epoch == run.epochs else f"after epoch {epoch} of {run.epochs}"
    details = (when, f"k={last.get('knn_k')}", f"tau={last.get('knn_tau')}", f"on {run.data}")
    details += (last["knn_of"],) if "knn_of" in last else ()
    alike = all(first.get(key) == last.get(key) for key in ("knn_k", "knn_tau", "knn_images", "knn_of", "knn_bank_of"))
    untrained = (("untrained encoder", first["knn"]),) if first.get("epochs_done") == 0 != epoch and alike else ()
    yield Figure("kNN while training", last["knn"], "%", details, f"{n} images", n_images=n, baselines=untrained)


def _evaluated(run: RunSummary) -> Iterator[Figure]:
    """Of each row of each evaluation of the present weights: top-1, a figure of transfer, AP, or AUC."""
    for name, record in run.evaluations.items():
        if name in run.older:
            continue
        evaluation, last = record["evaluation"], [f"on {record.get('data')}"]
        last += [f"unfinished, {record['unfinished']}"] if "unfinished" in record else []
        about = Figure("kNN" if evaluation == "knn" else evaluation, 0.0, how=name)
        for row in rows(record):
            if row.get("metric") == "average precision":
                continue
            options = [f"{key}={row[key]}" for key in ("k", "tau", "fraction") if key in row]
            options += [str(row[key]) for key in ("of", "measure", "metric", "task") if key in row]
            if isinstance(learned := row.get("learned"), dict):
                cosine, lies = row["cosine"], "{mean:.3f}, 95 % interval {low:.3f} to {high:.3f}"
                yield about._replace(
                    name=f"{about.name}, {MEASURES['learned']}",
                    value=learned["mean"],
                    unit="share",
                    details=(*options, *last),
                    baselines=(("cosine similarity", cosine["mean"]), ("chance", row["chance"])),
                    note=f"Learned {lies.format(**learned)}; cosine {lies.format(**cosine)}.",
                )
            for key, value in row.items():
                if is_number(value) and (key in (*TOP_1, "value") or key.startswith("AP")):
                    yield about._replace(
                        value=value,
                        details=(*options, *([key] if key.startswith("AP") else []), *last),
                        n_images=record.get("test_images") if key in TOP_1 else None,
                        baselines=tuple(_baselines(record, row, key)),
                        note=_choice(record),
                    )


def _baselines(record: dict[str, Any], row: dict[str, Any], key: str) -> Iterator[tuple[str, float]]:
    """What untrained network and pixels reached by the same protocol; chance, and the commonest class if better."""
    for name, other in record.get("baselines", {}).items():
        for alike in rows(other):
            if key in alike and all(alike.get(option) == row.get(option) for option in ("k", "tau", "fraction")):
                yield name, alike[key]
    about = record | row
    if "chance" in about:
        yield "chance", about["chance"]
    if about.get("commonest", 0) > about.get("chance", 0):
        yield "always the commonest class", about["commonest"]


def _choice(record: Mapping[str, Any]) -> str:
    """Which of several rates or weights was the best on validation images."""
    tried = len(record.get("rates") or record.get("validation") or ())
    chosen = [f"{name} {record[key]:.4g}" for key, name in CHOSEN.items() if key in record]
    return f"{', '.join(chosen)}: the best of {tried} on validation images." if tried > 1 and chosen else ""


def rows(record: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The results of an evaluation, a dictionary each; what a detector found is laid flat."""
    found = record.get("results", [{key: record[key] for key in ("metric", "value") if key in record}])
    found = [found] if isinstance(found, dict) else found
    return [
        {key: value for key, value in row.items() if key not in ("overall", "per_class")} | row.get("overall", {})
        for row in found
        if row
    ]


def written(name: str, value: Any) -> str:
    """A value of an evaluation, by what it is called: two digits for percentages, as the paper has them."""
    return f"{value:.2f}" if is_number(value) and (name in PERCENTS or name.startswith("AP")) else words(value)


def words(value: Any) -> str:
    """Any value as text; a mean with its interval as shares."""
    match value:
        case {"mean": float(mean), "low": float(low), "high": float(high)}:
            return f"{mean:.3f} [{low:.3f}, {high:.3f}]"
        case dict():
            return "; ".join(f"{key}: {words(inner)}" for key, inner in value.items())
        case list() | tuple():
            return " ".join(map(words, value))
        case None:
            return "none"
        case _:
            return str(value)


# -- Groups of runs that differ in their seed alone


class Group(NamedTuple):
    """Runs of one recipe, one for each seed, under a letter."""

    letter: str
    runs: list[RunSummary]

    def __str__(self) -> str:
        return f"{self.letter}: {', '.join(run.name for run in self.runs)}"


def grouped(runs: Sequence[RunSummary]) -> list[Group]:
    """The runs by recipe, apart from names, places, and settings without effect on what is learned; a seed once.

    Images are compared by their fingerprint if it is known, since they may have moved.
    """
    found: dict[str, dict[int, RunSummary]] = {}
    for run in sorted(runs, key=lambda run: not run.provenance):  # of two with one seed the finished one counts
        idle = {*NAMING, *run.without_effect}
        kept = {field: value for field, value in run.settings.items() if field not in idle}
        kept["data"] = run.images.get("fingerprint", {}).get("train", run.settings["data"])
        key = json.dumps(kept, sort_keys=True, default=str)
        found.setdefault(key, {}).setdefault(run.settings["seed"], run)
    members = [sorted(of_seed.values(), key=runs.index) for of_seed in found.values()]
    members.sort(key=lambda of_group: runs.index(of_group[0]))
    return [Group(f"{chr(ord('A') + i % 26)}{i // 26 or ''}", each) for i, each in enumerate(members)]
