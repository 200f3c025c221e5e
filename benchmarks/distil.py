"""Does a small network learn more from a large frozen one than from images alone? Arms x seeds on one set.

    python benchmarks/distil.py cifar10 --data cifar10.npz --teacher runs/resnet18 --seeds 0 1 2 --jobs 4
    python benchmarks/distil.py imagenette --data imagenette128 --teacher runs/resnet50 --student resnet18

All arms train for as many epochs; `seconds` tell what that took, to compare at equal time by another `--epochs` for
some `--arms`. Finished runs are not run again, interrupted ones go on. `kept` is a share of the teacher's figure, in
percent, on the same images.
"""

import argparse
import json
import shutil
from dataclasses import replace
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from logo_ssl.frameworks import DistilConfig
from logo_ssl.recipes import Recipe, find_recipe, read_recipe
from logo_ssl.reproduce.run import Runner
from logo_ssl.reproduce.tables import KNN, Evaluation, RowRun
from logo_ssl.run import Run
from logo_ssl.system.terminal import plain_console

BEDS = {"cifar10": "cifar10-tuned-moco", "imagenette": "imagenette-moco", "scenes": "tiny"}
"""The recipes' names begin so."""
ARMS = {
    "alone": ("two-view", False, 2),
    "alone-logo": ("logo", False, 2),
    "taught-one-crop": ("two-view", True, 1),
    "taught": ("two-view", True, 2),
    "taught-logo": ("logo", True, 2),
}
"""Strategy, whether there is a teacher, and the number of global crops."""
TEACHER = "teacher"
LINEAR = Evaluation("linear-lbfgs", ("linear", "--protocol", "lbfgs"))


def recipe_of(options: argparse.Namespace, arm: str, seed: int) -> Recipe:
    """The bed's recipe with the student's network; a teacher takes the place of MoCo."""
    strategy, taught, n_global = ARMS[arm]
    name = BEDS[options.bed]
    recipe = find_recipe(f"{name}-logo" if strategy == "logo" and options.bed != "scenes" else name)
    recipe = recipe.changed(backbone=options.student, seed=seed, device=options.device, knn_every=0)
    if recipe.kind("strategy") != strategy:
        recipe = recipe.with_part("strategy", strategy)
    if taught:
        recipe = recipe.with_part("framework", DistilConfig(str(options.teacher))).changed(crops__n_global=n_global)
    if options.data:
        recipe = replace(recipe, data=str(options.data.absolute()))
    return recipe if options.epochs is None else replace(recipe, epochs=options.epochs)


def rows_of(options: argparse.Namespace) -> list[RowRun]:
    """Seed by seed, and a copy of the teacher, which is measured alone."""
    recipes = {(arm, seed): recipe_of(options, arm, seed) for seed in options.seeds for arm in options.arms}
    data = ("--data", next(iter(recipes.values())).data)
    evaluations = tuple(each._replace(arguments=(*each.arguments, *data)) for each in (KNN, LINEAR))
    copy = options.out / TEACHER / "seed0"
    if not copy.exists():
        shutil.copytree(options.teacher, copy, ignore=shutil.ignore_patterns("checkpoints", "evaluation", ".lock"))
    measured = replace(read_recipe(Run(copy)), device=options.device)
    students = (RowRun(each, options.out / arm / f"seed{seed}", evaluations) for (arm, seed), each in recipes.items())
    return [RowRun(measured, copy, evaluations), *students]


def figures(row: Path) -> dict[str, float]:
    """What was measured of a run, by measure; nothing before both evaluations are done."""
    files = [Run(row).evaluation_file(f"reproduce-{each.name}") for each in (KNN, LINEAR)]
    if not all(file.is_file() for file in files):
        return {}
    knn, linear = (json.loads(file.read_text())["results"] for file in files)
    return {f"knn-{each['k']}": each["top1"] for each in knn} | {"linear": linear["top-1"]}


def summary(out: Path) -> list[dict[str, Any]]:
    """What was measured of each arm: mean, standard deviation, and the share of the teacher's."""
    known = figures(out / TEACHER / "seed0")
    lines = []
    for arm in (TEACHER, *ARMS):
        runs = [run for run in sorted((out / arm).glob("seed*")) if known and figures(run).keys() == known.keys()]
        found = [figures(run) for run in runs]
        if not found:
            continue
        line: dict[str, Any] = {"arm": arm, "n": len(found)}
        for measure in known:
            values = [each[measure] for each in found]
            line[measure] = [round(mean(values), 2), round(stdev(values), 2) if len(values) > 1 else None]
        line["kept"] = {measure: round(100 * line[measure][0] / known[measure], 1) for measure in known}
        line |= {name: [Run(run).provenance()[name] for run in runs] for name in ("seconds", "epochs", "hardware")}
        lines.append(line)
    return lines


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bed", choices=BEDS)
    parser.add_argument("--teacher", type=lambda path: Path(path).absolute(), required=True, help="a finished run")
    parser.add_argument("--student", default="tiny", help="a backbone")
    parser.add_argument("--data", type=Path, help="where the images are (default: the recipes')")
    parser.add_argument("--arms", nargs="+", choices=ARMS, default=list(ARMS))
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    parser.add_argument("--epochs", type=int)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--jobs", type=int, default=1, help="runs side by side on one device")
    parser.add_argument("--out", type=lambda path: Path(path).absolute(), help="default: runs/distil/BED")
    options = parser.parse_args(arguments)
    options.out = options.out or Path("runs/distil", options.bed).absolute()
    rows = rows_of(options)
    for row in rows:
        row.check()
    Runner(options.jobs, plain_console().print).run_all(rows, lambda outcomes: None)
    for line in summary(options.out):
        print(json.dumps({"benchmark": "distil", "bed": options.bed, "student": options.student} | line))


if __name__ == "__main__":
    main()
