"""Is what pages say of L2L what its trials' records give, and were these the trials that they are said to be?"""

import json
import runpy

import pytest
from published import RESULTS, ROOT, record, settings

from logo_ssl.data.named import SCENES_TEST
from logo_ssl.recipes import Recipe, find_recipe, flat

TOOL = runpy.run_path(str(ROOT / "tools" / "draw_l2l.py"))
RAW, TRIALS = RESULTS / "raw", TOOL["TRIALS"]
TOLD = TOOL["gather"](RAW)
CHANGES = TOLD["k=20"]


def ran(place):
    """The fields that decide what a trial is, as its run had them: epochs, framework, areas of local crops, lambda."""
    had = fields(place)
    low, high = had["crops.local_scale"]
    return had["epochs"], had["framework.kind"], f"{100 * low:g}-{100 * high:g}", had.get("strategy.lam", 0)


def fields(place):
    """All fields of a run; of the oldest ones there are the options that were typed."""
    file, _, line = place.partition(":")
    if not line:
        return flat(Recipe.from_json((RAW / file / "recipe.json").read_text()))
    kept = json.loads((RAW / file).read_text().splitlines()[int(line) - 1])
    if "settings" in kept:
        return flat(settings(kept))
    told = {name: kept[name] for name in ("epochs", "seed") if name in kept}
    return flat(find_recipe(kept["recipe"])) | told | typed(kept["options"])


def typed(options):
    """Options as a recipe's fields."""
    words = [option.split() for option in options.split("--")[1:]]
    numbers = {name.replace("-", "_"): [float(value) for value in values] for name, *values in words}
    return {name: values if len(values) > 1 else values[0] for name, values in numbers.items()}


def beside_l2l(place):
    """What of a run decides its result, but for its strategy, and its seed."""
    had = fields(place)
    deciding = ("crops.", "optimiser.", "framework.", "epochs", "batch_size", "backbone", "stem", "initialisation")
    return {name: value for name, value in had.items() if name.startswith(deciding)}, had["seed"]


@pytest.mark.parametrize("trial", TRIALS, ids=lambda trial: "-".join(trial.cells()))
def test_a_trials_sides_differ_in_l2l_alone(trial):
    pushed, left_alone = ([beside_l2l(place) for place in side] for side in (trial.pushed, trial.left_alone))
    assert pushed == left_alone
    assert all(found == pushed[0][0] for found, _ in pushed)


@pytest.mark.parametrize("trial", TRIALS, ids=lambda trial: "-".join(trial.cells()))
def test_a_trials_runs_are_what_it_says_of_them(trial):
    what = (trial.epochs, trial.framework.lower(), trial.local)
    assert {ran(place) for place in trial.pushed} == {(*what, trial.lam)}
    assert {ran(place) for place in trial.left_alone} == {(*what, 0)}


def test_the_page_has_the_table_of_the_records():
    assert TOOL["table"](TOLD) in (RESULTS / "l2l.md").read_text()


def test_the_mean_of_long_trials_is_what_every_page_says():
    long = [i for i, trial in enumerate(TRIALS) if trial.epochs == 200]
    told = []
    for changes in TOLD.values():
        points, variances = zip(*((changes[i].points, changes[i].error ** 2) for i in long if changes[i]), strict=True)
        weights = [1 / variance for variance in variances]
        mean = sum(a * b for a, b in zip(points, weights, strict=True)) / sum(weights)
        told.append(f"{mean:+.2f} ± {sum(weights) ** -0.5:.2f}")
    assert len(long) == 7
    for page in (RESULTS / "l2l.md", RESULTS / "cifar10.md", RESULTS / "index.md", ROOT / "README.md"):
        text = page.read_text().replace("*", "")
        assert "seven" in text
        assert all(mean in text for mean in told)
        assert page.name != "README.md" or f"any of {len(TRIALS)} trials" in text


def test_the_sweep_over_lambda_has_the_figures_of_the_trials():
    table = (RESULTS / "l2l.md").read_text().partition("## Which lambda?")[2].partition("## ")[0].replace("*", "")
    head, *rows = [[cell.strip() for cell in line[1:-1].split("|")] for line in table.splitlines() if line[:2] == "| "]
    said = {(row[0], row[1].partition(" (")[0], lam): row[2 + i] for row in rows for i, lam in enumerate(head[2:])}
    found = {}
    for trial, change in zip(TRIALS, CHANGES, strict=True):
        if (trial.epochs, trial.images) == (20, "CIFAR-10") and "cosine" not in trial.remark and trial.local != "8-50":
            crops = f"{trial.local} %, {'16 px' if trial.remark == '16 px' else '32 px'}"
            found[trial.framework, crops, f"{trial.lam:g}"] = f"{change.pushed[0]:.2f}"
            found[trial.framework, crops, "lambda 0"] = f"{change.left_alone[0]:.2f}"
    assert {place: figure for place, figure in said.items() if figure} == found


def test_the_papers_figures_are_those_of_its_table():
    papers = {row["recipe"]: row["figures"][0]["paper"] for row in record("table7", "paper")["rows"]}
    for framework in ("moco", "simsiam"):
        gain = papers[f"cifar10-{framework}-logo"] - papers[f"cifar10-{framework}-multicrop"]
        (told,) = [trial.paper for trial in TRIALS if trial.paper and trial.framework.lower() == framework]
        assert told == pytest.approx(gain)


def test_no_trial_shows_a_gain_and_a_large_lambda_harms():
    for trial, *changes in zip(TRIALS, *TOLD.values(), strict=True):
        assert all(change.points - 2 * change.error < 0 for change in changes if change)
        assert trial.lam < 0.2 or changes[0].points + 2 * changes[0].error < 0


def test_linear_is_compared_by_one_protocol_and_one_seed():
    """By hand, of the pair that has both rows with weight decay 1e-3, and of Imagenette's, which has L-BFGS."""
    linear = {
        trial.remark or trial.images: change for trial, change in zip(TRIALS, TOLD["linear"], strict=True) if change
    }
    assert (linear["16 px, decay 1e-3"].pushed, linear["16 px, decay 1e-3"].left_alone) == ([92.97], [92.63])
    assert (linear["Imagenette"].pushed, linear["Imagenette"].left_alone) == ([88.99], [88.61])
    assert TOOL["figure"](RAW, "cifar10-paper/cifar10-moco-multicrop/seed0", "linear-sgd") is None


def test_a_mean_is_weighed_by_precision_and_knows_its_scatter():
    precise, vague = (TOOL["Change"]([90.0 + up], [90.0], n) for up, n in ((1.0, 40_000), (-1.0, 10_000)))
    mean, error, scatter, n = TOOL["pooled"]([precise, vague])
    assert (round(mean, 1), round(scatter, 1), n) == (0.6, 0.8, 2)  # sqrt(0.8 * 0.4**2 + 0.2 * 1.6**2)
    assert error == pytest.approx((1 / precise.error**2 + 1 / vague.error**2) ** -0.5)


def test_a_mean_of_one_pair_has_no_scatter():
    alone = TOOL["Change"]([91.0], [90.0], 10_000)
    assert TOOL["pooled"]([alone]) == (pytest.approx(1.0), pytest.approx(alone.error), None, 1)
    first = next(i for i, trial in enumerate(TRIALS) if (trial.epochs, trial.lam) == (200, 0.05))
    told = {"linear": [alone if i == first else None for i in range(len(TRIALS))]}
    assert TOOL["means"](told).count(f"| +1.00 ± {alone.error:.2f} (n=1) |") == 2


@pytest.mark.parametrize("trial", TRIALS, ids=lambda trial: "-".join(trial.cells()))
def test_a_trial_knows_how_many_images_were_tested(trial):
    """By the records, where they tell it; photographs and held-out images are those of the log."""
    others = {"CIFAR-10": 10_000, "CIFAR-10, held out": 5_000, "Imagenette": 3_925, "photographs, tiny": 800}
    assert trial.tested == (others | {"scenes, tiny": SCENES_TEST})[trial.images]
    for place in (*trial.pushed, *trial.left_alone):
        evaluations = [json.loads(file.read_text()) for file in (RAW / place / "evaluation").glob("knn*.json")]
        assert all(evaluation["test_images"] == trial.tested for evaluation in evaluations)
        if trial.tested < 10_000:  # else any figure of two decimals is so many images
            right = TOOL["figure"](RAW, place, "k=20") / 100 * trial.tested
            assert right == pytest.approx(round(right), abs=0.0051 / 100 * trial.tested)


def test_a_standard_error_is_that_of_seeds_where_there_are_some():
    few = TOOL["Change"]([90.0], [80.0, 82.0], 10_000)
    assert (few.points, few.over_seeds) == (9.0, False)
    assert few.error == pytest.approx(100 * (0.9 * 0.1 / 1e4 + 0.81 * 0.19 / 1e4) ** 0.5)
    several = TOOL["Change"]([3.0, 5.0, 7.0], [1.0, 2.0, 3.0], 10_000)
    assert (several.points, several.over_seeds) == (3.0, True)
    assert several.error == pytest.approx(1 / 3**0.5)


def test_the_picture_is_drawn_from_what_is_kept(tmp_path, capsys):
    TOOL["main"]([str(RAW), str(tmp_path)])
    assert capsys.readouterr().out == TOOL["table"](TOLD)
    drawn = (tmp_path / "l2l.svg").read_text()
    assert all(cell.replace("'", "&#39;") in drawn or cell in drawn for trial in TRIALS for cell in trial.cells())
    assert "(../images/l2l.png)" in (RESULTS / "l2l.md").read_text()
