"""Does an interrupted training of a detector end like an uninterrupted one, and does its folder guard itself?"""

import json
import os
import signal
from dataclasses import replace

import pytest
import torch
from drawn import save_coco
from thin import ThinResNet

from logo_ssl.detection import load_detection
from logo_ssl.detection.detector import build_detector
from logo_ssl.detection.recipe import DetectionRecipe, DetectorConfig
from logo_ssl.detection.samples import TrainingPictures
from logo_ssl.detection.training import Detecting, Workshop, alone_in, train_detector
from logo_ssl.errors import Interrupted, UserError
from logo_ssl.evaluate import Extraction
from logo_ssl.evaluate.detect import detect
from logo_ssl.evaluate.encoders import load_encoder
from logo_ssl.run import found_checkpoints

RECIPE = DetectionRecipe(
    DetectorConfig(
        short_sides=(48, 64), test_side=64, anchors=(16, 32), candidates=(40, 40), proposals=(20, 20), regions=8
    ),
    iterations=5,
    batch_size=2,
    steps=(3,),
    warm_up=2,
    norm_batches=2,
)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return load_detection(str(save_coco(tmp_path_factory.mktemp("drawn") / "coco", {"train": 5, "val": 2})))


def train(data, folder=None, recipe=RECIPE, **options):
    torch.manual_seed(0)
    detector = build_detector(ThinResNet(), (0.5,) * 3, (0.25,) * 3, 2, recipe.detector)
    where = Workshop(device="cpu", workers=0, folder=folder, **options)
    said = []
    train_detector(detector, TrainingPictures(data.train, recipe, False), recipe, where, say=said.append)
    return detector.state_dict(), said


def stopped_at(iteration, monkeypatch):
    """Somebody says stop during an iteration."""
    original = Detecting.training_step

    def watched(self, batch, batch_idx):
        if self.global_step == iteration:
            os.kill(os.getpid(), signal.SIGUSR1)
        return original(self, batch, batch_idx)

    monkeypatch.setattr(Detecting, "training_step", watched)


@pytest.fixture(scope="module")
def uninterrupted(data):
    return train(data)[0]


@pytest.mark.parametrize("iteration", [0, 2, 3])
def test_an_interrupted_training_ends_like_an_uninterrupted_one(data, tmp_path, monkeypatch, iteration, uninterrupted):
    with monkeypatch.context() as patch:
        stopped_at(iteration, patch)
        with pytest.raises(Interrupted, match=f"saved at step {iteration + 1}; the same command goes on"):
            train(data, tmp_path)
    resumed, said = train(data, tmp_path)
    assert f"Going on after {iteration + 1} iterations." in said
    assert all(torch.equal(resumed[name], value) for name, value in uninterrupted.items())


def test_a_training_that_was_killed_between_checkpoints_ends_the_same(data, tmp_path, monkeypatch, uninterrupted):
    original = Detecting.training_step

    def power_cut(self, batch, batch_idx):
        if self.global_step == 4:
            raise ZeroDivisionError("power cut")
        return original(self, batch, batch_idx)

    with monkeypatch.context() as patch:
        patch.setattr(Detecting, "training_step", power_cut)
        with pytest.raises(ZeroDivisionError):
            train(data, tmp_path, checkpoint_minutes=1e-9)
    (newest,) = found_checkpoints(tmp_path)
    resumed, _ = train(data, tmp_path)
    assert newest.name.startswith("step-000000004")
    assert all(torch.equal(resumed[name], value) for name, value in uninterrupted.items())


def test_a_finished_training_is_not_repeated(data, tmp_path, uninterrupted):
    train(data, tmp_path)
    again, said = train(data, tmp_path)
    assert said[:1] == ["Going on after 5 iterations."]
    assert all(torch.equal(again[name], value) for name, value in uninterrupted.items())


def test_another_training_is_not_gone_on_with(data, tmp_path):
    train(data, tmp_path, identity="one")
    with pytest.raises(UserError, match="holds an unfinished training of another encoder"):
        train(data, tmp_path, identity="other")


def test_one_process_at_a_time(tmp_path):
    with alone_in(tmp_path), pytest.raises(UserError, match="being trained by another process"), alone_in(tmp_path):
        pass


def test_weights_that_are_not_finite_are_never_saved(data, tmp_path):
    with pytest.raises(UserError, match="no finite number at iteration"):
        train(data, tmp_path, replace(RECIPE, lr=1e30, warm_up=0))
    assert not found_checkpoints(tmp_path)


def test_an_interrupted_evaluation_goes_on_and_leaves_no_state(data, tmp_path, monkeypatch):
    encoder = replace(load_encoder("random/tiny"), backbone=ThinResNet().eval().requires_grad_(False))
    how, out = Extraction(device="cpu", workers=0), tmp_path / "figures.json"
    whole = dict(detect(encoder, data, RECIPE, how, out=tmp_path / "whole.json"))
    with monkeypatch.context() as patch:
        stopped_at(2, patch)
        with pytest.raises(Interrupted):
            list(detect(encoder, data, RECIPE, how, out=out))
    assert found_checkpoints(tmp_path / "figures-training")
    assert dict(detect(encoder, data, RECIPE, how, out=out)) == whole
    assert not (tmp_path / "figures-training").exists()
    assert [json.loads(file.read_text())["resumed_at"] for file in (tmp_path / "whole.json", out)] == [0, 3]
    assert {file.name for file in (tmp_path / "figures-pictures").iterdir()} == {"best.png", "worst.png", "random.png"}
