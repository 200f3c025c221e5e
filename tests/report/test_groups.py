"""Groups of seeds, their spread, and a run called better only if that can be said."""

import json

import pytest

from logo_ssl.recipes import find_recipe
from logo_ssl.report.collect import RunCollector
from logo_ssl.report.results import Compared, Figure, Spread, compared, grouped, labels
from logo_ssl.report.sections import comparison, group_notes
from logo_ssl.run import Run

ACCURACY = Figure("kNN", 50.0)
COLLECTOR = RunCollector(crops=False, images=0)


@pytest.fixture
def make(tmp_path):
    """Runs with a kNN accuracy and a last loss, finished unless stated otherwise."""

    def make(name, knn=50.0, loss=1.0, known_to=None, finished=True, records=(), images=None, **changes) -> Run:
        run, recipe = Run(tmp_path / name), find_recipe("tiny").changed(**changes)
        run.path.mkdir()
        run.recipe_file.write_text(recipe.to_json())
        lines = [
            {"step": 1, "loss": loss, "omega": -1.0, "l_ll": 0.5, "images_per_s": 100.0},
            {"step": 2, "knn": knn, "knn_k": 20, "knn_tau": 0.07, "epochs_done": known_to or recipe.epochs},
        ]
        run.metrics_file.write_text("".join(json.dumps(line) + "\n" for line in lines))
        if finished:
            run.provenance_file.write_text('{"commit": "abc123"}')
        for record_name, record in records:
            run.write_evaluation(record_name, record)
        if images:
            told = {"train_images": 3, "test_images": 0, "fingerprint": {"train": images}}
            run.images_file.write_text(json.dumps(told))
        return run

    return make


def groups_of(*runs):
    return grouped(COLLECTOR.collect(runs))


def cells(*runs):
    """What each figure has in each group, by its label."""
    table = comparison(groups_of(*runs))
    return {} if table is None else {row[0]: list(row[1:]) for row in table.rows}


SAME = [
    {"seed": 1, "log_every": 3, "loading__workers": 0},
    {"seed": 1, "chosen": ("for another machine",)},
    {"seed": 1, "data": "elsewhere", "images": "1234"},
]
OTHER = [
    {"optimiser__lr": 0.5},
    {"loading__max_side": 64},
    {"epochs": 7},
    {"data": "elsewhere"},
    {"images": "5678"},
    {"initialisation": "torch"},
]


@pytest.mark.parametrize("changes", SAME, ids=str)
def test_runs_that_differ_in_seed_or_harmless_settings_are_one_group(make, changes):
    images = changes.get("images")
    assert [str(group) for group in groups_of(make("a", images=images), make("b", **changes))] == ["A: a, b"]


@pytest.mark.parametrize("changes", OTHER, ids=str)
def test_other_settings_or_images_are_another_group(make, changes):
    first = make("a", images="1234" if "images" in changes else None)
    assert [str(group) for group in groups_of(first, make("b", **changes))] == ["A: a", "B: b"]


def test_the_size_of_local_crops_separates_no_runs_that_have_none(make):
    none = {"strategy": "two-view", "crops__n_local": 0}
    assert len(groups_of(make("a", **none, crops__local_size=16), make("b", **none, crops__local_size=24))) == 1
    assert len(groups_of(make("c", crops__local_size=16), make("d", crops__local_size=24))) == 2


def test_the_interval_is_students():
    low, high = Spread((1.0, 2.0, 3.0)).interval()
    assert (low, high) == pytest.approx((2 - 2.4841, 2 + 2.4841), abs=1e-3)
    assert Spread((1.0,)).interval() is None
    wide, narrow = Spread((1.0, 2.0)).interval(), Spread((1.0, 2.0) * 10).interval()
    assert wide[1] - wide[0] > 10 * (narrow[1] - narrow[0])


VERDICTS = [
    ([(50.0, 50.1, 49.9), (60.0, 60.1, 59.9)], "B"),
    ([(50.0, 60.0), (52.0, 61.0)], "not clear"),  # intervals overlap
    ([(50.0, 50.1), (60.0, 60.1), (59.9, 60.3)], "not clear"),
    ([(50.0, 50.0), (60.0, 60.1)], "not clear"),  # no spread over seeds
    ([(50.0,), (60.0, 60.1)], "not clear"),
    ([(50.0,), (50.0,)], "not clear"),
]


@pytest.mark.parametrize(("values", "better"), VERDICTS)
def test_better_is_said_only_if_intervals_are_apart(values, better):
    spreads = {letter: Spread(each) for letter, each in zip("ABC", values, strict=False)}
    assert Compared(ACCURACY, spreads).better() == better
    assert Compared(ACCURACY._replace(higher_is_better=False), spreads).better() == ""


def test_losses_speeds_and_seconds_have_no_verdict(make):
    found = cells(make("a", loss=1.0), make("b", loss=9.0, optimiser__lr=0.5))
    assert [name[:3] for name, row in found.items() if row[-1]] == ["kNN"]
    assert {"loss, last", "local-to-local loss, last", "omega, what the regressor gains, last"} <= found.keys()


def test_means_have_their_spread_and_their_n(make):
    runs = [make(f"a{i}", knn, seed=i) for i, knn in enumerate((56.3, 57.0, 58.0))]
    (both,) = (row for name, row in cells(*runs, make("b", 56.3, optimiser__lr=0.5)).items() if "kNN" in name)
    assert both[:2] == ["57.10 ± 0.85 (n=3)", "56.30 (n=1)"]
    (alone,) = (row for name, row in cells(*runs).items() if "kNN" in name)
    assert alone == ["57.10 ± 0.85 (n=3)"]
    assert cells(runs[0]) == {}


def test_copies_of_a_seed_count_once_and_the_finished_one_counts(make):
    runs = [make("begun", finished=False), make("done"), make("other", seed=1)]
    (group,) = groups_of(*runs)
    assert [run.name for run in group.runs] == ["done", "other"]
    assert [run.name for run in group.repeated] == ["begun"]
    assert "begun" in group_notes([group])[0]


SETTINGS = [
    {"size": 64},
    {"mean": [0.4, 0.5, 0.5]},
    {"test_images": 99},
    {"seed_of_probe": 1},
    {"data_fingerprint": {"train": "2"}},
]


@pytest.mark.parametrize("setting", SETTINGS, ids=str)
def test_an_evaluation_with_other_settings_is_another_figure(setting, make):
    usual = {"size": 32, "mean": [0.5] * 3, "test_images": 100, "seed_of_probe": 0, "data": "own"}
    usual |= {"data_fingerprint": {"train": "1"}}

    def records(top1):
        yield "linear-own-0", usual | {"results": {"top-1": top1}}
        yield "linear-own-1", usual | {"results": {"top-1": top1}}  # the same again
        yield "linear-own-2", usual | setting | {"results": {"top-1": top1 + 1}}

    runs = [make("a", records=records(50.0)), make("b", records=records(60.0), optimiser__lr=0.5)]
    found = [each for each in compared(groups_of(*runs)) if "on own" in each.figure.what]
    assert len({each.figure.how for each in found}) == 2
    assert all(len(spread.values) == 1 for each in found for spread in each.spreads.values())


PAIR = [
    (f"{name}{seed}", {"seed": seed, **how})
    for name, how in (("m", {}), ("l", {"optimiser__lr": 0.5}))
    for seed in (0, 1)
]
SWEEP = {"data": "own", "rates": [0.1, 0.3, 1.0], "test_images": 500}


def test_seeds_that_chose_different_rates_are_one_figure_and_a_given_rate_is_a_setting(make):
    runs = []
    for (name, how), lr, top1 in zip(PAIR, (1.0, 0.3, 0.3, 0.1), (34.6, 34.8, 34.6, 36.4), strict=True):
        chosen = SWEEP | {"lr": lr, "results": {"top-1": top1}}
        given = {"data": "own", "lr": lr, "rates": [lr], "results": [{"top1": top1}]}
        runs.append(make(name, records=[("linear-own-0", chosen), ("finetune-own-0", given)], **how))
    found = cells(*runs)
    (chosen,) = (row for name, row in found.items() if name.startswith("linear"))
    assert chosen[:2] == ["34.70 ± 0.14 (n=2)", "35.50 ± 1.27 (n=2)"]
    given = [row for name, row in found.items() if name.startswith("finetune")]
    assert all("(n=1 of 2)" in cell for row in given for cell in row[:2] if cell)


def test_detectors_with_the_seeds_of_their_runs_are_one_figure(make):
    runs = []
    for name, how in PAIR:
        rows = [{"of": "box", "measure": "COCO", "AP": 40.0 + how["seed"]}]
        record = {"data": "own", "seed": how["seed"], "results": rows}
        runs.append(
            make(name, records=[("detect-own", record | {"detection_recipe": {"lr": 1, "seed": how["seed"]}})], **how)
        )
    (row,) = (row for name, row in cells(*runs).items() if name.startswith("detect"))
    assert row[:2] == ["40.50 ± 0.71 (n=2)"] * 2


def test_runs_that_lack_a_figure_are_counted(make):
    record = [("linear-own-0", {"data": "own", "results": {"top-1": 50.0}})]
    runs = [make(name, records=record if name != "m1" else (), **how) for name, how in PAIR]
    (row,) = (row for name, row in cells(*runs).items() if name.startswith("linear"))
    assert row[:2] == ["50.00 (n=1 of 2)", "50.00 ± 0.00 (n=2)"]


def test_last_values_of_a_run_that_goes_on_are_not_compared_and_it_is_named(make):
    groups = groups_of(make("a"), make("b", 90.0, known_to=3, finished=False, optimiser__lr=0.5))
    assert [each.figure.what for each in compared(groups)] == ["images per second, median, unknown hardware"]
    assert "b (3 of" in group_notes(groups)[0]


def test_losses_and_speeds_of_other_data_or_batches_are_other_figures(make):
    groups = groups_of(make("a"), make("b", batch_size=16), make("c", data="elsewhere"))
    assert [each.figure.what[:3] for each in compared(groups)] == ["kNN"]


def test_a_label_has_only_the_settings_that_tell_figures_apart():
    def measured(**settings):
        return Figure("linear, on own", 50.0, how=tuple(settings.items()))

    one, other, plain = measured(pixels="32", mean="0.5"), measured(pixels="64", mean="0.5"), measured(mean="0.5")
    assert list(labels([one, one]).values()) == ["linear, on own"]
    named = [f"linear, on own{end}" for end in (", pixels 32", ", pixels 64", "")]
    assert list(labels([one, other, plain]).values()) == named
    unfinished = measured(unfinished="epoch 2")
    assert list(labels([unfinished]).values()) == ["linear, on own, unfinished epoch 2"]
