"""What the sections of the page say: tables, lists and curves without HTML, from runs as they were summarised."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from ..run import other_losses
from .gallery import COLOURS
from .results import QUANTITIES, Compared, Group, compared, figures, labels, percent, rows, words, written
from .summary import RunSummary, epochs_ended

MOST_POINTS = 1000  # of a curve; more cannot be told apart on a screen
FEW = 25  # points that are marked each
STROKES = {"solid": "none", "dash": "9 4", "dot": "4 3", "dashdot": "9 3 3 3", "longdash": "14 4"}
"""Dashes of curves, by plotly's name, as SVG takes them."""
UNINTERESTING = ("name", "chosen")
HIDDEN = ("results", "protocol", "data_fingerprint", "about", "versions", "keys_not_in_checkpoint",
          "keys_without_place")  # fmt: skip
"""Entries of an evaluation that are shown elsewhere, or too long."""


class Table(NamedTuple):
    """A table; the first cell of a row is its heading."""

    caption: str
    head: Sequence[str]
    rows: Sequence[Sequence[str]]


class Evaluation(NamedTuple):
    """A record of an evaluation as the page shows it."""

    title: str
    older: str | None
    """Of which weights it is, if not of the present ones."""
    protocol: str
    results: Table | None
    settings: str


def headline(runs: Sequence[RunSummary]) -> Table:
    """The numbers to take away, how they were measured, and what to compare them with."""
    found = {run: [figure for figure in figures(run) if figure.higher_is_better] for run in runs}
    named = labels(figure for of_run in found.values() for figure in of_run)
    lines = list[tuple[str, ...]]()
    for run, of_run in found.items():
        lines += [(run.name, named[figure.kind], figure.in_full(), figure.compared_with) for figure in of_run]
        if not of_run:
            lines.append((run.name, "accuracy", "not measured", "logo-ssl eval knn measures it, on images with labels"))
        lines += [(run.name, *state) for state in _states(run)]
    several = len(runs) > 1
    head = ("run", "measured", "figure", "compared with")
    caption = "The numbers, how they were measured, and what to compare them with; all others are under Evaluations"
    return Table(caption, head[not several :], [line[not several :] for line in lines])


def _states(run: RunSummary) -> Iterator[tuple[str, str, str]]:
    """What keeps the numbers from being the last word."""
    for sentence in run.damages:
        yield sentence, "damaged", ""
    if older := run.older():
        yield f"evaluations of older weights: {', '.join(older)}", "not counted", "logo-ssl eval measures these weights"
    if not run.finished:
        done = max((line["epoch"] for line in run.metrics if "epoch" in line), default=0)
        state = f"{max(run.epochs_logged, done)} of {run.epochs} epochs"
        yield state, "not finished", "logo-ssl resume goes on if it is not running"


def health(runs: Sequence[RunSummary]) -> list[tuple[str, bool]]:
    """Damages and signs of collapse, or the last spread and rank of the latents; and whether it is bad news."""
    found = list[tuple[str, bool]]()
    for run in runs:
        found += [(f"{run.name}: {sentence}", True) for sentence in (*run.damages, *run.signs)]
        last = next((line for line in reversed(run.metrics) if {"z_std", "z_rank"} <= line.keys()), None)
        if run.signs:
            continue
        if last is None:
            found.append((f"{run.name}: nothing was measured{'' if run.finished else ' yet'}.", False))
        else:
            measured = f"spread of the latents {last['z_std']:.3f} of 1, effective rank {last['z_rank']:.1f}"
            most = f"{measured} of at most {run.most_directions}"
            found.append((f"{run.name}: no sign of collapse at the last measurement ({most}).", False))
    return found


def differences(runs: Sequence[RunSummary]) -> Table | None:
    """The settings in which the runs differ, side by side."""
    lines = []
    for field in dict.fromkeys(field for run in runs for field in run.settings if field not in UNINTERESTING):
        values = [words(run.settings[field]) if field in run.settings else "absent" for run in runs]
        if len(set(values)) > 1:
            lines.append((field, *values))
    return Table("Settings that differ", ("setting", *(run.name for run in runs)), lines) if lines else None


def group_notes(groups: Sequence[Group]) -> list[str]:
    """Which runs count for nothing in a comparison, and which have no last values."""
    notes = []
    if repeated := [run.name for group in groups for run in group.repeated]:
        notes.append(f"Of runs with the same recipe and seed one counts; left out: {', '.join(repeated)}.")
    if cut := [run for group in groups for run in group.runs if not run.logged_to_the_end]:
        named = ", ".join(f"{run.name} ({run.epochs_logged} of {run.epochs} epochs)" for run in cut)
        notes.append(f"Logs that do not reach the end of training have no last values: {named}.")
    return notes


def comparison(groups: Sequence[Group]) -> Table | None:
    """The figures of the groups side by side, and which is better; None for a single run."""
    found = sorted(compared(groups), key=lambda each: not each.figure.higher_is_better)
    if not found or sum(len(group.runs) for group in groups) < 2:
        return None
    named = labels(each.figure for each in found)

    def cells(each: Compared) -> list[str]:
        spreads = ((each.spreads.get(group.letter), len(group.runs)) for group in groups)
        return [named[each.figure.kind], *("" if s is None else s.written(each.figure, n) for s, n in spreads)]

    caption, head = "Mean ± standard deviation over seeds", ("figure", *map(str, groups))
    if len(groups) == 1:
        return Table(caption, head, [cells(each) for each in found])
    caption += (
        ". A group is better if its 95 % interval (Student's t) is above all others'; of many figures some may be so "
        "by chance. Losses and speeds have no good direction"
    )
    return Table(caption, (*head, "better"), [[*cells(each), each.better()] for each in found])


def compared_with_the_paper(runs: Sequence[RunSummary]) -> Table | None:
    """What was measured next to the paper's rows for the same recipe."""
    measured = {run: [f for f in figures(run) if f.evaluation.startswith(("knn", "linear"))] for run in runs}
    named = labels(figure for of_run in measured.values() for figure in of_run)

    def here(run: RunSummary, protocol: str) -> str:
        found = [figure for figure in measured[run] if figure.evaluation.startswith(protocol)]
        return "; ".join(f"{figure.written()} ({named[figure.kind]})" for figure in found) or "not measured"

    lines = [
        (
            run.name,
            f"Table {row['table']}: {row['row']}{', with settings of our choice' if run.tuned else ''}",
            percent(row["knn"]),
            here(run, "knn"),
            percent(row["linear"]),
            here(run, "linear"),
            ", ".join(run.departures) or "none",
        )
        for run in runs
        for row in run.paper
    ]
    differs = "differs from the recipe with the paper's settings in"
    head = ("run", "paper", "paper's kNN", "kNN here", "paper's linear", "linear here", differs)
    return Table("Top-1 in percent; the paper names no k and no temperature", head, lines) if lines else None


def evaluations(runs: Sequence[RunSummary]) -> list[Evaluation]:
    """Every evaluation, whole."""
    return [
        _evaluation(f"{run.name}: {name}", record, older.get(name))
        for run, older in ((run, run.older()) for run in runs)
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
            unit = " %" if name == "knn" else ""
            ends = ", ".join(f"{runs[trace['run']].name}: {trace['y'][-1]:.4g}{unit}" for trace in traces)
            axis = f"{title}{_protocol(runs)} (%)" if name == "knn" else title
            made.append({"name": name, "title": axis, "summary": f"{axis} over epochs; last {ends}", "traces": traces})
    return made


def run_look(i: int) -> dict[str, str]:
    """Colour and dashes of run i, told apart without colour as well."""
    return {"color": COLOURS[i % len(COLOURS)], "dash": list(STROKES)[(i // len(COLOURS) + i) % len(STROKES)]}


def swatches(runs: Sequence[RunSummary]) -> list[tuple[str, str]]:
    """Colour and dashes of each run's curves, as SVG takes them."""
    found = [run_look(i) for i in range(len(runs))]
    return [(look["color"], STROKES[look["dash"]]) for look in found]


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
    scale = _epochs_per_step(run)
    return {
        "run": i,
        "x": [round(step * scale, 4) for step, _ in thin],
        "y": [float(f"{value:.6g}") for _, value in thin],
        "mode": "lines+markers" if len(thin) <= FEW else "lines",
        "line": run_look(i),
    }


def _epochs_per_step(run: RunSummary) -> float:
    """From the last line that ends an epoch (kNN or spread of latents), else as many epochs as the last line began."""
    for line in reversed(run.metrics):
        if (epochs := epochs_ended(line)) and line["step"]:
            return epochs / line["step"]
    last = run.metrics[-1]
    return (last.get("epoch", 0) + 1) / last["step"] if last["step"] else 1.0
