"""Are the tables in the documentation those that the runs' records give?"""

import json
import re
import runpy
from pathlib import Path
from statistics import mean, stdev

import pytest

from logo_ssl.recipes import Recipe, differences, find_recipe

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "docs" / "results"
TABLES = runpy.run_path(str(ROOT / "tools" / "write_tables.py"))
PICTURES = runpy.run_path(str(ROOT / "tools" / "draw_results.py"))


def record(name, settings="tuned"):
    """A table of the rows that have ended, with settings of our choice or with the paper's."""
    return TABLES["record"](RESULTS, name, settings)


def test_the_page_of_tables_is_what_the_records_give():
    page = (RESULTS / "cifar10-tables.md").read_text()
    assert page == TABLES["page"](RESULTS)
    assert page.count("NVIDIA H200") == 2 * 3 * (4 + 4)  # kNN twice, linear; Tables 1 and 7; tuned, and the paper's


def test_what_the_papers_settings_gave_is_what_the_records_give():
    decayed, tables = told_of("simsiam-weight-decay", RESULTS / "cifar10.md")
    ours = by_the_papers_settings()
    for label, (figures, papers) in ours.items():
        padding = [""] * (3 - len(figures))
        assert [f"{label}, the paper's settings ({papers})", *shown(figures), *padding] in tables
    for framework, papers, of_l2l in (("MoCo", "+4.86; +5.22", "+2.13"), ("SimSiam", "+7.19; +5.00", "+4.34")):
        logo, alone, local = (ours[f"{framework}{row}"][0] for row in ("-LoGo", "", WITHOUT_L2L))
        assert [f"LoGo over {framework} ({papers})", *shown(minus(logo, alone), "+")] in tables
        assert [f"of that L2L ({of_l2l})", *shown(minus(logo, local), "+"), ""] in tables
    alone, logo = map(figures_of, decayed)
    assert ["SimSiam, the paper's settings, but weight decay 5e-4", *shown(alone)] in tables
    assert ["SimSiam-LoGo, the paper's settings, but weight decay 5e-4", *shown(logo)] in tables
    assert ["LoGo over SimSiam, weight decay 5e-4", *shown(minus(logo, alone), "+")] in tables


WITHOUT_L2L = " with local crops, without L2L"


def by_the_papers_settings():
    """Figures of every row, and the paper's, as pages write them."""
    rows = {row["recipe"]: row for name in ("table7", "table1") for row in record(name, "paper")["rows"]}
    ours = {}
    for row in rows.values():
        label = row["row"].replace("+", "-").removesuffix(", CIFAR10").replace("-LoGo w/o L2L", WITHOUT_L2L)
        ours[label] = measured(row), papers_of(row)
    assert len(ours) == 6
    return ours


def measured(row):
    """What was measured of a row: kNN twice and, but for those without L2L so far, linear."""
    assert [figure["measurement"] for figure in row["figures"] if figure["n"]][:2] == ["knn", "knn"]
    return [figure["mean"] for figure in row["figures"] if figure["n"]]


def papers_of(row):
    """The paper's figures for a row, as pages write them."""
    return "; ".join(dict.fromkeys(f"{figure['paper']:.2f}" for figure in row["figures"] if figure["paper"]))


def minus(ours, theirs):
    """By how much figures lie above others, as far as both were measured."""
    return [one - other for one, other in zip(ours, theirs, strict=False)]


def test_the_log_tells_the_papers_settings_as_the_records_do():
    (alone, logo), tables = told_of("simsiam-weight-decay")
    ranks = [f"{run['last_gauged']['z_rank']:.0f}" for run in (alone, logo)]
    assert ["weight decay 5e-4", *shown(figures_of(alone)), ranks[0]] in tables
    reversed_order = section("33. The paper's rows")
    assert ["SimSiam, 5e-4 (experiment 30)", *shown(figures_of(alone)), ranks[0]] in reversed_order
    assert ["SimSiam-LoGo, 5e-4", *shown(figures_of(logo)), ranks[1]] in reversed_order
    above = shown(minus(figures_of(logo), figures_of(alone)), "+")
    assert ["SimSiam-LoGo over SimSiam, 5e-4", *above, ""] in reversed_order
    assert f"LoGo lies {above[0][1:]} *below* it" in (ROOT / "README.md").read_text()
    ours = by_the_papers_settings()
    cells = {row[0].partition(" (")[0]: row[1:] for row in section("31. The other rows")}
    for label, (figures, _) in ours.items():
        assert [cell.split()[0] for cell in cells[label] if cell] == shown(figures)
    for framework in ("MoCo", "SimSiam"):
        of_l2l = minus(ours[f"{framework}-LoGo"][0], ours[f"{framework}{WITHOUT_L2L}"][0])
        assert [cell.split()[0] for cell in cells[f"of that L2L, on {framework}"] if cell] == shown(of_l2l, "+")


def test_what_statistics_of_whole_images_do_is_what_the_runs_tell():
    runs, tables = told_of("whole-images")
    labels = ("SimSiam, weight decay 5e-4", "SimSiam-LoGo", "MoCo-LoGo", "MoCo")
    for label, run in zip(labels, runs, strict=True):
        pairs = [(run["crops"][k], run["whole_images"][k]) for k in ("k=20", "k=200")]
        assert [label, *(cell for a, b in pairs for cell in [*shown([a, b]), *shown([b - a], "+")])] in tables


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


def section(heading):
    """The tables of one experiment, without emphasis."""
    own = (RESULTS / "experiments.md").read_text().partition(f"\n## {heading}")[2].partition("\n## ")[0]
    lines = [line.replace("*", "")[1:-1].split("|") for line in own.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in cells] for cells in lines]


def figures_of(run):
    """kNN with k=20 and k=200, and linear (SGD's before L-BFGS's)."""
    found = {each["evaluation"]: each["results"] for each in run["evaluations"]}
    linear = [found[name]["top-1"] for name in ("linear-sgd", "linear-lbfgs") if name in found]
    return [*(result["top1"] for result in found["knn"]), *linear]


def printed_of_four_large_crops():
    """kNN with k=20 and k=200, and linear by L-BFGS, as experiment 7 printed them."""
    text = (RESULTS / "raw" / "2026-11-15-cifar10-best.txt").read_text()
    found = [
        re.findall(rf"{name} +│ +([\d.]+)", text)
        for name in ("top-1, k=20, tau=0.07", "top-1, k=200, tau=0.1", "top-1, lbfgs")
    ]
    return [float(figure) for (figure,) in found]


def shown(figures, sign=""):
    return [f"{figure:{sign}.2f}" for figure in figures]


@pytest.mark.parametrize("page", ["experiments.md", "cifar10.md"])
def test_the_figures_of_four_large_crops_are_those_of_their_run(page):
    (run,), tables = told_of("simsiam-four-large-crops", RESULTS / page)
    assert ["SimSiam, all crops large", "4", *shown(figures_of(run))] in tables


def test_the_figures_of_mocos_four_large_crops_are_those_that_were_printed():
    _, tables = told_of("cifar10-best-six", RESULTS / "cifar10.md")
    knn20, knn200, lbfgs = shown(printed_of_four_large_crops())
    assert ["MoCo, all crops large", "4", knn20, knn200, f"(L-BFGS: {lbfgs})"] in tables
    assert f"MoCo with four crops {knn200}" in (ROOT / "README.md").read_text()


@pytest.mark.parametrize("framework", ["MoCo", "SimSiam"])
def test_margins_at_equal_crops_are_those_of_the_runs(framework):
    (simsiam,), tables = told_of("simsiam-four-large-crops", RESULTS / "cifar10.md")
    four = figures_of(simsiam) if framework == "SimSiam" else printed_of_four_large_crops()[:2]
    (logo,) = [row for row in record("table1")["rows"] if row["recipe"] == f"cifar10-tuned-{framework.lower()}-logo"]
    below = [ours["mean"] - theirs for ours, theirs in zip(logo["figures"], four, strict=False)]
    label = f"{framework}-LoGo over {framework} with four large crops: equal epochs and crops"
    (row,) = [row[1:] for row in tables if row[0] == label]
    assert row[: len(below)] == shown(below, "+")


def test_the_figures_of_the_best_recipe_are_those_of_its_run():
    (run,), tables = told_of("cifar10-best-six")
    knn20, knn200, sgd, lbfgs = shown(figures_of(run))
    assert ["MoCo, six large crops", "6", "1e-3", knn20, knn200, sgd, lbfgs] in tables
    assert f"{knn20}** (k=20, tau=0.07) and **{knn200}** (k=200" in (RESULTS / "cifar10.md").read_text()
    for page in (RESULTS / "cifar10.md", ROOT / "README.md"):
        (row,) = [row for row in told_of("cifar10-best-six", page)[1] if row[0].startswith("`cifar10-best`")]
        assert [cell for cell in row if cell.startswith("92")] == [knn20, knn200, sgd]


def test_the_best_recipe_has_the_settings_of_its_run():
    (run,), _ = told_of("cifar10-best-six")
    recipe = find_recipe("cifar10-best")
    assert run["changed"] == {"crops.n_global": 6, "optimiser.weight_decay": 1e-3}
    assert (recipe.crops.n_global, recipe.optimiser.weight_decay) == (6, 1e-3)


@pytest.mark.parametrize(
    ("picture", "page", "n"), [("cifar10-crops", "cifar10.md", 9), ("imagenette-knn", "imagenette.md", 4)]
)
def test_curves_are_drawn_from_what_is_kept_and_end_where_the_page_says(picture, page, n, tmp_path):
    PICTURES["main"]([str(RESULTS / "raw"), str(tmp_path)])
    rows = PICTURES["PICTURES"][picture]
    assert re.findall(r'id="row-(.+?)"', (tmp_path / f"{picture}.svg").read_text()) == [row.name for row in rows]
    assert f"(../images/{picture}.png)" in (RESULTS / page).read_text()
    ends = [PICTURES["Kept"](RESULTS / "raw" / row.kept, row.line).by_epoch()[200] for row in rows]
    summary = [row for row in told_of("cifar10-best-six", RESULTS / page)[1] if len(row) == 5][1 : n + 1]
    assert [float(row[2]) for row in summary] == pytest.approx(ends, abs=0.06)  # `eval knn` rounds otherwise
    for row, cells in zip(rows, summary, strict=True):
        assert ("LoGo" in row.label, "without L2L" in row.label) == ("-LoGo" in cells[0], "without L2L" in cells[0])


def test_curves_by_the_papers_settings_end_where_the_page_says():
    page = (RESULTS / "cifar10.md").read_text()
    assert "(../images/cifar10-paper.png)" in page
    _, tables = told_of("simsiam-weight-decay", RESULTS / "cifar10.md")
    said = [float(row[1]) for row in tables if "the paper's settings" in row[0]]
    rows = PICTURES["PICTURES"]["cifar10-paper"]
    ends = [PICTURES["Kept"](RESULTS / "raw" / row.kept, row.line).by_epoch()[200] for row in rows]
    assert said == pytest.approx(ends, abs=0.11)  # while training, features are bfloat16


@pytest.mark.parametrize("name", ["table1", "table7"])
def test_the_summary_of_cifar10_shows_the_same_figures(name):
    _, tables = told_of("cifar10-best-six", RESULTS / "cifar10.md")
    labels = {"+": "-", ", CIFAR10": "", "-LoGo w/o L2L": " with local crops, without L2L", "-LoGo full": "-LoGo"}
    for row in record(name)["rows"]:
        label = row["row"].removesuffix(", tuned")
        for ours, shorter in labels.items():
            label = label.replace(ours, shorter)
        found = [cells[2:] for cells in tables if cells[0].startswith(f"{label} ({papers_of(row)}")]
        assert [cells[: len(measured(row))] for cells in found] == [shown(measured(row))]


def margins_of_the_papers_settings():
    """LoGo over MoCo and over SimSiam, kNN with k=20."""
    moco, moco_logo, simsiam, simsiam_logo = (row["figures"][0]["mean"] for row in record("table1", "paper")["rows"])
    return moco_logo - moco, simsiam_logo - simsiam


def test_figures_in_the_readmes_first_table_are_those_of_the_runs():
    text = (ROOT / "README.md").read_text()
    first = text[text.index("What it reaches") :].partition("Begin with")[0].replace("*", "")
    figures = {row["recipe"]: row["figures"][0]["mean"] for row in record("table1")["rows"]}
    (best,), _ = told_of("cifar10-best-six")
    (four,), _ = told_of("simsiam-four-large-crops")
    two_photos, four_photos, logo_photos = (figures_of(run)[0] for run in told_of("imagenette-equal-crops")[0])
    moco, simsiam = figures["cifar10-tuned-moco-logo"], figures["cifar10-tuned-simsiam-logo"]
    above = (moco - figures["cifar10-tuned-moco"], simsiam - figures["cifar10-tuned-simsiam"])
    below = (moco - printed_of_four_large_crops()[0], simsiam - figures_of(four)[0])
    theirs = margins_of_the_papers_settings()
    for said in (
        f"{logo_photos - two_photos:+.1f} points at equal epochs, {logo_photos - four_photos:+.1f} at equal crops",
        f"MoCo {moco:.1f} (paper: 84.4), SimSiam {simsiam:.1f} (87.7)",
        f"{above[0]:+.1f} and {above[1]:+.1f} points at equal epochs, but {below[0]:+.1f} and {below[1]:+.1f} at equal",
        f"| {figures_of(best)[0]:.1f}; MoCo with six",
        f"SimSiam's margin ({theirs[1]:+.2f} points; paper: 7.19), four fifths of MoCo's ({theirs[0]:+.2f}; 4.86)",
    ):
        assert said in first


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
        yield find_recipe(run["recipe"]).changed(**{"strategy__pairs": "mean"} | options)  # which was the recipe's
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


def test_what_local_crops_give_without_l2l_on_imagenette_is_that_of_the_run():
    (run,), tables = told_of("imagenette-without-l2l")
    row = ["MoCo with local crops, without L2L", "2 x 128 + 2 x 64 px", *shown(figures_of(run))]
    assert row in tables
    page = told_of("imagenette-without-l2l", RESULTS / "imagenette.md")[1]
    assert row in page
    logo = told_of("imagenette-equal-crops")[0][2]
    by_l2l = [ours - theirs for ours, theirs in zip(figures_of(logo), figures_of(run), strict=True)]
    assert ["MoCo-LoGo over the same without L2L", "", *shown(by_l2l, "+")] in page
    assert row in told_of("imagenette-without-l2l", ROOT / "README.md")[1]


def last_knn(run):
    return run["knn_k20_by_epoch"][str(run["epochs"])]


def test_rates_and_weight_decays_stand_in_the_cell_of_their_settings():
    runs, tables = told_of("rate-and-weight-decay")
    cells = {row[0]: row[1:] for row in tables}
    names = {"moco": "MoCo", "moco-logo": "MoCo-LoGo", "simsiam": "SimSiam", "simsiam-logo": "SimSiam-LoGo"}
    found = {}
    for run in runs:
        column = 1 if "optimiser.weight_decay" in run["changed"] else 2 if "optimiser.lr" in run["changed"] else 0
        label = names[run["recipe"].removeprefix("cifar10-tuned-")]
        found[label, column] = last_knn(run)
        assert cells[label][column] == f"{last_knn(run):.2f}"
    assert len(found) == len(runs)
    for page in ("experiments.md", "cifar10.md"):
        above = [best_of_both(found, f"{framework}-LoGo", framework) for framework in ("MoCo", "SimSiam")]
        before = [found[f"{framework}-LoGo", 0] - found[framework, 0] for framework in ("MoCo", "SimSiam")]
        said = (
            "LoGo stands {:.2f} points above MoCo and {:.2f} above SimSiam, where it stood {:.2f} and {:.2f} above them"
        )
        assert said.format(*above, *before) in (RESULTS / page).read_text()


def best_of_both(found, one, other):
    """By how much a row's best lies above another's, of the settings that both were run with."""
    columns = {column for label, column in found if label == one} & {
        column for label, column in found if label == other
    }
    best = [max(found[label, column] for column in columns) for label in (one, other)]
    return best[0] - best[1]


def test_crops_of_scenes_are_those_of_the_runs():
    runs, tables = told_of("scenes-crops")
    labels = ("two large crops", LOCAL, "LoGo, lambda 0.05", "LoGo, lambda 0.5", "four large crops")
    by_seed = {label: [figures_of(run) for run in runs[5 * i : 5 * i + 5]] for i, label in enumerate(labels)}
    assert [run["seed"] for run in runs] == 5 * [0, 1, 2, 3, 4]
    kinds = [(run["changed"].get("strategy.kind", "logo"), run["changed"].get("strategy.lam", 0.05)) for run in runs]
    two, local, logo, push = ("two-view", None), ("multi-crop", None), ("logo", 0.05), ("logo", 0.5)
    assert kinds == [kind for kind in (two, local, logo, push, two) for _ in range(5)]
    for label, crops in zip(labels, ("2", "2 + 2", "2 + 2", "2 + 2", "4"), strict=True):
        columns = zip(*by_seed[label], strict=True)
        assert [label, crops, *(f"{mean(column):.2f} ± {stdev(column):.2f}" for column in columns)] in tables
    differences_told = {
        "local crops, without L2L, over two crops": (LOCAL, "two large crops"),
        "L2L, lambda 0.05": ("LoGo, lambda 0.05", LOCAL),
        "L2L, lambda 0.5": ("LoGo, lambda 0.5", LOCAL),
        "four large crops over LoGo, lambda 0.05": ("four large crops", "LoGo, lambda 0.05"),
    }
    for label, (one, other) in differences_told.items():
        columns = zip(*(minus(a, b) for a, b in zip(by_seed[one], by_seed[other], strict=True)), strict=True)
        assert [label, *(f"{mean(column):+.2f} ± {stdev(column) / 5**0.5:.2f}" for column in columns)] in tables


LOCAL = "with local crops, without L2L"


def test_crops_of_photographs_on_a_cpu_are_those_of_the_runs():
    runs, tables = told_of("photographs-crops")
    ends = {row[0]: row[2:] for row in tables}
    assert [run["seed"] for run in runs] == 4 * [0, 1]
    for i, label in enumerate(("two large crops", LOCAL, "LoGo", "four large crops")):
        columns = zip(*map(figures_of, runs[2 * i : 2 * i + 2]), strict=True)
        assert ends[label] == [", ".join(shown(column)) for column in columns]


def test_simsiams_crops_are_those_of_the_runs():
    (four, local, large, three), tables = told_of("simsiam-crops")
    ends = {row[0]: row[-1] for row in tables}
    assert ends["all crops large"] == f"{last_knn(four):.2f}"
    assert ends["without L2L"] == f"{last_knn(local):.2f}"
    assert ends["without L2L, local crops as large as global ones"] == f"{last_knn(large):.2f}"
    assert ends["without L2L, one global crop more"] == f"{last_knn(three):.2f}"


def test_lambda_with_local_crops_is_that_of_the_runs():
    runs = told_of("local-crops-lambda")[0] + told_of("lambda-of-local-crops")[0]
    assert [run["changed"].get("strategy.lam", 0.05) for run in runs] == [0, 0.05, 0.2]
    assert shown(map(last_knn, runs)) in told_of("lambda-of-local-crops")[1]


def test_what_else_was_tried_on_simsiam_is_what_the_runs_tell():
    runs, tables = told_of("simsiam-local-crops")
    as_it_was = told_of("simsiam-crops")[0][1], told_of("rate-and-weight-decay")[0][7]
    assert [run["changed"] for run in as_it_was] == 2 * [{"data": "cifar10-val", "epochs": 40}]
    told = {(row[0], row[1]): row[2:] for row in tables}
    for before, recipe, label, changes in (
        (as_it_was[0], "multicrop", "without L2L", {0: "batch norm's statistics of all crops together",
                                                    1: "no predictor for local crops"}),
        (as_it_was[1], "logo", "SimSiam-LoGo", {2: "noise 0.3", 3: "the regressor's rate 0.003",
                                                4: "lambda measured at the parameters"}),
    ):  # fmt: skip
        (unchanged,) = [told[key] for key in told if key[0] == label and key[1].startswith("nothing")]
        assert unchanged == [f"{last_knn(before):.2f}", f"{before['last_gauged']['z_rank']:.0f}"]
        for line, change in changes.items():
            assert runs[line]["recipe"] == f"cifar10-tuned-simsiam-{recipe}"
            rank = runs[line]["last_gauged"]["z_rank"]
            assert told[label, change] == [f"{last_knn(runs[line]):.2f}", f"{rank:.0f}"]


def test_areas_of_crops_are_those_of_the_runs():
    (large, tuned), tables = told_of("crop-areas")
    alone, logo = told_of("simsiam-weight-decay")[0]
    page = told_of("simsiam-weight-decay", RESULTS / "cifar10.md")[1]
    for label, run in (
        (["SimSiam", "40-100 %", ""], large),
        (["SimSiam-LoGo (experiment 33)", "40-100 %", "5-40 %"], logo),
        (["SimSiam (experiment 30)", "20-100 %", ""], alone),
        (["SimSiam-LoGo", "20-100 %", "20-80 %"], tuned),
    ):
        assert [*label, *shown(figures_of(run)), f"{run['last_gauged']['z_rank']:.0f}"] in tables
    for areas, one, other in (("40-100 %", logo, large), ("20-100 %", tuned, alone)):
        above = shown(minus(figures_of(one), figures_of(other)), "+")
        assert [f"LoGo over SimSiam, global crops of {areas}", "", "", *above, ""] in tables
        assert [f"LoGo over SimSiam, weight decay 5e-4, global crops of {areas}", *above] in page
    but = "the paper's settings, but weight decay 5e-4 and"
    assert [f"SimSiam, {but} LoGo's global crops (40-100 %)", *shown(figures_of(large))] in page
    assert [f"SimSiam-LoGo, {but} crops of 20-100 and 20-80 %", *shown(figures_of(tuned))] in page


@pytest.mark.parametrize("page", ["experiments.md", "cifar10.md"])
def test_what_summed_pairs_do_is_what_the_runs_tell(page):
    runs, tables = told_of("summed-pairs", RESULTS / page)
    labels = (
        ("SimSiam-LoGo, pairs averaged", "1"),
        ("SimSiam-LoGo, pairs summed as in Eq. 9", "5"),
        ("SimSiam", "1"),
        ("SimSiam, rate and decay of a loss five times as large", "5"),
    )
    for (label, size), run in zip(labels, runs, strict=True):
        assert [label, size, f"{last_knn(run):.2f}"] in tables
    _, summed, baseline, _ = map(last_knn, runs)
    assert f"{summed - baseline:.1f} points" in (RESULTS / page).read_text()
