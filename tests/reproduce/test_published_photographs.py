"""Are the figures of Imagenette, and of photographs on a CPU, those of the runs?"""

from statistics import mean, stdev

import pytest
from published import RESULTS, ROOT, figures_of, settings, shown, told_of

from logo_ssl.recipes import Recipe, differences, find_recipe
from logo_ssl.reproduce.settings import matters

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


def recipes_that_ran():
    """Those of experiment 17, as they were, the unfinished one among them."""
    yield from map(settings, told_of("imagenette-equal-crops")[0])
    log = (RESULTS / "raw" / "2026-11-16-imagenette-without-l2l-unfinished.txt").read_text()
    yield Recipe.from_json(log.splitlines()[-1])


def test_imagenettes_recipes_have_the_settings_of_the_runs():
    for ran in recipes_that_ran():
        ours = find_recipe(ran.name.replace("imagenet100", "imagenette")).changed(crops__n_global=ran.crops.n_global)
        idle = set() if ran.crops.n_local else {"crops.local_size"}
        assert {field for field in differences(ran, ours) if matters(field)} <= {"data", *idle}


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


def test_photographs_on_a_cpu_are_those_of_the_runs():
    runs, tables = told_of("photographs-on-a-cpu")
    for label, (one, other) in {"tiny": runs[:2], "imagenette-moco-logo": runs[2:]}.items():
        knn = [run["knn_k20_by_epoch"]["25"] for run in (one, other)]
        linear = [run["evaluations"][0]["results"]["top-1"] for run in (one, other)]
        assert (one["seed"], other["seed"]) == (0, 1)
        assert [f"crops of `{label}`", *shown([*knn, *linear])] in tables


def test_crops_of_photographs_on_a_cpu_are_those_of_the_runs():
    runs, tables = told_of("photographs-crops")
    ends = {row[0]: row[2:] for row in tables}
    assert [run["seed"] for run in runs] == 4 * [0, 1]
    for i, label in enumerate(("two large crops", "with local crops, without L2L", "LoGo", "four large crops")):
        columns = zip(*map(figures_of, runs[2 * i : 2 * i + 2]), strict=True)
        assert ends[label] == [", ".join(shown(column)) for column in columns]


def test_what_l2l_does_on_photographs_over_more_seeds_is_that_of_the_runs():
    runs, tables = told_of("more-photographs")
    before = told_of("photographs-crops")[0]
    assert [run["seed"] for run in runs] == 2 * [2, 3, 4, 5, 6, 7]
    for ran, first in ((runs[0], before[2]), (runs[6], before[4])):
        assert differences(settings(ran), settings(first)).keys() == {"seed"}
    local, logo = [figures_of(run) for run in runs[:6]], [figures_of(run) for run in runs[6:]]
    for label, rows in (("with local crops, without L2L", local), ("LoGo", logo)):
        assert [label, *(f"{mean(column):.2f} ± {stdev(column):.2f}" for column in zip(*rows, strict=True))] in tables
    all_local = [*map(figures_of, before[2:4]), *local]
    all_logo = [*map(figures_of, before[4:6]), *logo]
    for label, ours, theirs in (("2 to 7", logo, local), ("0 to 7", all_logo, all_local)):
        by_seed = [[one - other for one, other in zip(*pair, strict=True)] for pair in zip(ours, theirs, strict=True)]
        cells = (f"{mean(c):+.2f} ± {stdev(c) / len(c) ** 0.5:.2f}" for c in zip(*by_seed, strict=True))
        assert [f"L2L, seeds {label}", *cells] in tables
