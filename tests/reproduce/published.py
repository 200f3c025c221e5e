"""What pages and records say of our results, for the tests that compare them."""

import json
import re
import runpy
from pathlib import Path

from logo_ssl.recipes import Recipe
from logo_ssl.reproduce.settings import decisive_differences

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "docs" / "results"
TABLES = runpy.run_path(str(ROOT / "tools" / "write_tables.py"))
PICTURES = runpy.run_path(str(ROOT / "tools" / "draw_results.py"))
WITHOUT_L2L = " with local crops, without L2L"


def record(name, settings="tuned"):
    """A table of the rows that have ended, with settings of our choice or with the paper's."""
    return TABLES["record"](RESULTS, name, settings)


def told_of(name, page=RESULTS / "experiments.md"):
    """Lines of `tools/keep_runs.py`, and the tables that follow where a page names them (or all), without emphasis."""
    (file,) = RESULTS.glob(f"raw/*-{name}.jsonl")
    text = page.read_text()
    _, named, after = text.partition(f"raw/{file.name}")
    runs = [json.loads(line) for line in file.read_text().splitlines()]
    return runs, cells_of(after.partition("\n## ")[0] if named else text)


def section(heading):
    """The tables of one experiment, without emphasis."""
    return cells_of((RESULTS / "experiments.md").read_text().partition(f"\n## {heading}")[2].partition("\n## ")[0])


def tables_of(page):
    """All tables of a page, row by row, without emphasis."""
    return cells_of(page.read_text())


def cells_of(text):
    """The rows of all tables in a text, cell by cell."""
    lines = [line.replace("*", "")[1:-1].split("|") for line in text.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in cells] for cells in lines]


def settings(run):
    """The recipe by which a line's run was trained, whatever the recipe of that name is now."""
    return Recipe.from_json(json.dumps(run["settings"]))


def otherwise(run, recipe):
    """What a line's run had otherwise than a recipe has it, of what decides."""
    return {field: ours for field, (ours, _) in decisive_differences(settings(run), recipe).items()}


def recipe_of_records(folder, row):
    """The recipe by which a row in a folder of records was trained."""
    return Recipe.from_json((RESULTS / "raw" / folder / row / "seed0" / "recipe.json").read_text())


def figures_of(run):
    """kNN with k=20 and k=200, and linear (SGD's before L-BFGS's)."""
    found = {each["evaluation"]: each["results"] for each in run["evaluations"]}
    linear = [found[name]["top-1"] for name in ("linear-sgd", "linear-lbfgs") if name in found]
    return [*(result["top1"] for result in found["knn"]), *linear]


def last_knn(run):
    return run["knn_k20_by_epoch"][str(run["epochs"])]


def by_the_papers_settings(seed=None):
    """Figures of every row, over all seeds or of one, and the paper's, as pages write them."""
    rows = {row["recipe"]: row for name in ("table7", "table1") for row in record(name, "paper")["rows"]}
    ours = {}
    for row in rows.values():
        label = row["row"].replace("+", "-").removesuffix(", CIFAR10").replace("-LoGo w/o L2L", WITHOUT_L2L)
        ours[label] = measured(row) if seed is None else of_seed(row, seed), papers_of(row)
    assert len(ours) == 6
    return ours


def measured(row):
    """What was measured of a row: kNN twice and, but for tuned ones without L2L so far, linear."""
    assert [figure["measurement"] for figure in row["figures"] if figure["n"]][:2] == ["knn", "knn"]
    return [figure["mean"] for figure in row["figures"] if figure["n"]]


def of_seed(row, seed):
    """What was measured of one seed of a row."""
    return [figure["values"][str(seed)] for figure in row["figures"] if str(seed) in figure["values"]]


def of_records(folder, row):
    """kNN twice, and linear, of a tuned row in a folder of records."""
    run = RESULTS / "raw" / folder / f"cifar10-tuned-{row}" / "seed0"
    results = {file.name.split("-")[0]: json.loads(file.read_text())["results"] for file in run.glob("evaluation/*")}
    return [*(each["top1"] for each in results["knn"]), *([results["linear"]["top-1"]] if "linear" in results else [])]


def of_four_large_crops():
    """The same of MoCo with four large crops, as the recipe has it."""
    return of_records("cifar10-four-large", "moco")


def papers_of(row):
    """The paper's figures for a row, as pages write them."""
    return "; ".join(dict.fromkeys(f"{figure['paper']:.2f}" for figure in row["figures"] if figure["paper"]))


def printed_of_four_large_crops():
    """kNN with k=20 and k=200, and linear by L-BFGS, as experiment 7 printed them."""
    text = (RESULTS / "raw" / "2026-11-15-cifar10-best.txt").read_text()
    found = [
        re.findall(rf"{name} +│ +([\d.]+)", text)
        for name in ("top-1, k=20, tau=0.07", "top-1, k=200, tau=0.1", "top-1, lbfgs")
    ]
    return [float(figure) for (figure,) in found]


def minus(ours, theirs):
    """By how much figures lie above others, as far as both were measured."""
    return [one - other for one, other in zip(ours, theirs, strict=False)]


def shown(figures, sign=""):
    return [f"{figure:{sign}.2f}" for figure in figures]
