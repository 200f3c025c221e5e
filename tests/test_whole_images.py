"""Does tools/whole_images.py take batch norm's statistics from whole images?"""

import json
import runpy
from pathlib import Path

import numpy as np
import pytest
import torch

from logo_ssl import pretrain
from logo_ssl.evaluate import load_encoder
from logo_ssl.features import prepared
from logo_ssl.models.norm import BatchNorm

TOOL = runpy.run_path(str(Path(__file__).parents[1] / "tools" / "whole_images.py"))


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder, rng = tmp_path_factory.mktemp("whole"), np.random.default_rng(0)
    images, labels = rng.integers(0, 255, (48, 16, 16, 3), dtype=np.uint8), np.arange(48) % 2
    parts = {"train_images": images[:40], "train_labels": labels[:40]}
    np.savez(folder / "set.npz", **parts, test_images=images[40:], test_labels=labels[40:])
    options = {"epochs": 1, "batch_size": 16, "knn_every": 0, "loggers": (), "device": "cpu"}
    run = pretrain("tiny", out=folder / "run", data=folder / "set.npz", **options)
    return run, folder / "set.npz"


def test_the_first_norms_statistics_are_those_of_what_it_sees(trained):
    run, file = trained
    encoder = load_encoder(str(run.path))
    images = torch.from_numpy(np.load(file)["train_images"]).permute(0, 3, 1, 2)
    seen = []
    first = next(module for module in encoder.backbone.modules() if isinstance(module, BatchNorm))
    first.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    TOOL["learn_statistics"](encoder, images)
    assert not encoder.backbone.training
    torch.testing.assert_close(first.running_mean, seen[0].mean(dim=(0, 2, 3)))
    torch.testing.assert_close(first.running_var, seen[0].var(dim=(0, 2, 3)))
    before = load_encoder(str(run.path)).backbone
    shown = prepared(images, encoder.mean, encoder.std, encoder.size)
    with torch.no_grad():
        assert not torch.allclose(encoder.backbone(shown), before.eval()(shown))


def test_it_prints_knn_before_and_after(trained, capsys):
    run, file = trained
    TOOL["main"]([str(run.path), "--data", str(file)])
    told = json.loads(capsys.readouterr().out)
    assert (told["recipe"], told["seed"]) == ("tiny", 0)
    assert told["crops"].keys() == told["whole_images"].keys() == {"k=20"}  # 40 images cannot give 200 neighbours
