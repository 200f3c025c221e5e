"""Groups of seeds, their spread, and a run called better only if that can be said."""

import json

import pytest

from logo_ssl.files import write
from logo_ssl.recipes import find_recipe
from logo_ssl.report.collect import RunCollector
from logo_ssl.report.page import comparison
from logo_ssl.report.results import grouped
from logo_ssl.run import Run

COLLECTOR = RunCollector(crops=False, images=0)


@pytest.fixture
def make(tmp_path):
    """Runs with a kNN accuracy, finished unless stated otherwise."""

    def make(name, knn=50.0, finished=True, records=(), images=None, **changes) -> Run:
        run, recipe = Run(tmp_path / name), find_recipe("tiny").changed(**changes)
        run.path.mkdir()
        run.recipe_file.write_text(recipe.to_json())
        line = {"step": 2, "knn": knn, "knn_k": 20, "knn_tau": 0.07, "epochs_done": recipe.epochs}
        run.metrics_file.write_text(json.dumps(line) + "\n")
        if finished:
            run.provenance_file.write_text('{"commit": "abc123"}')
        for record_name, record in records:
            write(run.evaluation_file(record_name), json.dumps(record))
        if images:
            told = {"train_images": 3, "test_images": 0, "fingerprint": {"train": images}}
            run.images_file.write_text(json.dumps(told))
        return run

    return make


def groups_of(*runs):
    return grouped(COLLECTOR.collect(runs))


def cells(*runs):
    """What each figure has in each group, by its label."""
    table = comparison(COLLECTOR.collect(runs))
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


def test_means_have_their_spread_and_their_n(make):
    runs = [make(f"a{i}", knn, seed=i) for i, knn in enumerate((56.3, 57.0, 58.0))]
    (both,) = (row for name, row in cells(*runs, make("b", 56.3, optimiser__lr=0.5)).items() if "kNN" in name)
    assert both == ["57.10 ± 0.85 (n=3)", "56.30 (n=1)"]
    (alone,) = (row for name, row in cells(*runs).items() if "kNN" in name)
    assert alone == ["57.10 ± 0.85 (n=3)"]
    assert cells(runs[0]) == {}


def test_copies_of_a_seed_count_once_and_the_finished_one_counts(make):
    runs = [make("begun", finished=False), make("done"), make("other", seed=1)]
    assert [str(group) for group in groups_of(*runs)] == ["A: done, other"]


PAIR = [
    (f"{name}{seed}", {"seed": seed, **how})
    for name, how in (("m", {}), ("l", {"optimiser__lr": 0.5}))
    for seed in (0, 1)
]


def test_runs_that_lack_a_figure_are_counted(make):
    record = [("linear-own-0", {"data": "own", "results": {"top-1": 50.0}})]
    runs = [make(name, records=record if name != "m1" else (), **how) for name, how in PAIR]
    (row,) = (row for name, row in cells(*runs).items() if name.startswith("linear"))
    assert row == ["50.00 (n=1 of 2)", "50.00 ± 0.00 (n=2)"]
