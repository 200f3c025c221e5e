"""Does the log of experiments tell what the runs' records give?"""

import json
from statistics import mean, stdev

import pytest
from published import (
    PICTURES,
    RESULTS,
    ROOT,
    WITHOUT_L2L,
    by_the_papers_settings,
    figures_of,
    last_knn,
    minus,
    of_four_large_crops,
    of_records,
    otherwise,
    printed_of_four_large_crops,
    recipe_of_records,
    record,
    section,
    settings,
    shown,
    tables_of,
    told_of,
)

from logo_ssl.recipes import flat, unused
from logo_ssl.reproduce.settings import matters


@pytest.mark.parametrize("file", sorted(RESULTS.glob("raw/*.jsonl")), ids=lambda file: file.stem)
def test_a_line_of_a_run_tells_all_that_decided_it(file):
    runs = [run for run in map(json.loads, file.read_text().splitlines()) if "recipe" in run]
    assert not any("changed" in run for run in runs)  # than what? recipes move
    for run in (run for run in runs if "settings" in run):
        recipe = settings(run)
        crops = f"{recipe.crops.n_global} global + {recipe.crops.n_local} local"
        said = {"recipe": recipe.name, "seed": recipe.seed, "epochs": recipe.epochs, "crops": crops}
        assert said == said | {name: run[name] for name in said if name in run}
        parts = ((name, part if isinstance(part, dict) else [""]) for name, part in run["settings"].items())
        told = {f"{name}.{inner}".rstrip(".") for name, part in parts for inner in part}
        silent = flat(recipe).keys() - told - unused(recipe) - {"chosen"}
        assert not [field for field in silent if matters(field)]


def test_the_log_tells_the_papers_settings_as_the_records_do():
    (alone, logo), tables = told_of("simsiam-weight-decay")
    ranks = [f"{run['last_gauged']['z_rank']:.0f}" for run in (alone, logo)]
    assert ["weight decay 5e-4", *shown(figures_of(alone)), ranks[0]] in tables
    reversed_order = section("33. The paper's rows")
    assert ["SimSiam, 5e-4 (experiment 30)", *shown(figures_of(alone)), ranks[0]] in reversed_order
    assert ["SimSiam-LoGo, 5e-4", *shown(figures_of(logo)), ranks[1]] in reversed_order
    above = shown(minus(figures_of(logo), figures_of(alone)), "+")
    assert ["SimSiam-LoGo over SimSiam, 5e-4", *above, ""] in reversed_order
    assert f"LoGo lies {above[0][1:]} *below* SimSiam" in (ROOT / "README.md").read_text()
    ours = by_the_papers_settings(seed=0)
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


def test_statistics_both_ways_are_what_the_runs_tell():
    runs, tables = told_of("statistics-both-ways")
    labels = {"": "two crops", "-logo": "MoCo-LoGo, 16 px", "-multicrop": "MoCo, without L2L, 16 px"}
    assert len(runs) == 4
    for run in runs:
        _, _, row = run["recipe"].partition("-tuned-")
        framework, dash, strategy = row.partition("-")
        name = {"moco": "MoCo", "simsiam": "SimSiam"}[framework]
        label = labels[dash + strategy] if strategy else f"{name}, two crops"
        pairs = [(run["crops"][k], run["whole_images"][k]) for k in ("k=20", "k=200")]
        told = [cell for a, b in pairs for cell in [*shown([a, b]), *shown([b - a], "+")]]
        assert [label, str(run["seed"]), *told] in tables
    ks, mocos = ("k=20", "k=200"), [run for run in runs if "moco" in run["recipe"]]
    changes = [run["whole_images"][k] - run["crops"][k] for run in mocos for k in ks]
    least, most = shown([min(changes), max(changes)], "+")
    assert f"tuned MoCo changes by {least} to {most} points" in (RESULTS / "experiments.md").read_text()


def test_second_seeds_of_tuned_rows_are_those_of_the_records():
    figures = {row["recipe"]: row["figures"] for row in record("table1")["rows"]}
    cells = {row[0]: row[1:] for row in section("37. A second seed") if len(row) == 7}
    by_row = {
        label: [figure["values"][seed] for figure in figures[f"cifar10-tuned-{name}"] for seed in ("0", "1")]
        for label, name in (("MoCo", "moco"), ("MoCo-LoGo", "moco-logo"), ("SimSiam", "simsiam"))
    }
    for label, ours in by_row.items():
        assert cells[label] == shown(ours)
    assert cells["LoGo over MoCo"] == shown(minus(by_row["MoCo-LoGo"], by_row["MoCo"]), "+")


def test_what_l2l_does_with_twice_the_decay_is_what_the_records_give():
    cells = {row[0]: row[1:] for row in section("51. Tuned MoCo")}
    local, logo = (of_records("cifar10-tuned", row) for row in ("moco-multicrop", "moco-logo"))
    assert cells["with local crops, without L2L"] == shown(local)
    assert cells["MoCo-LoGo (experiment 46)"] == shown(logo)
    assert cells["L2L"] == shown(minus(logo, local), "+")
    assert cells["four large crops"] == shown(four := of_four_large_crops())
    assert cells["LoGo over four large crops"] == shown(minus(logo, four), "+")
    crossed = shown(minus(logo, of_records("cifar10-half-decay", "moco-multicrop")), "+")
    assert f"finds {crossed[0]} points (k=200: {crossed[1]}; linear: {crossed[2]})" in (RESULTS / "l2l.md").read_text()


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
        recipe = settings(run)
        label = {"cifar10-tuned-moco-logo": "MoCo-LoGo", "cifar10-tuned-simsiam-logo": "SimSiam-LoGo"}[run["recipe"]]
        label += f", seed {run['seed']}"
        label += ", cosine as affinity" if recipe.strategy.affinity == "cosine" else ""
        label += ", weight decay 1e-3" if recipe.optimiser.weight_decay == 1e-3 else ""
        assert cells[label][f"{recipe.strategy.lam:g}"] == f"{run['knn_k20_by_epoch'][str(run['epochs'])]:.2f}"


def test_rates_and_weight_decays_stand_in_the_cell_of_their_settings():
    runs, tables = told_of("rate-and-weight-decay")
    cells = {row[0]: row[1:] for row in tables}
    names = {"moco": "MoCo", "moco-logo": "MoCo-LoGo", "simsiam": "SimSiam", "simsiam-logo": "SimSiam-LoGo"}
    found = {}
    rates = {run["recipe"]: settings(run).optimiser.lr for run in reversed(runs)}  # a row's first line has its own
    for run in runs:
        optimiser = settings(run).optimiser
        column = 1 if optimiser.weight_decay == 1e-3 else 2 if optimiser.lr == 2 * rates[run["recipe"]] else 0
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
    strategies = [run["settings"]["strategy"] for run in runs]
    kinds = [(strategy["kind"], strategy.get("lam")) for strategy in strategies]
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


def test_simsiams_crops_are_those_of_the_runs():
    (four, local, large, three), tables = told_of("simsiam-crops")
    ends = {row[0]: row[-1] for row in tables}
    assert ends["all crops large"] == f"{last_knn(four):.2f}"
    assert ends["without L2L"] == f"{last_knn(local):.2f}"
    assert ends["without L2L, local crops as large as global ones"] == f"{last_knn(large):.2f}"
    assert ends["without L2L, one global crop more"] == f"{last_knn(three):.2f}"


def test_lambda_with_local_crops_is_that_of_the_runs():
    runs = told_of("local-crops-lambda")[0] + told_of("lambda-of-local-crops")[0]
    assert [settings(run).strategy.lam for run in runs] == [0, 0.05, 0.2]
    assert shown(map(last_knn, runs)) in told_of("lambda-of-local-crops")[1]


def test_what_else_was_tried_on_simsiam_is_what_the_runs_tell():
    runs, tables = told_of("simsiam-local-crops")
    as_it_was = told_of("simsiam-crops")[0][1], told_of("rate-and-weight-decay")[0][7]
    fields = {2: ["strategy.noise"], 3: ["strategy.lr"], 4: ["strategy.balance"]}  # the others changed the code
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
            assert list(otherwise(runs[line], settings(before))) == fields.get(line, [])
            rank = runs[line]["last_gauged"]["z_rank"]
            assert told[label, change] == [f"{last_knn(runs[line]):.2f}", f"{rank:.0f}"]


def test_areas_of_crops_are_those_of_the_runs():
    (large, tuned), tables = told_of("crop-areas")
    alone, logo = told_of("simsiam-weight-decay")[0]
    page = tables_of(RESULTS / "cifar10.md")
    for label, run in (
        (["SimSiam", "40-100 %", ""], large),
        (["SimSiam-LoGo (experiment 33)", "40-100 %", "5-40 %"], logo),
        (["SimSiam (experiment 30)", "20-100 %", ""], alone),
        (["SimSiam-LoGo", "20-100 %", "20-80 %"], tuned),
    ):
        assert [*label, *shown(figures_of(run)), f"{run['last_gauged']['z_rank']:.0f}"] in tables
        crops = settings(run).crops
        areas = [crops.global_scale, *([crops.local_scale] if crops.n_local else [])]
        assert [f"{100 * low:g}-{100 * high:g} %" for low, high in areas] == [area for area in label[1:] if area]
        assert settings(run).optimiser.weight_decay == 5e-4
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


def test_second_seeds_are_those_of_the_records():
    (tuned,), tables = told_of("tuned-second-seed")
    first, second, both = (by_the_papers_settings(seed) for seed in (0, 1, None))
    for framework in ("MoCo", "SimSiam"):
        (one, _), (other, _) = (seeds[f"{framework}{WITHOUT_L2L}"] for seeds in (first, second))
        with_l2l = ", ".join(shown(both[f"{framework}-LoGo"][0]))
        knn = [figure for pair in zip(one, other, strict=False) for figure in pair]
        assert [f"{framework}, the paper's settings", *shown([*knn, other[2]]), with_l2l] in tables
    kept = RESULTS / "raw" / "cifar10-large-local"
    ends = [
        PICTURES["Kept"](kept / f"cifar10-tuned-moco-{row}" / "seed0").by_epoch()[200] for row in ("multicrop", "logo")
    ]
    (row,) = [row for row in tables if row[0].startswith("MoCo, tuned")]
    assert [cell for cell in row[1:] if cell] == shown([ends[0], last_knn(tuned), ends[1]])


def test_local_crops_of_half_the_size_are_those_of_the_runs():
    (logo, eight), tables = told_of("half-size-crops")
    (enlarged,) = [run for run in told_of("lambda-twenty-epochs")[0] if run["options"].endswith("lam 0.05")]
    ends = [row[-1] for row in tables if row[1] in ("2 + 2", "4 + 4")]
    assert ends == shown([enlarged["knn_k20_by_epoch"]["20"], last_knn(logo), last_knn(eight)])


def test_small_local_crops_are_those_of_the_runs():
    tables = section("41. Local crops of half the size")
    logo, local, two = (of_records("cifar10-half-decay", f"moco{row}") for row in ("-logo", "-multicrop", ""))
    four = printed_of_four_large_crops()
    assert ["LoGo, local crops of 5-40 %, 16 px", "2 + 2", "2.5", *shown(logo)] in tables
    assert ["the same, without L2L", "2 + 2", "2.5", *shown(local)] in tables
    assert ["two large crops (experiment 12)", "2", "2", *shown(two)] in tables
    assert ["four large crops (experiment 7)", "4", "4", *shown(four[:2]), f"(L-BFGS: {four[2]:.2f})"] in tables
    enlarged = of_records("cifar10-large-local", "moco-logo")
    assert ["LoGo, local crops of 20-80 %, 32 px (experiment 11)", "2 + 2", "4", *shown(enlarged)] in tables
    without = [
        "the same, without L2L (experiment 12)",
        "2 + 2",
        "4",
        *shown(of_records("cifar10-large-local", "moco-multicrop")),
        "",
    ]
    assert without in tables
    for label, other in (
        ("the same with enlarged ones", enlarged),
        ("two large crops: equal epochs", two),
        ("the same without L2L", local),
    ):
        assert [label, *shown(minus(logo, other), "+")] in tables
    above = shown(minus(logo, four), "+")
    assert ["four large crops: equal epochs and crops", *above[:2], f"({above[2]}, by two protocols)"] in tables
    (size, unpushed), _ = told_of("small-local-crops")
    assert ["local crops of 20-80 %, 16 px", *shown([last_knn(size)])] in tables
    assert ["local crops of 5-40 %, 16 px, lambda 0", *shown([last_knn(unpushed)])] in tables


def test_simsiam_by_other_readings_is_that_of_the_runs():
    (start, rate), tables = told_of("other-simsiam")
    papers = recipe_of_records("cifar10-paper", "cifar10-simsiam")
    assert otherwise(start, papers) == {"initialisation": "torch"}
    assert otherwise(rate, papers) == {"framework.layers": 3, "optimiser.lr": 0.1}
    for label, run in (
        ("ImageNet's rate 0.1 and three layers", rate),
        ("our reading, begun by torch's default (experiment 43)", start),
    ):
        assert [label, *shown(figures_of(run)), f"{run['last_gauged']['z_rank']:.0f}"] in tables
    ours, _ = by_the_papers_settings()["SimSiam"]
    assert ["our reading (experiment 25)", *shown(ours), "149"] in tables
    page = (RESULTS / "cifar10.md").read_text()
    assert all(f"ends at {figures_of(run)[0]:.2f}" in page for run in (start, rate))


def test_twice_the_weight_decay_is_that_of_the_records():
    tables = section("46. Twice the weight decay")
    decays = {"5e-4": "cifar10-half-decay", "1e-3": "cifar10-tuned"}
    found = {(row, decay): of_records(decays[decay], row) for row in ("moco", "moco-logo") for decay in decays}
    for (row, decay), figures in found.items():
        assert any(
            cells[0].startswith({"moco": "MoCo", "moco-logo": "MoCo-LoGo"}[row])
            and cells[1:] == [decay, *shown(figures)]
            for cells in tables
        )
    above = {decay: minus(found["moco-logo", decay], found["moco", decay]) for decay in decays}
    for decay, margins in above.items():
        assert ["LoGo over MoCo", decay, *shown(margins, "+")] in tables
    page = (RESULTS / "cifar10.md").read_text().replace("*", "")
    for row, words in (("moco", "{} (k=20), {} (k=200) and {} (linear)"), ("moco-logo", "{}, {} and {}")):
        changed = [f"{change:+.2f}" for change in minus(found[row, "1e-3"], found[row, "5e-4"])]
        assert words.format(*changed).replace("+0.00", "0.00") in page
    margins = shown([*above["1e-3"], *above["5e-4"]], "+")
    assert "the margin is {}, {} and {} with it, where it was {}, {} and {}".format(*margins) in page


def test_the_rows_of_half_the_decay_are_those_of_the_records():
    four = printed_of_four_large_crops()
    labels = {
        "MoCo": ("moco", "2"),
        "MoCo with local crops, without L2L": ("moco-multicrop", "2 + 2"),
        "MoCo-LoGo": ("moco-logo", "2 + 2"),
    }
    tables = tables_of(RESULTS / "cifar10.md")
    found = {row: of_records("cifar10-half-decay", row) for row, _ in labels.values()}
    for label, (row, crops) in labels.items():
        assert [label, crops, *shown(found[row])] in tables
    two, others = "MoCo has {} (k=200: {}; linear {})", "without L2L {} ({}; {}), MoCo-LoGo {} ({}; {})"
    said = f"{two}, {others} and four large crops {{}} ({{}})"
    figures = [figure for row in ("moco", "moco-multicrop", "moco-logo") for figure in found[row]]
    assert said.format(*shown([*figures, *four[:2]])) in (ROOT / "README.md").read_text()


def test_small_local_crops_of_simsiam_are_those_of_the_run():
    (small,), tables = told_of("small-simsiam")
    enlarged = of_records("cifar10-tuned", "simsiam-logo")
    beside = recipe_of_records("cifar10-tuned", "cifar10-tuned-simsiam-logo")
    assert otherwise(small, beside) == {"crops.local_size": 16, "crops.local_scale": [0.05, 0.4]}
    assert ["LoGo, local crops of 5-40 %, 16 px", "2 + 2", *shown(figures_of(small))] in tables
    assert ["LoGo, local crops of 20-80 %, 32 px (experiment 11)", "2 + 2", *shown(enlarged)] in tables
    assert ["two large crops (experiment 12)", "2", *shown(of_records("cifar10-tuned", "simsiam"))] in tables
    lost = f"{minus(figures_of(small), enlarged)[0]:.1f}"
    log = RESULTS / "raw" / "cifar10-small-simsiam" / "cifar10-tuned-simsiam-logo" / "seed0" / "metrics.jsonl"
    ranks = {
        line["epoch"] + 1: line["z_rank"] for line in map(json.loads, log.read_text().splitlines()) if "z_rank" in line
    }
    assert [round(ranks[40]), round(ranks[200], 1)] == [7, round(small["last_gauged"]["z_rank"], 1)]
    assert all(ranks[epoch] < 10 for epoch in ranks if 30 <= epoch <= 105)
    suspects = tables_of(RESULTS / "cifar10.md")
    assert [row[3] for row in suspects if row[0] == "the size of local crops"] == [lost]


def test_cosine_and_byol_are_those_of_the_runs():
    (cosine, unbound), tables = told_of("cosine-and-no-bound")
    ours = (settings(cosine).strategy.affinity, settings(unbound).strategy.bound)
    assert ours == ("cosine", "mean-difference")
    assert ["cosine", *shown([last_knn(cosine)]), f"{cosine['last_gauged']['z_rank']:.0f}"] in tables
    text = (RESULTS / "experiments.md").read_text()
    assert f"came to the end at {last_knn(unbound):.2f}" in text
    for framework, steps in (("moco", (440, 500, 580)), ("simsiam", (340, 485, 800))):
        said = (RESULTS / "raw" / f"2026-11-18-no-bound-{framework}.txt").read_text()
        assert all(f"Training diverged at step {step} " in said for step in steps)
    (byol,), _ = told_of("byol-logo")
    assert settings(byol).kind("framework") == "byol"
    assert f"As expected: **{last_knn(byol):.2f}**" in text


def test_cosine_that_collapses_lambdas_and_summed_pairs_are_those_of_the_runs():
    runs, tables = told_of("cosine-and-lambda")
    half, weight, *_, summed = strategies = [settings(run).strategy for run in runs]
    assert [(each.affinity, each.lam, each.balance) for each in (half, weight)] == [
        ("cosine", 0.5, "latents"),
        ("cosine", 1, "weight"),
    ]
    assert ([each.lam for each in strategies[2:4]], summed.pairs) == ([0.005, 0.5], "paper")
    told = [
        [f"{last_knn(run):.2f}", f"{run['last_gauged']['z_rank']:.{digits}f}"]
        for run, digits in zip(runs, (1, 1, 0, 0, 0), strict=True)
    ]
    assert [row[2:] for row in tables[-len(runs) :]] == told
    page = (RESULTS / "l2l.md").read_text().replace("*", "")
    assert f"| {' | '.join(shown(map(last_knn, runs[:2])))} |" in page
    untrained = [float(run["knn_k20_by_epoch"]["0"]) for run in runs]
    assert all(round(knn) in (39, 40) for knn in untrained)


def test_statistics_of_small_crops_are_those_of_the_runs():
    runs, tables = told_of("small-statistics")
    for i, label in enumerate(("SimSiam, 16 px", "SimSiam, 32 px", "MoCo, 16 px", "MoCo, 32 px")):
        both = [runs[i]["statistics"], runs[i + 4]["statistics"]]
        assert (runs[i]["seed"], runs[i + 4]["seed"]) == (0, 1)
        assert settings(runs[i]).crops.local_size == int(label[-5:-3])
        assert settings(runs[i]).kind("framework") == label.partition(",")[0].lower()
        crops, whole = ([seed[kind]["k=20"] for seed in both] for kind in ("of crops", "of whole images"))
        change = f"{mean(minus(whole, crops)):+.2f}"
        assert [label, ", ".join(shown(crops)), ", ".join(shown(whole)), change] in tables
