"""Are the tables and curves in README and of CIFAR-10 those that the runs' records give?"""

import json
import re
from statistics import mean

import pytest
from published import (
    PICTURES,
    RESULTS,
    ROOT,
    TABLES,
    WITHOUT_L2L,
    by_the_papers_settings,
    figures_of,
    measured,
    minus,
    of_four_large_crops,
    of_records,
    of_seed,
    otherwise,
    papers_of,
    printed_of_four_large_crops,
    record,
    settings,
    shown,
    tables_of,
    told_of,
)

from logo_ssl.recipes import find_recipe


def test_the_page_of_tables_is_what_the_records_give():
    page = (RESULTS / "cifar10-tables.md").read_text()
    assert page == TABLES["page"](RESULTS)
    all_of_them = 2 * 3 * (4 + 4)  # kNN twice, linear; Tables 1 and 7; tuned, and the paper's
    assert page.count("NVIDIA H200") == all_of_them


def test_the_minutes_of_rows_side_by_side_are_those_of_their_sittings():
    runs = [RESULTS / "raw" / "cifar10-tuned" / f"cifar10-tuned-{row}" for row in ("moco", "moco-logo", "simsiam")]
    ((one,), (two,), (three,)) = (json.loads((run / "seed1" / "sittings.json").read_text()) for run in runs)
    began = min(sitting["began"] for sitting in (one, two, three))
    ended = max(sitting["began"] + sitting["seconds"] for sitting in (one, two, three))
    for page in (ROOT / "README.md", RESULTS / "cifar10-tables.md"):
        assert f"within {(ended - began) / 60:.1f} minutes side by side" in page.read_text()


def test_what_the_papers_settings_gave_is_what_the_records_give():
    (decayed, _), tables = told_of("simsiam-weight-decay"), tables_of(RESULTS / "cifar10.md")
    ours = by_the_papers_settings()
    for label, (figures, papers) in ours.items():
        assert [f"{label}, the paper's settings ({papers})", *shown(figures)] in tables
    for framework, papers, of_l2l in (("MoCo", "+4.86; +5.22", "+2.13"), ("SimSiam", "+7.19; +5.00", "+4.34")):
        logo, alone, local = (ours[f"{framework}{row}"][0] for row in ("-LoGo", "", WITHOUT_L2L))
        assert [f"LoGo over {framework} ({papers})", *shown(minus(logo, alone), "+")] in tables
        *both_k, other_seed = shown(minus(logo, local), "+")  # by linear both rows have no seed in common
        assert ["by all seeds", *both_k, ""] in tables
        logo, local = (by_the_papers_settings(seed=0)[f"{framework}{row}"][0] for row in ("-LoGo", WITHOUT_L2L))
        same_seed = shown(minus(logo, local), "+")
        assert [f"of that L2L, by seed 0 ({of_l2l})", *same_seed, f"({other_seed})"] in tables
    alone, logo = map(figures_of, decayed)
    assert ["SimSiam, the paper's settings, but weight decay 5e-4", *shown(alone)] in tables
    assert ["SimSiam-LoGo, the paper's settings, but weight decay 5e-4", *shown(logo)] in tables
    assert ["LoGo over SimSiam, weight decay 5e-4", *shown(minus(logo, alone), "+")] in tables


def test_readme_shows_the_same_figures():
    text = (ROOT / "README.md").read_text().replace("*", "")
    rows = [line[2:-2].split(" | ") for line in text.splitlines() if line.startswith("| ")]
    told = {label: [cell.strip() for cell in cells] for label, *cells in rows}
    by_paper, tuned = by_the_papers_settings(), by_our_settings()
    for label, ((knn20, knn200, linear), papers) in by_paper.items():
        knn, linear_of_paper = [*papers.split("; "), ""][:2]
        ours = shown(tuned[label])
        both = [f"{knn20:.2f}, {knn200:.2f}", ", ".join(ours[:2])]
        assert told[label] == [knn, *both, linear_of_paper, f"{linear:.2f}", *(ours[2:] or [""])]


def by_our_settings():
    """Figures of every tuned row, as far as they were measured."""
    rows = [row for name in ("table7", "table1") for row in record(name)["rows"]]
    labels = (row["row"].removesuffix(", tuned").removesuffix(", CIFAR10").replace("+", "-") for row in rows)
    short = (label.replace("-LoGo w/o L2L", WITHOUT_L2L).removesuffix(" full") for label in labels)
    return {label: measured(row) for label, row in zip(short, rows, strict=True)}


@pytest.mark.parametrize("baseline", ["moco", "simsiam"])
def test_margins_are_those_of_the_rows(baseline):
    figures = {row["recipe"]: measured(row) for row in record("table1")["rows"]}
    above = minus(figures[f"cifar10-tuned-{baseline}-logo"], figures[f"cifar10-tuned-{baseline}"])
    assert f"| {' | '.join(shown(above, '+'))} |" in (RESULTS / "cifar10.md").read_text()
    if baseline == "moco":
        both = [
            [figures[f"cifar10-tuned-{row}"], of_records("cifar10-half-decay", row)] for row in ("moco-logo", "moco")
        ]
        logo, alone = ([max(pair) for pair in zip(*decays, strict=True)] for decays in both)
        label = "the same, each row by the better of both weight decays"
        assert f"| {label} | {' | '.join(shown(minus(logo, alone), '+'))} |" in (RESULTS / "cifar10.md").read_text()
    rows = {row["recipe"]: row for row in record("table1")["rows"]}
    logo, alone = rows[f"cifar10-tuned-{baseline}-logo"], rows[f"cifar10-tuned-{baseline}"]
    by_seed = [shown(minus(of_seed(logo, seed), of_seed(alone, seed)), "+") for seed in (0, 1)]
    experiments = (RESULTS / "experiments.md").read_text()
    assert f"| {' | '.join(by_seed[0])} |" in experiments
    both = " | ".join(f"{first} | {second}" for first, second in zip(*by_seed, strict=True))
    assert f"| {both} |" in experiments
    if baseline == "simsiam":
        for seed, margins in enumerate(by_seed):
            told = f"| the same by seed {seed} alone | {' | '.join(margins)} |"
            assert told in (RESULTS / "cifar10.md").read_text()


@pytest.mark.parametrize("page", ["experiments.md", "cifar10.md"])
def test_the_figures_of_four_large_crops_are_those_of_their_run(page):
    (run,), tables = told_of("simsiam-four-large-crops", RESULTS / page)
    assert ["SimSiam, all crops large", "4", *shown(figures_of(run))] in [row[:5] for row in tables]


def test_the_figures_of_mocos_four_large_crops_are_those_that_were_printed():
    knn20, knn200, lbfgs = shown(printed_of_four_large_crops())
    row = ["MoCo, all crops large", "4", knn20, knn200, f"(L-BFGS: {lbfgs})"]
    assert row in tables_of(RESULTS / "cifar10.md")


def test_the_figures_of_mocos_four_large_crops_with_its_recipes_decay_are_those_of_their_run():
    figures = shown(of_four_large_crops())
    assert ["MoCo, all crops large", "4", *figures, "1"] in tables_of(RESULTS / "cifar10.md")
    assert f"MoCo with four crops {figures[1]}" in (ROOT / "README.md").read_text()
    knn, *others = figures
    said = f"end at {knn} (k=200: {others[0]}; linear {others[1]}) with MoCo, where LoGo's 2 + 2"
    assert said in (ROOT / "README.md").read_text()


@pytest.mark.parametrize("framework", ["MoCo", "SimSiam"])
def test_margins_at_equal_crops_are_those_of_the_runs(framework):
    ((simsiam,), _), tables = told_of("simsiam-four-large-crops"), tables_of(RESULTS / "cifar10.md")
    if framework == "SimSiam":
        (row,) = [row for row in record("table1")["rows"] if row["recipe"] == "cifar10-tuned-simsiam-logo"]
        below = minus(measured(row), figures_of(simsiam))
        label = "SimSiam-LoGo over SimSiam with four large crops: equal epochs and crops"
    else:
        (row,) = [row for row in record("table1")["rows"] if row["recipe"] == "cifar10-tuned-moco-logo"]
        below = minus(measured(row), of_four_large_crops())
        label = "MoCo-LoGo over MoCo with four large crops: equal epochs and crops"
        half = minus(of_records("cifar10-half-decay", "moco-logo"), printed_of_four_large_crops()[:2])
        (told,) = [row[1:3] for row in tables if row[0] == "the same, both with weight decay 5e-4"]
        assert told == shown(half, "+")
    (row,) = [row[1:] for row in tables if row[0] == label]
    assert row[: len(below)] == shown(below, "+")


def test_the_figures_of_the_best_recipe_are_those_of_its_run():
    (run,), tables = told_of("cifar10-best-six")
    knn20, knn200, sgd, lbfgs = shown(figures_of(run))
    assert ["MoCo, six large crops", "6", "1e-3", knn20, knn200, sgd, lbfgs] in tables
    assert f"{knn20}** (k=20, tau=0.07) and **{knn200}** (k=200" in (RESULTS / "cifar10.md").read_text()
    for page in (RESULTS / "cifar10.md", ROOT / "README.md"):
        (row,) = [row for row in tables_of(page) if row[0].startswith("`cifar10-best`")]
        assert re.findall(r"92\.\d+", " ".join(row)) == [knn20, knn200, sgd]


def test_the_best_recipe_has_the_settings_of_its_run():
    (run,), _ = told_of("cifar10-best-six")
    assert (run["recipe"], run["crops"]) == ("cifar10-best", "6 global + 0 local")
    assert otherwise(run, find_recipe("cifar10-best")) == {}
    assert (settings(run).crops.n_global, settings(run).optimiser.weight_decay) == (6, 1e-3)


@pytest.mark.parametrize(
    ("picture", "page", "columns"), [("cifar10-crops", "cifar10.md", 6), ("imagenette-knn", "imagenette.md", 5)]
)
def test_curves_are_drawn_from_what_is_kept_and_end_where_the_page_says(picture, page, columns, tmp_path):
    PICTURES["main"]([str(RESULTS / "raw"), str(tmp_path)])
    rows = PICTURES["PICTURES"][picture]
    assert re.findall(r'id="row-(.+?)"', (tmp_path / f"{picture}.svg").read_text()) == [row.name for row in rows]
    assert f"(../images/{picture}.png)" in (RESULTS / page).read_text()
    ends = [drawn_end(row) for row in rows]
    summary = [row for row in tables_of(RESULTS / page) if len(row) == columns][1 : len(rows) + 1]
    assert [float(row[2]) for row in summary] == pytest.approx(ends, abs=0.06)  # `eval knn` rounds otherwise
    for row, cells in zip(rows, summary, strict=True):
        assert ("LoGo" in row.label, "without L2L" in row.label) == ("-LoGo" in cells[0], "without L2L" in cells[0])


def drawn_end(row):
    """Where a curve ends: the mean over its seeds."""
    return mean(run.by_epoch()[200] for run in PICTURES["runs"](RESULTS / "raw", row))


def test_curves_by_the_papers_settings_end_where_the_page_says():
    page = (RESULTS / "cifar10.md").read_text()
    assert "(../images/cifar10-paper.png)" in page
    said = [float(row[1]) for row in tables_of(RESULTS / "cifar10.md") if "the paper's settings" in row[0]]
    rows = PICTURES["PICTURES"]["cifar10-paper"]
    ends = [drawn_end(row) for row in rows]
    assert said == pytest.approx(ends, abs=0.11)  # while training, features are bfloat16


def test_figure_1b_of_the_tuned_rows_is_drawn_from_their_records_and_ends_where_the_page_says(tmp_path):
    PICTURES["main"]([str(RESULTS / "raw"), str(tmp_path)])
    drawn = (tmp_path / "cifar10-knn.svg").read_text()
    curves, title = PICTURES["figure_1b"](RESULTS / "raw" / "cifar10-tuned")
    rows = record("table1")["rows"]
    assert re.findall(r'id="row-(.+?)"', drawn) == [row["recipe"] for row in rows] == [curve.row for curve in curves]
    seeds = [curve.points()[200] for curve in curves]
    assert list(map(len, seeds)) == [row["figures"][0]["n"] for row in rows]
    ends = [row["figures"][0]["mean"] for row in rows]
    assert list(map(mean, seeds)) == pytest.approx(ends, abs=0.11)  # while training, features are bfloat16
    (said,) = re.findall(r"kNN over epochs: (.+)\]\(\.\./images/cifar10-knn\.png", (RESULTS / "cifar10.md").read_text())
    found = {label: float(figure) for label, figure in re.findall(r"([\w-]+) (?:reaches )?(\d+\.\d)", said)}
    labels = [row["row"].removesuffix(", tuned").replace("+", "-") for row in rows]
    assert found == pytest.approx(dict(zip(labels, ends, strict=True)), abs=0.06)
    assert not re.search(r"\.(json|md)\b", title)  # readers of the page have no such file


@pytest.mark.parametrize("name", ["table1", "table7"])
def test_the_summary_of_cifar10_shows_the_same_figures(name):
    tables = tables_of(RESULTS / "cifar10.md")
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
    means = {row["recipe"]: measured(row) for row in record("table1")["rows"]}
    figures = {recipe: knn for recipe, (knn, *_) in means.items()}
    (best,), _ = told_of("cifar10-best-six")
    (four,), _ = told_of("simsiam-four-large-crops")
    two_photos, four_photos, logo_photos = (figures_of(run)[0] for run in told_of("imagenette-equal-crops")[0])
    moco, simsiam = figures["cifar10-tuned-moco-logo"], figures["cifar10-tuned-simsiam-logo"]
    decays = [[means[f"cifar10-tuned-{row}"], of_records("cifar10-half-decay", row)] for row in ("moco-logo", "moco")]
    logo, alone = ([max(pair) for pair in zip(*each, strict=True)] for each in decays)
    above = minus(logo, alone)
    assert f"{above[0]:.1f}" == f"{above[1]:.1f}"
    others = minus(means["cifar10-tuned-simsiam-logo"], means["cifar10-tuned-simsiam"])
    level = minus(means["cifar10-tuned-moco-logo"], of_four_large_crops())
    theirs = margins_of_the_papers_settings()
    for said in (
        f"margins are {theirs[1]:+.2f} points on SimSiam (paper: 7.19) and {theirs[0]:+.2f} on MoCo (4.86)",
        f"MoCo-LoGo {moco:.1f} (paper: 84.4), SimSiam-LoGo {simsiam:.1f} (87.7)",
        f"{above[0]:+.1f} points on MoCo and {others[0]:+.1f} on SimSiam (CIFAR-10)",
        f"{logo_photos - two_photos:+.1f} on Imagenette. At equal crops",
        f"against four large ones: {logo_photos - four_photos:+.1f} on Imagenette",
        f"level with MoCo ({level[0]:+.1f}; by a linear classifier {level[2]:+.1f}) and behind with "
        f"SimSiam ({simsiam - figures_of(four)[0]:+.1f})",
        f"no LoGo: {figures_of(best)[0]:.1f} in 23 minutes",
    ):
        assert said in first
    faq = (ROOT / "docs" / "faq.md").read_text()
    assert f"kNN {moco:.1f} % for MoCo-LoGo where the paper has 84.44, {simsiam:.1f} % for SimSiam-LoGo" in faq
