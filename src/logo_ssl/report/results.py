"""Which figures do evaluations hold? Each with what was measured, on what, and how, so that runs can be compared."""

import hashlib
import json
import re
from collections.abc import Iterator
from typing import Any, Literal, NamedTuple

from .numbers import short, words
from .reading import Told

Better = Literal["higher", "lower", "neither"]
TOP1 = ("knn", "linear", "finetune", "semi")
AIMLESS = {
    "loss": "loss, last",
    "l_gg": "global-to-global loss, last",
    "l_lg": "local-to-global loss, last",
    "l_ll": "local-to-local loss, last",
    "omega": "omega, last",
    "ratio": "ratio of gradients, last",
    "z_std": "spread of the latents, last",
    "z_rank": "rank of the latents, last",
}
"""What is logged and has no good direction: a loss is low for the sake of its own objective, and these differ."""

SETTINGS = {
    "unfinished": "unfinished at",
    "size": "pixels",
    "mean": "mean",
    "std": "std",
    "part": "part",
    "images": "images",
    "train_images": "training images",
    "test_images": "test images",
    "train_pictures": "training pictures",
    "test_pictures": "test pictures",
    "epochs_of_probe": "epochs",
    "epochs_of_tuning": "epochs",
    "rates": "rates",
    "lr": "lr",
    "penalise_bias": "bias penalised",
    "seed_of_probe": "evaluation seed",
    "seed_of_split": "evaluation seed",
    "seed_of_tuning": "evaluation seed",
    "seed_of_crops": "evaluation seed",
}
"""Settings of evaluations, as they are called: figures with others are other figures."""
MARKED = {"data_fingerprint": "images", "detection_recipe": "detection recipe"}
"""Settings too long to be written; a mark tells them apart."""


class Figure(NamedTuple):
    """A number, what it measures, and which way is better."""

    what: str
    value: float
    better: Better
    unit: str = "%"

    def written(self, value: float | None = None) -> str:
        """The number, or another of its kind, as it is always written."""
        number = self.value if value is None else value
        return {"%": f"{number:.2f}", "share": f"{number:.3f}"}.get(self.unit, f"{number:.4g}")


def figures(run: Told) -> list[Figure]:
    """All that tells runs apart, each figure once: evaluated again in the same way, it is no other."""
    found: dict[str, Figure] = {}
    for figure in _measured(run):
        found.setdefault(figure.what, figure)
    return list(found.values())


def _measured(run: Told) -> Iterator[Figure]:
    """Accuracies, precision, ranking, and how training ended."""
    if line := run.online_knn():
        how = f"k={line.get('knn_k')}, tau={line.get('knn_tau')}, on {run.recipe.get('data')}"
        yield Figure(f"kNN while training, last, {how}", line["knn"], "higher")
    for kind in TOP1:
        yield from (Figure(what, value, "higher") for what, value in accuracies(run, kind))
    for record in evaluations_of(run, "transfer"):
        if _is_number(record.get("value")):
            what = _with_settings(f"transfer to {record.get('data')}, {record.get('metric')}", record)
            yield Figure(what, record["value"], "higher")
    for kind in ("detect", "segment"):
        for row, record in _rows_of(run, kind):
            for name, value in precision(row).items():
                what = f"{kind} {record.get('data')}, {row.get('of')} {name} ({row.get('measure')})"
                yield Figure(_with_settings(what, record), value, "higher")
    for row, record in _rows_of(run, "affinity"):
        for measure in ("learned", "cosine"):
            if isinstance(row.get(measure), dict) and _is_number(row[measure].get("mean")):
                what = f"{row.get('metric')} of {row.get('task')} by {measure}, on {record.get('data')}"
                yield Figure(_with_settings(what, record), row[measure]["mean"], "higher", "share")
    yield from _training(run)


def accuracies(run: Told, kind: str) -> Iterator[tuple[str, float]]:
    """Top-1 of the trained encoder by the evaluations of a kind, with their settings."""
    for name, record in run.evaluations.items():
        if name.split("-")[0] != kind:
            continue
        for row in rows(record):
            top1 = row.get("top1", row.get("top-1"))
            if top1 is not None and _is_number(top1) and row.get("features", "trained encoder") == "trained encoder":
                told = [f"{key}={row[key]}" for key in ("k", "tau", "fraction") if key in row]
                title = kind if kind == "knn" else re.sub("-[0-9a-f]{8}$", "", name)
                yield _with_settings(", ".join([title, *told, f"on {record.get('data')}"]), record), top1


def rows(record: dict[str, Any]) -> list[dict[str, Any]]:
    """The results of an evaluation, a dictionary each; what a detector found is laid flat."""
    match record.get("results"):
        case list() as found:
            return [_flat(row) for row in found if isinstance(row, dict)]
        case dict() as row:
            return [_flat(row)]
        case _:
            return [{"metric": record.get("metric"), "value": record["value"]}] if "value" in record else []


def precision(row: dict[str, Any]) -> dict[str, float]:
    """Average precisions of a row."""
    return {name: value for name, value in row.items() if name.startswith("AP") and _is_number(value)}


def evaluations_of(run: Told, kind: str) -> list[dict[str, Any]]:
    """The records of a kind."""
    return [record for name, record in run.evaluations.items() if name.split("-")[0] == kind]


def _with_settings(what: str, record: dict[str, Any]) -> str:
    """What was measured, and how: all that another evaluation may do otherwise."""
    told = [f"{name} {_setting(record[key])}" for key, name in SETTINGS.items() if record.get(key) is not None]
    marks = [f"{name} {_mark(record[key])}" for key, name in MARKED.items() if record.get(key)]
    return ", ".join([what, *told, *marks])


def _setting(value: Any) -> str:
    if isinstance(value, list):
        return " ".join(map(_setting, value))
    return short(value) if isinstance(value, float) else words(value)


def _mark(value: Any) -> str:
    return "#" + hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:6]


def _rows_of(run: Told, kind: str) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    return ((row, record) for record in evaluations_of(run, kind) for row in rows(record))


def _training(run: Told) -> Iterator[Figure]:
    for key, what in AIMLESS.items():
        values = [line[key] for line in run.metrics if _is_number(line.get(key))]
        if values:
            yield Figure(what, values[-1], "neither", "")
    speeds = sorted(line["images_per_s"] for line in run.metrics if _is_number(line.get("images_per_s")))
    where = run.provenance.get("hardware", "unknown hardware")
    if speeds:
        yield Figure(f"images per second, median, {where}", speeds[len(speeds) // 2], "higher", "")
    if _is_number(run.provenance.get("seconds")):
        yield Figure(f"seconds, {where}", run.provenance["seconds"], "neither", "")


def _flat(row: dict[str, Any]) -> dict[str, Any]:
    inner = row.get("overall")
    rest = {key: value for key, value in row.items() if key not in ("overall", "per_class")}
    return rest | inner if isinstance(inner, dict) else row


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value == value
