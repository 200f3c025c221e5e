"""What the tests of detection share: a recipe that takes less than a second, and how to train by it."""

from dataclasses import replace

import torch
from thin import ThinResNet

from logo_ssl.detection.detector import build_detector
from logo_ssl.detection.recipe import DetectionRecipe, DetectorConfig
from logo_ssl.detection.samples import TrainingPictures
from logo_ssl.detection.training import Detecting, Workshop, train_detector
from logo_ssl.eval.encoder import load_encoder
from logo_ssl.eval.options import Extraction

MEAN, STD = (0.5,) * 3, (0.25,) * 3
CLASSES = 2  # of the pictures in drawn.py
HOW = Extraction(device="cpu", workers=0)
HERE = Workshop(device="cpu", workers=0)
SMALL = DetectionRecipe(
    DetectorConfig(
        short_sides=(48, 64), test_side=64, anchors=(16, 32), candidates=(60, 60), proposals=(40, 20), regions=8
    ),
    iterations=5,
    batch_size=2,
    steps=(3,),
    warm_up=2,
    norm_batches=2,
)


def small(recipe=SMALL, **changes):
    """The recipe with another detector."""
    return replace(recipe, detector=replace(recipe.detector, **changes))


def untrained(recipe=SMALL, masks=False):
    """A detector, always with the same weights."""
    torch.manual_seed(0)
    return build_detector(ThinResNet(), MEAN, STD, CLASSES, recipe.detector, masks)


def thin_encoder():
    """An encoder to evaluate, always with the same weights."""
    torch.manual_seed(0)
    return replace(load_encoder("random/tiny"), backbone=ThinResNet().eval().requires_grad_(False))


def train(data, folder=None, recipe=SMALL, masks=False, **where):
    """The weights that a training ends with, and what was said about it."""
    detector, said = untrained(recipe, masks), []
    pictures = TrainingPictures(data.train, recipe, masks)
    train_detector(detector, pictures, recipe, replace(HERE, folder=folder, **where), say=said.append)
    return detector.state_dict(), said


def at_iteration(monkeypatch, number, action):
    """Call `action()` before the iteration of that number (from 0)."""
    original = Detecting.training_step

    def watched(self, batch, batch_idx):
        if self.global_step == number:
            action()
        return original(self, batch, batch_idx)

    monkeypatch.setattr(Detecting, "training_step", watched)


def power_cut():
    """What no training is prepared for."""
    raise ZeroDivisionError("power cut")


def assert_equal(weights, expected):
    """Bit for bit the same."""
    assert weights.keys() == expected.keys()
    assert not [name for name, value in expected.items() if not torch.equal(weights[name], value)]
