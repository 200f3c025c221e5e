"""What the tests of detection share: a recipe that takes less than a second, and how to train by it."""

from dataclasses import replace

import torch
from torch import nn
from torchvision.models.resnet import BasicBlock

from logo_ssl.detection.model import DetectorConfig, build_detector
from logo_ssl.detection.train import DetectionRecipe, DetectorModule, TrainerConfig, TrainingImages, train_detector
from logo_ssl.encoders import load_encoder
from logo_ssl.eval.features import Extraction

MEAN, STD = (0.5,) * 3, (0.25,) * 3
CLASSES = 2  # of the images in drawn.py
HOW = Extraction(device="cpu", workers=0, max_bad=0.0)
HERE = TrainerConfig(device="cpu", workers=0)
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


class ThinResNet(nn.Module):
    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, width, 7, 2, 3, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.relu = nn.ReLU(inplace=True)
        self.maxpool = nn.MaxPool2d(3, 2, 1)
        self.layer1 = stage(width, width, 1)
        self.layer2 = stage(width, 2 * width, 2)
        self.layer3 = stage(2 * width, 4 * width, 2)
        self.layer4 = stage(4 * width, 4 * width, 2)

    def forward(self, x):
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        return self.layer4(self.layer3(self.layer2(self.layer1(x)))).mean((2, 3))


def stage(n_in: int, n_out: int, stride: int) -> nn.Sequential:
    shortcut = nn.Sequential(nn.Conv2d(n_in, n_out, 1, stride, bias=False), nn.BatchNorm2d(n_out))
    return nn.Sequential(BasicBlock(n_in, n_out, stride, shortcut))


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
    images = TrainingImages(data.train, recipe, masks)
    train_detector(detector, images, recipe, replace(HERE, folder=folder, **where), say=said.append)
    return detector.state_dict(), said


def at_iteration(monkeypatch, number, action):
    """Call `action()` before the iteration of that number (from 0)."""
    original = DetectorModule.training_step

    def watched(self, batch, batch_idx):
        if self.global_step == number:
            action()
        return original(self, batch, batch_idx)

    monkeypatch.setattr(DetectorModule, "training_step", watched)


def power_cut():
    """What no training is prepared for."""
    raise ZeroDivisionError("power cut")


def assert_equal(weights, expected):
    """Bit for bit the same."""
    assert weights.keys() == expected.keys()
    assert not [name for name, value in expected.items() if not torch.equal(weights[name], value)]
