"""What the processes of test_detection_ddp.py do: `python sharing.py FOLDER` trains detectors by two processes."""

import os
import sys
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
import small_detectors
import torch
from small_detectors import HOW, SMALL, at_iteration, power_cut, small, thin_encoder

from logo_ssl.detection import load_detection
from logo_ssl.detection.evaluate import detect
from logo_ssl.detection.train import DetectorModule
from logo_ssl.train import checkpoint

RECIPE = small(replace(SMALL, iterations=4, batch_size=4, warm_up=1), short_sides=(64,))
DONE = 2
"""Iterations of the training that is cut short."""
WORKERS = []
"""What was asked for, of how much memory, by how many that share the machine."""


def train(data, devices, folder=None):
    """The weights of a detector before its batch norms are refreshed, and after it."""
    seen = []

    def keep(self):
        seen.append({name: value.clone() for name, value in self.detector.state_dict().items()})

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(DetectorModule, "on_train_end", keep)
        patch.setattr("logo_ssl.detection.train.fitting_workers", lambda *asked: WORKERS.append(asked) or 0)
        where = {"devices": devices, "workers": 4, "checkpoint_minutes": 1e-9}
        refreshed, _ = small_detectors.train(data, folder, RECIPE, masks=True, **where)
    return [*seen, refreshed]


def cut_short(data, devices, folder):
    """A training that ends before its last iterations, with a checkpoint of every one."""
    with pytest.MonkeyPatch.context() as patch, suppress(ZeroDivisionError):
        at_iteration(patch, DONE, power_cut)
        train(data, devices, folder)


def main(folder: Path) -> None:
    data = load_detection(str(folder / "coco"))
    learned = {"whole": train(data, 2), "by one": train(data, 2, folder / "by-one")}
    number = os.environ["LOCAL_RANK"]
    torch.save(learned, folder / f"learned-{number}.pt")
    figures = detect(thin_encoder(), data, RECIPE, HOW, out=folder / "figures.json", devices=2)
    (folder / f"figures-of-{number}").write_text(str(len(figures)))
    (folder / f"workers-of-{number}").write_text(str(WORKERS[:2]))
    cut_short(data, 2, folder / "by-two")  # the last: a process that fails ends the others


if __name__ == "__main__":
    torch.set_num_threads(1)
    checkpoint.AGREE_EVERY = 1  # processes ask each other after every step
    main(Path(sys.argv[1]))
