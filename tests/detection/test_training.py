"""Does a detector learn, by the schedule of its recipe, from pictures in an order that repeats?"""

from dataclasses import fields, replace

import numpy as np
import pytest
import torch
from small_detectors import HERE, SMALL, assert_equal, train, untrained

from logo_ssl.data import workers
from logo_ssl.detection import samples
from logo_ssl.detection.recipe import (
    COCO_RECIPE,
    VOC_RECIPE,
    DetectionRecipe,
    DetectorConfig,
    check_recipe,
    for_custom,
    learning_rate,
    scaled,
)
from logo_ssl.detection.samples import Batches, TrainingPictures, as_sample, mirrored
from logo_ssl.detection.training import losses_of, refresh_norms, train_detector
from logo_ssl.errors import UserError
from logo_ssl.eval.detect_options import RecipeOptions
from logo_ssl.models.batch_norm import BatchNorm

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
    assert for_custom(16_551).iterations == pytest.approx(24_000, rel=0.001)
    assert (for_custom(5).batch_size, for_custom(5).iterations) == (5, 300)
    assert for_custom(4).lr == pytest.approx(0.005)
    assert scaled(VOC_RECIPE, 240).steps == (180, 220)
    assert scaled(VOC_RECIPE, 240).warm_up == 48


def test_every_number_can_be_changed_in_a_shell():
    names = {field.name for kind in (DetectionRecipe, DetectorConfig) for field in fields(kind)} - {"detector"}
    assert {field.name for field in fields(RecipeOptions)} == names
    changed = RecipeOptions(iterations=240, lr=0.1, head="fpn", flip=False).applied_to(VOC_RECIPE)
    assert (changed.steps, changed.lr, changed.detector.head, changed.flip) == ((180, 220), 0.1, "fpn", False)
    assert RecipeOptions(iterations=240, steps=(7,)).applied_to(VOC_RECIPE).steps == (7,)
    assert RecipeOptions().applied_to(VOC_RECIPE) == VOC_RECIPE


def test_the_learning_rate_follows_the_batch_unless_it_is_given_and_that_is_said():
    half = RecipeOptions(batch_size=8)
    assert half.applied_to(VOC_RECIPE).lr == pytest.approx(0.01)
    assert "the learning rate follows, 0.01 in place of 0.02" in half.says(VOC_RECIPE)[0]
    for given in (RecipeOptions(batch_size=8, lr=0.02), RecipeOptions(batch_size=16)):
        assert given.applied_to(VOC_RECIPE).lr == 0.02
        assert not given.says(VOC_RECIPE)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"iterations": 0}, "iterations is 0"),
        ({"lr": -1.0}, "lr is -1"),
        ({"lr": float("nan")}, "lr is nan"),
        ({"test_side": 0}, "^test-side is 0; use 8 px or more"),
        ({"steps": (5, 3)}, "give them in order"),
        ({"warm_up": -1}, "0 or more"),
        ({"most_detections": -5}, "^most-detections is -5; use more than 0"),
        ({"candidates": (12_000, 0)}, "^candidates is 0; use more than 0"),
        ({"momentum": float("nan")}, "^momentum is nan; use 0 or more, and less than 1"),
        ({"momentum": -3.0}, "momentum is -3"),
        ({"weight_decay": float("nan")}, "^weight-decay is nan; use 0 or more"),
        ({"head": "fpn", "anchors": (8, 16)}, "a pyramid takes 5"),
        ({"short_sides": ()}, "short-sides is 0"),
    ],
)
def test_numbers_that_cannot_work_are_refused(changes, sentence):
    with pytest.raises(UserError, match=sentence):
        check_recipe(RecipeOptions(**changes).applied_to(VOC_RECIPE))


def test_each_pass_shows_each_picture_once_in_an_order_of_its_own(data):
    recipe = replace(SMALL, flip=False)
    pictures = TrainingPictures(data.train, recipe, False)
    assert len(pictures) == 10
    shown = [int(pictures[place].pixels.long().sum()) for place in range(10)]
    assert len(set(shown[:5])) == 5
    assert sorted(shown[:5]) == sorted(shown[5:])
    assert shown[:5] != shown[5:]
    again = TrainingPictures(data.train, recipe, False)
    assert [int(again[place].pixels.long().sum()) for place in reversed(range(10))] == shown[::-1]


def test_crowds_and_empty_pictures_are_not_learned_from(data):
    first = data.train.pictures[0]
    crowd = replace(first, crowd=np.ones_like(first.crowd))
    half = replace(first, crowd=np.array([True, False]))
    some = replace(data.train, pictures=(crowd, half))
    assert len(TrainingPictures(some, SMALL, False).pictures) == 1
    assert len(TrainingPictures(some, replace(SMALL, learn_from_empty=True), False).pictures) == 2
    assert len(as_sample(half, masks=True).target["masks"]) == 1


def test_a_mirrored_mask_stays_in_its_mirrored_box(data):
    sample = as_sample(data.train.pictures[0], masks=True)
    there = mirrored(sample)
    for box, mask in zip(there.target["boxes"], there.target["masks"], strict=True):
        rows, columns = mask.nonzero().unbind(1)
        extent = [columns.min(), rows.min(), columns.max() + 1, rows.max() + 1]
        assert torch.allclose(box, torch.stack(extent).float(), atol=1)
    back = mirrored(there)
    assert torch.equal(back.pixels, sample.pixels)
    assert torch.equal(back.target["boxes"], sample.target["boxes"])


def test_training_repeats_and_leaves_the_global_streams_alone(data):
    trained = untrained()
    torch.manual_seed(5)
    train_detector(trained, TrainingPictures(data.train, SMALL, False), SMALL, HERE)
    assert torch.rand(1).item() == torch.rand(1, generator=torch.Generator().manual_seed(5)).item()
    assert_equal(train(data)[0], trained.state_dict())
    assert not torch.equal(trained.rpn.head.cls_logits.weight, untrained().rpn.head.cls_logits.weight)


@pytest.mark.parametrize(("wished", "sharers", "each"), [(-1, 1, 8), (-1, 4, 2), (8, 4, 2), (3, 4, 1), (0, 4, 0)])
def test_workers_are_shared_by_the_processes_of_a_machine_and_not_by_those_of_others(
    data, monkeypatch, wished, sharers, each
):
    monkeypatch.setattr(workers, "default_workers", lambda: 8)
    monkeypatch.setattr(samples, "read", lambda pictures, places, number: [number])
    pictures = TrainingPictures(data.train, replace(SMALL, batch_size=16), False)
    assert [*Batches(pictures, 1, wished, part=(0, 2 * sharers), sharers=sharers)] == [each]  # on two machines


def test_worker_processes_start_once(data, monkeypatch):
    started, original = [], samples.read
    monkeypatch.setattr(samples, "read", lambda *loading: started.append(loading) or original(*loading))
    train(data, recipe=replace(SMALL, norm_batches=0))
    assert len([places for _, places, _ in started if places]) == 1


@pytest.mark.usefixtures("enough_memory")
@pytest.mark.parametrize("masks", [False, True])
def test_worker_processes_change_nothing(data, masks):
    assert_equal(train(data, masks=masks, workers=2)[0], train(data, masks=masks)[0])


def test_refreshed_norms_hold_the_mean_over_batches(data):
    fresh = untrained()
    pictures = TrainingPictures(data.train, SMALL, False)
    batches = [[pictures[0], pictures[1]], [pictures[2], pictures[3]], [pictures[4], pictures[0]]]
    norm = next(module for module in fresh.modules() if isinstance(module, BatchNorm))
    seen = []
    hook = norm.register_forward_hook(lambda module, inputs, output: seen.append(inputs[0]))
    refresh_norms(fresh, batches, CPU)
    hook.remove()
    torch.testing.assert_close(norm.running_mean, torch.stack([x.mean((0, 2, 3)) for x in seen]).mean(0))
    torch.testing.assert_close(norm.running_var, torch.stack([x.var((0, 2, 3)) for x in seen]).mean(0))
    assert (norm.momentum, fresh.training) == (0.1, False)


def test_a_loss_that_is_not_finite_stops_the_training(data):
    broken = untrained()
    with torch.no_grad():
        broken.rpn.head.cls_logits.weight.fill_(float("nan"))
    losses = losses_of(broken.train(), [as_sample(data.train.pictures[0], False)] * 2)
    assert not losses["loss_objectness"].isfinite()
    with pytest.raises(UserError, match="no finite number at iteration 0"):
        train_detector(broken, TrainingPictures(data.train, SMALL, False), SMALL, HERE)


@pytest.mark.parametrize("workers", [0, 1])
def test_a_picture_that_cannot_be_read_is_one_sentence_from_workers_too(data, tmp_path, workers):
    (tmp_path / "broken.png").write_bytes(b"no picture")
    broken = replace(data.train.pictures[0], path=tmp_path / "broken.png")
    pictures = TrainingPictures(replace(data.train, pictures=(broken,)), SMALL, False)
    with pytest.raises(UserError, match=r"^.*broken\.png cannot be read \(not an image\)$"):
        train_detector(untrained(), pictures, SMALL, replace(HERE, workers=workers))


def test_a_set_of_crowds_is_refused(data):
    crowds = tuple(replace(p, crowd=np.ones_like(p.crowd)) for p in data.train.pictures)
    with pytest.raises(UserError, match="no crowd"):
        TrainingPictures(replace(data.train, pictures=crowds), SMALL, False)
