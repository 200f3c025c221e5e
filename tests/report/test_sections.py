"""The headline, evaluations and the paper's tables: each number once, with its protocol and what to compare it with."""

import json

import pytest

from logo_ssl.recipes import find_recipe
from logo_ssl.report.collect import RunCollector
from logo_ssl.report.results import figures, percent_on
from logo_ssl.report.sections import evaluations, headline, health, not_shown, paper_tables
from logo_ssl.report.summary import Missing
from logo_ssl.run import Run

LINE = {"knn_k": 20, "knn_tau": 0.07, "knn_images": 1000}


@pytest.fixture
def make(tmp_path, summarise):
    """A run of four epochs with its kNN at some of them."""

    def make(name="first", knn=((0, 33.9), (4, 35.7)), finished=True, records=(), line=LINE, more=None, **changes):
        run = Run(tmp_path / name)
        run.path.mkdir()
        run.recipe_file.write_text(find_recipe("tiny").changed(epochs=4, **changes).to_json())
        lines = [{"step": 10 * epoch, "knn": top1, "epochs_done": epoch, **line} for epoch, top1 in knn]
        run.metrics_file.write_text("".join(json.dumps(line) + "\n" for line in lines))
        if finished:
            run.provenance_file.write_text('{"commit": "abc123"}')
        for record_name, results, record in records:
            content = {"data": "scenes", "source": "scenes", "results": results, **record}
            run.write_evaluation(record_name, content)
        return summarise(run, **(more or {}))

    return make


def numbers(*runs):
    """The headline's figures and what they are compared with."""
    return [tuple(row[-2:]) for row in headline(runs).rows]


def test_the_last_knn_is_compared_with_the_untrained_encoders(make):
    run = make()
    assert numbers(run) == [("35.70 % on 1,000 images (standard error 1.52)", "untrained encoder: 33.90 %")]
    assert "after epoch 4 of 4, k=20, tau=0.07, on scenes" in headline([run]).rows[0][0]
    (entry, state) = headline([make("begun", knn=[(0, 33.9)], finished=False)]).rows
    assert "untrained" in entry[0]
    assert state[1] == "not finished"


@pytest.mark.parametrize("change", [{"knn_images": 18}, {"knn_of": "validation images"}, {"knn_k": 200}])
def test_a_knn_measured_otherwise_is_no_baseline(make, change):
    run = make()
    text = run.run.metrics_file.read_text().splitlines()
    text[1] = json.dumps(json.loads(text[1]) | change)
    run.run.metrics_file.write_text("\n".join(text) + "\n")
    assert numbers(make_again(run))[0][1] == ""


def make_again(run):
    return type(run)(run.run, run.name, run.run.logged(), run.settings)


def test_the_standard_error_is_that_of_a_share():
    assert percent_on(45.0, 10_000) == "45.00 % on 10,000 images (standard error 0.50)"
    assert percent_on(100.0, 1) == "100.00 % on 1 image (standard error 50.00)"
    assert percent_on(0.0, 18) == percent_on(100.0, 18).replace("100.00 %", "0.00 %")
    assert percent_on(45.0, None) == "45.00 %"
    assert percent_on(float("nan"), 18) == "nan % on 18 images"


RAW = {"features": "raw pixels", "k": 20, "tau": 0.07, "top1": 20.5}
TRAINED = {"k": 20, "tau": 0.07, "top1": 35.7}
COMPARED_WITH = [
    ("knn-scenes-1", [RAW, TRAINED], {"chance": 9.99}, ("35.70 %", "raw pixels: 20.50 %; chance: 9.99 %")),
    ("linear-sgd-x-1", {"top-1": 52.5}, {"lr": 0.3, "rates": [0.1, 0.3]}, ("52.50 %", "lr 0.3, chosen of 2")),
    (
        "linear-lbfgs-x-1",
        {"top-1": 53.5},
        {"l2_weight": 0.3, "validation": {"1": 1, "3": 2}},
        ("53.50 %", "L2 weight 0.3, chosen of 2"),
    ),
    ("finetune-x-1", [{"top1": 54.5}], {"lr": 0.03}, ("54.50 %", "")),
    (
        "semi-x-1",
        [{"fraction": 0.1, "top1": 54.5, "chance": 10.0, "commonest": 10.0}],
        {},
        ("54.50 %", "chance: 10.00 %"),
    ),
    (
        "linear-sgd-y-1",
        {"top-1": 48.0},
        {"chance": 37.5, "commonest": 50.0},
        ("48.00 %", "chance: 37.50 %; always the commonest class: 50.00 %"),
    ),
    (
        "detect-x-1",
        [{"of": "box", "measure": "COCO", "AP": 12.25}],
        {"test_pictures": 1200},
        ("12.25 % on 1,200 images", ""),
    ),
]


@pytest.mark.parametrize(("name", "results", "record", "row"), COMPARED_WITH, ids=[case[0] for case in COMPARED_WITH])
def test_each_evaluation_has_its_baselines_and_what_was_chosen(make, name, results, record, row):
    assert numbers(make(knn=[], records=[(name, results, record)]))[0] == row


def test_a_run_without_labels_says_that_nothing_was_measured(make):
    assert numbers(make(knn=[]))[0][0] == "not measured"


OLDER = [{"unfinished": "epoch 2 of 4"}, {"epochs": 2}, {"epochs": 4, "fingerprint": "0ld"}]


@pytest.mark.parametrize("older", OLDER)
def test_figures_of_older_weights_are_marked_and_not_in_the_headline(older, make):
    records = [
        ("knn-scenes-1", [{"k": 20, "tau": 0.07, "top1": 41.5}], older),
        ("linear-scenes-1", [{"top1": 52.5}], {"epochs": 4, "fingerprint": "n0w"}),
    ]
    run = make(records=records, more={"fingerprint": "n0w"})
    shown = [number for number, _ in numbers(run)]
    assert "52.50 %" in shown
    assert "41.50 %" not in shown
    assert "knn-scenes-1" in headline([run]).rows[-1][0]
    assert [figure.value for figure in figures(run) if figure.unit == "%"][1:] == [52.5]
    marked = {each.title: each.older for each in evaluations([run])}
    epoch = older.get("unfinished", f"epoch {older.get('epochs')}")
    assert marked == {"first: knn-scenes-1": epoch, "first: linear-scenes-1": None}


def test_the_weights_of_a_run_that_goes_on_are_known_by_their_fingerprint(make):
    record = {"unfinished": "epoch 2 of 4", "epochs": 4, "fingerprint": "0ld"}
    records = [("linear-scenes-1", [{"top1": 52.5}], record)]
    assert ("52.50 %", "") in numbers(make(finished=False, records=records))
    assert ("52.50 %", "") not in numbers(make("b", finished=False, records=records, more={"fingerprint": "n0w"}))


def test_of_many_rankings_that_over_most_references_of_the_runs_images_is_shown(make):
    records = []
    for i, (references, mean, source) in enumerate([(5, 0.9, "scenes"), (100, 0.776, "scenes"), (300, 0.6, "photos")]):
        share = {"mean": mean, "low": 0.1, "high": 0.9}
        row = {"task": "same image", "metric": "AUC", "references": references, "chance": 0.5}
        record = {"source": source, "data": source}
        records.append((f"affinity-{i}", [row | {"learned": share, "cosine": share}], record))
    number, chance = numbers(make(knn=[], records=records))[0]
    assert number.count("0.776 [0.100, 0.900]") == 2  # learned and cosine
    assert chance == "chance: 0.500"


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
    gone = Missing("maps", "no images.")
    runs = [make(name, more={"missing": [gone]}) for name in "ab"]
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
    tables = paper_tables(RunCollector(crops=False, images=0).collect([run]))
    assert len(tables) == bool(rows)
    for row in tables[0].rows if rows else ():
        assert row[2] == "84.44"
        assert "epochs (200 -> 3)" in row[-1]
        assert ("batch_size (512 -> 256)" in row[-1]) is ("our choice" in row[1]) is tuned


def test_the_papers_tables_5_and_6_are_next_to_what_was_measured(make):
    boxes = [{"of": "box", "measure": "VOC07", "overall": {"AP50": 80.0, "AP": 50.0, "AP75": 55.0}}]
    records = [
        ("transfer-pets", [], {"value": 70.5, "metric": "pets mean per class", "data": "pets"}),
        ("transfer-mine", [], {"value": 60.5, "metric": "mine top-1", "data": "mine"}),
        ("detect-voc", boxes, {"data": "voc07+12", "official": True}),
        ("detect-own", boxes, {"data": "own"}),
    ]
    transfer, detection = paper_tables([make(records=records)])
    assert transfer.head == ("encoder", "mine top-1", "pets mean per class")
    assert transfer.rows[0] == ("first", "60.50", "70.50")
    assert transfer.rows[-1] == ("paper, Table 5: MoCo-LoGo", "", "76.17")
    assert [row[0] for row in detection.rows[:2]] == ["first", "first"]
    assert detection.rows[-1] == ("paper, Table 6: MoCo-LoGo", "voc07+12", "box", "VOC07", "81.12", "54.91", "61.06")
    assert paper_tables([make("none")]) == []
    own = make("own", records=[records[1], records[3]])
    assert not any(row[0].startswith("paper") for table in paper_tables([own]) for row in table.rows)
