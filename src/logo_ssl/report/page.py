"""The page about runs: one HTML file with its style, scripts and images, and what its sections say."""

import base64
import math
import shlex
from collections.abc import Iterator, Mapping, Sequence
from statistics import mean, median, stdev
from typing import Any, NamedTuple

from jinja2 import Environment, PackageLoader, StrictUndefined

from ..run import other_losses
from ..system.terminal import counted, lasting, printable
from .gallery import COLOURS, MEASURES, atlas, group_look, map_data, thumbnail
from .results import Figure, Kind, figures, grouped, labels, rows, words, written
from .summary import RunSummary

MOST_NAMED = 4  # runs in the heading
MAIN_CURVES = 3  # that are not folded
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


def page(runs: Sequence[RunSummary], *, version: str | None = None) -> str:
    """The page as text; a served one has a version, and asks for newer ones."""
    names = ", ".join(run.name for run in runs) if 0 < len(runs) <= MOST_NAMED else f"{len(runs)} runs"
    text = TEMPLATES.get_template("page.html").render(
        title=f"LoGo: {names}",
        version=version,
        runs=runs,
        looks=[run_look(i) for i in range(len(runs))],
        main_curves=MAIN_CURVES,
        cards=cards(runs),
        remarks=remarks(runs),
        comparison=comparison(runs),
        differences=differences(runs),
        evaluations=evaluations(runs),
        not_shown=not_shown(runs),
        plots=plots(runs),
        maps=_maps(runs),
    )
    return printable(text)


def _maps(runs: Sequence[RunSummary]) -> dict[str, Any]:
    """What the script needs for maps; runs that saw the same images share them."""
    atlases, maps = dict[str, dict[str, Any]](), []
    for run in runs:
        if (found := run.collected.features) is not None:
            images = atlas([image.pixels for image in found.images])
            atlases.setdefault(images["src"], images)
            maps.append(map_data(run.name, found) | {"atlas": list(atlases).index(images["src"])})
    return {"maps": maps, "atlases": list(atlases.values())} if maps else {}


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
    named = labels(kinds)
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
    notes = [f"On {counted(figure.n_images, 'image')}; ± is the standard error."] if figure.n_images else []
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
    settings, made, images = run.settings, run.provenance, run.images
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


def comparison(runs: Sequence[RunSummary]) -> Table | None:
    """The figures that two groups have at least, side by side; of a single group, all; None for a single run."""
    groups, found = grouped(runs), dict[Kind, dict[str, list[Figure]]]()
    for group in groups:
        for figure in (figure for run in group.runs for figure in figures(run)):
            found.setdefault(figure.kind, {}).setdefault(group.letter, []).append(figure)
    found = {kind: of_group for kind, of_group in found.items() if len(of_group) >= min(2, len(groups))}
    if not found or sum(len(group.runs) for group in groups) < 2:
        return None
    named = labels(found)
    lines = [
        (f"{kind[0]}, {named[kind]}", *(_spread(of_group.get(each.letter, []), len(each.runs)) for each in groups))
        for kind, of_group in found.items()
    ]
    return Table("Mean ± standard deviation over n seeds", ("figure", *map(str, groups)), lines)


def _spread(found: Sequence[Figure], n_runs: int) -> str:
    """Mean, standard deviation and number of runs; of how many, if some lack the figure."""
    if not found:
        return ""
    values, n = [figure.value for figure in found], len(found)
    deviation = f" ± {found[0].written(stdev(values))}" if n > 1 else ""
    return f"{found[0].written(mean(values))}{deviation} (n={n}{f' of {n_runs}' if n < n_runs else ''})"


def evaluations(runs: Sequence[RunSummary]) -> list[Evaluation]:
    """Every evaluation, whole."""
    return [
        _evaluation(name if len(runs) == 1 else f"{run.name}: {name}", record, run.older.get(name))
        for run in runs
        for name, record in run.evaluations.items()
    ]


def _evaluation(title: str, record: Mapping[str, Any], older: str | None) -> Evaluation:
    found = rows(record)
    head = list(dict.fromkeys(key for row in found for key in row if not key.endswith("fingerprint")))
    cells = [[written(key, row[key]) if key in row else "" for key in head] for row in found]
    plain = {k: v for k, v in record.items() if k not in HIDDEN and isinstance(v, str | int | float)}
    settings = "; ".join(f"{key.replace('_', ' ')}: {written(key, value)}" for key, value in plain.items())
    protocol = record.get("protocol", "no protocol was saved")
    titles = [key.replace("_", " ") for key in head]
    return Evaluation(title, older, protocol, Table(title, titles, cells) if found else None, settings)


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


TEMPLATES = Environment(
    loader=PackageLoader("logo_ssl.report"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
TEMPLATES.filters |= {"words": words, "quote": shlex.quote, "facts": facts, "state": state}
TEMPLATES.filters["png"] = lambda content: "data:image/png;base64," + base64.b64encode(content).decode()
TEMPLATES.policies["json.dumps_kwargs"] = {"separators": (",", ":")}
TEMPLATES.globals |= {"thumbnail": thumbnail, "group_look": group_look, "measures": MEASURES}
