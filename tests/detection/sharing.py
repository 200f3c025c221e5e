"""What the processes of test_detection_ddp.py do: `python sharing.py FOLDER` trains detectors by two processes."""

import os
import sys
from dataclasses import replace
from pathlib import Path

import torch
from thin import ThinResNet

from logo_ssl.detection import load_detection
from logo_ssl.detection.detector import build_detector
from logo_ssl.detection.recipe import DetectionRecipe, DetectorConfig
from logo_ssl.detection.samples import TrainingPictures
from logo_ssl.detection.training import Detecting, Workshop, train_detector
from logo_ssl.evaluate import Extraction
from logo_ssl.evaluate.detect import detect
from logo_ssl.evaluate.encoders import load_encoder
from logo_ssl.train import checkpoints

RECIPE = DetectionRecipe(
    DetectorConfig(
        short_sides=(64,), test_side=64, anchors=(16, 32), candidates=(60, 60), proposals=(40, 20), regions=8
    ),
    iterations=4,
    batch_size=4,
    steps=(3,),
    warm_up=1,
    norm_batches=2,
)
DONE = 2
"""Iterations of the training that is cut short."""


def train(data, devices, folder=None, masks=False):
    """The weights of a detector before its batch norms are refreshed, and after it."""
    torch.manual_seed(0)
    detector = build_detector(ThinResNet(), (0.5,) * 3, (0.25,) * 3, 2, RECIPE.detector, masks)
    seen = []
    original = Detecting.on_train_end
    Detecting.on_train_end = lambda self: seen.append({n: v.clone() for n, v in self.detector.state_dict().items()})
    try:
        where = Workshop("cpu", devices, workers=0, folder=folder, checkpoint_minutes=1e-9)
        train_detector(detector, TrainingPictures(data.train, RECIPE, masks), RECIPE, where)
    finally:
        Detecting.on_train_end = original
    return [*seen, detector.state_dict()]


def cut_short(data, devices, folder):
    """A training that ends before its last iterations, with a checkpoint of every one."""
    original = Detecting.training_step

    def power_cut(self, batch, batch_idx):
        if self.global_step == DONE:
            raise ZeroDivisionError("power cut")
        return original(self, batch, batch_idx)

    Detecting.training_step = power_cut
    try:
        train(data, devices, folder)
    except ZeroDivisionError:
        pass
    finally:
        Detecting.training_step = original


def main(folder: Path) -> None:
    data = load_detection(str(folder / "coco"))
    learned = {
        "whole": train(data, 2),
        "masks": train(data, 2, masks=True),
        "by one": train(data, 2, folder / "by-one"),
    }
    number = os.environ["LOCAL_RANK"]
    torch.save(learned, folder / f"learned-{number}.pt")
    encoder = replace(load_encoder("random/tiny"), backbone=ThinResNet().eval().requires_grad_(False))
    how, out = Extraction(device="cpu", workers=0), folder / "figures.json"
    figures = dict(detect(encoder, data, RECIPE, how, out=out, devices=2))
    (folder / f"figures-of-{number}").write_text(str(len(figures)))
    cut_short(data, 2, folder / "by-two")  # the last: a process that fails ends the others


if __name__ == "__main__":
    torch.set_num_threads(1)
    checkpoints.AGREE_S = 0.0  # processes ask each other after every step
    main(Path(sys.argv[1]))
