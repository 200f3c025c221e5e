"""How does a table read? As Markdown: the paper's figure beside ours, and below it all that a reader must know."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from ..text import counted
from .images import remarks_on
from .settings import spelt

Record = Mapping[str, Any]

HEAD = ("row", "protocol", "paper", "ours", "seeds", "crops x epochs", "minutes", "hardware", "commit")
ABOUT = (
    "Accuracy in percent after the last epoch, mean ± sample standard deviation over n seeds. Minutes are those of "
    "pretraining, the mean of the runs. Recipes with LoGo bound Omega, where the paper does not (docs/decisions/0002), "
    "unless that is among the settings below."
)
MORE = (
    "Minutes after > are fewer than it took: a run was killed after its last checkpoint, or went on before its time "
    "was counted in full."
)
TOGETHER = "Minutes (N at once) are longer than a run's alone: up to N ran side by side on the device."
LACKING = {
    "not_run": "Not run",
    "finished_otherwise": "Finished in this folder with other settings or on other images, so not shown",
}
PROTOCOLS = {
    "knn": "kNN: weighted votes of frozen backbone features, top-1; the paper names neither k nor tau.",
    "linear": "Linear: MoCo's SGD on frozen backbone features, top-1; its learning rate is chosen on validation images "
    "or, without any, on a fifth of train.",
    "transfer": "Transfer: logistic regression on frozen backbone features, its penalty chosen on the official "
    "validation images or, without any, on a fifth of train.",
    "detect": "Detection: Faster R-CNN with a ResNet-C4 head, fine-tuned by MoCo's protocol (docs/decisions/0020); "
    "average precision in percent, on VOC by its measure of 2007.",
    "segment": "Segmentation: Mask R-CNN with a ResNet-C4 head, fine-tuned likewise; average precision in percent of "
    "boxes and of instance masks, by COCO's measure.",
}


def markdown(record: Record) -> str:
    """A table's record as text."""
    rows = record["rows"]
    kinds = dict.fromkeys(figure["measurement"].split("-")[0] for row in rows for figure in row["figures"])
    lines = [f"# {record['title']}", "", _line(HEAD), _line(["---"] * len(HEAD))]
    lines += [_line(cells) for row in rows for cells in _cells(row)]
    for key, words in LACKING.items():
        lines += ["", f"{words}: {'; '.join(record[key])}"] if record.get(key) else []
    lines += ["", ABOUT, *_about_minutes(rows), *(PROTOCOLS[kind] for kind in kinds)]
    for heading, remarks in (
        ("\\* Settings that differ from the recipe with the paper's:", _departures(rows, "departures")),
        (
            "Set for this table, not of our choice (the tuned recipe's in brackets):",
            _departures(rows, "changed"),
        ),
        ("Images:", _images(rows)),
        ("Remarks:", _remarks(rows)),
        ("Not there:", _absent(rows)),
    ):
        told = [f"- {remark}" for remark in remarks]
        lines += ["", heading, "", *told] if told else []
    return "\n".join(lines) + "\n"


def _cells(row: Record) -> Iterator[list[str]]:
    known = [run["provenance"] for run in row["runs"] if run["provenance"]]
    label = row["row"] + (" \\*" if row["departures"] else "")
    for figure in row["figures"]:
        yield [
            label,
            figure["protocol"],
            _number(figure["paper"]),
            _ours(figure),
            f"n={figure['n']}" + (f" of {len(row['runs'])}" if figure["n"] < len(row["runs"]) else ""),
            f"({row['crops']}) x {row['epochs']}",
            _minutes(row["runs"]),
            _each(provenance["hardware"] for provenance in known),
            _each(provenance["commit"] for provenance in known),
        ]


def _ours(figure: Record) -> str:
    spread = f" ± {figure['spread']:.2f}" if figure["spread"] is not None else ""
    return _number(figure["mean"]) + spread


def _minutes(runs: Sequence[Record]) -> str:
    """The mean; more, where a session was killed after its last checkpoint."""
    known = [run for run in runs if run["provenance"]]
    if not known:
        return "-"
    seconds = sum(run["provenance"]["seconds"] for run in known) / len(known)
    told = f"{seconds / 60:.1f}" if seconds >= 60 else f"{seconds:.0f} s"
    more = "> " if any(run["provenance"].get("sessions_killed") for run in known) else ""
    at_once = max(run["jobs"] or 1 for run in known)
    return f"{more}{told}" + (f" ({at_once} at once)" if at_once > 1 else "")


def _about_minutes(rows: Sequence[Record]) -> Iterator[str]:
    """What the marks in that column mean, where there are any."""
    told = [_minutes(row["runs"]) for row in rows]
    if any(">" in minutes for minutes in told):
        yield MORE
    if any("at once" in minutes for minutes in told):
        yield TOGETHER


def _departures(rows: Sequence[Record], kind: str) -> Iterator[str]:
    """What all rows share is told once."""
    told = {row["row"]: [_change(name, pair) for name, pair in sorted(row.get(kind, {}).items())] for row in rows}
    shared = [change for change in next(iter(told.values()), []) if all(change in own for own in told.values())]
    if len(rows) > 1 and shared:
        yield f"All rows: {', '.join(shared)}"
        told = {row: [change for change in own if change not in shared] for row, own in told.items()}
    yield from (f"{row}: {', '.join(own)}" for row, own in told.items() if own)


def _change(name: str, pair: Record) -> str:
    return f"{name} {spelt(pair['ours'])} (recipe: {spelt(pair['recipe'])})"


def _images(rows: Iterable[Record]) -> Iterable[str]:
    """What the images were, each set once."""
    ended = [(row["data"], run) for row in rows for run in row["runs"] if run["state"] == "done"]
    figures = [figure["measurement"] for row in rows for figure in row["figures"] if figure["n"]]
    by_linear = any(measurement.startswith("linear") for measurement in figures)
    return dict.fromkeys(told for data, run in ended for told in remarks_on(data, run["images"], by_linear))


def _remarks(rows: Sequence[Record]) -> Iterator[str]:
    """What all rows share is told once; then what befell single runs."""
    notes = {row["row"]: row["note"] for row in rows}
    if len(notes) > 1 and len(set(notes.values())) == 1:
        notes = {"All rows": rows[0]["note"]}
    yield from (f"{row}: {note}" for row, note in notes.items() if note)
    for row in rows:
        for run in row["runs"]:
            said = (*run.get("alarms", ()), *run.get("remarks", ()))
            mishaps = (*_mishaps(run["provenance"] or {}), *_not_to_be_had(row, run))
            yield from (f"{row['row']}, seed {run['seed']}: {told}" for told in (*said, *mishaps))


def _mishaps(provenance: Record) -> Iterator[str]:
    if (scale := provenance.get("lr_scale", 1.0)) != 1:
        yield f"it diverged on its way, and ended with {scale:g} of its learning rate"
    if n := provenance.get("bad_images", 0):
        yield f"{counted(n, 'training image')} could not be read, and others took their place"


def _not_to_be_had(row: Record, run: Record) -> Iterator[str]:
    lacking = [f["protocol"] for f in row["figures"] if f["measurement"] in run.get("not_to_be_had", [])]
    yield from (f"{protocol} was not measured, and its weights are gone" for protocol in lacking)


def _absent(rows: Iterable[Record]) -> Iterator[str]:
    for row in rows:
        for run in row["runs"]:
            if run["state"] != "done":
                yield f"{row['row']} ({row['recipe']}), seed {run['seed']}, {run['state']}: {run['sentence']}"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def _each(values: Iterable[str]) -> str:
    return ", ".join(dict.fromkeys(values)) or "-"


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"
