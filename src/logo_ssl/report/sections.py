"""What the sections of the page say: cards, tables, lists and curves without HTML, from summaries of runs."""

import math
from collections.abc import Iterator, Mapping, Sequence
from statistics import median
from typing import Any, NamedTuple

from ..run import other_losses
from ..system.terminal import lasting
from .gallery import COLOURS
from .results import Figure, Group, Kind, compared, figures, labels, rows, spread, words, written
from .summary import RunSummary

QUANTITIES = {
    "knn": "kNN top-1 while training",
    "loss": "loss",
    "z_rank": "rank of the latents",
    "z_std": "spread of the latents",
    "l_gg": "global-to-global loss",
    "l_lg": "local-to-global loss",
    "l_ll": "local-to-local loss",
    "omega": "omega, what the regressor gains",
    "ratio": "ratio of gradients",
    "lr": "learning rate",
    "images_per_s": "images per second",
}
"""What is logged while training, with the curves that matter most first."""
MOST_POINTS = 1000  # of a curve; more cannot be told apart on a screen
STROKES = ("none", "9 4", "4 3", "9 3 3 3", "14 4")
"""Dashes of curves, as SVG takes them."""
UNINTERESTING = ("name", "chosen")
HIDDEN = ("results", "protocol", "data_fingerprint", "about", "versions", "keys_not_in_checkpoint",
          "keys_without_place")  # fmt: skip
"""Entries of an evaluation that are shown elsewhere, or too long."""


class Table(NamedTuple):
    """A table; the first cell of a row is its heading."""

    caption: str
    head: Sequence[str]
    rows: Sequence[Sequence[str]]


class Bar(NamedTuple):
    """A number on a card, of a run or of what it is compared with; all in percent of the card's width."""

    label: str
    value: str
    length: float
    run: int | None = None
    error: float | None = None


class Card(NamedTuple):
    """A figure of all runs that have it, and what to compare it with."""

    title: str
    details: str
    unit: str
    bars: Sequence[Bar]
    notes: Sequence[str]


class Evaluation(NamedTuple):
    """A record of an evaluation as the page shows it."""

    title: str
    older: str | None
    """Of which weights it is, if not of the present ones."""
    protocol: str
    results: Table | None
    settings: str


def cards(runs: Sequence[RunSummary]) -> list[Card]:
    """The numbers to take away, how they were measured, and what to compare them with; accuracies first."""
    kinds: dict[Kind, list[tuple[int, Figure]]] = {}
    for i, run in enumerate(runs):
        found = figures(run)
        again = {each.details for each in found if len(runs) == 1 and each.name == "kNN" and len(each.baselines) > 1}
        for figure in found:
            partly = any(part.startswith("AP") and part != "AP" for part in figure.details)
            if not partly and figure.details[1:] not in again:
                kinds.setdefault(figure.kind, []).append((i, figure))
    named = labels(figure for found in kinds.values() for _, figure in found)
    return sorted((_card(runs, kinds[kind], named[kind]) for kind in kinds), key=lambda card: card.unit != "%")


def _card(runs: Sequence[RunSummary], found: Sequence[tuple[int, Figure]], details: str) -> Card:
    several, figure = len(runs) > 1, found[0][1]
    scale, differ = 100 if figure.unit == "share" else 1, len({each.baselines for _, each in found}) > 1
    bars = [
        Bar(runs[i].name if several else "this encoder", each.written(), scale * each.value, i, each.error)
        for i, each in found
    ]
    baselines = dict[tuple[str, float], Bar]()
    for i, each in found:
        for name, value in (*each.baselines, *_papers(runs[i], each)):
            label = f"{name} ({runs[i].name})" if differ else name
            baselines.setdefault((name, value), Bar(label, figure.written(value), scale * value))
    notes = (
        [f"On {figure.n_images:,} image{'s' * (figure.n_images != 1)}; ± is the standard error."]
        if figure.n_images
        else []
    )
    notes += [f"{runs[i].name}: {each.note}" if several else each.note for i, each in found if each.note]
    return Card(figure.name, details, figure.unit, [*bars, *baselines.values()], notes)


def _papers(run: RunSummary, figure: Figure) -> Iterator[tuple[str, float]]:
    """The paper's figure for the recipe of a run, on its data; the paper names neither k nor temperature."""
    for row in run.paper if f"on {run.data}" in figure.details else ():
        for protocol in ("knn", "linear"):
            if figure.name.lower().startswith(protocol) and row[protocol] is not None:
                yield f"the paper's {row['row']}, Table {row['table']}", row[protocol]


def remarks(runs: Sequence[RunSummary]) -> list[tuple[str, bool]]:
    """What keeps the numbers from being the last word: collapse, older weights, settings; and whether it is bad."""
    found = list[tuple[str, bool]]()
    for run in runs:
        of = f"{run.name}: " if len(runs) > 1 else ""
        found += [(f"{of}{sign}", True) for sign in run.signs]
        if run.older:
            found.append((f"{of}evaluations of older weights are not counted ({', '.join(run.older)}).", True))
        if run.paper and run.departures:
            differs = ", ".join(run.departures)
            found.append((f"{of}differs from the recipe with the paper's settings in {differs}.", False))
        last = next((line for line in reversed(run.metrics) if {"z_std", "z_rank"} <= line.keys()), None)
        if last and not run.signs:
            measured = f"spread {last['z_std']:.3f} of 1, effective rank {last['z_rank']:.1f} of at most"
            found.append((f"{of}no sign of collapse ({measured} {run.most_directions}).", False))
    return found


def facts(run: RunSummary) -> list[str]:
    """What a run is, in a line: method, images, epochs, time, hardware."""
    settings, made, images = run.settings, run.provenance, run.run.images()
    count = f" ({images['train_images']:,} images)" if images else ""
    found = [f"{settings['framework.kind']} with {settings['strategy.kind']}", settings["backbone"], run.data + count]
    if "seconds" in made:
        found.append(f"{lasting(made['seconds'])} on {made.get('hardware', 'unknown hardware')}")
    if speeds := [line["images_per_s"] for line in run.metrics if "images_per_s" in line]:
        found.append(f"{median(speeds):.0f} images/s")
    return found


def state(run: RunSummary) -> str:
    """Whether a run is finished, running or stopped, and when it will be done."""
    progress = run.progress
    if progress.state == "finished":
        return f"finished, {run.epochs} epochs"
    left = f", about {lasting(progress.seconds_left)} left" if progress.seconds_left is not None else ""
    return f"{progress.state}, {progress.epochs:.1f} of {run.epochs} epochs{left}"


def differences(runs: Sequence[RunSummary]) -> Table | None:
    """The settings in which the runs differ, side by side."""
    lines = []
    for field in dict.fromkeys(field for run in runs for field in run.settings if field not in UNINTERESTING):
        values = [words(run.settings[field]) if field in run.settings else "absent" for run in runs]
        if len(set(values)) > 1:
            lines.append((field, *values))
    return Table("Settings that differ", ("setting", *(run.name for run in runs)), lines) if lines else None


def comparison(groups: Sequence[Group]) -> Table | None:
    """The figures of the groups side by side; None for a single run."""
    found = compared(groups)
    if not found or sum(len(group.runs) for group in groups) < 2:
        return None
    named, lines = labels(figure for figure, _ in found), []
    for figure, values in found:
        cells = [spread(figure, values.get(group.letter, []), len(group.runs)) for group in groups]
        lines.append((f"{figure.name}, {named[figure.kind]}", *cells))
    return Table("Mean ± standard deviation over n seeds", ("figure", *map(str, groups)), lines)


def evaluations(runs: Sequence[RunSummary]) -> list[Evaluation]:
    """Every evaluation, whole."""
    return [
        _evaluation(name if len(runs) == 1 else f"{run.name}: {name}", record, run.older.get(name))
        for run in runs
        for name, record in run.evaluations.items()
    ]


def _evaluation(title: str, record: Mapping[str, Any], older: str | None) -> Evaluation:
    found = rows(record)
    head = list(dict.fromkeys(key for row in found for key in row))
    cells = [[written(key, row[key]) if key in row else "" for key in head] for row in found]
    plain = {k: v for k, v in record.items() if k not in HIDDEN and isinstance(v, str | int | float)}
    settings = "; ".join(f"{key.replace('_', ' ')}: {written(key, value)}" for key, value in plain.items())
    protocol = record.get("protocol", "no protocol was saved")
    return Evaluation(title, older, protocol, Table(title, head, cells) if found else None, settings)


def not_shown(runs: Sequence[RunSummary]) -> list[str]:
    """What is missing from the page, and why: once for all runs of which the same is missing."""
    found = dict[tuple[str, str], list[str]]()
    for run in runs:
        for missing in run.collected.missing:
            found.setdefault(missing, []).append(run.name)
    return [f"{', '.join(names)}: {what}: {why}" for (what, why), names in found.items()]


# -- Curves: one small plot for each quantity that was logged, every run in it, over epochs


def plots(runs: Sequence[RunSummary]) -> list[dict[str, Any]]:
    """For each quantity that any run has: its title, a sentence about its last values, and the traces."""
    made = []
    others = other_losses(QUANTITIES, (line for run in runs for line in run.metrics))
    for name, title in (QUANTITIES | {name: name for name in others}).items():
        traces = [trace for i, run in enumerate(runs) if (trace := _trace(run, i, name))]
        if traces:
            unit, axis = (" %", f"{title}{_protocol(runs)} (%)") if name == "knn" else ("", title)
            ends = ", ".join(f"{runs[trace['run']].name}: {words(trace['y'][-1])}{unit}" for trace in traces)
            made.append({"name": name, "title": axis, "summary": f"{axis} over epochs; last {ends}", "traces": traces})
    return made


def run_look(i: int) -> dict[str, str]:
    """Colour and dashes of run i, told apart without colour as well."""
    return {"color": COLOURS[i % len(COLOURS)], "dash": STROKES[(i // len(COLOURS) + i) % len(STROKES)]}


def _protocol(runs: Sequence[RunSummary]) -> str:
    """k and tau, as they were logged."""
    lines = (line for run in runs for line in run.metrics if {"knn", "knn_k", "knn_tau"} <= set(line))
    known = dict.fromkeys(f"k={line['knn_k']}, tau={line['knn_tau']}" for line in lines)
    return f", {' or '.join(known)}" if known else ""


def _trace(run: RunSummary, i: int, name: str) -> dict[str, Any] | None:
    points = [(line["step"], line[name]) for line in run.metrics if name in line]
    if not points:
        return None
    thin = [*points[:: -(-len(points) // MOST_POINTS)], points[-1]] if len(points) > MOST_POINTS else points
    x = [round(step * run.epochs_per_step, 4) for step, _ in thin]
    y = [float(f"{value:.6g}") if math.isfinite(value) else None for _, value in thin]
    return {"run": i, "x": x, "y": y, **run_look(i)}
