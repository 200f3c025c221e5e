"""What did some runs come to? One line of JSON for each, for docs/results/raw.

python tools/keep_runs.py docs/results/raw/2026-11-16-lambdas.jsonl runs/lambda0 runs/lambda.05
"""

import argparse
import json
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

from logo_ssl.files import write
from logo_ssl.recipes import read_recipe
from logo_ssl.reproduce.settings import name_of
from logo_ssl.run import Run


def main(arguments: list[str] | None = None) -> None:
    """Write what all of them tell."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", type=Path, help="the file of JSON lines")
    parser.add_argument("runs", type=Path, nargs="+", help="folders of runs that have ended")
    options = parser.parse_args(arguments)
    text = "".join(f"{json.dumps(told(Run(folder)))}\n" for folder in options.runs)
    if (place := text.find('"/')) >= 0:
        raise SystemExit(f"A run names a folder of this machine: {text[place:].split(',')[0]}")
    write(options.file, text)


def told(run: Run) -> dict[str, Any]:
    """What a run was, whatever becomes of its recipe, what it logged last, and all that was measured of it."""
    recipe = read_recipe(run)
    provenance = json.loads(run.provenance_file.read_text())
    lines = list(run.metrics())
    steps = [line for line in lines if "images_per_s" in line]
    return {
        "recipe": recipe.name,
        "settings": json.loads(replace(recipe, data=name_of(recipe.data)).to_json()),
        "epochs": recipe.epochs,
        "crops": provenance["crops"],
        **{fact: provenance[fact] for fact in ("seed", "commit", "hardware", "seconds")},
        "torch": provenance["versions"]["torch"],
        "knn_k20_by_epoch": {line["epochs_done"]: line["knn"] for line in lines if line.get("knn_k") == 20},
        "evaluations": [measured(file) for file in sorted(run.path.glob("evaluation/*.json"))],
        "last_logged": steps[-1],
        "last_gauged": {name: line[name] for line in lines for name in ("z_std", "z_rank") if name in line},
        "median_images_per_s": round(median(line["images_per_s"] for line in steps)),
    }


def measured(file: Path) -> dict[str, Any]:
    """The figures of one evaluation, and how they were measured."""
    record = json.loads(file.read_text())
    return {name: record[name] for name in ("evaluation", "protocol", "results")}


if __name__ == "__main__":
    main()
