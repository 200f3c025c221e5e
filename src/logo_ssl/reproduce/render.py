"""What came out of a table's runs: one record with every figure, as JSON and as Markdown, and Figure 1b."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from ..files import read_json, write
from ..recipes import Recipe, differences, is_harmless, literal, unused
from ..report import Curve, draw_knn_curves
from ..run import Run
from .tables import DONE, Figure, Row, RowRun, Table

HEAD = ("row", "protocol", "paper", "ours", "seeds", "crops x epochs", "minutes", "hardware", "commit")
ABOUT = """\
Accuracy in percent after the last epoch, mean ± sample standard deviation over n seeds. Minutes are those of
pretraining, the mean of the runs. kNN: weighted votes of frozen backbone features; the paper names neither k nor tau.
Linear: MoCo's SGD on frozen features, its learning rate chosen on validation images. Transfer: logistic regression on
frozen features. Detection and masks: MoCo's protocol, fine-tuned. Rows with LoGo bound Omega (docs/decisions/0002)."""


def record_of(table: Table, out: Path, outcomes: Mapping[Path, str]) -> dict[str, Any]:
    """Every figure of a table: of the runs that were asked for, and of others that are finished in the folder."""
    rows = []
    for row in table.rows:
        runs = [_run(row, folder, outcomes.get(folder, DONE)) for folder in _folders(out / row.recipe.name, outcomes)]
        finished = [Recipe.from_json(Run(run["folder"]).recipe_file.read_text()) for run in runs if run["provenance"]]
        recipe = finished[0] if finished else row.recipe
        rows.append(
            {
                "row": row.label,
                "recipe": row.recipe.name,
                "data": recipe.data,
                "crops": f"{recipe.crops.n_global} + {recipe.crops.n_local}",
                "epochs": recipe.epochs,
                "departures": _departures(recipe),
                "figures": [_figure(figure, runs) for figure in row.figures],
                "runs": runs,
            }
        )
    return {"table": table.name, "title": table.title, "rows": rows}


def markdown(record: Mapping[str, Any]) -> str:
    """A table's record as text."""
    lines = [f"# {record['title']}", "", _line(HEAD), _line(["---"] * len(HEAD))]
    lines += [_line(cells) for row in record["rows"] for cells in _cells(row)]
    lines += ["", ABOUT]
    if remarks := dict.fromkeys(_remarks(record["rows"])):
        lines += ["", "\\* Settings that differ from the recipe with the paper's, and other remarks:", ""]
        lines += [f"- {remark}" for remark in remarks]
    return "\n".join(lines) + "\n"


def write_table(table: Table, record: Mapping[str, Any], out: Path) -> Path:
    """Write a table as JSON and Markdown."""
    write(out / f"{table.stem}.json", json.dumps(record, indent=2) + "\n")
    return write(out / f"{table.stem}.md", markdown(record))


def draw_figure_1b(table: Table, record: dict[str, Any], out: Path) -> list[Path]:
    """Draw kNN over epochs of each row, and write the numbers next to the picture."""
    curves = []
    for row in record["rows"]:
        runs = tuple(Run(run["folder"]) for run in row["runs"] if run["provenance"])
        curves.append(Curve(row["recipe"], row["row"], Path(row["data"]).stem, runs))
    drawn = [curve for curve in curves if curve.points()]
    points = {curve.row: curve.points() for curve in drawn}
    write(out / f"{table.stem}.json", json.dumps(record | {"curves": points}, indent=2) + "\n")
    return draw_knn_curves(drawn, out / f"{table.stem}.png") if drawn else []


def _folders(above: Path, outcomes: Mapping[Path, str]) -> list[Path]:
    finished = [file.parent for file in above.glob("seed*/provenance.json")]
    asked = [folder for folder in outcomes if folder.parent == above]
    return sorted({*finished, *asked}, key=lambda folder: (len(folder.name), folder.name))


def _run(row: Row, folder: Path, outcome: str) -> dict[str, Any]:
    place = RowRun(row.recipe, folder, row.evaluations)
    provenance, images = place.run.provenance() or None, place.run.images()
    return {
        "seed": int(folder.name.removeprefix("seed")),
        "folder": str(folder),
        "state": outcome,
        "provenance": provenance,
        "images": {name: images.get(name) for name in ("train_images", "test_images", "fingerprint")},
        "results": {made.name: read_json(place.result_file(made)) for made in row.evaluations} if provenance else {},
    }


def _figure(figure: Figure, runs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    found = {str(run["seed"]): _value(figure, run["results"].get(figure.evaluation.name, {})) for run in runs}
    values = {seed: value for seed, value in found.items() if value is not None}
    return {
        "protocol": figure.protocol,
        "paper": figure.paper,
        "values": values,
        "n": len(values),
        "mean": mean(values.values()) if values else None,
        "spread": stdev(values.values()) if len(values) > 1 else None,
    }


def _value(figure: Figure, result: Any) -> float | None:
    """Follow the figure's keys into a result; None if it has no such figure."""
    for key in figure.keys:
        if isinstance(key, dict):
            result = next((entry for entry in result if entry.items() >= key.items()), None)
        else:
            result = result.get(key)
        if result is None:
            return None
    return float(result)


def _departures(recipe: Recipe) -> dict[str, Any]:
    """The fields that decide a result and differ from the recipe with the paper's settings."""
    found = differences(recipe, literal(recipe))
    if "data" in found and Path(str(found["data"][0])).stem == found["data"][1]:  # a file called like the set
        del found["data"]
    decisive = {"data", "epochs", *(field for field in found if not is_harmless(field))} - {"seed", *unused(recipe)}
    return {field: {"ours": ours, "recipe": theirs} for field, (ours, theirs) in found.items() if field in decisive}


def _cells(row: Mapping[str, Any]) -> Iterator[list[str]]:
    made = [run["provenance"] for run in row["runs"] if run["provenance"]]
    seconds = [one["seconds"] for one in made]
    for figure in row["figures"]:
        spread = f" ± {figure['spread']:.2f}" if figure["spread"] is not None else ""
        yield [
            row["row"] + (" \\*" if row["departures"] else ""),
            figure["protocol"],
            _number(figure["paper"]),
            _number(figure["mean"]) + spread,
            f"n={figure['n']}",
            f"({row['crops']}) x {row['epochs']}",
            f"{mean(seconds) / 60:.1f}" if seconds else "-",
            ", ".join(dict.fromkeys(one["hardware"] for one in made)) or "-",
            ", ".join(dict.fromkeys(one["commit"] for one in made)) or "-",
        ]


def _remarks(rows: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """Departures from the recipe, how many images there were, what went wrong, and what is missing."""
    for row in rows:
        if row["departures"]:
            told = (f"{field} {pair['ours']} (recipe: {pair['recipe']})" for field, pair in row["departures"].items())
            yield f"{row['row']}: {', '.join(told)}"
        if not row["runs"]:
            yield f"{row['row']} ({row['recipe']}): not run"
        for run in row["runs"]:
            name, made, images = f"{row['row']}, seed {run['seed']}", run["provenance"] or {}, run["images"]
            if images["train_images"] is not None:
                counts = f"{images['train_images']:,} images to train on, {images['test_images']:,} to test on"
                yield f"{Path(row['data']).stem}: {counts}"
            if (scale := made.get("lr_scale", 1.0)) != 1:
                yield f"{name}: it diverged, and ended with {scale:g} of its learning rate"
            if bad := made.get("bad_images", 0):
                yield f"{name}: {bad:,} training images could not be read"
            if run["state"] != DONE:
                yield f"{name} ({row['recipe']}): {run['state']}"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"
