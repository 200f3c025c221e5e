"""Do the benchmarks of use measure what they say, and fail where they should?"""

import importlib.util
import json
import os
import sys
from pathlib import Path

import pytest

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
