"""Which figures do evaluations hold? Each with what was measured, on what, and how, so that runs can be compared."""

import hashlib
import json
from collections.abc import Iterable, Iterator
from typing import Any, Literal, NamedTuple

from ..eval import PROTOCOLS
from ..run import is_number
from .numbers import short, words
from .reading import Told

Better = Literal["higher", "lower", "neither"]
TOP1 = tuple(name for name, protocol in PROTOCOLS.items() if protocol.figure == "top1")
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

TRAINING = {"data": "on", "batch_size": "batch", "framework.kind": "framework"}
"""Settings of training, as they are called: with others, losses and speeds mean something else."""
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
    "batch_of_tuning": "batch",
    "penalise_bias": "bias penalised",
    "seed_of_probe": "evaluation seed",
    "seed_of_split": "evaluation seed",
    "seed_of_tuning": "evaluation seed",
    "seed_of_crops": "evaluation seed",
}
"""Settings of evaluations, as they are called: figures with others are other figures."""
CHOSEN = {"lr": "lr", "l2_weight": "L2 weight"}
"""What a probe may choose on validation images: then it is an outcome, and figures with another are of one kind."""
MARKED = {"data_fingerprint": "images with fingerprint", "detection_recipe": "detection recipe with fingerprint"}
"""Settings too long to be written; a mark tells them apart."""
ALWAYS_TOLD = (SETTINGS["unfinished"],)

How = tuple[tuple[str, str], ...]
"""Settings by name that another measurement may have otherwise."""
Kind = tuple[str, How]
"""What was measured and how: only figures of one kind can be compared."""


class Figure(NamedTuple):
    """A number, what it measures, and which way is better."""

    what: str
    value: float
    better: Better
    unit: str = "%"
    how: How = ()
    chosen: str = ""
    """What came out beside the number, on validation images."""

    @property
    def kind(self) -> Kind:
        """What it shares with the figures that it can be compared with."""
        return self.what, self.how

    def written(self, value: float | None = None) -> str:
        """The number, or another of its kind, as it is always written."""
        number = self.value if value is None else value
        return {"%": f"{number:.2f}", "share": f"{number:.3f}"}.get(self.unit, f"{number:.4g}")


def figures(run: Told) -> list[Figure]:
    """All that tells runs apart, each figure once: evaluated again in the same way, it is no other."""
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
    telling = [(name, value) for name, value in how if name in ALWAYS_TOLD or any((name, value) not in h for h in hows)]
    return ", ".join([what, *(f"{name} {value}" for name, value in telling)])


def _measured(run: Told) -> Iterator[Figure]:
    """Accuracies, precision, ranking, and how training ended."""
    if run.finished and (line := run.online_knn()) and line.get("epochs_done") == run.recipe.get("epochs"):
        yield online(run, line)
    for kind in TOP1:
        yield from accuracies(run, kind)
    for record in evaluations_of(run, "transfer"):
        if _is_number(record.get("value")):
            what = f"transfer to {record.get('data')}, {record.get('metric')}"
            yield Figure(what, record["value"], "higher", how=how_measured(record), chosen=choice(record))
    for kind in ("detect", "segment"):
        for row, record in _rows_of(run, kind):
            for name, value in precision(row).items():
                what = f"{kind} {record.get('data')}, {row.get('of')} {name} ({row.get('measure')})"
                yield Figure(what, value, "higher", how=how_measured(record))
    for row, record in _rows_of(run, "affinity"):
        for measure in ("learned", "cosine"):
            if isinstance(row.get(measure), dict) and _is_number(row[measure].get("mean")):
                what = f"{row.get('metric')} of {row.get('task')} by {measure}, on {record.get('data')}"
                yield Figure(what, row[measure]["mean"], "higher", "share", how_measured(record))
    yield from _training(run)


def online(run: Told, line: dict[str, Any], when: str = "last") -> Figure:
    """The kNN that a line of metrics holds."""
    protocol = f"k={line.get('knn_k')}, tau={line.get('knn_tau')}, on {run.recipe.get('data')}"
    protocol += f", {line['knn_of']}" if "knn_of" in line else ""
    how = (("test images", words(line["knn_images"])),) if "knn_images" in line else ()
    return Figure(f"kNN while training, {when}, {protocol}", line["knn"], "higher", how=how)


def accuracies(run: Told, kind: str) -> Iterator[Figure]:
    """Top-1 of the trained encoder by the evaluations of a kind, with their settings."""
    return (figure for figure, _, _ in top1s(run, kind))


def top1s(run: Told, kind: str) -> Iterator[tuple[Figure, dict[str, Any], dict[str, Any]]]:
    """Top-1 of the trained encoder, each with its row and its record."""
    for record in evaluations_of(run, kind):
        for row in rows(record):
            top1 = row.get("top1", row.get("top-1"))
            if top1 is not None and _is_number(top1) and row.get("features", "trained encoder") == "trained encoder":
                told = [f"{key}={row[key]}" for key in ("k", "tau", "fraction") if key in row]
                title = "kNN" if kind == "knn" else record["evaluation"]
                what = ", ".join([title, *told, f"on {record.get('data')}"])
                yield Figure(what, top1, "higher", how=how_measured(record), chosen=choice(record)), row, record


def rows(record: dict[str, Any]) -> list[dict[str, Any]]:
    """The results of an evaluation, a dictionary each; what a detector found is laid flat."""
    match record.get("results"):
        case list() as found:
            return [_flat(row) for row in found if isinstance(row, dict) and row]
        case dict() as row if row:
            return [_flat(row)]
        case _:
            return [{"metric": record.get("metric"), "value": record["value"]}] if "value" in record else []


def precision(row: dict[str, Any]) -> dict[str, float]:
    """Average precisions of a row."""
    return {name: value for name, value in row.items() if name.startswith("AP") and _is_number(value)}


def evaluations_of(run: Told, kind: str) -> list[dict[str, Any]]:
    """The records of a kind that are of the run's present weights."""
    found = [record for record in run.evaluations.values() if run.is_present(record)]
    return [record for record in found if f"{record['evaluation']}-".startswith(f"{kind}-")]  # linear-sgd is linear


def how_measured(record: dict[str, Any]) -> How:
    """All that another evaluation may do otherwise."""
    outcomes = CHOSEN if _tried(record) > 1 else ()
    given = {key: name for key, name in SETTINGS.items() if record.get(key) is not None and key not in outcomes}
    told = [(name, _setting(record[key])) for key, name in given.items()]
    marks = [(name, _mark(_unseeded(record, key))) for key, name in MARKED.items() if record.get(key)]
    return (*told, *marks)


def choice(record: dict[str, Any]) -> str:
    """Which of several rates or weights was the best on validation images; nothing where none was chosen."""
    n = _tried(record)
    found = [f"{name} {short(record[key])}" for key, name in CHOSEN.items() if _is_number(record.get(key))]
    return f"{found[0]}, chosen of {n}" if found and n > 1 else ""


def _tried(record: dict[str, Any]) -> int:
    """How many rates or weights a probe had to choose from."""
    found = record.get("rates") or record.get("validation")
    return len(found) if isinstance(found, list | dict) else 0


def _setting(value: Any) -> str:
    if isinstance(value, list):
        return " ".join(map(_setting, value))
    return short(value) if isinstance(value, float) else words(value)


def _unseeded(record: dict[str, Any], key: str) -> Any:
    """A value without its seed, where that is the run's own: so `reproduce` gives each run's detector another."""
    value = record[key]
    if isinstance(value, dict) and value.get("seed", record) == record.get("seed"):
        return {name: part for name, part in value.items() if name != "seed"}
    return value


def _mark(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:6]


def _rows_of(run: Told, kind: str) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    return ((row, record) for record in evaluations_of(run, kind) for row in rows(record))


def _training(run: Told) -> Iterator[Figure]:
    shared = tuple((name, words(run.recipe.get(key))) for key, name in TRAINING.items())
    for key, what in AIMLESS.items() if run.told_to_the_end else ():
        values = [line[key] for line in run.metrics if _is_number(line.get(key))]
        if values:
            yield Figure(what, values[-1], "neither", "", shared)
    speeds = sorted(line["images_per_s"] for line in run.metrics if _is_number(line.get("images_per_s")))
    where = run.provenance.get("hardware", "unknown hardware")
    if speeds:
        yield Figure(f"images per second, median, {where}", speeds[len(speeds) // 2], "neither", "", shared)
    if _is_number(run.provenance.get("seconds")):
        yield Figure(f"seconds, {where}", run.provenance["seconds"], "neither", "")


def _flat(row: dict[str, Any]) -> dict[str, Any]:
    inner = row.get("overall")
    rest = {key: value for key, value in row.items() if key not in ("overall", "per_class")}
    return rest | inner if isinstance(inner, dict) else row


def _is_number(value: Any) -> bool:
    return is_number(value) and value == value
