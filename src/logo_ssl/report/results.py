"""Figures that evaluations and logs hold, each with what was measured, on what and how; and how numbers are written."""

import hashlib
import json
import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from ..eval import PROTOCOLS
from ..run import is_number
from ..sampling import standard_error
from .summary import RunSummary

TOP1 = tuple(name for name, protocol in PROTOCOLS.items() if protocol.figure == "top1")
PERCENTS = ("top1", "top-1", "top5", "top-5", "value", "knn", "linear", "validation")
"""Names of results that are percentages; so are AP, AP50 and the like."""
LAST_LOGGED = {
    "loss": "loss, last",
    "l_gg": "global-to-global loss, last",
    "l_lg": "local-to-global loss, last",
    "l_ll": "local-to-local loss, last",
    "omega": "omega, last",
    "ratio": "ratio of gradients, last",
    "z_std": "spread of the latents, last",
    "z_rank": "rank of the latents, last",
}
"""What has no good direction: a loss is low for the sake of its own objective, and these differ."""
TRAINING = {"data": "on", "batch_size": "batch", "framework.kind": "framework"}
"""Settings of training with others of which losses and speeds mean something else."""
SETTINGS = {
    "unfinished": "unfinished at",
    "size": "pixels",
    "mean": "mean",
    "std": "std",
    "part": "part",
    "images": "images",
    "train_images": "training images",
    "test_images": "test images",
    "train_pictures": "training images",
    "test_pictures": "test images",
    "epochs_of_probe": "epochs",
    "epochs_of_tuning": "epochs",
    "rates": "rates",
    "lr": "lr",
    "batch_of_tuning": "batch",
    "penalise_bias": "bias penalised",
    "seed_of_probe": "evaluation seed",
    "seed_of_split": "evaluation seed",
    "seed_of_tuning": "evaluation seed",
    "seed_of_crops": "evaluation seed",
}
"""Settings of evaluations with others of which a figure is another figure."""
CHOSEN = {"lr": "lr", "l2_weight": "L2 weight"}
"""What a probe may choose on validation images: then it is an outcome, not a setting."""
DIGESTS = {"data_fingerprint": "images with fingerprint", "detection_recipe": "detection recipe with fingerprint"}
"""Settings too long to be written; a digest tells them apart."""

How = tuple[tuple[str, str], ...]
"""Settings by name that another measurement may have otherwise."""
Kind = tuple[str, How]
"""What was measured and how: only figures of one kind can be compared."""


class Figure(NamedTuple):
    """A number, what it measures, and whether higher is better."""

    what: str
    value: float
    higher_is_better: bool = True
    unit: str = "%"
    how: How = ()
    chosen: str = ""
    """What came out with the number, on validation images."""

    @property
    def kind(self) -> Kind:
        """What it shares with the figures that it can be compared with."""
        return self.what, self.how

    def written(self, value: float | None = None) -> str:
        """The number, or another of its kind, as it is always written."""
        number = self.value if value is None else value
        return {"%": f"{number:.2f}", "share": f"{number:.3f}"}.get(self.unit, f"{number:.4g}")


class Top1(NamedTuple):
    """Top-1 of the trained encoder, with its row and its record."""

    figure: Figure
    row: dict[str, Any]
    record: dict[str, Any]


def figures(run: RunSummary) -> list[Figure]:
    """All that tells runs apart, one of each kind."""
    found: dict[Kind, Figure] = {}
    for figure in _measured(run):
        found.setdefault(figure.kind, figure)
    return list(found.values())


def labels(found: Iterable[Figure]) -> dict[Kind, str]:
    """What to call each kind among those shown: settings that all of one name share are left out."""
    by_name: dict[str, dict[How, None]] = {}
    for figure in found:
        by_name.setdefault(figure.what, {})[figure.how] = None
    return {(what, how): _label(what, how, list(hows)) for what, hows in by_name.items() for how in hows}


def _label(what: str, how: How, hows: list[How]) -> str:
    always = SETTINGS["unfinished"]
    telling = [(name, value) for name, value in how if name == always or any((name, value) not in h for h in hows)]
    return ", ".join([what, *(f"{name} {value}" for name, value in telling)])


def _measured(run: RunSummary) -> Iterator[Figure]:
    """Accuracies, precision, ranking, and how training ended."""
    if run.finished and run.knn_lines and run.knn_lines[-1].get("epochs_done") == run.epochs:
        yield while_training(run, run.knn_lines[-1])
    for kind in TOP1:
        yield from (each.figure for each in top1s(run, kind))
    for record in evaluations_of(run, "transfer"):
        if _is_finite(record.get("value")):
            what = f"transfer to {record.get('data')}, {record.get('metric')}"
            yield Figure(what, record["value"], how=how_measured(record), chosen=choice(record))
    for kind in ("detect", "segment"):
        for record in evaluations_of(run, kind):
            for row in rows(record):
                for name, value in precision(row).items():
                    what = f"{kind} {record.get('data')}, {row.get('of')} {name} ({row.get('measure')})"
                    yield Figure(what, value, how=how_measured(record))
    for record in evaluations_of(run, "affinity"):
        for row in rows(record):
            for measure in ("learned", "cosine"):
                if isinstance(row.get(measure), dict) and _is_finite(row[measure].get("mean")):
                    what = f"{row.get('metric')} of {row.get('task')} by {measure}, on {record.get('data')}"
                    yield Figure(what, row[measure]["mean"], unit="share", how=how_measured(record))
    shared = tuple((name, words(run.settings.get(key))) for key, name in TRAINING.items())
    for key, what in LAST_LOGGED.items() if run.logged_to_the_end else ():
        if values := [line[key] for line in run.metrics if _is_finite(line.get(key))]:
            yield Figure(what, values[-1], False, "", shared)
    where = run.provenance.get("hardware", "unknown hardware")
    if speeds := sorted(line["images_per_s"] for line in run.metrics if _is_finite(line.get("images_per_s"))):
        yield Figure(f"images per second, median, {where}", speeds[len(speeds) // 2], False, "", shared)
    if _is_finite(run.provenance.get("seconds")):
        yield Figure(f"seconds, {where}", run.provenance["seconds"], False, "")


def while_training(run: RunSummary, line: Mapping[str, Any], when: str = "last") -> Figure:
    """The kNN that a line of metrics holds."""
    protocol = f"k={line.get('knn_k')}, tau={line.get('knn_tau')}, on {run.settings.get('data')}"
    protocol += f", {line['knn_of']}" if "knn_of" in line else ""
    how = (("test images", words(line["knn_images"])),) if "knn_images" in line else ()
    return Figure(f"kNN while training, {when}, {protocol}", line["knn"], how=how)


def top1s(run: RunSummary, kind: str) -> Iterator[Top1]:
    """Top-1 of the trained encoder by the evaluations of a kind."""
    for record in evaluations_of(run, kind):
        for row in rows(record):
            top1 = row.get("top1", row.get("top-1"))
            if top1 is not None and _is_finite(top1) and row.get("features", "trained encoder") == "trained encoder":
                options = [f"{key}={row[key]}" for key in ("k", "tau", "fraction") if key in row]
                title = "kNN" if kind == "knn" else record["evaluation"]
                what = ", ".join([title, *options, f"on {record.get('data')}"])
                yield Top1(Figure(what, float(top1), how=how_measured(record), chosen=choice(record)), row, record)


def evaluations_of(run: RunSummary, kind: str) -> list[dict[str, Any]]:
    """The records of a kind that are of the run's present weights."""
    found = [record for record in run.evaluations.values() if run.is_present(record)]
    return [record for record in found if f"{record['evaluation']}-".startswith(f"{kind}-")]  # linear-sgd is linear


def rows(record: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The results of an evaluation, a dictionary each; what a detector found is laid flat."""
    match record.get("results"):
        case list() as found:
            return [_flat(row) for row in found if isinstance(row, dict) and row]
        case dict() as row if row:
            return [_flat(row)]
        case _:
            return [{"metric": record.get("metric"), "value": record["value"]}] if "value" in record else []


def precision(row: Mapping[str, Any]) -> dict[str, float]:
    """Average precisions of a row."""
    return {name: value for name, value in row.items() if name.startswith("AP") and _is_finite(value)}


def how_measured(record: Mapping[str, Any]) -> How:
    """All that another evaluation may do otherwise."""
    outcomes = CHOSEN if _tried(record) > 1 else ()
    given = {key: name for key, name in SETTINGS.items() if record.get(key) is not None and key not in outcomes}
    settings = [(name, _setting(record[key])) for key, name in given.items()]
    return (*settings, *((name, _digest(record, key)) for key, name in DIGESTS.items() if record.get(key)))


def choice(record: Mapping[str, Any]) -> str:
    """Which of several rates or weights was the best on validation images; empty if none was chosen."""
    n = _tried(record)
    found = [f"{name} {short(record[key])}" for key, name in CHOSEN.items() if _is_finite(record.get(key))]
    return f"{found[0]}, chosen of {n}" if found and n > 1 else ""


def percent(value: Any) -> str:
    """Two digits after the point, as the paper has them; empty for what is not a number."""
    return f"{value:.2f}" if is_number(value) else ""


def percent_on(value: Any, n_images: Any) -> str:
    """The share of so many test images that was right, with its standard error."""
    known = is_number(value) and math.isfinite(value) and isinstance(n_images, int) and n_images > 0
    error = f" (standard error {standard_error(value, n_images):.2f})" if known else ""
    return f"{percent(value)} %{on(n_images)}{error}"


def on(n_images: Any) -> str:
    """On how many images, if that is known."""
    return f" on {n_images:,} image{'s' * (n_images != 1)}" if isinstance(n_images, int) else ""


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


def short(value: float) -> str:
    """Four digits that count."""
    return f"{value:,.0f}" if 1e4 <= abs(value) < 1e9 else f"{value:.4g}"


def _tried(record: Mapping[str, Any]) -> int:
    """How many rates or weights a probe had to choose from."""
    found = record.get("rates") or record.get("validation")
    return len(found) if isinstance(found, list | dict) else 0


def _setting(value: Any) -> str:
    if isinstance(value, list):
        return " ".join(map(_setting, value))
    return short(value) if isinstance(value, float) else words(value)


def _digest(record: Mapping[str, Any], key: str) -> str:
    """Of a value without its seed, if that is the run's own: `reproduce` gives each run's detector another."""
    value = record[key]
    if isinstance(value, dict) and value.get("seed", record) == record.get("seed"):
        value = {name: part for name, part in value.items() if name != "seed"}
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:6]


def _flat(row: dict[str, Any]) -> dict[str, Any]:
    inner = row.get("overall")
    rest = {key: value for key, value in row.items() if key not in ("overall", "per_class")}
    return rest | inner if isinstance(inner, dict) else row


def _is_finite(value: Any) -> bool:
    return is_number(value) and math.isfinite(value)
