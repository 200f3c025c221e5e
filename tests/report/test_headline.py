"""Are the numbers at the top of the page few, each once, and beside what they are to be compared with?"""

import json
from dataclasses import replace

import pytest

from logo_ssl.recipes import find_recipe
from logo_ssl.report.headline import headline
from logo_ssl.report.numbers import percent_on
from logo_ssl.report.reading import Told
from logo_ssl.report.results import figures
from logo_ssl.report.sections import evaluations
from logo_ssl.run import Run

LINE = {"knn_k": 20, "knn_tau": 0.07, "knn_images": 1000}


@pytest.fixture
def make_told(tmp_path):
    """A run of four epochs with its kNN at some of them."""

    def make(name="first", knn=((0, 33.9), (4, 35.7)), finished=True, **changes) -> Told:
        run = Run(tmp_path / name)
        run.path.mkdir()
        run.recipe_file.write_text(find_recipe("tiny").changed(epochs=4, **changes).to_json())
        lines = [{"step": 10 * epoch, "knn": top1, "epochs_done": epoch, **LINE} for epoch, top1 in knn]
        run.metrics_file.write_text("".join(json.dumps(line) + "\n" for line in lines))
        if finished:
            run.provenance_file.write_text('{"commit": "abc123"}')
        return Told(run, name)

    return make


def evaluate(told: Told, name: str, results, **record) -> None:
    told.run.write_evaluation(name, {"data": "scenes", "source": "scenes", "results": results, **record})


def ranked(told: Told, references: int, mean: float, **record) -> None:
    share = {"mean": mean, "low": 0.1, "high": 0.9}
    row = {"task": "same image", "metric": "AUC", "references": references, "chance": 0.5}
    evaluate(told, f"affinity-scenes-{references}", [row | {"learned": share, "cosine": share}], **record)


def test_knn_stands_beside_the_untrained_encoders(make_told):
    text = headline([make_told()])
    assert "kNN while training, after epoch 4 of 4, k=20, tau=0.07, on scenes" in text
    assert (
        "<td>35.70 % on 1,000 images (standard error 1.52)</td><td>the untrained encoder (epoch 0): 33.90 %</td>"
        in text
    )


def test_an_accuracy_has_its_number_of_images_and_its_standard_error_beside_it(make_told, monkeypatch):
    monkeypatch.setitem(LINE, "knn_images", 18)
    told = make_told(knn=[(0, 50.0), (4, 100 * 14 / 18)])
    evaluate(told, "knn-scenes-1", [{"k": 20, "tau": 0.07, "top1": 45.0}], test_images=180)
    text = headline([told])
    assert "77.78 % on 18 images (standard error 9.80)</td><td>the untrained" in text
    assert "45.00 % on 180 images (standard error 3.71)</td><td></td>" in text  # 18 are no baseline of 180
    assert percent_on(45.0, 10_000) == "45.00 % on 10,000 images (standard error 0.50)"
    assert percent_on(100.0, 1) == "100.00 % on 1 image (standard error 50.00)"
    assert percent_on(0.0, 18) == percent_on(100.0, 18).replace("100.00 %", "0.00 %")
    assert percent_on(45.0, None) == "45.00 %"
    assert percent_on(float("nan"), 18) == "nan % on 18 images"


def test_a_chosen_rate_or_weight_stands_beside_its_figure(make_told):
    told = make_told()
    evaluate(told, "linear-sgd-scenes-1", {"top-1": 52.5}, test_images=500, chance=10.0, lr=0.3, rates=[0.1, 0.3])
    evaluate(told, "linear-lbfgs-scenes-1", {"top-1": 53.5}, l2_weight=0.316228, validation={"0.1": 1.0, "0.3": 2.0})
    evaluate(told, "finetune-scenes-1", [{"top1": 54.5}], lr=0.03)
    text = headline([told])
    assert "52.50 % on 500 images (standard error 2.23)</td><td>chance: 10.00 %; lr 0.3, chosen of 2</td>" in text
    assert "53.50 %</td><td>L2 weight 0.3162, chosen of 2</td>" in text
    assert "54.50 %</td><td></td>" in text


def test_the_commonest_class_stands_beside_a_figure_where_it_beats_chance(make_told):
    told = make_told()
    evaluate(told, "linear-sgd-byyear-1", {"top-1": 48.05}, chance=37.5, commonest=50.0)
    rows = [
        {"fraction": 0.01, "top1": 48.25, "chance": 36.5, "commonest": 50.0},
        {"fraction": 0.1, "top1": 54.5, "chance": 10.0, "commonest": 10.0},
    ]
    evaluate(told, "semi-byyear-1", rows)
    text = headline([told])
    assert "48.05 %</td><td>chance: 37.50 %; always the commonest class: 50.00 %</td>" in text
    assert "48.25 %</td><td>chance: 36.50 %; always the commonest class: 50.00 %</td>" in text
    assert "54.50 %</td><td>chance: 10.00 %</td>" in text


def test_detection_tells_on_how_many_pictures(make_told):
    told = make_told()
    evaluate(told, "detect-mine-1", [{"of": "box", "measure": "COCO", "AP": 12.25}], test_pictures=1200)
    assert "12.25 % on 1,200 pictures" in headline([told])


def test_the_knn_of_epoch_0_is_called_the_untrained_encoders(make_told):
    text = headline([make_told(knn=[(0, 33.9)], finished=False)])
    assert "kNN while training, the untrained encoder (epoch 0), k=20" in text
    assert "not finished" in text


def test_a_run_without_labels_says_that_nothing_was_measured(make_told):
    text = headline([make_told(knn=[])])
    assert "accuracy</th><td>not measured</td><td>logo-ssl eval knn measures it, on images with labels</td>" in text
    assert "not measured" not in headline([make_told("other")])


def test_what_was_evaluated_in_the_same_way_stands_once(make_told):
    told = make_told()
    rows = [{"features": "raw pixels", "k": 20, "tau": 0.07, "top1": 20.5}, {"k": 20, "tau": 0.07, "top1": 35.7}]
    evaluate(told, "knn-scenes-1", rows, test_images=1000, chance=9.99)
    text = headline([told])
    assert text.count("35.70 %") == 1
    assert "raw pixels: 20.50 %; the untrained encoder (epoch 0): 33.90 %; chance: 9.99 %" in text


@pytest.mark.parametrize("other", [{"test_images": 500}, {"source": "elsewhere"}])
def test_what_was_evaluated_otherwise_does_not_replace_the_last_knn(other, make_told):
    told = make_told()
    evaluate(told, "knn-scenes-1", [{"k": 20, "tau": 0.07, "top1": 41.5}], **{"test_images": 1000} | other)
    text = headline([told])
    assert "35.70 %" in text
    assert "41.50 %" in text


def test_a_knn_among_some_of_the_images_stands_beside_one_among_all(make_told, monkeypatch):
    monkeypatch.setitem(LINE, "knn_bank_of", 5000)
    told = make_told()
    evaluate(told, "knn-scenes-1", [{"k": 20, "tau": 0.07, "top1": 41.5}], test_images=1000)
    text = headline([told])
    assert "35.70 %" in text
    assert "41.50 % on 1,000 images (standard error 1.56)</td><td></td>" in text  # epoch 0 is no baseline of it


def test_a_knn_of_validation_images_is_not_taken_for_one_of_test_images(make_told, monkeypatch):
    monkeypatch.setitem(LINE, "knn_of", "validation images")
    told = make_told()
    evaluate(told, "knn-scenes-1", [{"k": 20, "tau": 0.07, "top1": 41.5}], test_images=1000)
    text = headline([told])
    assert "kNN while training, after epoch 4 of 4, k=20, tau=0.07, on scenes, validation images" in text
    assert "41.50 % on 1,000 images (standard error 1.56)</td><td></td>" in text


OLD = {"unfinished": "epoch 2 of 4"}, {"epochs": 2}, {"epochs": 4, "fingerprint": "0ld"}


@pytest.mark.parametrize("older", OLD)
def test_figures_of_older_weights_are_marked_and_no_headline(older, make_told):
    told = make_told()
    evaluate(told, "knn-scenes-1", [{"k": 20, "tau": 0.07, "top1": 41.5}], test_images=1000, **older)
    evaluate(told, "detect-mine-1", [{"of": "box", "measure": "COCO", "AP": 12.25}], official=True, **older)
    evaluate(told, "linear-scenes-1", [{"top1": 52.5}], epochs=4, fingerprint="n0w")
    told = replace(told, fingerprint="n0w")
    text = headline([told])
    assert "52.50 %" in text
    assert "41.50 %" not in text
    assert "12.25 %" not in text
    assert "2 evaluations under Evaluations: detect-mine-1, knn-scenes-1" in text
    assert [figure.what for figure in figures(told) if figure.unit == "%"][1:] == ["linear-scenes-1, on scenes"]
    whole = evaluations([told])
    assert "41.50" in whole
    epoch = older.get("unfinished", f"epoch {older.get('epochs')}")
    assert whole.count(f"This is of the weights after {epoch}, not of the present ones.") == 2


def test_the_weights_of_a_run_that_goes_on_are_known_by_their_fingerprint(make_told):
    told = make_told(finished=False)
    evaluate(told, "linear-scenes-1", [{"top1": 52.5}], unfinished="epoch 2 of 4", epochs=4, fingerprint="0ld")
    assert "52.50 %" in headline([told])
    assert "52.50 %" not in headline([replace(told, fingerprint="n0w")])


def test_of_many_rankings_the_largest_stands_there_and_each_number_once(make_told):
    told = make_told()
    for references, mean in ((5, 0.9), (100, 0.776), (20, 0.8)):
        ranked(told, references, mean)
    text = headline([told])
    assert text.count("AUC") == 1
    assert "100 references" in text
    assert text.count("0.776") == 2  # learned and cosine
    assert "chance: 0.500" in text
    ranked(told, 200, 0.6, unfinished="epoch 2")
    ranked(told, 300, 0.6, data="photos", source="photos")
    assert "0.776" in headline([Told(told.run, "first")])


def test_runs_are_named_where_there_are_several(make_told):
    runs = [make_told("one"), make_told("other", seed=1)]
    assert ">one<" not in headline(runs[:1])
    assert '<th scope="row">one</th>' in headline(runs)
