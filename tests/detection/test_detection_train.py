"""Training of a detector: schedule, order, norms, exact resume."""

import json
import multiprocessing
import os
import signal
import subprocess
import time
from dataclasses import replace

import pytest
import torch
from small_detectors import HERE, HOW, SMALL, assert_equal, at_iteration, thin_encoder, train, untrained

from logo_ssl.detection.evaluate import changed, detect
from logo_ssl.detection.train import (
    COCO_RECIPE,
    VOC_RECIPE,
    TrainingImages,
    flipped,
    learning_rate,
    make_sample,
    recipe_for,
    refresh_norms,
    scaled,
    train_detector,
)
from logo_ssl.errors import Interrupted, UserError
from logo_ssl.models.batch_norm import BatchNorm
from logo_ssl.run import found_checkpoints

CPU = torch.device("cpu")


def test_the_protocol_is_mocos():
    assert (VOC_RECIPE.iterations, VOC_RECIPE.batch_size, VOC_RECIPE.lr) == (24_000, 16, 0.02)
    assert (VOC_RECIPE.steps, VOC_RECIPE.warm_up) == ((18_000, 22_000), 100)
    assert VOC_RECIPE.detector.short_sides == (480, 512, 544, 576, 608, 640, 672, 704, 736, 768, 800)
    assert COCO_RECIPE.detector.short_sides == (640, 672, 704, 736, 768, 800)
    assert (COCO_RECIPE.iterations, COCO_RECIPE.steps) == (180_000, (120_000, 160_000))
    assert {r.detector.test_side for r in (VOC_RECIPE, COCO_RECIPE)} == {800}


def test_the_learning_rate_rises_then_falls_by_tenths():
    at = {i: learning_rate(VOC_RECIPE, i) for i in (0, 50, 100, 17_999, 18_000, 21_999, 22_000)}
    expected = [0.00002, 0.01001, 0.02, 0.02, 0.002, 0.002, 0.0002]
    assert list(at.values()) == pytest.approx(expected)


def test_small_sets_get_as_many_passes_in_batches_they_can_fill():
    assert recipe_for("", 16_551, official=False).iterations == pytest.approx(24_000, rel=0.001)
    assert (recipe_for("", 5, official=False).batch_size, recipe_for("", 5, official=False).iterations) == (5, 300)
    assert recipe_for("", 4, official=False).lr == pytest.approx(0.005)
    assert scaled(VOC_RECIPE, 240).steps == (180, 220)
    assert scaled(VOC_RECIPE, 240).warm_up == 48


def test_numbers_that_are_changed_take_along_what_follows_from_them():
    other = changed(VOC_RECIPE, iterations=240, lr=0.1, head="fpn", flip=False)
    assert (other.steps, other.lr, other.detector.head, other.flip) == ((180, 220), 0.1, "fpn", False)
    assert changed(VOC_RECIPE, iterations=240, steps=(7,)).steps == (7,)
    assert changed(VOC_RECIPE, batch_size=4).lr == pytest.approx(0.005)
    assert changed(VOC_RECIPE) == VOC_RECIPE


@pytest.mark.parametrize(
    "changes",
    [
        {"iterations": 0},
        {"lr": float("nan")},
        {"steps": (5, 3)},
        {"candidates": (12_000, 0)},
        {"weight_decay": float("nan")},
        {"anchors": (8, 16), "head": "fpn"},
        {"short_sides": ()},
        {"longest": 700},
    ],
    ids=str,
)
def test_numbers_that_cannot_work_are_refused(changes):
    named = "test_side" if "longest" in changes else next(iter(changes))
    with pytest.raises(UserError, match=f"^{named}="):
        changed(VOC_RECIPE, **changes)


def test_each_pass_shows_each_image_once_in_an_order_of_its_own(data):
    recipe = replace(SMALL, flip=False)
    images = TrainingImages(data.train, recipe, False)
    assert len(images) == 10
    shown = [int(images[place].pixels.long().sum()) for place in range(10)]
    assert len(set(shown[:5])) == 5
    assert sorted(shown[:5]) == sorted(shown[5:])
    assert shown[:5] != shown[5:]
    again = TrainingImages(data.train, recipe, False)
    assert [int(again[place].pixels.long().sum()) for place in reversed(range(10))] == shown[::-1]


def test_a_mirrored_mask_stays_in_its_mirrored_box(data):
    sample = make_sample(data.train.images[0], masks=True)
    there = flipped(sample)
    for box, mask in zip(there.target["boxes"], there.target["masks"], strict=True):
        rows, columns = mask.nonzero().unbind(1)
        extent = [columns.min(), rows.min(), columns.max() + 1, rows.max() + 1]
        assert torch.allclose(box, torch.stack(extent).float(), atol=1)
    back = flipped(there)
    assert torch.equal(back.pixels, sample.pixels)
    assert torch.equal(back.target["boxes"], sample.target["boxes"])


def test_training_repeats_and_leaves_the_global_streams_alone(data):
    trained = untrained()
    torch.manual_seed(5)
    train_detector(trained, TrainingImages(data.train, SMALL, False), SMALL, HERE)
    assert torch.rand(1).item() == torch.rand(1, generator=torch.Generator().manual_seed(5)).item()
    assert_equal(train(data)[0], trained.state_dict())
    assert not torch.equal(trained.rpn.head.cls_logits.weight, untrained().rpn.head.cls_logits.weight)


def test_refreshed_norms_hold_the_mean_over_batches(data):
    fresh = untrained()
    images = TrainingImages(data.train, SMALL, False)
    batches = [[images[0], images[1]], [images[2], images[3]], [images[4], images[0]]]
    norm = next(module for module in fresh.modules() if isinstance(module, BatchNorm))
    seen = []
    hook = norm.register_forward_hook(lambda module, inputs, output: seen.append(inputs[0]))
    refresh_norms(fresh, batches, CPU)
    hook.remove()
    torch.testing.assert_close(norm.running_mean, torch.stack([x.mean((0, 2, 3)) for x in seen]).mean(0))
    torch.testing.assert_close(norm.running_var, torch.stack([x.var((0, 2, 3)) for x in seen]).mean(0))
    assert (norm.momentum, fresh.training) == (0.1, False)


FORKS = pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")


def told(number):
    """Somebody says stop to this process and, a moment before, to its workers, as terminals and Slurm do."""

    def say():
        if workers := multiprocessing.active_children():
            subprocess.run(["kill", f"-{int(number)}", *(str(worker.pid) for worker in workers)], check=True)
            time.sleep(0.2)  # in which torch would hear of a worker's end
        os.kill(os.getpid(), number)

    return say


@pytest.fixture(scope="module")
def uninterrupted(data):
    return train(data)[0]


@pytest.mark.parametrize(
    ("iteration", "number", "name"),
    [(0, signal.SIGUSR1, "SIGUSR1"), (3, signal.SIGINT, "Ctrl-C")],
)
def test_an_interrupted_training_ends_like_an_uninterrupted_one(
    data, tmp_path, monkeypatch, iteration, number, name, uninterrupted
):
    with monkeypatch.context() as patch:
        at_iteration(patch, iteration, told(number))
        sentence = f"Stopped by {name}, saved at step {iteration + 1}; the same command goes on"
        with pytest.raises(Interrupted, match=sentence) as stop:
            train(data, tmp_path)
    assert stop.value.code == 128 + number
    assert [file.name[:14] for file in found_checkpoints(tmp_path)] == [f"step-{iteration + 1:09}"]
    resumed, said = train(data, tmp_path)
    assert f"Continuing after {iteration + 1} iterations." in said
    assert_equal(resumed, uninterrupted)


@pytest.mark.usefixtures("enough_memory")
def test_worker_processes_change_nothing_and_a_training_goes_on_exactly_from_them(data, tmp_path, monkeypatch):
    whole, _ = train(data, masks=True)
    with monkeypatch.context() as patch:
        at_iteration(patch, 2, told(signal.SIGTERM))
        with pytest.raises(Interrupted):
            train(data, tmp_path, masks=True, workers=2)
    resumed, said = train(data, tmp_path, masks=True, workers=2)
    assert "Continuing after 3 iterations." in said
    assert_equal(resumed, whole)


def killed(data, folder, monkeypatch, number, **where):
    """Train in another process that is killed before the iteration of that number."""
    process = multiprocessing.get_context("fork").Process(target=train, args=(data, folder), kwargs=where)
    with monkeypatch.context() as patch:
        at_iteration(patch, number, lambda: os.kill(os.getpid(), signal.SIGKILL))
        process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL


@FORKS
def test_a_training_that_was_killed_between_checkpoints_ends_the_same(data, tmp_path, monkeypatch, uninterrupted):
    with monkeypatch.context() as patch:
        at_iteration(patch, 1, told(signal.SIGTERM))
        with pytest.raises(Interrupted):
            train(data, tmp_path)
    killed(data, tmp_path, monkeypatch, 4)
    assert [file.name[:14] for file in found_checkpoints(tmp_path)] == ["step-000000002"]
    resumed, said = train(data, tmp_path)
    assert "Continuing after 2 iterations." in said
    assert_equal(resumed, uninterrupted)


def test_weights_that_are_not_finite_are_never_saved(data, tmp_path):
    with pytest.raises(UserError, match="not finite at iteration"):
        train(data, tmp_path, replace(SMALL, lr=1e30, warm_up=0))
    assert not found_checkpoints(tmp_path)


def test_an_interrupted_evaluation_goes_on_and_leaves_no_state(data, tmp_path, monkeypatch):
    encoder, out = thin_encoder(), tmp_path / "figures.json"
    whole = detect(encoder, data, SMALL, HOW, out=tmp_path / "whole.json")
    with monkeypatch.context() as patch:
        at_iteration(patch, 2, told(signal.SIGTERM))
        with pytest.raises(Interrupted):
            detect(encoder, data, SMALL, HOW, out=out)
    assert found_checkpoints(tmp_path / "figures-training")
    assert detect(encoder, data, SMALL, HOW, out=out) == whole
    assert not (tmp_path / "figures-training").exists()
    first, second = (json.loads(file.read_text()) for file in (tmp_path / "whole.json", out))
    assert [(each["resumed_at"], each["sessions"]) for each in (first, second)] == [(0, 1), (3, 2)]
    assert {file.name for file in (tmp_path / "figures-pictures").iterdir()} == {
        "best.png",
        "worst.png",
        "random.png",
        "boxes.json",
    }
