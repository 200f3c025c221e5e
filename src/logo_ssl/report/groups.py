"""Groups of runs that differ in their seed alone: their figures with spread, and which group is better."""

import json
import math
from collections.abc import Mapping, Sequence
from statistics import mean, stdev
from typing import Any, NamedTuple

from .results import Figure, Kind, figures
from .summary import RunSummary

NAMING = ("name", "paper", "chosen", "seed")
T95 = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131)
"""Student's t for 95 % on both sides, by degrees of freedom from 1; beyond them 2.131 is a little wide."""


class Group(NamedTuple):
    """Runs of one recipe, one for each seed, under a letter."""

    letter: str
    runs: tuple[RunSummary, ...]
    repeated: tuple[RunSummary, ...] = ()
    """Runs of a seed that is there already: they say nothing about chance."""

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
        """Mean, standard deviation and number of runs; of how many, if some lack the figure."""
        n, deviation = len(self.values), ""
        if n > 1:
            spread = stdev(self.values)
            deviation = f" ± {kind.written(spread) if kind.unit or spread >= 100 else f'{spread:.2g}'}"
        return f"{kind.written(self.mean)}{deviation} (n={n}{f' of {n_runs}' if n < n_runs else ''})"


class Compared(NamedTuple):
    """A figure with its spread in each group that has it, by the group's letter."""

    figure: Figure
    spreads: Mapping[str, Spread]

    def verdict(self) -> str:
        """Which group is better: one whose interval is apart from every other; else only which is higher."""
        if not self.figure.higher_is_better:
            return ""
        best, *others = sorted(self.spreads, key=lambda letter: self.spreads[letter].mean, reverse=True)
        if any(self.spreads[best].mean == self.spreads[letter].mean for letter in others):
            return "equal"
        if any(len(set(self.spreads[letter].values)) < 2 for letter in (best, *others)):
            return f"{best} is higher; without a spread over seeds this may be chance"
        close = [letter for letter in others if _overlap(self.spreads[best], self.spreads[letter])]
        return f"{best} is higher; its interval overlaps that of {', '.join(close)}" if close else f"{best} is better"


def grouped(runs: Sequence[RunSummary]) -> list[Group]:
    """The runs by recipe, one for each seed: apart from names, places, and settings without effect on what is learned.

    Images are compared by their fingerprint if it is known, since they may have moved.
    """
    found: dict[str, list[RunSummary]] = {}
    for run in runs:
        idle = {*NAMING, *run.without_effect}
        kept = {field: value for field, value in run.settings.items() if field not in idle}
        kept["data"] = run.images or run.settings.get("data")
        found.setdefault(json.dumps(kept, sort_keys=True, default=str), []).append(run)
    return [Group(_letter(i), *_by_seed(members)) for i, members in enumerate(found.values())]


def compared(groups: Sequence[Group]) -> list[Compared]:
    """Each figure that two groups have at least; of a single group, all its figures."""
    kinds: dict[Kind, Figure] = {}
    spreads: dict[Kind, dict[str, list[float]]] = {}
    for group in groups:
        for run in group.runs:
            for figure in figures(run):
                kinds.setdefault(figure.kind, figure)
                spreads.setdefault(figure.kind, {}).setdefault(group.letter, []).append(figure.value)
    least = min(2, len(groups))
    return [
        Compared(kinds[kind], {letter: Spread(tuple(values)) for letter, values in found.items()})
        for kind, found in spreads.items()
        if len(found) >= least
    ]


def _by_seed(runs: Sequence[RunSummary]) -> tuple[tuple[RunSummary, ...], tuple[RunSummary, ...]]:
    """One run for each seed, a finished one if there is one; and the others."""
    first: dict[Any, RunSummary] = {}
    for run in sorted(runs, key=lambda run: not run.finished):
        first.setdefault(run.settings.get("seed"), run)
    counts = [first[run.settings.get("seed")] is run for run in runs]
    kept = tuple(run for run, counted in zip(runs, counts, strict=True) if counted)
    return kept, tuple(run for run, counted in zip(runs, counts, strict=True) if not counted)


def _letter(i: int) -> str:
    return chr(ord("A") + i) if i < 26 else f"{_letter(i // 26 - 1)}{_letter(i % 26)}"


def _overlap(one: Spread, other: Spread) -> bool:
    (low, high), (other_low, other_high) = one.interval() or (0, 0), other.interval() or (0, 0)
    return low <= other_high and other_low <= high
