"""Add runs that have ended to a family of results/records: a line for each, without weights and folders' names.

python tools/keep.py cifar10-tuned runs/moco-logo --name moco-logo --experiment 55
python tools/keep.py cifar10-tuned runs/reproduce/*/seed* --experiment 55 --at-once 3
"""

import argparse
import json
import sys
from datetime import UTC, datetime
from pathlib import Path
from statistics import mean, median
from typing import Any

import records

IDLE = (
    *("paper", "chosen", "device", "devices", "nodes", "compile", "knn_every", "loading", "log_every"),
    *("checkpoint_every", "checkpoint_minutes", "checkpoint_keep", "on_collapse", "deterministic", "loggers"),
)
"""Settings that decide no result."""
LOSSES = ("loss", "l_gg", "l_lg", "l_ll", "ratio", "omega")
LATE = 0.8  # of the epochs, from which on means of the losses are kept


def main(arguments: list[str] | None = None) -> None:
    """Append to the file; runs that it has already are refused."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("family", help="name of a file in results/records, or of a new one")
    parser.add_argument("runs", type=Path, nargs="+", help="folders of runs that have ended and been evaluated")
    parser.add_argument("--name", help="what runs share that differ in the seed alone (default: the folder's name)")
    parser.add_argument("--experiment", type=int, required=True, help="number of the page in results/experiments")
    parser.add_argument("--at-once", type=int, default=1, help="how many runs shared the device (default: 1)")
    parser.add_argument("--remark", default="", help="what else there is to know")
    options = parser.parse_args(arguments)
    file = records.RECORDS / f"{options.family}.jsonl"
    lines = file.read_text().splitlines() if file.exists() else []
    known = {(line["name"], line.get("seed")) for line in map(json.loads, lines) if "name" in line}
    for run in options.runs:
        name = options.name or (run.parent.name if run.name.startswith("seed") else run.name)
        line = record_of(run, name, options.experiment, options.at_once, options.remark)
        if (key := (line["name"], line["seed"])) in known:
            parser.error(f"{options.family} has {key[0]}, seed {key[1]}, already")
        known.add(key)
        lines.append(json.dumps(line))
        if '"/' in lines[-1]:
            parser.error(f"{run} names a folder of this machine")
    file.write_text("".join(f"{line}\n" for line in lines))
    sys.stdout.write(f"{file.name} has {len(lines)} lines.\n")


def record_of(run: Path, name: str, experiment: int, at_once: int = 1, remark: str = "") -> dict[str, Any]:
    """What a run was, what it logged, and all that was measured of it (results/README.md has the fields)."""
    if not (run / "backbone.safetensors").exists():
        raise SystemExit(f"{run} has not ended: it has no backbone.safetensors")
    recipe, provenance = (json.loads((run / f"{file}.json").read_text()) for file in ("recipe", "provenance"))
    log = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    evaluations = [json.loads(file.read_text()) for file in sorted(run.glob("evaluation/*.json"))]
    steps, gauges = [line for line in log if "images_per_s" in line], [line for line in log if "z_rank" in line]
    late = [line for line in steps if line["epoch"] >= LATE * recipe["epochs"]]
    line = {
        "name": name,
        "seed": recipe["seed"],
        "experiment": experiment,
        "date": datetime.fromtimestamp(log[0]["time"], UTC).strftime("%Y-%m-%d"),
        "recipe": recipe["name"],
        "epochs": recipe["epochs"],
        **{fact: provenance[fact] for fact in ("commit", "hardware", "seconds")},
        "torch": provenance["versions"]["torch"],
        "began": round(log[0]["time"]),
        "at_once": at_once,
        "images_per_s": round(median(line["images_per_s"] for line in steps)),
        "remark": remark,
        "knn_by_epoch": {str(line["epochs_done"]): line["knn"] for line in log if line.get("knn_k") == 20},
        "rank_by_epoch": {
            str(line["epoch"] + 1): round(line["z_rank"], 1) for line in gauges if line["epoch"] % 10 == 9
        },
        **top(evaluations),
        "late": {loss: short(mean(line[loss] for line in late)) for loss in LOSSES if late and loss in late[0]},
        "last": {what: short(steps[-1][what]) for what in ("step", *LOSSES) if what in steps[-1]}
        | {what: short(gauges[-1][what]) for what in ("z_std", "z_rank") if gauges},
        "settings": {key: value for key, value in recipe.items() if key not in IDLE}
        | {"data": Path(recipe["data"]).stem},
    }
    return {field: value for field, value in line.items() if value not in ("", {})}


def top(evaluations: list[dict[str, Any]]) -> dict[str, Any]:
    """Top-1 and top-5 (of five classes and more) of every evaluation, and the rate that a linear classifier chose."""
    figures, fives, chosen = {}, {}, {}
    for each in evaluations:
        kind, results = each["evaluation"], each.get("results")
        if kind == "knn":
            figures |= {f"knn-{result['k']}": result["top1"] for result in results}
            fives |= {f"knn-{result['k']}": result["top5"] for result in results if "top5" in result}
        elif kind.startswith("linear-"):
            figures[kind] = results["top-1"]
            fives |= {kind: results["top-5"]} if "top-5" in results else {}
            chosen |= {"linear_sgd_lr": each["lr"]} if kind == "linear-sgd" else {}
        elif "value" in each:
            figures[f"transfer-{each['data']}" if kind == "transfer" else kind] = each["value"]
    return {"figures": figures, "top5": fives, **chosen}


def short(value: float) -> float:
    """Five digits, enough for any table."""
    return float(f"{value:.5g}") if isinstance(value, float) else value


if __name__ == "__main__":
    main()
