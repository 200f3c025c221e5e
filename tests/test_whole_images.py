"""Does tools/whole_images.py take batch norm's statistics from whole images?"""

import json
import runpy
from pathlib import Path

import numpy as np
import pytest
import torch

from logo_ssl import pretrain
from logo_ssl.data.npz import load_npz
from logo_ssl.evaluate import Extraction, evaluate_knn, load_encoder
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


def test_the_first_norms_statistics_are_the_mean_over_batches_of_what_it_sees(trained):
    run, file = trained
    encoder = load_encoder(str(run.path))
    images = torch.from_numpy(np.load(file)["train_images"]).permute(0, 3, 1, 2)
    seen = []
    first = next(module for module in encoder.backbone.modules() if isinstance(module, BatchNorm))
    first.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    TOOL["learn_statistics"](encoder, images, 16)
    assert not encoder.backbone.training
    assert [len(batch) for batch in seen] == [16, 16, 8]
    means, variances = (torch.stack([of(batch) for batch in seen]) for of in (mean_of, variance_of))
    torch.testing.assert_close(first.running_mean, means.mean(dim=0))
    torch.testing.assert_close(first.running_var, variances.mean(dim=0))
    before = load_encoder(str(run.path)).backbone
    shown = prepared(images, encoder.mean, encoder.std, encoder.size)
    with torch.no_grad():
        assert not torch.allclose(encoder.backbone(shown), before.eval()(shown))


def mean_of(batch):
    return batch.mean(dim=(0, 2, 3))


def variance_of(batch):
    return batch.var(dim=(0, 2, 3))


def test_before_it_knn_is_that_of_eval_and_nothing_is_rounded_to_tf32(trained, tmp_path):
    run, file = trained
    data, encoder, rounding = load_npz(file), load_encoder(str(run.path)), []
    told = evaluate_knn(encoder, data, Extraction(cache=False), protocols=None, out=tmp_path / "knn.json")
    of_eval = {name.split()[2].rstrip(","): round(value, 2) for name, value in told if "top-1" in name}
    encoder.backbone.register_forward_pre_hook(lambda *_: rounding.append(torch.backends.cudnn.allow_tf32))
    assert TOOL["figures"](encoder, data.train, data.test) == of_eval
    TOOL["learn_statistics"](encoder, data.train.array)
    assert len(rounding) == 3
    assert not any(rounding)


def test_statistics_change_the_figures_though_the_weights_are_those_that_were_saved(trained):
    run, file = trained
    data, encoder = load_npz(file), load_encoder(str(run.path))
    features, _ = TOOL["labelled_features"](encoder, data.train, TOOL["HOW"])
    TOOL["learn_statistics"](encoder, data.train.array)
    assert not torch.allclose(TOOL["labelled_features"](encoder, data.train, TOOL["HOW"])[0], features)


def test_it_prints_knn_before_and_after(trained, capsys):
    run, file = trained
    TOOL["main"]([str(run.path), "--data", str(file)])
    told = json.loads(capsys.readouterr().out)
    assert (told["recipe"], told["seed"]) == ("tiny", 0)
    assert told["crops"].keys() == told["whole_images"].keys() == {"k=20"}  # 40 images cannot give 200 neighbours
