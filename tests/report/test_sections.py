"""The headline, evaluations and the paper's rows: each number with its protocol and what to compare it with."""

import json

import pytest

from logo_ssl.recipes import find_recipe
from logo_ssl.report.collect import RunCollector
from logo_ssl.report.results import Figure, figures
from logo_ssl.report.sections import compared_with_the_paper, evaluations, headline, health, not_shown
from logo_ssl.report.summary import Collected, Missing
from logo_ssl.run import Run

LINE = {"knn_k": 20, "knn_tau": 0.07, "knn_images": 1000}


@pytest.fixture
def make(tmp_path, summarise):
    """A run of four epochs with its kNN at some of them."""

    def make(name="first", knn=((0, 33.9, {}), (4, 35.7, {})), finished=True, records=(), more=None, **changes):
        run = Run(tmp_path / name)
        run.path.mkdir()
        run.recipe_file.write_text(find_recipe("tiny").changed(epochs=4, **changes).to_json())
        lines = [{"step": 10 * epoch, "knn": top1, "epochs_done": epoch, **LINE, **other} for epoch, top1, other in knn]
        run.metrics_file.write_text("".join(json.dumps(line) + "\n" for line in lines))
        if finished:
            run.provenance_file.write_text('{"commit": "abc123"}')
        for record_name, results, record in records:
            run.write_evaluation(record_name, {"data": "scenes", "source": "scenes", "results": results, **record})
        return summarise(run, **(more or {}))

    return make


def numbers(*runs):
    """The headline's figures and what they are compared with."""
    return [tuple(row[-2:]) for row in headline(runs).rows]


def test_the_last_knn_is_compared_with_the_untrained_encoders(make):
    run = make()
    assert numbers(run) == [("35.70 % on 1,000 images (standard error 1.52)", "untrained encoder: 33.90 %")]
    assert "k=20, tau=0.07, on scenes" in headline([run]).rows[0][0]
    (entry, state) = headline([make("begun", knn=[(0, 33.9, {})], finished=False)]).rows
    assert "after epoch 0 of 4" in entry[0]
    assert state[1] == "not finished"


@pytest.mark.parametrize("change", [{"knn_images": 18}, {"knn_of": "validation images"}, {"knn_k": 200}])
def test_a_knn_measured_otherwise_is_no_baseline(make, change):
    assert numbers(make(knn=[(0, 33.9, {}), (4, 35.7, change)]))[0][1] == ""


def test_the_standard_error_is_that_of_a_share():
    def written(value, n):
        return Figure("kNN", value, n_images=n).in_full()

    assert written(45.0, 10_000) == "45.00 % on 10,000 images (standard error 0.50)"
    assert written(100.0, 1) == "100.00 % on 1 image (standard error 50.00)"
    assert written(0.0, 18) == written(100.0, 18).replace("100.00 %", "0.00 %")
    assert written(45.0, None) == "45.00 %"


RAW = {"features": "raw pixels", "k": 20, "tau": 0.07, "top1": 20.5}
TRAINED = {"k": 20, "tau": 0.07, "top1": 35.7}
SHARE = {"mean": 0.776, "low": 0.1, "high": 0.9}
GUESSES = "chance: 37.50 %; always the commonest class: 50.00 %"
COMPARED_WITH = [
    ("knn-scenes-1", [RAW, TRAINED], {"chance": 9.99}, "35.70 %", "raw pixels: 20.50 %; chance: 9.99 %"),
    ("linear-sgd-x-1", {"top-1": 52.5}, {"lr": 0.3, "rates": [0.1, 0.3]}, "52.50 %", "lr 0.3, chosen of 2"),
    ("linear-lbfgs-x-1", {"top-1": 53.5}, {"l2_weight": 0.3, "validation": {"1": 1, "3": 2}}, "53.50 %",
     "L2 weight 0.3, chosen of 2"),
    ("finetune-x-1", [{"top1": 54.5}], {"lr": 0.03, "test_images": 600}, "54.50 % on 600 images (standard error 2.03)",
     ""),
    ("semi-x-1", [{"fraction": 0.1, "top1": 54.5, "chance": 10.0}], {}, "54.50 %", "chance: 10.00 %"),
    ("linear-sgd-y-1", {"top-1": 48.0}, {"chance": 37.5, "commonest": 50.0}, "48.00 %", GUESSES),
    ("detect-x-1", [{"of": "box", "measure": "COCO", "overall": {"AP": 12.25}}], {}, "12.25 %", ""),
    ("affinity-x-1", [{"task": "same image", "metric": "AUC", "chance": 0.5, "learned": SHARE}], {}, "0.776",
     "95 % interval 0.100 to 0.900; chance: 0.500"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "results", "record", "figure", "compared"), COMPARED_WITH, ids=[case[0] for case in COMPARED_WITH]
)
def test_each_evaluation_has_its_baselines_and_what_was_chosen(make, name, results, record, figure, compared):
    assert numbers(make(knn=[], records=[(name, results, record)]))[0] == (figure, compared)


def test_a_figure_of_transfer_is_in_the_headline(make):
    run = make(knn=[])
    record = {"data": "pets", "metric": "pets mean per class", "value": 70.5, "chance": 2.7}
    run.run.write_evaluation("transfer-pets", record)
    assert numbers(run)[0] == ("70.50 %", "chance: 2.70 %")


def test_a_run_without_labels_says_that_nothing_was_measured(make):
    assert numbers(make(knn=[]))[0][0] == "not measured"


@pytest.mark.parametrize("older", [{"unfinished": "epoch 2 of 4"}, {"epochs": 2}])
def test_figures_of_older_weights_are_marked_and_not_in_the_headline(older, make):
    records = [
        ("knn-scenes-1", [{"k": 20, "tau": 0.07, "top1": 41.5}], older),
        ("linear-scenes-1", [{"top1": 52.5}], {"epochs": 4}),
    ]
    run = make(records=records)
    shown = [number for number, _ in numbers(run)]
    assert "52.50 %" in shown
    assert "41.50 %" not in shown
    assert "knn-scenes-1" in headline([run]).rows[-1][0]
    assert [figure.value for figure in figures(run) if figure.unit == "%"][1:] == [52.5]
    marked = {each.title: each.older for each in evaluations([run])}
    epoch = older.get("unfinished", f"epoch {older.get('epochs')}")
    assert marked == {"first: knn-scenes-1": epoch, "first: linear-scenes-1": None}


def test_an_evaluation_of_a_run_that_goes_on_names_its_checkpoint(make):
    record = {"unfinished": "epoch 2 of 4", "epochs": 4}
    rows = headline([make(finished=False, records=[("linear-scenes-1", [{"top1": 52.5}], record)])]).rows
    assert [row[0] for row in rows if "52.50 %" in row] == ["linear-scenes-1, on scenes, unfinished epoch 2 of 4"]


def test_runs_are_named_if_there_are_several(make):
    runs = [make("one"), make("other", seed=1)]
    assert [row[0] for row in headline(runs).rows] == ["one", "other"]
    assert len(headline(runs[:1]).head) == 3


def test_health_tells_damage_collapse_and_silence_apart(make):
    assert [bad for _, bad in health([make(more={"signs": ["it collapses."]})])] == [True]
    ((silent, bad),) = health([make("b", knn=[], finished=False)])
    assert "nothing was measured yet" in silent
    assert not bad


def test_what_is_missing_of_several_runs_is_listed_once(make):
    gone = Collected(missing=[Missing("maps", "no images.")])
    runs = [make(name, more={"collected": gone}) for name in "ab"]
    assert not_shown(runs) == ["a, b: maps: no images."]


@pytest.mark.parametrize(
    ("recipe", "rows", "tuned"),
    [
        ("cifar10-moco-logo", 2, False),
        ("cifar10-tuned-moco-logo", 2, True),
        ("cifar10-best", 0, False),
        ("imagenette-moco-logo", 0, False),
    ],
)
def test_runs_are_compared_with_the_papers_rows_and_say_whose_settings_they_have(tmp_path, recipe, rows, tuned):
    run = Run(tmp_path / "mine")
    run.path.mkdir()
    run.recipe_file.write_text(find_recipe(recipe).changed(epochs=3).to_json())
    run.write_evaluation("knn", {"data": "cifar10", "results": [{"k": 20, "tau": 0.07, "top1": 81.25}]})
    table = compared_with_the_paper(RunCollector(crops=False, images=0).collect([run]))
    assert (table is None) == (rows == 0)
    for row in table.rows if table else ():
        assert row[2:4] == ("84.44", "81.25 (kNN, k=20, tau=0.07, on cifar10)")
        assert "epochs (200 -> 3)" in row[-1]
        assert ("batch_size (512 -> 256)" in row[-1]) is ("our choice" in row[1]) is tuned
