"""Are alarms heard again from a run's log, once for each stretch, and is silence told from health?"""

import json

from logo_ssl.recipes import find_recipe
from logo_ssl.report.alarms import alarms
from logo_ssl.report.sections import health
from logo_ssl.report.telling import Teller
from logo_ssl.train.collapse import knn_summary

RECIPE = find_recipe("tiny")


def latents(epoch, std, rank=20.0):
    return {"step": 10 * epoch, "z_std": std, "z_rank": rank, "epoch": epoch - 1}


def knn(epoch, accuracy):
    return {"step": 10 * epoch, "knn": accuracy, "epochs_done": epoch}


def test_a_healthy_run_rings_no_alarm():
    assert alarms([latents(1, 0.4), knn(1, 40.0), latents(2, 0.9), knn(2, 35.0)], RECIPE) == []


def test_a_stretch_of_collapse_is_one_sentence_with_its_cure():
    lines = [latents(1, 0.9), *(latents(epoch, 0.01, 1.2) for epoch in (2, 3, 4)), latents(5, 0.8)]
    (sentence,) = alarms(lines, RECIPE)
    assert sentence.startswith("Epochs 2 to 4: the latents are collapsing to one point (spread 0.010 of 1")
    assert "optimiser.lr" in sentence or "Most likely" in sentence


def test_a_collapse_within_the_first_epoch_is_heard_by_how_the_latents_began():
    first = latents(1, 0.02) | {"z_std_widest": 0.3}
    (sentence,) = alarms([first, latents(2, 0.02)], RECIPE)
    assert sentence.startswith("Epochs 1 to 2: the latents are collapsing to one point (spread 0.020 of 1")
    assert alarms([first | {"z_std_widest": "wide"}, latents(2, 0.02)], RECIPE) == []  # they lay close to begin with


def test_two_stretches_are_two_sentences():
    lines = [latents(1, 0.9), latents(2, 0.01), latents(3, 0.9), latents(4, 0.01)]
    assert [sentence.split(":")[0] for sentence in alarms(lines, RECIPE)] == ["Epoch 2", "Epoch 4"]


def test_a_fall_of_knn_rings_though_the_latents_are_spread():
    (sentence,) = alarms([knn(5, 60.0), latents(6, 0.9), knn(10, 30.0)], RECIPE)
    assert sentence.startswith("Epoch 10: kNN fell from 60.0 % to 30.0 %, a sign of collapse.")


def test_a_fall_of_knn_in_a_run_that_was_made_longer_is_no_alarm():
    lines, longer = (knn(5, 60.0), knn(6, 30.0)), {"step": 50, "extended_from_epochs": 5}
    assert alarms([lines[0], longer, lines[1]], RECIPE) == []
    assert len(alarms([lines[0], longer, *lines], RECIPE)) == 1


def test_a_knn_on_other_images_is_not_compared_with_those_before():
    lines = [knn(0, 70.0), knn(5, 80.0), knn(6, 30.0)]
    assert len(alarms(lines, RECIPE)) == 2  # below its best, and below the untrained encoder
    assert alarms([*lines[:2], lines[2] | {"knn_of": "validation images"}], RECIPE) == []


def test_falling_behind_the_untrained_encoder_rings_until_it_is_caught_up():
    lines = [knn(0, 36.8), latents(1, 0.8), knn(3, 18.1)]
    (sentence,) = alarms(lines, RECIPE)
    assert sentence.startswith(
        "Epoch 3: kNN is 18.1 %, and the untrained encoder had 36.8 %: training has made it worse."
    )
    assert "worse. A run of 20 steps is short: first use more --epochs. " in alarms(lines, RECIPE.changed(epochs=2))[0]
    assert alarms([*lines, knn(6, 30.0)], RECIPE) == []


def test_few_directions_ring_where_many_are_possible():
    (sentence,) = alarms([latents(1, 0.58, 2.3), latents(2, 0.91, 2.5)], RECIPE)
    assert sentence.startswith("Epochs 1 to 2: the latents are collapsing to few directions (spread 0.910 of 1, ")
    assert f"effective rank 2.5 of {min(RECIPE.batch_size - 1, RECIPE.framework.dim)})" in sentence
    assert alarms([latents(1, 0.58, 2.3)], RECIPE.changed(batch_size=16)) == []


def test_the_ratio_of_gradients_tells_the_cause():
    heavy = find_recipe("tiny").changed(strategy__lam=3.0)
    (sentence,) = alarms([{"step": 1, "ratio": 1.5}, latents(1, 0.9), latents(2, 0.001)], heavy)
    assert "pushed apart harder" in sentence


def test_the_page_says_alarms_and_the_lack_of_them(make_run):
    sick, well, young = (make_run(name) for name in ("sick", "well", "young"))
    sick.metrics_file.write_text('{"step": 1, "z_std": 0.001, "z_rank": 1.0, "epoch": 0}\n')
    well.metrics_file.write_text('{"step": 1, "z_std": 0.9, "z_rank": 30.0, "epoch": 0}\n')
    text = health(Teller(crops=False, images=0).tell([sick, well, young]))
    assert "sick: Epoch 1: the latents are collapsing" in text
    assert (
        "well: no sign of collapse (spread of the latents 0.900 of 1, effective rank 30.0 of at most 8, at last)"
        in text
    )
    assert "young: nothing was measured yet" in text


def test_the_page_says_whether_training_has_helped_in_the_words_of_the_runs_end(make_run):
    run, lines = make_run("run"), [knn(0, 30.0), latents(6, 0.9), knn(6, 34.0) | {"knn_images": 100}]
    run.metrics_file.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    text = health(Teller(crops=False, images=0).tell([run]))
    assert "run: no sign of collapse" in text
    assert f"run: {knn_summary(lines)}" in text
