"""What the tests of training share: a recipe that takes a second, and how to run it."""

import io
import os
import signal
from dataclasses import replace

import pytest
import safetensors.torch
import torch
from rich.console import Console

from logo_ssl import pretrain
from logo_ssl.augment import CropPlan, fused
from logo_ssl.errors import Interrupted
from logo_ssl.frameworks import MoCoConfig
from logo_ssl.recipes import OptimiserConfig, find_recipe
from logo_ssl.strategies import LoGoConfig
from logo_ssl.train import Pretraining
from logo_ssl.weights import load

SMALL = replace(
    find_recipe("tiny"),
    epochs=2,
    batch_size=16,
    framework=MoCoConfig(dim=8, queue=24, splits=2),
    strategy=LoGoConfig(depth=2, width=16),
    crops=CropPlan(global_size=16, local_size=8),
    optimiser=OptimiserConfig(lr=0.03),
    knn_every=1,
    log_every=2,
    loggers=(),
    device="cpu",
)


def at_step(monkeypatch, action, *steps):
    """Call `action(module)` before the training steps of these numbers (from 0)."""
    original = Pretraining.training_step

    def watched(self, batch, batch_idx):
        if self.global_step in steps:
            action(self)
        original(self, batch, batch_idx)

    monkeypatch.setattr(Pretraining, "training_step", watched)


def stop(number=signal.SIGTERM):
    """Send this process a signal."""
    os.kill(os.getpid(), number)


def cut_short(data, path, *, before_step, **options):
    """A run that is told to stop, and saves itself, before the training step of this number (from 0)."""
    with pytest.MonkeyPatch.context() as patch:
        at_step(patch, lambda module: stop(), before_step)
        with pytest.raises(Interrupted):
            train(SMALL, data, path, **options)


def compile_to_the_same(monkeypatch):
    """A compiler that takes no time, since it gives back what it gets."""
    monkeypatch.setattr(torch, "compile", lambda function, **options: function)
    monkeypatch.setattr(fused, "compiled", fused.compiled.__wrapped__)  # which remembers none


def console():
    """A console that remembers."""
    return Console(file=io.StringIO(), width=400)


def train(recipe, data, out, **changes):
    """A run, and what was said about it."""
    said = console()
    run = pretrain(recipe, out, data=data, console=said, **changes)
    return run, said.file.getvalue()


def network_weights(run):
    """Everything in the newest checkpoint that a network holds, in the order of its names."""
    return [value for _, value in sorted(load(run.saved()[0])["state_dict"].items())]


def assert_equal_runs(one, other, but=()):
    """Bit for bit the same encoder, heads, final checkpoint (but for some parts) and curves."""
    for name in ("backbone_file", "heads_file"):
        expected, got = (safetensors.torch.load_file(getattr(run, name)) for run in (one, other))
        assert expected.keys() == got.keys()
        assert all(torch.equal(got[key], value) for key, value in expected.items())
    expected, got = (load(run.saved()[0]) for run in (one, other))
    for part in expected.keys() - {
        "streams",
        "loops",
        *but,
    }:  # Lightning's loops count anew; global_step and epoch tell
        _assert_equal(expected[part], got[part])
    for mine, theirs in zip(expected["streams"], got["streams"], strict=True):
        for stream in ("torch", "numpy"):  # Python's own is drawn from by the shape checks of these tests
            _assert_equal(mine[stream], theirs[stream])
    expected, got = (
        [{k: v for k, v in line.items() if k not in ("time", "images_per_s", "knn_s")} for line in run.metrics()]
        for run in (one, other)
    )
    assert expected == got


def _assert_equal(expected, got):
    if isinstance(expected, torch.Tensor):
        assert torch.equal(expected, got)
    elif isinstance(expected, dict):
        assert expected.keys() == got.keys()
        for key, value in expected.items():
            _assert_equal(value, got[key])
    elif isinstance(expected, list | tuple):
        assert len(expected) == len(got)
        for one, other in zip(expected, got, strict=True):
            _assert_equal(one, other)
    else:
        assert expected == got
