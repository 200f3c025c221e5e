"""Which numbers are to be taken away? Each with what it measures, and what stands beside it to compare with."""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from ..run import is_number
from .affinity_bars import NAMES
from .markup import Html, table
from .numbers import on, percent, percent_on, words
from .reading import Told
from .results import TOP1, Figure, choice, evaluations_of, how_measured, labels, online, rows, top1s

UNTRAINED = "the untrained encoder (epoch 0)"
CAPTION = "The numbers, how they were measured, and what to compare them with; all others stand under Evaluations"
UNMEASURED = ("accuracy", "not measured")


class Entry(NamedTuple):
    """A figure as it is written, and its baselines."""

    figure: Figure
    written: str
    beside: str = ""


def headline(runs: Sequence[Told]) -> Html:
    """The numbers to take away; whose run it is, where there are several."""
    told = [(run, list(_entries(run))) for run in runs]
    named = labels(entry.figure for _, entries in told for entry in entries)
    lines = []
    for run, entries in told:
        lines += [(run.name, named[entry.figure.kind], entry.written, entry.beside) for entry in entries]
        if not entries:
            lines.append((run.name, *UNMEASURED, "logo-ssl eval knn measures it, on images with labels"))
        lines += [(run.name, what, state, "") for what, state in _states(run)]
    several = len(runs) > 1
    head = ("run", "measured", "figure", "beside it")
    return table(CAPTION, head[not several :], [line[not several :] for line in lines], class_="stacked")


def _states(run: Told) -> Iterator[tuple[str, str]]:
    """What keeps the numbers from being the last word."""
    for sentence in run.damages:
        yield sentence, "damaged"
    if older := run.older():
        told = f"{len(older)} evaluation{'s' * (len(older) > 1)} under Evaluations: {', '.join(older)}"
        yield f"{told}; the same logo-ssl eval measures the present weights", "of older weights"
    if not run.finished:
        begun = max((line["epoch"] for line in run.metrics if isinstance(line.get("epoch"), int)), default=0)
        done = max(run.epochs_told, begun)
        yield f"{done} of {run.recipe['epochs']} epochs; if it does not run, logo-ssl resume goes on", "not finished"


def _entries(run: Told) -> Iterator[Entry]:
    if (last := run.online_knn()) and not _evaluated_alike(run, last):
        yield _while_training(run, last)
    yield from _accuracies(run)
    for record in evaluations_of(run, "transfer"):
        if "value" in record:
            what = f"transfer to {record.get('data')}, {record.get('metric')}"
            written = f"{percent(record['value'])} %{on(record.get('test_images'), 'image')}"  # may be a mean per class
            yield Entry(_unvalued(what, record), written, "; ".join(filter(None, (*_guesses(record), choice(record)))))
    for kind in ("detect", "segment"):
        for record in evaluations_of(run, kind):
            for row in rows(record):
                what = f"{kind}: AP of {row.get('of')}, {row.get('measure')}, on {record.get('data')}"
                yield Entry(
                    _unvalued(what, record), f"{percent(row.get('AP'))} %{on(record.get('test_pictures'), 'picture')}"
                )
    yield from _affinities(run)


def _while_training(run: Told, line: dict[str, Any]) -> Entry:
    """The last kNN that was logged; that of epoch 0 says what it is, and is its own baseline."""
    epoch, n_images = line.get("epochs_done"), line.get("knn_images")
    written = percent_on(line["knn"], n_images)
    if epoch == 0:
        return Entry(online(run, line, UNTRAINED), written)
    figure = online(run, line, f"after epoch {epoch} of {run.recipe['epochs']}")
    return Entry(figure, written, _untrained(run, _way(line)))


def _evaluated_alike(run: Told, line: dict[str, Any]) -> bool:
    """Whether the finished encoder was evaluated in the way of that line, its last: then it says nothing more."""
    if not run.finished or line.get("epochs_done") != run.recipe["epochs"]:
        return False
    return any(
        _way_of_evaluation(row, record) == _way(line) and _source(record) == run.recipe.get("data")
        for _, row, record in top1s(run, "knn")
        if not record.get("unfinished")
    )


def _way(line: dict[str, Any]) -> tuple[Any, ...]:
    """How a logged kNN was measured: k, tau, on how many images, on which, and whether only among some of all."""
    asked = (line.get("knn_k"), line.get("knn_tau"), line.get("knn_images"))
    return *asked, line.get("knn_of"), "knn_bank_of" in line


def _way_of_evaluation(row: dict[str, Any], record: dict[str, Any]) -> tuple[Any, ...]:
    """The same of `eval knn`, which is of test images and looks among all."""
    return row.get("k"), row.get("tau"), record.get("test_images"), None, False


def _accuracies(run: Told) -> Iterator[Entry]:
    """Top-1, each kind once, beside other features that were measured in the same way and guesses."""
    seen = set()
    for kind in TOP1:
        for figure, row, record in top1s(run, kind):
            if figure.kind in seen:
                continue
            seen.add(figure.kind)
            n_images = record.get("test_images")
            beside = [f"{other['features']}: {percent(other.get('top1'))} %" for other in _other_features(row, record)]
            if kind == "knn" and _source(record) == run.recipe.get("data"):
                beside.append(_untrained(run, _way_of_evaluation(row, record)))
            beside += [*_guesses(record | row), figure.chosen]
            yield Entry(figure, percent_on(figure.value, n_images), "; ".join(filter(None, beside)))


def _guesses(about: dict[str, Any]) -> Iterator[str]:
    """What needs no features: chance, and always the commonest class where that is right more often."""
    chance, commonest = about.get("chance"), about.get("commonest")
    if is_number(chance):
        yield f"chance: {percent(chance)} %"
    if is_number(commonest) and (not is_number(chance) or commonest > chance):
        yield f"always the commonest class: {percent(commonest)} %"


def _other_features(row: dict[str, Any], record: dict[str, Any]) -> list[dict[str, Any]]:
    """Rows of the same protocol about what is not the trained encoder."""
    alike = [other for other in rows(record) if all(other.get(key) == row.get(key) for key in ("k", "tau"))]
    return [other for other in alike if other.get("features", "trained encoder") != "trained encoder"]


def _source(record: dict[str, Any]) -> Any:
    """Where its images came from, as a recipe names it."""
    return record.get("source", record.get("data"))


def _untrained(run: Told, way: tuple[Any, ...]) -> str:
    """What it had, measured in the same way: otherwise it is nothing to compare with."""
    line = run.untrained_knn()
    return f"{UNTRAINED}: {percent(line['knn'])} %" if line and _way(line) == way else ""


def _affinities(run: Told) -> Iterator[Entry]:
    """Of each ranking one: on the run's own images if it can be, of the finished encoder, over most references."""
    best: dict[str, tuple[tuple[bool, bool, float], Entry]] = {}
    for record in evaluations_of(run, "affinity"):
        for row in rows(record):
            if row.get("metric") != "AUC":
                continue
            own = _source(record) == run.recipe.get("data")
            references, task = row.get("references"), words(row.get("task"))
            weight = (own, not record.get("unfinished"), references if is_number(references) else 0)
            if task not in best or weight > best[task][0]:
                best[task] = weight, _ranking(row, record)
    yield from (entry for _, entry in best.values())


def _ranking(row: dict[str, Any], record: dict[str, Any]) -> Entry:
    where = f"{row.get('references')} references, on {record.get('data')}, with 95 % intervals"
    figure = Figure(f"AUC of {row.get('task')}, {where}", 0.0, "higher", "share", how_measured(record))
    told = [f"{name} {words(row[measure])}" for measure, name in NAMES.items() if measure in row]
    chance = f"chance: {row['chance']:.3f}" if isinstance(row.get("chance"), float) else ""
    return Entry(figure, "; ".join(told), chance)


def _unvalued(what: str, record: dict[str, Any]) -> Figure:
    """What was measured and how, where the number is written elsewhere."""
    return Figure(what, 0.0, "higher", how=how_measured(record))
