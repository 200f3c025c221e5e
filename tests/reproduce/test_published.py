"""Are the tables in the documentation those that the runs' records give?"""

import json
from pathlib import Path

import pytest

from logo_ssl.recipes import Recipe, differences, find_recipe
from logo_ssl.reproduce.beside import with_finished
from logo_ssl.reproduce.markdown import markdown
from logo_ssl.reproduce.results import gather
from logo_ssl.reproduce.tables import choose

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "docs" / "results"
RAW = RESULTS / "raw" / "cifar10-tuned"


def record(name):
    """The table of all rows that have ended, as `reproduce --tuned` gathers it."""
    (table,) = choose([name], own=True)
    return gather(*with_finished(table._replace(rows=()), table, [], RAW))


@pytest.mark.parametrize("name", ["table1", "table7"])
def test_a_table_on_its_page_is_what_the_records_give(name):
    page = (RESULTS / "cifar10.md").read_text()
    _, _, table = markdown(record(name)).partition("\n\n")
    assert "NVIDIA H200" in table
    assert table.strip() in page


@pytest.mark.parametrize("row", record("table1")["rows"], ids=lambda row: row["recipe"])
def test_readme_shows_the_same_figures(row):
    knn20, knn200, linear = (f"{figure['mean']:.2f}" for figure in row["figures"])
    label = row["row"].removesuffix(", tuned").replace("+", "-")
    lines = [line for line in (ROOT / "README.md").read_text().splitlines() if line.startswith(f"| {label} |")]
    told = [line.replace("*", "") for line in lines]
    assert any(f"| {knn20} | {knn200} |" in line and f"| {linear} |" in line for line in told)


@pytest.mark.parametrize("page", ["cifar10.md", "experiments.md"])
@pytest.mark.parametrize("baseline", ["cifar10-tuned-moco", "cifar10-tuned-simsiam"])
def test_margins_are_those_of_the_rows(baseline, page):
    figures = {row["recipe"]: [figure["mean"] for figure in row["figures"]] for row in record("table1")["rows"]}
    above = (ours - theirs for ours, theirs in zip(figures[f"{baseline}-logo"], figures[baseline], strict=True))
    assert f"| {' | '.join(f'{points:+.2f}' for points in above)} |" in (RESULTS / page).read_text()


def told_of(name, page=RESULTS / "experiments.md"):
    """Lines of `tools/keep_runs.py`, and the tables that follow where a page names them (or all), without emphasis."""
    (file,) = RESULTS.glob(f"raw/*-{name}.jsonl")
    text = page.read_text()
    _, named, after = text.partition(f"raw/{file.name}")
    own = after.partition("\n## ")[0] if named else text
    lines = [line.replace("*", "")[1:-1].split("|") for line in own.splitlines() if line.startswith("| ")]
    runs = [json.loads(line) for line in file.read_text().splitlines()]
    return runs, [[cell.strip() for cell in cells] for cells in lines]


def figures_of(run):
    """kNN with k=20 and k=200, and linear."""
    knn, linear = run["evaluations"]
    return [*(result["top1"] for result in knn["results"]), linear["results"]["top-1"]]


def shown(figures, sign=""):
    return [f"{figure:{sign}.2f}" for figure in figures]


def test_the_figures_of_four_large_crops_are_those_of_their_run():
    (run,), tables = told_of("simsiam-four-large-crops")
    assert ["SimSiam, all crops large", "4", *shown(figures_of(run))] in tables


IMAGENETTE = {"MoCo": "2 x 128 px", "MoCo, all crops large": "4 x 128 px", "MoCo-LoGo": "2 x 128 + 2 x 64 px"}


@pytest.mark.parametrize("page", ["experiments.md", "imagenette.md", "../../README.md"])
def test_imagenettes_figures_are_those_of_the_runs(page):
    runs, tables = told_of("imagenette-equal-crops", RESULTS / page)
    for (label, crops), run in zip(IMAGENETTE.items(), runs, strict=True):
        assert [label, crops, *shown(figures_of(run))] in tables


def test_imagenettes_margins_are_those_of_the_runs():
    (two, four, logo), tables = told_of("imagenette-equal-crops", RESULTS / "imagenette.md")
    margins = []
    for baseline, label in ((two, "MoCo: equal epochs"), (four, "MoCo with four crops: equal epochs and crops")):
        above = [ours - theirs for ours, theirs in zip(figures_of(logo), figures_of(baseline), strict=True)]
        assert [f"MoCo-LoGo over {label}", "", *shown(above, "+")] in tables
        margins.append(f"{above[0]:.1f}")
    said = "{} above MoCo at equal epochs and {} above it at equal crops".format(*margins)
    assert said in (RESULTS / "experiments.md").read_text()
    said = "MoCo-LoGo ends {} points of kNN (k=20, one seed) above MoCo and {} above".format(*margins)
    assert said in (ROOT / "CHANGELOG.md").read_text()


def recipes_that_ran():
    """Those of experiment 17, as they were: of finished runs by what was changed, of the unfinished one whole."""
    for line in (RESULTS / "raw" / "2026-11-16-imagenette-equal-crops.jsonl").read_text().splitlines():
        run = json.loads(line)
        options = {name.replace(".", "__"): value for name, value in run["changed"].items()}
        yield find_recipe(run["recipe"]).changed(**options)
    log = (RESULTS / "raw" / "2026-11-16-imagenette-without-l2l-unfinished.txt").read_text()
    yield Recipe.from_json(log.splitlines()[-1])


def test_imagenettes_recipes_have_the_settings_of_the_runs():
    for ran in recipes_that_ran():
        ours = find_recipe(ran.name.replace("imagenet100", "imagenette")).changed(crops__n_global=ran.crops.n_global)
        idle = set() if ran.crops.n_local else {"crops.local_size"}
        assert differences(ran, ours).keys() <= {"data", "knn_every", "checkpoint_every", *idle}


def test_photographs_on_a_cpu_are_those_of_the_runs():
    runs, tables = told_of("photographs-on-a-cpu")
    for label, (one, other) in {"tiny": runs[:2], "imagenette-moco-logo": runs[2:]}.items():
        knn = [run["knn_k20_by_epoch"]["25"] for run in (one, other)]
        linear = [run["evaluations"][0]["results"]["top-1"] for run in (one, other)]
        assert (one["seed"], other["seed"]) == (0, 1)
        assert [f"crops of `{label}`", *shown([*knn, *linear])] in tables


def test_small_images_on_a_cpu_are_those_of_the_runs():
    runs, tables = told_of("small-images-on-a-cpu")
    figures = [figures_of(run) for run in runs]
    assert [run["seed"] for run in runs] == [0, 1, 0, 1]
    for label, ours in (("crops of `tiny`, 32 and 16 px", figures[:2]), ("global crops of 20", figures[2:])):
        knn, _, linear = zip(*ours, strict=True)
        assert any(row[0].startswith(label) and row[1:] == shown([*knn, *linear]) for row in tables)


def test_the_weight_decay_at_the_papers_settings_is_that_of_the_runs():
    runs, tables = told_of("paper-weight-decay")
    assert shown(run["knn_k20_by_epoch"]["20"] for run in runs) in tables


def test_where_short_runs_ended_stands_in_the_cell_of_their_settings():
    runs, (head, *rows) = told_of("l2l-twenty-epochs")
    columns = [column.removeprefix("lambda ") for column in head]
    cells = {row[0]: dict(zip(columns, row, strict=False)) for row in rows}
    for run in runs:
        changed = run["changed"]
        label = {"cifar10-tuned-moco-logo": "MoCo-LoGo", "cifar10-tuned-simsiam-logo": "SimSiam-LoGo"}[run["recipe"]]
        label += f", seed {run['seed']}"
        label += ", cosine as affinity" if "strategy.affinity" in changed else ""
        label += ", weight decay 1e-3" if changed.get("optimiser.weight_decay") == 1e-3 else ""
        lam = f"{changed.get('strategy.lam', 0.05):g}"
        assert cells[label][lam] == f"{run['knn_k20_by_epoch'][str(run['epochs'])]:.2f}"
