"""Print the tables of docs/results in Markdown, from results/records.

python tools/write_tables.py           # all of them
python tools/write_tables.py l2l tuned
"""

import argparse
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from statistics import mean, stdev

from l2l_trials import SEVERAL, TRIALS, change, standard_error
from records import MEASURES, family, figure, figures, runs

KNN = ("kNN k=20", "kNN k=200")
WITHOUT, LOGO, FOUR = "with local crops, without L2L", "MoCo-LoGo", "MoCo with four large crops"
Rows = Sequence[tuple[str, ...]]
TUNED = (
    ("MoCo", "2", "cifar10-tuned/moco"),
    (f"MoCo {WITHOUT}", "2 + 2", "cifar10-tuned/moco-multicrop"),
    ("MoCo-LoGo", "2 + 2", "cifar10-tuned/moco-logo"),
    ("MoCo, four large crops", "4", "cifar10-tuned/moco-four-large"),
    ("MoCo, six large crops (`cifar10-best`)", "6", "cifar10-tuned/moco-six-large"),
    ("SimSiam", "2", "cifar10-tuned/simsiam"),
    (f"SimSiam {WITHOUT}", "2 + 2", "cifar10-tuned/simsiam-multicrop"),
    ("SimSiam-LoGo", "2 + 2", "cifar10-tuned/simsiam-logo"),
    ("SimSiam, four large crops", "4", "cifar10-tuned/simsiam-four-large"),
)
DECAY = (
    ("MoCo", "2", "cifar10-variants/moco-decay-5e-4"),
    (f"MoCo {WITHOUT}", "2 + 2", "cifar10-variants/moco-multicrop-decay-5e-4"),
    ("MoCo-LoGo", "2 + 2", "cifar10-variants/moco-logo-decay-5e-4"),
    ("MoCo, four large crops (linear: L-BFGS)", "4", "cifar10-variants/moco-four-large-decay-5e-4"),
    (f"MoCo {WITHOUT}, enlarged", "2 + 2", "cifar10-variants/moco-multicrop-enlarged:0"),
    ("MoCo-LoGo, local crops enlarged", "2 + 2", "cifar10-variants/moco-logo-enlarged"),
    ("SimSiam-LoGo, local crops of 16 px", "2 + 2", "cifar10-variants/simsiam-logo-16px"),
)
PAPER = (
    ("MoCo", "79.58", "80.37", "cifar10-paper/moco"),
    (f"MoCo {WITHOUT}", "82.31", "", "cifar10-paper/moco-multicrop"),
    ("MoCo-LoGo", "84.44", "85.59", "cifar10-paper/moco-logo"),
    ("SimSiam", "80.48", "83.02", "cifar10-paper/simsiam"),
    (f"SimSiam {WITHOUT}", "83.33", "", "cifar10-paper/simsiam-multicrop"),
    ("SimSiam-LoGo", "87.67", "88.02", "cifar10-paper/simsiam-logo"),
)
PAPER_VARIANTS = (
    ("SimSiam, weight decay 5e-4", "2", "cifar10-paper/simsiam-decay-5e-4"),
    ("SimSiam-LoGo, weight decay 5e-4", "2 + 2", "cifar10-paper/simsiam-logo-decay-5e-4"),
    ("SimSiam, weight decay 5e-4, global crops of 40-100 %", "2", "cifar10-paper/simsiam-decay-5e-4-global-40-100"),
    ("SimSiam-LoGo, weight decay 5e-4, crops of 20-100 % and 20-80 %", "2 + 2",
     "cifar10-paper/simsiam-logo-decay-5e-4-global-20-100-local-20-80"),
    ("SimSiam, torch's initialisation", "2", "cifar10-paper/simsiam-torch-init"),
    ("SimSiam, learning rate and layers as on ImageNet", "2", "cifar10-paper/simsiam-imagenet-rate-and-layers"),
)  # fmt: skip
MARGINS = (
    ("MoCo-LoGo over MoCo", "cifar10-tuned/moco-logo", "cifar10-tuned/moco"),
    ("the same, weight decay 5e-4", "cifar10-variants/moco-logo-decay-5e-4", "cifar10-variants/moco-decay-5e-4"),
    ("MoCo-LoGo over four large crops", "cifar10-tuned/moco-logo", "cifar10-tuned/moco-four-large"),
    ("MoCo-LoGo over the same without L2L, seed 0", "cifar10-tuned/moco-logo:0", "cifar10-tuned/moco-multicrop:0"),
    ("SimSiam-LoGo over SimSiam", "cifar10-tuned/simsiam-logo", "cifar10-tuned/simsiam"),
    ("the same, seed 0", "cifar10-tuned/simsiam-logo:0", "cifar10-tuned/simsiam:0"),
    ("the same, seed 1", "cifar10-tuned/simsiam-logo:1", "cifar10-tuned/simsiam:1"),
    ("SimSiam-LoGo over four large crops", "cifar10-tuned/simsiam-logo", "cifar10-tuned/simsiam-four-large"),
    ("SimSiam-LoGo over the same without L2L, seed 0", "cifar10-tuned/simsiam-logo:0",
     "cifar10-tuned/simsiam-multicrop:0"),
    ("the paper's settings: MoCo-LoGo over MoCo", "cifar10-paper/moco-logo", "cifar10-paper/moco"),
    ("of that L2L, seed 0", "cifar10-paper/moco-logo:0", "cifar10-paper/moco-multicrop:0"),
    ("of that L2L, all seeds", "cifar10-paper/moco-logo", "cifar10-paper/moco-multicrop"),
    ("the paper's settings: SimSiam-LoGo over SimSiam", "cifar10-paper/simsiam-logo", "cifar10-paper/simsiam"),
    ("of that L2L, seed 0", "cifar10-paper/simsiam-logo:0", "cifar10-paper/simsiam-multicrop:0"),
    ("of that L2L, all seeds", "cifar10-paper/simsiam-logo", "cifar10-paper/simsiam-multicrop"),
    ("weight decay 5e-4: SimSiam-LoGo over SimSiam", "cifar10-paper/simsiam-logo-decay-5e-4",
     "cifar10-paper/simsiam-decay-5e-4"),
    ("weight decay 5e-4, global crops of 40-100 % in both", "cifar10-paper/simsiam-logo-decay-5e-4",
     "cifar10-paper/simsiam-decay-5e-4-global-40-100"),
    ("weight decay 5e-4, global crops of 20-100 % in both",
     "cifar10-paper/simsiam-logo-decay-5e-4-global-20-100-local-20-80", "cifar10-paper/simsiam-decay-5e-4"),
    ("Imagenette: MoCo-LoGo over MoCo", "imagenette/moco-logo", "imagenette/moco"),
    ("Imagenette: MoCo-LoGo over four large crops", "imagenette/moco-logo", "imagenette/moco-four-large"),
    ("Imagenette: MoCo-LoGo over the same without L2L", "imagenette/moco-logo", "imagenette/moco-multicrop"),
    ("Imagenette, run elsewhere, seeds 10 to 12: the same", "imagenette/moco-logo-outside",
     "imagenette/moco-multicrop-outside"),
)  # fmt: skip
IMAGENETTE = (
    ("MoCo", "2 x 128 px", "imagenette/moco"),
    ("MoCo, four large crops", "4 x 128 px", "imagenette/moco-four-large"),
    (f"MoCo {WITHOUT}", "2 x 128 + 2 x 64 px", "imagenette/moco-multicrop"),
    ("MoCo-LoGo", "2 x 128 + 2 x 64 px", "imagenette/moco-logo"),
    (f"MoCo {WITHOUT}, run elsewhere", "2 x 128 + 2 x 64 px", "imagenette/moco-multicrop-outside"),
    ("MoCo-LoGo, run elsewhere", "2 x 128 + 2 x 64 px", "imagenette/moco-logo-outside"),
)
SCENES = (
    ("two large crops", "2", "scenes/two-large"),
    (WITHOUT, "2 + 2", "scenes/multicrop"),
    ("LoGo, lambda 0.05", "2 + 2", "scenes/logo-lambda-0.05"),
    ("LoGo, lambda 0.5", "2 + 2", "scenes/logo-lambda-0.5"),
    ("four large crops", "4", "scenes/four-large"),
)
PHOTOGRAPHS = (
    ("two large crops", "2", "photographs-cpu/two-large"),
    (WITHOUT, "2 + 2", "photographs-cpu/multicrop"),
    ("LoGo", "2 + 2", "photographs-cpu/logo"),
    ("four large crops", "4", "photographs-cpu/four-large"),
)
SHORT, HELD_OUT = "cifar10-short", "cifar10-held-out"
LAMBDA = (
    ("MoCo, 20-80 %, 32 px", "moco-logo-lambda-{}:0"),
    ("MoCo, 5-40 %, 32 px, global crops of 40-100 %", "moco-logo-5-40-lambda-{}"),
    ("MoCo, 5-40 %, 16 px", "moco-logo-16px-lambda-{}"),
    ("SimSiam, 20-80 %, 32 px", "simsiam-logo-lambda-{}"),
)
COSINE = (
    ("SimSiam, learned affinity", ("simsiam-logo-lambda-0", "simsiam-logo-lambda-0.05", "simsiam-logo-lambda-0.5", "")),
    ("SimSiam, cosine", ("simsiam-logo-lambda-0", "simsiam-logo-cosine-0.05", "simsiam-logo-cosine-0.5",
                         "simsiam-logo-cosine-weight-1")),
    ("MoCo, learned affinity", ("moco-logo-lambda-0:0", "moco-logo-lambda-0.05:0", "moco-logo-lambda-0.5", "")),
    ("MoCo, cosine", ("moco-logo-lambda-0:0", "", "moco-logo-cosine-0.5", "")),
)  # fmt: skip
RATES = (
    ("MoCo", ("moco", "moco-decay-1e-3", "moco-rate-0.24")),
    ("MoCo-LoGo", ("moco-logo", "moco-logo-decay-1e-3", "moco-logo-rate-0.24")),
    ("SimSiam", ("simsiam", "simsiam-decay-1e-3", "simsiam-rate-0.12")),
    ("SimSiam-LoGo", ("simsiam-logo", "simsiam-logo-decay-1e-3", "simsiam-logo-rate-0.12")),
)
SIMSIAM = (
    ("four large crops", "simsiam-four-large"),
    ("3 + 1: a third large crop in place of a local one", "simsiam-multicrop-3-1"),
    ("2 + 2", "simsiam-multicrop"),
    ("2 + 2, local crops of 20 to 100 % in place of 20 to 80 %", "simsiam-multicrop-20-100"),
    ("2 + 2, batch norm's statistics of all crops together", "simsiam-multicrop-joint-statistics"),
    ("2 + 2, no predictor for local crops", "simsiam-multicrop-no-predictor"),
    ("two large crops", "simsiam"),
)
LONG, PUSH = 200, 0.05  # epochs of the trials whose pairs are averaged, and the lambda that most of them have


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Rows in Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


def of(place: str, measure: str, sign: str = "") -> str:
    """The mean over seeds, or an empty cell."""
    found = figures(place, measure) if place else []
    return f"{mean(found):{sign}.2f}" if found else ""


def spread(place: str, measure: str) -> str:
    """The mean over seeds and the sample standard deviation."""
    found = figures(place, measure)
    return f"{mean(found):.2f} ± {stdev(found):.2f}" if len(found) > 1 else of(place, measure)


def means(rows: Rows, cell: Callable[[str, str], str] = of) -> str:
    """A row for each record name: its mean figures and how many seeds there are."""
    head = ("", "crops", *KNN, "linear", "seeds")
    return table(head, ([*row[:-1], *(cell(row[-1], m) for m in MEASURES), str(len(runs(row[-1])))] for row in rows))


def paper() -> str:
    """Rows with the paper's settings, the paper's figures first."""
    head = ("", "the paper's kNN", "its linear", *KNN, "linear", "seeds")
    return table(head, ([*row[:-1], *(of(row[-1], m) for m in MEASURES), _n(row[-1])] for row in PAPER))


def _n(place: str) -> str:
    by_linear, all_of_them = len(figures(place, "linear")), len(runs(place))
    return str(all_of_them) if by_linear == all_of_them else f"{all_of_them} (linear: {by_linear})"


def margins() -> str:
    """By how much the mean figures of one record name exceed another's."""
    rows = []
    for label, one, other in MARGINS:
        pairs = [(figures(one, m), figures(other, m)) for m in MEASURES]
        if _linear_kind(one) != _linear_kind(other):
            pairs[-1] = ([], [])
        rows.append([label, *(f"{mean(a) - mean(b):+.2f}" if a and b else "" for a, b in pairs)])
    return table(("", *KNN, "linear"), rows)


def _linear_kind(place: str) -> str | None:
    return next(
        (kind for kind in MEASURES["linear"] if any(kind in run.get("figures", {}) for run in runs(place))), None
    )


def seeds() -> str:
    """Each seed of the rows that have several."""
    rows = []
    for name in ("cifar10-tuned", "cifar10-paper", "imagenette"):
        for run in family(name):
            if len(runs(f"{name}/{run['name']}")) > 1:
                cells = [_first(run, kinds) for kinds in MEASURES.values()]
                rows.append([f"{name}/{run['name']}", str(run["seed"]), *cells])
    return table(("record", "seed", *KNN, "linear"), rows)


def _first(run: dict, kinds: Sequence[str]) -> str:
    return next((f"{value:.2f}" for kind in kinds if (value := figure(run, kind)) is not None), "")


def provenance() -> str:
    """What every long run on CIFAR-10 and Imagenette took, where and at which commit."""
    rows = []
    for name in ("cifar10-tuned", "cifar10-paper", "cifar10-variants", "imagenette"):
        for run in family(name):
            minutes = f"{run['seconds'] / 60:.1f}" if "seconds" in run else ""
            beside = f" ({run['at_once']} at once)" if run.get("at_once", 1) > 1 else ""
            facts = (str(run["experiment"]), minutes + beside, run["hardware"], run["commit"])
            rows.append([f"{name}/{run['name']}", str(run["seed"]), *facts])
    return table(("record", "seed", "experiment", "minutes", "hardware", "commit"), rows)


def l2l(short: bool = False) -> str:
    """The trials of L2L: those over 200 epochs or several seeds, or the short ones of one or two seeds."""
    head = ("epochs", "on", "images", "local crops, %", "lambda", "", "with L2L", "without", *MEASURES)
    rows = []
    for trial in TRIALS:
        if short == (trial.epochs == LONG or len(runs(trial.with_l2l)) >= SEVERAL):
            continue
        changes = [change(trial, measure) for measure in MEASURES]
        if (knn := changes[0]) is None:
            raise SystemExit(f"{trial.with_l2l} or {trial.without} has no kNN in results/records")
        sides = [f"{mean(side):.2f}{f' (n={len(side)})' if len(side) > 1 else ''}" for side in knn[:2]]
        told = [f"{each.points:+.2f} ± {each.error:.2f}" if each else "" for each in changes]
        rows.append([*trial.cells(), *sides, *told])
    return table(head, rows)


def l2l_means() -> str:
    """The mean over all pairs of runs of the long trials of L2L, ± its standard error."""
    rows = []
    for label, trials in (
        ("all", [trial for trial in TRIALS if trial.epochs == LONG]),
        (f"those with lambda {PUSH:g}", [trial for trial in TRIALS if trial.epochs == LONG and trial.lam == PUSH]),
    ):
        changes = [[change(trial, measure) for trial in trials] for measure in MEASURES]
        pairs = [[points for each in column if each for points in each.by_seed] for column in changes]
        rows.append([label, *(f"{mean(each):+.2f} ± {standard_error(each):.2f} (n={len(each)})" for each in pairs)])
    return table((f"mean over pairs of runs of {LONG} epochs", *MEASURES), rows)


def l2l_arms() -> str:
    """What stands in place of L2L on beds A and B: its difference from multi-crop, seed by seed, and the verdict."""
    sys.path.append(str(Path(__file__).parents[1] / "benchmarks"))
    from l2l import BEDS, paired  # slow to import

    kinds = ("knn-20", "knn-200", "linear", "multilabel", "transfer-pets80")
    rows = []
    for bed in BEDS:
        for line in paired(Path("nowhere"), bed):
            if "gain" in line:
                gains = [line["gain"].get(kind) for kind in kinds]
                told = [f"{gain[0]:+.2f} ± {gain[1]:.2f}" if gain else "" for gain in gains]
                rows.append([bed, line["arm"], str(len(line["seeds"])), *told, line["verdict"].partition(":")[0]])
    return table(("bed", "arm", "n", "k=20", "k=200", "linear", "mAP", "Pets", "verdict"), rows)


def short(rows: Iterable[tuple[str, Sequence[str]]], head: Sequence[str], name: str = SHORT) -> str:
    """kNN (k=20) of short runs, a column for each variant."""
    cells = ([label, *(of(place and f"{name}/{place}", "k=20") for place in places)] for label, places in rows)
    return table(("", *head), cells)


def lambdas() -> str:
    """kNN (k=20) of short runs by lambda."""
    values, there = ("0", "0.005", "0.05", "0.2", "0.5"), {run["name"] for run in family(SHORT)}
    rows = [(label, [name.format(value) for value in values]) for label, name in LAMBDA]
    rows = [(label, [place if place.partition(":")[0] in there else "" for place in places]) for label, places in rows]
    return short(rows, [f"lambda {value}" for value in values])


TABLES: dict[str, Callable[[], str]] = {
    "tuned": lambda: means(TUNED),
    "tuned-spread": lambda: means(TUNED, spread),
    "decay-5e-4": lambda: means(DECAY),
    "paper": paper,
    "paper-variants": lambda: means(PAPER_VARIANTS),
    "margins": margins,
    "seeds": seeds,
    "imagenette": lambda: means(IMAGENETTE),
    "imagenette-spread": lambda: means(IMAGENETTE, spread),
    "scenes": lambda: means(SCENES, spread),
    "photographs": lambda: means(PHOTOGRAPHS, spread),
    "l2l": l2l,
    "l2l-arms": l2l_arms,
    "l2l-short": lambda: l2l(short=True),
    "l2l-means": l2l_means,
    "lambda": lambdas,
    "cosine": lambda: short(COSINE, ("lambda 0", "0.05", "0.5", "a plain weight of 1")),
    "rates": lambda: short(RATES, ("as it was", "weight decay 1e-3", "twice the rate"), HELD_OUT),
    "simsiam": lambda: short(((label, [name]) for label, name in SIMSIAM), ("kNN k=20",), HELD_OUT),
    "runs": provenance,
}


def main(arguments: list[str] | None = None) -> None:
    """Print tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", choices=[*TABLES, []], metavar="name", help=", ".join(TABLES))
    for name in parser.parse_args(arguments).names or TABLES:
        sys.stdout.write(f"<!-- python tools/write_tables.py {name} -->\n{TABLES[name]()}\n")


if __name__ == "__main__":
    main()
