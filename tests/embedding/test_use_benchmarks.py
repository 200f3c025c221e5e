"""Do the benchmarks of use measure what they say, and fail where they should?"""

import importlib.util
import json
import os
import sys
from pathlib import Path

import pytest
import torch
from PIL import Image

from logo_ssl.data.decode import BadImage, decode

ROOT = Path(__file__).parents[2]


@pytest.fixture
def script(monkeypatch):
    monkeypatch.setattr(sys, "path", [*sys.path])

    def load(name):
        spec = importlib.util.spec_from_file_location(name, ROOT / "benchmarks" / f"{name}.py")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module

    return load


@pytest.fixture
def whole(photos):
    """The same photographs without the bad ones."""
    for name in ("a/bad.jpg", "b/01.jpg"):
        (photos / name).unlink()
    return photos


def test_round_trips_are_told_for_each_backbone_and_target(script, whole, capsys):
    options = ["--images", "4", "--backbones", "resnet18", "--targets", "torchvision", "safetensors"]
    assert script("round_trip").main(["--data", str(whole), *options]) == 0
    told = json.loads(capsys.readouterr().out)
    assert [(trip["target"], trip["images"]) for trip in told["trips"]] == [("torchvision", 4), ("safetensors", 4)]
    assert max(trip["apart"] for trip in told["trips"]) == told["apart"] < 1e-4


def test_the_farthest_vector_counts_by_its_own_norm(script):
    expected = torch.tensor([[3.0, 4.0], [0.0, 0.1]])
    assert script("round_trip").farthest(expected + torch.tensor([0.0, 0.01]), expected) == pytest.approx(0.1)


@pytest.mark.parametrize(("apart", "code"), [(0.9e-4, 0), (1.1e-4, 1), (float("nan"), 1)])
def test_a_target_that_computes_something_else_fails(script, whole, capsys, monkeypatch, apart, code):
    module = script("round_trip")
    trips = [{"apart": value, "images_apart": 1.0} for value in (0.0, apart)]
    monkeypatch.setattr(module, "round_trips", lambda *_: trips)
    assert module.main(["--data", str(whole), "--backbones", "resnet18"]) == code
    assert json.loads(capsys.readouterr().out)["trips"][1]["apart"] == pytest.approx(apart, nan_ok=True)


def test_odd_files_can_be_read_and_broken_ones_cannot(script, whole):
    module = script("first_features")
    with Image.open(whole / "a" / "00.png") as image:
        odd, broken = module.odd_files(image), module.broken_files(image)
    assert all(decode(content, 64).shape[2] == 3 for content in odd.values())
    for content in broken.values():
        with pytest.raises(BadImage):
            decode(content, 64)


def test_a_messy_folder_holds_as_many_photographs_as_asked(script, whole, tmp_path):
    module = script("first_features")
    broken = module.fill(tmp_path / "messy", str(whole), 5)
    names = module.names_in(tmp_path / "messy")
    assert broken < names
    assert sorted(name[:5] for name in names if name[0] == "0") == [f"{i:05}" for i in range(5)]
    assert "nested/below/deep.jpg" in names


@pytest.mark.slow
def test_a_new_users_commands_run_one_after_the_other(script, whole, capsys, monkeypatch):
    module = script("first_features")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT / "src"), *sys.path]))
    assert module.main(["--data", str(whole), "--photographs", "20", "--epochs", "1"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["files"], told["embedded"], told["epochs"]) == (35, 32, 1)
    assert told["left_out"] == ["empty.jpg", "text.jpg", "truncated.jpg"]
    assert len(told["seconds"]) == 6
