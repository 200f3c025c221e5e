"""What the sections of the page say: tables and lists without HTML, from runs as they were summarised."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from ..paper_tables import DETECTION, DETECTION_COLUMNS, DETECTION_MEASURES, TRANSFER, TRANSFER_SETS
from ..run import is_number
from .curves import looks
from .gallery import MEASURES
from .groups import Compared, Group, compared, grouped
from .results import (
    TOP1,
    Figure,
    Kind,
    choice,
    evaluations_of,
    how_measured,
    labels,
    on,
    percent,
    percent_on,
    precision,
    rows,
    top1s,
    while_training,
    words,
    written,
)
from .summary import RunSummary

MOST_BAD = 50
STROKES = {"solid": "none", "dash": "9 4", "dot": "4 3", "dashdot": "9 3 3 3", "longdash": "14 4"}
UNINTERESTING = ("name", "paper", "chosen")
HIDDEN = (
    "results",
    "protocol",
    "data_fingerprint",
    "about",
    "versions",
    "keys_not_in_checkpoint",
    "keys_without_place",
)
ALIKE = "Only encoders that were trained on the same data can be compared"


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


class Recipe(NamedTuple):
    """How a run was made, and how to make it again."""

    name: str
    command: str | None
    planned: int | None
    """Epochs that it was planned for at first, if it was made longer: its learning rate took another course."""
    provenance: Table | None
    settings: Table


class _Entry(NamedTuple):
    """A figure of the headline as it is written, and what to compare it with."""

    figure: Figure
    written: str
    baselines: str = ""


def swatches(runs: Sequence[RunSummary]) -> list[tuple[str, str]]:
    """Colour and dashes of each run's curves, as SVG takes them."""
    found = [looks(i) for i in range(len(runs))]
    return [(look["color"], STROKES[look["dash"]]) for look in found]


def headline(runs: Sequence[RunSummary]) -> Table:
    """The numbers to take away, how they were measured, and what to compare them with."""
    found = [(run, list(_entries(run))) for run in runs]
    named = labels(entry.figure for _, entries in found for entry in entries)
    lines = list[tuple[str, ...]]()
    for run, entries in found:
        lines += [(run.name, named[entry.figure.kind], entry.written, entry.baselines) for entry in entries]
        if not entries:
            lines.append((run.name, "accuracy", "not measured", "logo-ssl eval knn measures it, on images with labels"))
        lines += [(run.name, *state) for state in _states(run)]
    several = len(runs) > 1
    head = ("run", "measured", "figure", "compared with")
    caption = "The numbers, how they were measured, and what to compare them with; all others are under Evaluations"
    return Table(caption, head[not several :], [line[not several :] for line in lines])


def health(runs: Sequence[RunSummary]) -> list[tuple[str, bool]]:
    """Damages and signs of collapse, or that there is none; and whether it is bad news."""
    found = list[tuple[str, bool]]()
    for run in runs:
        found += [(f"{run.name}: {sentence}", True) for sentence in (*run.damages, *run.signs)]
        lines = [line for line in run.metrics if is_number(line.get("z_std")) and is_number(line.get("z_rank"))]
        if lines and not run.signs:
            most = f" of at most {run.most_directions}" if run.most_directions else ""
            last = (
                f"spread of the latents {lines[-1]['z_std']:.3f} of 1, effective rank {lines[-1]['z_rank']:.1f}{most}"
            )
            found.append((f"{run.name}: no sign of collapse at the last measurement ({last}).", False))
        elif not run.signs:
            found.append((f"{run.name}: nothing was measured{'' if run.finished else ' yet'}.", False))
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


def comparison(groups: Sequence[Group]) -> list[Table]:
    """The figures of the groups side by side, and which is better."""
    found = compared(groups)
    if max(len(group.runs) for group in groups) < 2 and len(groups) < 2:
        return []
    named = labels(each.figure for each in found)

    def cells(each: Compared) -> tuple[str, ...]:
        spreads = ((each.spreads.get(group.letter), len(group.runs)) for group in groups)
        return (named[each.figure.kind], *("" if s is None else s.written(each.figure, n) for s, n in spreads))

    head = ("figure", *map(str, groups))
    judged = [each for each in found if each.figure.higher_is_better]
    others = [each for each in found if not each.figure.higher_is_better]
    if len(groups) == 1:
        return [Table("Mean ± standard deviation over seeds", head, [cells(each) for each in (*judged, *others)])]
    caption = (
        "Mean ± standard deviation over seeds. One is better only if 95 % intervals of the means (Student's t) are "
        "apart; of many figures some may be so by chance"
    )
    tables = [Table(caption, (*head, "which is better"), [(*cells(each), each.verdict()) for each in judged])]
    tables.append(Table("Mean ± standard deviation over seeds, no good direction", head, [cells(e) for e in others]))
    return [table for table in tables if table.rows]


def paper_tables(runs: Sequence[RunSummary]) -> list[Table]:
    """What was measured next to the paper's rows: of the same recipe, and of Tables 5 and 6."""
    return [table for table in (_accuracies_table(runs), _transfer_table(runs), _detection_table(runs)) if table.rows]


def evaluations(runs: Sequence[RunSummary]) -> list[Evaluation]:
    """Every evaluation, whole."""
    return [
        _evaluation(f"{run.name}: {name}", record, older.get(name))
        for run, older in ((run, run.older()) for run in runs)
        for name, record in run.evaluations.items()
    ]


def bad_images(runs: Sequence[RunSummary]) -> list[Table]:
    """Which images could not be read, and why; the first of them if they are many."""
    tables = []
    for run in runs:
        if found := run.bad_images:
            caption = f"{run.name}: {len(found)} image{'s' * (len(found) != 1)} could not be read"
            caption += f"; the first {MOST_BAD}" if len(found) > MOST_BAD else ""
            tables.append(Table(caption, ("image", "reason"), found[:MOST_BAD]))
    return tables


def not_shown(runs: Sequence[RunSummary]) -> list[str]:
    """What is missing from the page, and why: once for all runs of which the same is missing."""
    found = dict[tuple[str, str], list[str]]()
    for run in runs:
        for missing in run.missing:
            found.setdefault(missing, []).append(run.name)
    return [f"{', '.join(names)}: {what}: {why}" for (what, why), names in found.items()]


def recipes(runs: Sequence[RunSummary]) -> list[Recipe]:
    """Every setting and who made it, with the command that runs it again."""
    found = []
    for run in runs:
        made = run.provenance | run.versions
        planned = run.provenance.get("epochs_first_planned")
        provenance = Table(f"{run.name}: provenance", ("what", "value"), [(k, words(v)) for k, v in made.items()])
        settings = [(key, words(value)) for key, value in run.settings.items() if key != "paper"]
        found.append(
            Recipe(
                run.name,
                run.command,
                planned if planned != run.provenance.get("epochs") else None,
                provenance if made else None,
                Table(f"{run.name}: every setting", ("setting", "value"), settings),
            )
        )
    return found


def compared_groups(runs: Sequence[RunSummary]) -> list[Group]:
    """The groups of several runs; none for a single run."""
    return grouped(runs) if len(runs) > 1 else []


def _states(run: RunSummary) -> Iterator[tuple[str, str, str]]:
    """What keeps the numbers from being the last word."""
    for sentence in run.damages:
        yield sentence, "damaged", ""
    if older := run.older():
        yield f"evaluations of older weights: {', '.join(older)}", "not counted", "logo-ssl eval measures these weights"
    if not run.finished:
        begun = max((line["epoch"] for line in run.metrics if isinstance(line.get("epoch"), int)), default=0)
        done = max(run.epochs_logged, begun)
        yield f"{done} of {run.epochs} epochs", "not finished", "logo-ssl resume goes on if it is not running"


def _entries(run: RunSummary) -> Iterator[_Entry]:
    if run.knn_lines:
        yield _last_knn(run)
    yield from _accuracies(run)
    for record in evaluations_of(run, "transfer"):
        if "value" in record:
            what = f"transfer to {record.get('data')}, {record.get('metric')}"
            number = f"{percent(record['value'])} %{on(record.get('test_images'))}"  # may be a mean per class
            yield _Entry(_unvalued(what, record), number, _joined(*_guesses(record), choice(record)))
    for kind in ("detect", "segment"):
        for record in evaluations_of(run, kind):
            for row in rows(record):
                what = f"{kind}: AP of {row.get('of')}, {row.get('measure')}, on {record.get('data')}"
                number = f"{percent(row.get('AP'))} %{on(record.get('test_pictures'))}"
                yield _Entry(_unvalued(what, record), number)
    yield from _rankings(run)


def _last_knn(run: RunSummary) -> _Entry:
    """The last kNN that was logged, with the untrained encoder's if it was measured in the same way."""
    first, last = run.knn_lines[0], run.knn_lines[-1]
    epoch, number = last.get("epochs_done"), percent_on(last["knn"], last.get("knn_images"))
    if epoch == 0:
        return _Entry(while_training(run, last, "untrained"), number)
    alike = all(first.get(key) == last.get(key) for key in ("knn_k", "knn_tau", "knn_images", "knn_of", "knn_bank_of"))
    untrained = f"untrained encoder: {percent(first['knn'])} %" if first.get("epochs_done") == 0 and alike else ""
    return _Entry(while_training(run, last, f"after epoch {epoch} of {run.epochs}"), number, untrained)


def _accuracies(run: RunSummary) -> Iterator[_Entry]:
    """Top-1, each kind once, with other features that were measured in the same way, and guesses."""
    seen = set[Kind]()
    for kind in TOP1:
        for figure, row, record in top1s(run, kind):
            if figure.kind in seen:
                continue
            seen.add(figure.kind)
            alike = [other for other in rows(record) if all(other.get(key) == row.get(key) for key in ("k", "tau"))]
            others = [other for other in alike if other.get("features", "trained encoder") != "trained encoder"]
            baselines = [f"{other['features']}: {percent(other.get('top1'))} %" for other in others]
            number = percent_on(figure.value, record.get("test_images"))
            yield _Entry(figure, number, _joined(*baselines, *_guesses(record | row), figure.chosen))


def _guesses(about: Mapping[str, Any]) -> Iterator[str]:
    """What needs no features: chance, and always the commonest class if that is right more often."""
    chance, commonest = about.get("chance"), about.get("commonest")
    if is_number(chance):
        yield f"chance: {percent(chance)} %"
    if is_number(commonest) and (not is_number(chance) or commonest > chance):
        yield f"always the commonest class: {percent(commonest)} %"


def _rankings(run: RunSummary) -> Iterator[_Entry]:
    """Of each task one: on the run's own images if it can be, over most references."""
    best: dict[str, tuple[tuple[bool, float], _Entry]] = {}
    for record in evaluations_of(run, "affinity"):
        own = record.get("source", record.get("data")) == run.settings.get("data")
        for row in rows(record):
            if row.get("metric") == "AUC":
                references, task = row.get("references"), words(row.get("task"))
                weight = (own, references if is_number(references) else 0)
                if task not in best or weight > best[task][0]:
                    best[task] = weight, _ranking(row, record)
    yield from (entry for _, entry in best.values())


def _ranking(row: Mapping[str, Any], record: Mapping[str, Any]) -> _Entry:
    where = f"{row.get('references')} references, on {record.get('data')}, with 95 % intervals"
    numbers = [f"{name} {words(row[measure])}" for measure, name in MEASURES.items() if measure in row]
    chance = f"chance: {row['chance']:.3f}" if isinstance(row.get("chance"), float) else ""
    return _Entry(_unvalued(f"AUC of {row.get('task')}, {where}", record), "; ".join(numbers), chance)


def _unvalued(what: str, record: Mapping[str, Any]) -> Figure:
    """What was measured and how, if the number is written elsewhere."""
    return Figure(what, 0.0, how=how_measured(record))


def _joined(*parts: str) -> str:
    return "; ".join(filter(None, parts))


def _accuracies_table(runs: Sequence[RunSummary]) -> Table:
    measured = [each.figure for run in runs for kind in ("knn", "linear") for each in top1s(run, kind)]
    named = labels(measured)

    def ours(run: RunSummary, kind: str) -> str:
        found = (each.figure for each in top1s(run, kind))
        return "; ".join(f"{f.written()} ({_joined(named[f.kind], f.chosen)})" for f in found) or "not measured"

    lines = [
        (
            run.name,
            f"Table {row.get('table')}: {row.get('row')}{', with settings of our choice' if run.tuned else ''}",
            percent(row.get("knn")),
            ours(run, "knn"),
            percent(row.get("linear")),
            ours(run, "linear"),
            ", ".join(run.departures) or "none",
        )
        for run in runs
        for row in run.paper
    ]
    differs = "differs from the recipe with the paper's settings in"
    head = ("run", "paper", "paper's kNN", "kNN here", "paper's linear", "linear here", differs)
    return Table("Top-1 in percent; the paper names no k and no temperature", head, lines)


def _transfer_table(runs: Sequence[RunSummary]) -> Table:
    """Ours above the paper's, for the sets that were measured."""
    measured: dict[str, dict[str, float]] = {}
    for run in runs:
        for record in evaluations_of(run, "transfer"):
            if is_number(record.get("value")):
                measured.setdefault(run.name, {})[str(record.get("metric"))] = record["value"]
    metrics = list(dict.fromkeys(metric for found in measured.values() for metric in found))
    sets = [next((name for name in TRANSFER_SETS if metric.startswith(f"{name} ")), None) for metric in metrics]
    lines = [(name, *(percent(found.get(metric)) for metric in metrics)) for name, found in measured.items()]
    for row, numbers in TRANSFER.items() if any(sets) else ():
        by_set = dict(zip(TRANSFER_SETS, numbers, strict=True))
        lines.append((f"paper, Table 5: {row}", *(percent(by_set.get(name or "")) for name in sets)))
    return Table(f"Transfer: linear classifiers on frozen features, percent. {ALIKE}", ("encoder", *metrics), lines)


def _detection_table(runs: Sequence[RunSummary]) -> Table:
    """Ours above the paper's, for the data and objects that were measured."""
    ours, wanted = list[tuple[str, ...]](), dict[tuple[str, str], str]()
    for run in runs:
        for record in (*evaluations_of(run, "detect"), *evaluations_of(run, "segment")):
            for row in rows(record):
                source, of, measure = str(record.get("data")), str(row.get("of")), str(row.get("measure"))
                found = precision(row)
                ours.append((run.name, source, of, measure, *(percent(found.get(c)) for c in DETECTION_COLUMNS)))
                if record.get("official") and DETECTION_MEASURES.get(source) == measure:
                    wanted[source, of] = measure
    theirs = [
        (f"paper, Table 6: {row}", source, of, measure, *map(percent, numbers))
        for (source, of), measure in wanted.items()
        for row, numbers in DETECTION.get((source, of), {}).items()
    ]
    head = ("encoder", "data", "of", "measure", *DETECTION_COLUMNS)
    return Table(f"Detection: average precision, percent. {ALIKE}", head, ours + theirs)


def _evaluation(title: str, record: Mapping[str, Any], older: str | None) -> Evaluation:
    found = rows(record)
    head = list(dict.fromkeys(key for row in found for key in row))
    cells = [[written(key, row[key]) if key in row else "" for key in head] for row in found]
    plain = {k: v for k, v in record.items() if k not in HIDDEN and isinstance(v, str | int | float)}
    settings = "; ".join(f"{key.replace('_', ' ')}: {written(key, value)}" for key, value in plain.items())
    protocol = str(record.get("protocol", "no protocol was saved"))
    return Evaluation(title, older, protocol, Table(title, head, cells) if found else None, settings)
