"""Which runs are better, by which figure? Runs that differ in their seed alone are one group, with its spread."""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from statistics import mean, stdev
from typing import Any, NamedTuple

from ..text import listed
from .markup import Html, joined, table, tag
from .reading import Told
from .results import Figure, Kind, figures, labels

NAMING = ("name", "paper", "chosen", "seed")
T95 = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131)
"""Student's t for 95 % on both sides, by degrees of freedom from 1; beyond them 2.131 is a little wide."""

ABOUT_VERDICTS = (
    "Mean ± standard deviation over seeds. One is called better only where 95 % intervals of the means (Student's "
    "t) lie apart; of many figures some may do so by chance"
)
ABOUT_THE_REST = "Mean ± standard deviation over seeds of figures that are neither better high nor better low"


class Group(NamedTuple):
    """Runs of one recipe, one for each seed, under a letter."""

    letter: str
    runs: tuple[Told, ...]
    repeated: tuple[Told, ...] = ()
    """Runs of a seed that is there already: they tell nothing of chance."""

    def __str__(self) -> str:
        return f"{self.letter}: {', '.join(run.name for run in self.runs)}"


class Spread(NamedTuple):
    """A figure over the runs of a group."""

    values: tuple[float, ...]

    @property
    def mean(self) -> float:
        """Over the runs."""
        return mean(self.values)

    def interval(self) -> tuple[float, float] | None:
        """95 % for the mean, by Student's t; unknown for one run."""
        n = len(self.values)
        if n < 2:
            return None
        half = T95[min(n - 2, len(T95) - 1)] * stdev(self.values) / math.sqrt(n)
        return self.mean - half, self.mean + half

    def written(self, kind: Figure, n_runs: int) -> str:
        """Mean, standard deviation and number of runs; of how many, where some lack the figure."""
        n = len(self.values)
        beside = f" ± {_deviation(kind, stdev(self.values))}" if n > 1 else ""
        return f"{kind.written(self.mean)}{beside} (n={n}{f' of {n_runs}' if n < n_runs else ''})"


def grouped(runs: Sequence[Told]) -> list[Group]:
    """The runs by recipe, of each seed one: names, places and settings that change nothing of what is learned apart."""
    found: dict[str, list[Told]] = {}
    for run in runs:
        images = run.images or run.recipe["data"]
        kept = {field: value for field, value in run.recipe.items() if field not in NAMING and run.counts(field)}
        found.setdefault(json.dumps(kept | {"data": images}, sort_keys=True), []).append(run)
    return [Group(_letter(i), *_by_seed(members)) for i, members in enumerate(found.values())]


def comparison(groups: Sequence[Group]) -> Iterator[tuple[Figure, dict[str, Spread]]]:
    """Each figure that two groups have at least, with its spread in each."""
    kinds: dict[Kind, Figure] = {}
    spreads: dict[Kind, dict[str, list[float]]] = {}
    for group in groups:
        for run in group.runs:
            for figure in figures(run):
                kinds.setdefault(figure.kind, figure)
                spreads.setdefault(figure.kind, {}).setdefault(group.letter, []).append(figure.value)
    for kind, found in spreads.items():
        if len(found) > 1:
            yield kinds[kind], {letter: Spread(tuple(values)) for letter, values in found.items()}


def verdict(kind: Figure, spreads: Mapping[str, Spread]) -> str:
    """Which group is better, if that can be said: where its interval lies apart from every other."""
    if kind.better == "neither":
        return ""
    order = sorted(spreads, key=lambda name: spreads[name].mean, reverse=kind.better == "higher")
    if spreads[order[0]].mean == spreads[order[1]].mean:
        return "equal"
    single = [name for name in order if len(spreads[name].values) < 2]
    if single:
        few = "one run each" if len(single) == len(order) else f"one run of {listed(sorted(single))}"
        return f"{order[0]} is {kind.better}; by {few} this may be chance"
    if flat := [name for name in order if len(set(spreads[name].values)) == 1]:
        return (
            f"{order[0]} is {kind.better}; seeds of {listed(flat)} agree in every digit, so how far they vary is open"
        )
    best = spreads[order[0]].interval()
    apart = [name for name in order[1:] if not _overlap(best, spreads[name].interval())]
    if len(apart) == len(order) - 1:
        return f"{order[0]} is better"
    close = [name for name in order[1:] if name not in apart]
    return f"{order[0]} is {kind.better}, but its interval overlaps that of {listed(close)}"


def better(runs: Sequence[Told]) -> Html:
    """The figures of the groups side by side, and which is better; nothing for one group."""
    if len(runs) < 2:
        return Html("")
    groups = grouped(runs)
    return joined((_left_out(groups), _over_seeds(groups[0]) if len(groups) == 1 else _side_by_side(groups)))


def _side_by_side(groups: Sequence[Group]) -> Html:
    found = list(comparison(groups))
    if not found:
        return tag("p", "The runs have no figure in common.")
    named = labels(kind for kind, _ in found)
    judged = [(kind, spreads) for kind, spreads in found if kind.better != "neither"]
    others = [(kind, spreads) for kind, spreads in found if kind.better == "neither"]
    parts = []
    if judged:
        rows = [(*_cells(named, kind, spreads, groups), verdict(kind, spreads)) for kind, spreads in judged]
        parts.append(table(ABOUT_VERDICTS, ("figure", *map(str, groups), "which is better"), rows))
    if others:
        rows = [_cells(named, kind, spreads, groups) for kind, spreads in others]
        parts.append(table(ABOUT_THE_REST, ("figure", *map(str, groups)), rows))
    return joined(parts)


def _cells(
    named: Mapping[Kind, str], kind: Figure, spreads: Mapping[str, Spread], groups: Sequence[Group]
) -> tuple[str, ...]:
    """A figure's name and its spread in each group."""
    found = ((spreads.get(group.letter), len(group.runs)) for group in groups)
    return (named[kind.kind], *("" if spread is None else spread.written(kind, n) for spread, n in found))


def _by_seed(runs: Sequence[Told]) -> tuple[tuple[Told, ...], tuple[Told, ...]]:
    """One run for each seed, a finished one where there is one; and the others."""
    first: dict[Any, Told] = {}
    for run in sorted(runs, key=lambda run: not run.provenance):
        first.setdefault(run.recipe.get("seed"), run)
    counts = [first[run.recipe.get("seed")] is run for run in runs]
    kept = tuple(run for run, counted in zip(runs, counts, strict=True) if counted)
    return kept, tuple(run for run, counted in zip(runs, counts, strict=True) if not counted)


def _left_out(groups: Sequence[Group]) -> Html:
    """Which runs count for nothing here, and which have no last values."""
    parts = []
    if names := [run.name for group in groups for run in group.repeated]:
        told = "Of runs with the same recipe and the same seed one counts; left out here"
        parts.append(tag("p", f"{told} ({len(names)}): {', '.join(names)}."))
    if open_ended := [run for group in groups for run in group.runs if not run.told_to_the_end]:
        told = ", ".join(
            f"{run.name} (known to epoch {run.epochs_told} of {run.recipe['epochs']})" for run in open_ended
        )
        parts.append(tag("p", f"The end of training is not known, so that no last values are compared, of: {told}."))
    return joined(parts)


def _over_seeds(group: Group) -> Html:
    if len(group.runs) < 2:
        return Html("")
    kinds: dict[Kind, list[Figure]] = {}
    for run in group.runs:
        for figure in figures(run):
            kinds.setdefault(figure.kind, []).append(figure)
    named = labels(found[0] for found in kinds.values())
    n = len(group.runs)
    rows = [(named[kind], Spread(tuple(f.value for f in found)).written(found[0], n)) for kind, found in kinds.items()]
    told = tag("p", f"The {n} runs differ in nothing that changes training but their seed:")
    return joined((told, table("Mean ± standard deviation over seeds", ("figure", str(group)), rows)))


def _deviation(kind: Figure, value: float) -> str:
    return kind.written(value) if kind.unit else f"{value:.2g}" if value < 100 else f"{value:.0f}"


def _letter(i: int) -> str:
    return chr(ord("A") + i) if i < 26 else f"{_letter(i // 26 - 1)}{_letter(i % 26)}"


def _overlap(one: tuple[float, float] | None, other: tuple[float, float] | None) -> bool:
    return one is None or other is None or (one[0] <= other[1] and other[0] <= one[1])
