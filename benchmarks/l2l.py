"""Does pushing local crops apart help? Arms x seeds on one bed, and their differences from multi-crop, seed by seed.

Bed A, photographs; bed B, several objects in an image, of which mosaics come first:

    python benchmarks/l2l.py imagenette --data imagenette128 --transfer pets80 --seeds 0 1 2 3 --jobs 4
    python benchmarks/mosaics.py imagenette128 --out beds
    python benchmarks/l2l.py mosaics --data beds --seeds 0 1 2 3 --jobs 4
    python benchmarks/mosaics.py scenes --out beds
    python benchmarks/l2l.py scenes --data beds --seeds 0 1 2 3 --jobs 4
    python benchmarks/l2l.py mosaics --table     # what is there so far; --arms names others

Finished runs are not run again, interrupted ones go on. The rule (results/experiments/56-l2l-arms.md): an arm is
adopted with 4 seeds or more, a gain of so many points (imagenette, cifar10: 0.5 in the mean of kNN, linear and
transfers; mosaics, scenes: 1.0 of mean average precision) and of more than two standard errors, and linear not lower.
"""

import argparse
import json
import signal
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from statistics import mean, stdev
from typing import Any, NamedTuple

from l2l_arms import FeatureConfig, GeometryConfig, MeasuredConfig, RegionConfig
from overlap_l2l import OverlapConfig

from logo_ssl.recipes import Recipe, find_recipe
from logo_ssl.reproduce.run import Runner
from logo_ssl.reproduce.tables import KNN, Evaluation, RowRun
from logo_ssl.strategies import KoLeoConfig, LoGoConfig
from logo_ssl.system.terminal import plain_console

BASELINE = "multicrop"
LEAST_SEEDS = 4
LINEAR = Evaluation("linear-lbfgs", ("linear", "--protocol", "lbfgs"))
NOT_IN_MEAN = ("knn-200", "multilabel")


class Bed(NamedTuple):
    """What arms are trained and measured on, and what decides."""

    recipe: str
    """The recipes' names begin so."""
    file: str = ""
    """The images to train on, if `--data` is a folder of beds."""
    evaluations: tuple[Evaluation, ...] = (KNN, LINEAR)
    """`{data}` stands for `--data`."""
    decides: str = "mean"
    """By which measure an arm is adopted; `mean` is that of kNN (k=20), linear and all transfers."""
    least_gain: float = 0.5
    """Points of it."""


BEDS = {
    "imagenette": Bed("imagenette-moco"),
    "cifar10": Bed("cifar10-tuned-moco"),
    "mosaics": Bed(
        "imagenette-moco",
        "mosaics.npz",
        (
            Evaluation("multilabel", ("multilabel", "--data", "{data}/labelled.npz")),
            Evaluation("knn", ("knn", "--data", "{data}/quadrants.npz")),
        ),
        "multilabel",
        1.0,
    ),
    "scenes": Bed(
        "imagenette-moco",
        "scenes.npz",
        (Evaluation("multilabel", ("multilabel",)), Evaluation("knn", ("knn", "--data", "scenes"))),
        "multilabel",
        1.0,
    ),
}

Change = Callable[[Recipe], Recipe]


def by(strategy: Any) -> Change:
    """Another strategy."""
    return lambda recipe: recipe.with_part("strategy", strategy)


ARMS: dict[str, tuple[str, Change]] = {
    "two-view": ("", lambda recipe: recipe),
    "four-large": ("", lambda recipe: recipe.changed(crops__n_global=4)),
    "multicrop": ("-multicrop", lambda recipe: recipe),
    "logo": ("-logo", lambda recipe: recipe),
    "logo-parameters": ("-logo", by(LoGoConfig(lam=0.015, balance="parameters"))),
    "logo-measured": ("-logo", by(MeasuredConfig())),
    "disjoint": ("-multicrop", lambda recipe: recipe.changed(crops__layout="disjoint")),
    "disjoint-logo": ("-logo", lambda recipe: recipe.changed(crops__layout="disjoint")),
    "koleo": ("-multicrop", by(KoLeoConfig())),
    "koleo-global": ("-multicrop", by(KoLeoConfig(on="global"))),
    "koleo-all": ("-multicrop", by(KoLeoConfig(on="all"))),
    "koleo-0.2": ("-multicrop", by(KoLeoConfig(weight=0.2))),
    "overlap": ("-logo", by(OverlapConfig())),
    "features": ("-logo", by(FeatureConfig())),
    "geometry": ("-multicrop", by(GeometryConfig())),
    "region": ("-multicrop", by(RegionConfig())),
}
"""The recipe's ending, and what is changed in it."""


class DeadlineRunner(Runner):
    """Runs commands by the file that knows the arms."""

    program = (str(Path(__file__).with_name("l2l_arms.py")),)


def rows_of(options: argparse.Namespace) -> list[RowRun]:
    """Seed by seed, so that whatever ends early is paired."""
    bed, data = BEDS[options.bed], options.data and str(Path(options.data).absolute())
    evaluations = [
        each._replace(arguments=tuple(word.format(data=data) for word in each.arguments)) for each in bed.evaluations
    ]
    for place in map(Path, options.transfer):
        evaluations.append(Evaluation(f"transfer-{place.name}", ("transfer", "--sets", str(place.absolute()))))
    rows = []
    for seed in options.seeds:
        for arm in options.arms:
            ending, change = ARMS[arm]
            recipe = change(find_recipe(bed.recipe + ending)).changed(seed=seed, knn_every=options.knn_every)
            if data:
                recipe = replace(recipe, data=str(Path(data, bed.file)))
            if options.epochs:
                recipe = replace(recipe, epochs=options.epochs)
            rows.append(RowRun(recipe, options.out / arm / f"seed{seed}", tuple(evaluations)))
    return rows


def figures(folder: Path) -> dict[str, float]:
    """What was measured of a run, by measure."""
    found = {}
    for file in sorted(folder.glob("evaluation/reproduce-*.json")):
        result, kind = json.loads(file.read_text()), file.stem.removeprefix("reproduce-")
        if kind == "knn":
            found |= {f"knn-{each['k']}": each["top1"] for each in result["results"]}
        elif kind.startswith("linear"):
            found["linear"] = result["results"]["top-1"]
        else:
            found[kind] = result["value"]
    return found


def recorded(bed: str, arm: str) -> dict[int, dict[str, float]]:
    """What results/records has of an arm on a bed, by seed."""
    file = Path(__file__).parents[1] / "results" / "records" / f"{bed}.jsonl"
    lines = map(json.loads, file.read_text().splitlines() if file.is_file() else ())
    name = "moco" if arm == "two-view" else f"moco-{arm}"
    return {
        line["seed"]: {measure.removesuffix("-lbfgs"): value for measure, value in line["figures"].items()}
        for line in lines
        if line["name"] == name and "figures" in line
    }


def paired(out: Path, name: str) -> list[dict[str, Any]]:
    """Every arm's differences from the baseline over the seeds that both have, with standard errors and a verdict.

    Runs in the folder count, and those of earlier sessions that results/records keeps.
    """
    bed, known = BEDS[name], {arm: recorded(name, arm) for arm in ARMS}
    for run in out.glob("*/seed*"):
        if run.is_dir() and (found := figures(run)):
            known.setdefault(run.parent.name, {})[int(run.name[4:])] = found
    whole = max((len(found) for by_seed in known.values() for found in by_seed.values()), default=0)
    for by_seed in known.values():
        for seed in [seed for seed, found in by_seed.items() if len(found) < whole]:  # not wholly measured
            del by_seed[seed]
    lines = []
    for arm, by_seed in ((arm, by_seed) for arm, by_seed in known.items() if by_seed):
        line: dict[str, Any] = {"arm": arm, "seeds": sorted(by_seed), "figures": by_seed}
        both = sorted(by_seed.keys() & known.get(BASELINE, {}).keys())
        if arm != BASELINE and both:
            gains = [difference(by_seed[seed], known[BASELINE][seed]) for seed in both]
            line["gain"] = {measure: spread([gain[measure] for gain in gains]) for measure in gains[0]}
            line["verdict"] = verdict(line["gain"], len(both), bed)
        lines.append(line)
    return lines


def difference(one: Mapping[str, float], other: Mapping[str, float]) -> dict[str, float]:
    """Points by measure; `mean` is that of kNN (k=20), linear and all transfers."""
    points = {measure: one[measure] - other[measure] for measure in one if measure in other}
    return points | {"mean": mean(value for measure, value in points.items() if measure not in NOT_IN_MEAN)}


def spread(values: list[float]) -> tuple[float, float | None]:
    """Mean, and its standard error where there are two or more."""
    return round(mean(values), 2), round(stdev(values) / len(values) ** 0.5, 2) if len(values) > 1 else None


def verdict(gain: Mapping[str, tuple[float, float | None]], n: int, bed: Bed) -> str:
    """By the rule that was fixed beforehand."""
    points, error = gain[bed.decides]
    if n < LEAST_SEEDS or error is None:
        return f"open: {n} of {LEAST_SEEDS} seeds"
    wins = points >= bed.least_gain and points > 2 * error and gain.get("linear", (0,))[0] >= 0
    return "adopted" if wins else "not adopted"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bed", choices=BEDS)
    parser.add_argument("--data", help="where its images are (default: the recipes'), or the folder of mosaics.py")
    parser.add_argument("--arms", nargs="+", choices=ARMS, default=["multicrop", "logo", "koleo"])
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    parser.add_argument("--transfer", nargs="*", default=[], help="class folders or .npz files to transfer to")
    parser.add_argument("--epochs", type=int)
    parser.add_argument("--knn-every", type=int, default=20)
    parser.add_argument("--jobs", type=int, default=1, help="runs side by side on one device")
    parser.add_argument("--minutes", type=float, help="after which runs are interrupted; the same command goes on")
    parser.add_argument("--out", type=Path, help="folder of the runs of one bed (default: runs/l2l/BED)")
    parser.add_argument("--table", action="store_true", help="run nothing")
    options = parser.parse_args()
    options.out = options.out or Path("runs/l2l", options.bed)
    if BEDS[options.bed].file and not (options.data or options.table):
        parser.error(f"{options.bed} needs --data, the folder that benchmarks/mosaics.py wrote")
    if not options.table:
        if options.minutes:
            signal.signal(signal.SIGALRM, signal.default_int_handler)
            signal.setitimer(signal.ITIMER_REAL, 60 * options.minutes)
        rows = rows_of(options)
        for row in rows:
            row.check()
        try:
            DeadlineRunner(options.jobs, plain_console().print).run_all(rows, lambda outcomes: None)
        except KeyboardInterrupt:
            print("interrupted; the same command goes on", file=sys.stderr)
    for line in paired(options.out, options.bed):
        print(json.dumps({"benchmark": "l2l", "bed": options.bed} | line))


if __name__ == "__main__":
    main()
