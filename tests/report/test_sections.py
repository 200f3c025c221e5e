"""Cards, remarks and evaluations: each number with its protocol and what to compare it with."""

import json

import pytest

from logo_ssl.files import write
from logo_ssl.recipes import find_recipe
from logo_ssl.report.collect import RunCollector
from logo_ssl.report.page import cards, evaluations, not_shown, remarks
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
            write(
                run.evaluation_file(record_name),
                json.dumps({"data": "scenes", "source": "scenes", "results": results, **record}),
            )
        return summarise(run, **(more or {}))

    return make


def numbers(*runs):
    """Each card's bars: what, value, standard error."""
    return [[(bar.label, bar.value, bar.error and round(bar.error, 2)) for bar in card.bars] for card in cards(runs)]


def test_the_last_knn_is_compared_with_the_untrained_encoders(make):
    run = make()
    assert numbers(run) == [[("this encoder", "35.70", 1.52), ("untrained encoder", "33.90", None)]]
    (card,) = cards([run])
    assert "k=20, tau=0.07, on scenes" in card.details
    assert "1,000 images" in card.notes[0]
    (begun,) = cards([make("begun", knn=[(0, 33.9, {})], finished=False)])
    assert "after epoch 0 of 4" in begun.details


@pytest.mark.parametrize("change", [{"knn_images": 18}, {"knn_of": "validation images"}, {"knn_k": 200}])
def test_a_knn_measured_otherwise_is_not_a_baseline(make, change):
    assert len(numbers(make(knn=[(0, 33.9, {}), (4, 35.7, change)]))[0]) == 1


RAW = {"raw pixels": {"results": [{"k": 20, "tau": 0.07, "top1": 20.5}]}}
TRAINED = {"k": 20, "tau": 0.07, "top1": 35.7}
SHARE = {"mean": 0.776, "low": 0.1, "high": 0.9}
COSINE = {"mean": 0.7, "low": 0.2, "high": 0.8}
ROW = {"task": "same image", "metric": "AUC", "chance": 0.5, "learned": SHARE, "cosine": COSINE}
COMPARED_WITH = [
    ("knn-scenes-1", [TRAINED], {"chance": 9.99, "baselines": RAW}, "35.70",
     {"raw pixels": "20.50", "chance": "9.99"}, ""),
    ("linear-sgd-x-1", {"top-1": 52.5}, {"lr": 0.3, "rates": [0.1, 0.3]}, "52.50", {}, "lr 0.3: the best of 2"),
    ("linear-lbfgs-x-1", {"top-1": 53.5}, {"l2_weight": 0.3, "validation": {"1": 1, "3": 2}}, "53.50", {},
     "L2 weight 0.3: the best of 2"),
    ("finetune-x-1", [{"top1": 54.5}], {"lr": 0.03, "test_images": 600}, "54.50", {}, "600 images"),
    ("semi-x-1", [{"fraction": 0.1, "top1": 54.5, "chance": 10.0}], {}, "54.50", {"chance": "10.00"}, ""),
    ("linear-sgd-y-1", {"top-1": 48.0}, {"chance": 37.5, "commonest": 50.0}, "48.00",
     {"chance": "37.50", "always the commonest class": "50.00"}, ""),
    ("transfer-pets", {}, {"metric": "mean per class", "value": 70.5, "chance": 2.7}, "70.50", {"chance": "2.70"}, ""),
    ("detect-x-1", [{"of": "box", "measure": "COCO", "overall": {"AP": 12.25, "AP50": 3.0}}], {}, "12.25", {}, ""),
    ("affinity-x-1", [ROW], {}, "0.776", {"cosine similarity": "0.700", "chance": "0.500"},
     "Learned 0.776, 95 % interval 0.100 to 0.900"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "results", "record", "value", "baselines", "note"), COMPARED_WITH, ids=[case[0] for case in COMPARED_WITH]
)
def test_each_evaluation_has_its_baselines_and_what_was_chosen(make, name, results, record, value, baselines, note):
    run = make(knn=[], records=[(name, results or [], record)])
    if not results:
        file = run.run.evaluation_file(name)
        file.write_text(json.dumps({k: v for k, v in json.loads(file.read_text()).items() if k != "results"}))
    (card,) = cards([run])
    assert [bar.value for bar in card.bars if bar.run is not None] == [value]
    assert {bar.label: bar.value for bar in card.bars if bar.run is None} == baselines
    assert note in " ".join(card.notes)


@pytest.mark.parametrize("older", [{"unfinished": "epoch 2 of 4"}, {"epochs": 2}])
def test_figures_of_older_weights_are_marked_and_on_no_card(older, make):
    records = [
        ("knn-scenes-1", [{"k": 20, "tau": 0.07, "top1": 41.5}], older),
        ("linear-scenes-1", [{"top1": 52.5}], {"epochs": 4}),
    ]
    run = make(records=records)
    assert [bars[0][1] for bars in numbers(run)] == ["35.70", "52.50"]
    assert any("knn-scenes-1" in sentence and bad for sentence, bad in remarks([run]))
    epoch = older.get("unfinished", f"epoch {older.get('epochs')}")
    marked = {each.title: each.older for each in evaluations([run])}
    assert marked == {"knn-scenes-1": epoch, "linear-scenes-1": None}


def test_an_evaluation_of_a_run_that_goes_on_names_its_checkpoint(make):
    record = {"unfinished": "epoch 2 of 4", "epochs": 4}
    (card,) = cards([make(knn=[], finished=False, records=[("linear-scenes-1", [{"top1": 52.5}], record)])])
    assert "unfinished, epoch 2 of 4" in card.details


def test_runs_share_a_card_and_differing_baselines_name_theirs(make):
    runs = [make("one"), make("other", knn=[(0, 30.0, {}), (4, 35.0, {})], seed=1)]
    (bars,) = numbers(*runs)
    assert [bar[:2] for bar in bars] == [
        ("one", "35.70"),
        ("other", "35.00"),
        ("untrained encoder (one)", "33.90"),
        ("untrained encoder (other)", "30.00"),
    ]


def test_evaluations_of_other_images_or_settings_are_not_on_one_card(make):
    """The name of the file has a hash of both."""
    records = [(f"linear-scenes-{i}", [{"top1": 50.0 + i}], {}) for i in (1, 2)]
    assert len(cards([make(knn=[], records=records)])) == 2
    one, other = make("a", knn=[], records=records[:1]), make("b", knn=[], records=records[1:], optimiser__lr=0.5)
    assert len(cards([one, other])) == 2


def test_collapse_is_an_alarm(make):
    assert remarks([make(more={"signs": ["it collapses."]})]) == [("it collapses.", True)]


def test_what_is_missing_of_several_runs_is_listed_once(make):
    gone = Collected(missing=[Missing("maps", "no images.")])
    runs = [make(name, more={"collected": gone}) for name in "ab"]
    assert not_shown(runs) == ["a, b: maps: no images."]


@pytest.mark.parametrize(
    ("recipe", "tables"),
    [
        ("cifar10-moco-logo", True),
        ("cifar10-tuned-moco-logo", True),
        ("cifar10-best", False),
        ("imagenette-moco", False),
    ],
)
def test_runs_are_compared_with_the_papers_rows_and_name_other_settings(tmp_path, recipe, tables):
    run = Run(tmp_path / "mine")
    run.path.mkdir()
    run.recipe_file.write_text(find_recipe(recipe).changed(epochs=3).to_json())
    write(
        run.evaluation_file("knn"), json.dumps({"data": "cifar10", "results": [{"k": 20, "tau": 0.07, "top1": 81.25}]})
    )
    runs = RunCollector(crops=False, images=0).collect([run])
    (card,) = cards(runs)
    papers = [bar for bar in card.bars if "paper" in bar.label]
    assert {bar.value for bar in papers} == ({"84.44"} if tables else set())
    assert any("epochs (200 -> 3)" in sentence for sentence, _ in remarks(runs)) is tables
