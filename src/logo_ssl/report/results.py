"""What logs and evaluations measured: figures with their protocol, and their spread over runs that differ in seed."""

import hashlib
import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from statistics import mean, stdev
from typing import Any, NamedTuple

from ..run import is_number, standard_error
from .gallery import MEASURES
from .summary import RunSummary

TRAINED = "trained encoder"
PERCENTS = ("top1", "top-1", "top5", "top-5", "value", "knn", "linear", "validation")
"""Names of results that are percentages; so are AP, AP50 and the like."""
QUANTITIES = {
    "knn": "kNN top-1 while training",
    "loss": "loss",
    "l_gg": "global-to-global loss",
    "l_lg": "local-to-global loss",
    "l_ll": "local-to-local loss",
    "omega": "omega, what the regressor gains",
    "ratio": "ratio of gradients",
    "lr": "learning rate",
    "z_std": "spread of the latents",
    "z_rank": "rank of the latents",
    "images_per_s": "images per second",
}
"""What is logged while training."""
LAST = ("loss", "l_gg", "l_lg", "l_ll", "omega", "ratio", "z_std", "z_rank")
"""What has no good direction: a loss is low for the sake of its own objective, and these differ."""
TRAINING = {"data": "on", "batch_size": "batch", "framework.kind": "framework"}
"""Settings of training with others of which losses and speeds mean something else."""
UNFINISHED = "unfinished"
SETTINGS = (
    UNFINISHED, "size", "mean", "std", "part", "images", "train_images", "test_images", "train_pictures",
    "test_pictures", "epochs_of_probe", "epochs_of_tuning", "rates", "lr", "batch_of_tuning", "penalise_bias",
    "seed_of_probe", "seed_of_split", "seed_of_tuning", "seed_of_crops", "data_fingerprint", "detection_recipe",
)  # fmt: skip
"""Settings of evaluations with others of which a figure is another figure."""
CHOSEN = {"lr": "lr", "l2_weight": "L2 weight"}
"""What a probe may choose on validation images: then it is an outcome, not a setting."""
NAMING = ("name", "chosen", "seed")
T95 = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131)
"""Student's t for 95 % on both sides, by degrees of freedom from 1; beyond them 2.131 is a little wide."""

How = tuple[tuple[str, str], ...]
"""Settings by name that another measurement may have otherwise."""
Kind = tuple[str, How]
"""What was measured and how: only figures of one kind can be compared."""


class Figure(NamedTuple):
    """A number, what it measures, and how."""

    what: str
    value: float
    unit: str = "%"
    how: How = ()
    higher_is_better: bool = True
    evaluation: str = ""
    """The protocol of `logo-ssl eval`."""
    n_images: int | None = None
    """On how many images a share of right answers was counted."""
    compared_with: str = ""
    """What else was measured in the same way, what guessing gives, and what was chosen on validation images."""

    @property
    def kind(self) -> Kind:
        """What it shares with the figures that it can be compared with."""
        return self.what, self.how

    def written(self, value: float | None = None) -> str:
        """The number, or another of its kind, as it is always written."""
        number = self.value if value is None else value
        return {"%": f"{number:.2f}", "share": f"{number:.3f}"}.get(self.unit, f"{number:.4g}")

    def in_full(self) -> str:
        """The number with its unit, and the standard error by the number of images."""
        text = f"{self.written()} %" if self.unit == "%" else self.written()
        if self.n_images is None:
            return text
        error = standard_error(self.value, self.n_images)
        return f"{text} on {self.n_images:,} image{'s' * (self.n_images != 1)} (standard error {error:.2f})"


def figures(run: RunSummary) -> list[Figure]:
    """All that tells runs apart, one of each kind, shares of images first."""
    found: dict[Kind, Figure] = {}
    for figure in (*_while_training(run), *_evaluated(run), *_end_of_training(run)):
        if math.isfinite(figure.value):
            found.setdefault(figure.kind, figure)
    return sorted(found.values(), key=lambda figure: figure.unit != "%")


def labels(found: Iterable[Figure]) -> dict[Kind, str]:
    """What to call each kind among those shown: settings that all of one name share are left out."""
    hows: dict[str, dict[How, None]] = {}
    for figure in found:
        hows.setdefault(figure.what, {})[figure.how] = None
    named = {}
    for what, of_name in hows.items():
        shared = set.intersection(*map(set, of_name))
        for how in of_name:
            telling = [(name, value) for name, value in how if name == UNFINISHED or (name, value) not in shared]
            named[what, how] = ", ".join([what, *(f"{name} {value}" for name, value in telling)])
    return named


def _while_training(run: RunSummary) -> Iterator[Figure]:
    """The last kNN that was logged, with the untrained encoder's if it was measured in the same way."""
    lines = [line for line in run.metrics if "knn" in line]
    if not lines:
        return
    first, last = lines[0], lines[-1]
    epoch = last.get("epochs_done")
    when = "after the last epoch" if run.finished and epoch == run.epochs else f"after epoch {epoch} of {run.epochs}"
    of = f", {last['knn_of']}" if "knn_of" in last else ""
    what = (
        f"kNN while training, {when}, k={last.get('knn_k')}, tau={last.get('knn_tau')}, on {run.settings['data']}{of}"
    )
    n, before = last.get("knn_images"), ""
    alike = all(first.get(key) == last.get(key) for key in ("knn_k", "knn_tau", "knn_images", "knn_of", "knn_bank_of"))
    if first.get("epochs_done") == 0 and epoch != 0 and alike:
        before = f"untrained encoder: {percent(first['knn'])} %"
    yield Figure(what, last["knn"], how=(("test images", words(n)),) if n else (), n_images=n, compared_with=before)


def _evaluated(run: RunSummary) -> Iterator[Figure]:
    """Of each row of each evaluation of the present weights: top-1, a figure of transfer, AP, or AUC."""
    older = run.older()
    for record in (record for name, record in run.evaluations.items() if name not in older):
        evaluation, of_record = record["evaluation"], rows(record)
        title = "kNN" if evaluation == "knn" else evaluation
        for row in of_record:
            if row.get("features", TRAINED) != TRAINED or row.get("metric") == "average precision":
                continue
            options = [f"{key}={row[key]}" for key in ("k", "tau", "fraction") if key in row]
            options += [str(row[key]) for key in ("of", "measure", "metric", "task") if key in row]
            about = Figure("", 0.0, how=how_measured(record), evaluation=evaluation)
            for key, value in row.items():
                name = "" if key in ("top1", "top-1", "value") else key
                what = ", ".join(filter(None, [title, *options, MEASURES.get(name, name), f"on {record.get('data')}"]))
                if isinstance(value, dict) and key in MEASURES:
                    chance = f"95 % interval {value['low']:.3f} to {value['high']:.3f}; chance: {row['chance']:.3f}"
                    yield about._replace(what=what, value=value["mean"], unit="share", compared_with=chance)
                elif is_number(value) and (not name or name.startswith("AP")):
                    n = record.get("test_images") if key in ("top1", "top-1") else None
                    compared = "; ".join([*_others(row, of_record), *_guesses(record | row), *_choice(record)])
                    yield about._replace(what=what, value=value, n_images=n, compared_with=compared)


def _end_of_training(run: RunSummary) -> Iterator[Figure]:
    """The last values of what has no good direction, and how fast it was."""
    shared = tuple((name, words(run.settings.get(key))) for key, name in TRAINING.items())
    for key in LAST if run.logged_to_the_end else ():
        if values := [line[key] for line in run.metrics if key in line]:
            yield Figure(f"{QUANTITIES[key]}, last", values[-1], "", shared, higher_is_better=False)
    where = run.provenance.get("hardware", "unknown hardware")
    if speeds := sorted(line["images_per_s"] for line in run.metrics if "images_per_s" in line):
        what = f"images per second, median, {where}"
        yield Figure(what, speeds[len(speeds) // 2], "", shared, higher_is_better=False)
    if "seconds" in run.provenance:
        yield Figure(f"seconds, {where}", run.provenance["seconds"], "", higher_is_better=False)


def _others(row: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Other features that were measured as those of a row."""
    for other in rows:
        if other.get("features", TRAINED) != TRAINED and all(other.get(key) == row.get(key) for key in ("k", "tau")):
            yield f"{other['features']}: {percent(other.get('top1'))} %"


def _guesses(about: Mapping[str, Any]) -> Iterator[str]:
    """What needs no features: chance, and always the commonest class if that is right more often."""
    if "chance" in about:
        yield f"chance: {percent(about['chance'])} %"
    if about.get("commonest", 0) > about.get("chance", 0):
        yield f"always the commonest class: {percent(about['commonest'])} %"


def _choice(record: Mapping[str, Any]) -> Iterator[str]:
    """Which of several rates or weights was the best on validation images."""
    for key, name in CHOSEN.items():
        if key in record and _tried(record) > 1:
            yield f"{name} {record[key]:.4g}, chosen of {_tried(record)}"


def _tried(record: Mapping[str, Any]) -> int:
    """How many rates or weights a probe had to choose from."""
    return len(record.get("rates") or record.get("validation") or ())


def how_measured(record: Mapping[str, Any]) -> How:
    """All that another evaluation may do otherwise."""
    outcomes = CHOSEN if _tried(record) > 1 else ()
    given = [key for key in SETTINGS if record.get(key) is not None and key not in outcomes]
    return tuple((key.replace("_", " "), _setting(record[key])) for key in given)


def _setting(value: Any) -> str:
    match value:
        case dict():  # too long to be written; its seed is the run's own: `reproduce` gives each detector another
            settings = {name: inner for name, inner in value.items() if name != "seed"}
            return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:6]
        case list():
            return " ".join(map(_setting, value))
        case float():
            return f"{value:.4g}"
        case _:
            return words(value)


def rows(record: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The results of an evaluation, a dictionary each; what a detector found is laid flat."""
    found = record.get("results", [{key: record[key] for key in ("metric", "value") if key in record}])
    found = [found] if isinstance(found, dict) else found
    return [
        {key: value for key, value in row.items() if key not in ("overall", "per_class")} | row.get("overall", {})
        for row in found
        if row
    ]


def percent(value: Any) -> str:
    """Two digits after the point, as the paper has them; empty for what is not a number."""
    return f"{value:.2f}" if is_number(value) else ""


def written(name: str, value: Any) -> str:
    """A value of an evaluation, by what it is called."""
    if is_number(value) and (name in PERCENTS or name.startswith("AP")):
        return percent(value)
    return f"{value:.3f}" if name == "chance" and isinstance(value, float) else words(value)


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
    repeated: list[RunSummary]
    """Runs of a seed that is there already: they say nothing about chance."""

    def __str__(self) -> str:
        return f"{self.letter}: {', '.join(run.name for run in self.runs)}"


class Spread(NamedTuple):
    """A figure over the runs of a group."""

    values: tuple[float, ...]

    def interval(self) -> tuple[float, float] | None:
        """95 % for the mean, by Student's t; unknown without two values that differ."""
        n = len(self.values)
        if len(set(self.values)) < 2:
            return None
        half = T95[min(n - 2, len(T95) - 1)] * stdev(self.values) / math.sqrt(n)
        return mean(self.values) - half, mean(self.values) + half

    def written(self, figure: Figure, n_runs: int) -> str:
        """Mean, standard deviation and number of runs; of how many, if some lack the figure."""
        n = len(self.values)
        deviation = f" ± {figure.written(stdev(self.values))}" if n > 1 else ""
        return f"{figure.written(mean(self.values))}{deviation} (n={n}{f' of {n_runs}' if n < n_runs else ''})"


class Compared(NamedTuple):
    """A figure with its spread in each group that has it, by the group's letter."""

    figure: Figure
    spreads: Mapping[str, Spread]

    def better(self) -> str:
        """The group whose 95 % interval is above all others'; empty if the figure has no good direction."""
        if not self.figure.higher_is_better:
            return ""
        best = max(self.spreads, key=lambda letter: mean(self.spreads[letter].values))
        intervals = {letter: spread.interval() for letter, spread in self.spreads.items()}
        above = intervals.pop(best)
        clear = above is not None and all(other is not None and other[1] < above[0] for other in intervals.values())
        return best if clear else "not clear"


def grouped(runs: Sequence[RunSummary]) -> list[Group]:
    """The runs by recipe, one for each seed: apart from names, places, and settings without effect on what is learned.

    Images are compared by their fingerprint if it is known, since they may have moved.
    """
    found: dict[str, list[RunSummary]] = {}
    for run in runs:
        idle = {*NAMING, *run.without_effect}
        kept = {field: value for field, value in run.settings.items() if field not in idle}
        kept["data"] = run.images or run.settings["data"]
        found.setdefault(json.dumps(kept, sort_keys=True, default=str), []).append(run)
    groups = []
    for i, members in enumerate(found.values()):
        of_seed: dict[int, RunSummary] = {}
        for run in sorted(members, key=lambda run: not run.finished):
            of_seed.setdefault(run.settings["seed"], run)
        counted, letter = list(of_seed.values()), f"{chr(ord('A') + i % 26)}{i // 26 or ''}"
        repeated = [run for run in members if run not in counted]
        groups.append(Group(letter, [run for run in members if run in counted], repeated))
    return groups


def compared(groups: Sequence[Group]) -> list[Compared]:
    """Each figure that two groups have at least; of a single group, all its figures."""
    kinds: dict[Kind, Figure] = {}
    values: dict[Kind, dict[str, list[float]]] = {}
    for group in groups:
        for figure in (figure for run in group.runs for figure in figures(run)):
            kinds.setdefault(figure.kind, figure)
            values.setdefault(figure.kind, {}).setdefault(group.letter, []).append(figure.value)
    return [
        Compared(kinds[kind], {letter: Spread(tuple(each)) for letter, each in of_group.items()})
        for kind, of_group in values.items()
        if len(of_group) >= min(2, len(groups))
    ]
