"""Does a run stop as it should on a full disk and with broken numbers, and does it tell of a collapse?"""

import errno
import re
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from small_runs import SMALL, assert_equal_runs, at_step, console, network_weights, train

from logo_ssl import resume
from logo_ssl.errors import UserError
from logo_ssl.frameworks import SimSiamConfig
from logo_ssl.recipes import OptimiserConfig
from logo_ssl.report.collect import signs_of_collapse
from logo_ssl.run import locked
from logo_ssl.strategies import LoGo
from logo_ssl.train import Pretraining, monitors, optim


def full(*_, **__):
    raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize(("where", "what"), [(torch, "save"), (Path, "open")], ids=["checkpoint", "metrics"])
def test_a_full_disk_stops_a_run_which_goes_on_once_there_is_room(data, tmp_path, monkeypatch, where, what):
    whole, _ = train(SMALL, data, tmp_path / "whole", epochs=3)
    with monkeypatch.context() as patch:
        at_step(patch, lambda module: patch.setattr(where, what, full), 4)
        with pytest.raises(UserError, match=r"No space left on device.*resume"):
            train(SMALL, data, tmp_path / "run", epochs=3)
    assert_equal_runs(whole, resume(tmp_path / "run", console=console()))


def test_a_disk_without_locks_is_used_all_the_same(tmp_path, monkeypatch):
    def unknown(*arguments):
        raise OSError(errno.ENOSYS, "Function not implemented")

    monkeypatch.setattr("fcntl.flock", unknown)
    with locked(tmp_path / "run"):
        assert (tmp_path / "run").is_dir()


@pytest.mark.parametrize("setting", ["optimiser__lr", "strategy__lr"])
def test_a_run_that_diverges_stops_and_names_cures(data, tmp_path, setting):
    with pytest.raises(UserError, match=r"diverged at step \d+: .*optimiser\.lr.*strategy\.lr"):
        train(SMALL, data, tmp_path / "run", **{setting: 1e30})


def break_regressor(monkeypatch, *steps):
    """Omega of these steps (from 0) has no finite gradient."""
    original, count = LoGo.inner, iter(range(1000))

    def broken(self, *arguments):
        objective = original(self, *arguments)
        return objective._replace(loss=objective.loss * (float("inf") if next(count) in steps else 1))

    monkeypatch.setattr(LoGo, "inner", broken)


def is_finite(run):
    return all(value.isfinite().all() for value in network_weights(run) if value.is_floating_point())


@pytest.mark.parametrize("fused", [None, True])  # as on a GPU
@pytest.mark.parametrize("kind", ["sgd", "adamw"])
def test_a_step_without_a_finite_gradient_is_left_out(data, tmp_path, monkeypatch, kind, fused):
    backward = Pretraining.manual_backward
    monkeypatch.setattr(optim, "_fused", lambda parameters: fused)
    monkeypatch.setattr(
        Pretraining,
        "manual_backward",
        lambda self, loss: backward(self, loss * (1 if self.global_step else float("inf"))),
    )
    recipe = replace(SMALL, framework=SimSiamConfig(dim=8, hidden=4), optimiser=OptimiserConfig(kind=kind, lr=0.01))
    run, said = train(recipe, data, tmp_path / "run", log_every=1)
    assert "Up to step 1, 1 step had no finite gradient." in said
    assert "diverged" not in said
    assert is_finite(run)


def test_a_regressor_without_a_finite_gradient_is_counted_and_spared(data, tmp_path, monkeypatch):
    break_regressor(monkeypatch, 1)
    run, said = train(SMALL, data, tmp_path / "run", log_every=1)
    assert "Up to step 2, 1 step had no finite gradient." in said
    assert said.count("no finite gradient") == 1
    assert is_finite(run)


def test_a_collapse_stops_the_run_if_asked_and_names_the_cause(data, tmp_path, monkeypatch):
    monkeypatch.setattr(monitors, "feature_std", lambda z: torch.tensor(0.0001))
    recipe = replace(SMALL, framework=SimSiamConfig(dim=8, hidden=4), epochs=1)
    _, said = train(recipe, data, tmp_path / "warned")
    assert re.search(r"collapsing to one point.* a batch of 16 is small", said)
    with pytest.raises(UserError, match=r"collapsing to one point.*on_collapse=stop"):
        train(recipe, data, tmp_path / "stopped", on_collapse="stop")


def test_a_falling_knn_is_a_sign_of_collapse_but_not_if_the_learning_rate_rose(data, tmp_path, monkeypatch):
    scores = iter([20.0, 80.0, 90.0, 40.0, 50.0, 60.0, 10.0])
    monkeypatch.setattr(monitors.OnlineKNN, "accuracy", lambda *arguments: next(scores))
    run, _ = train(SMALL, data, tmp_path / "run", on_collapse="stop")
    resume(run.path, console=console(), epochs=4)
    assert signs_of_collapse(list(run.metrics()), SMALL) == []
    with pytest.raises(UserError, match=r"from 60.0 % to 10.0 %.*on_collapse=stop"):
        resume(run.path, console=console(), epochs=6)


def test_falling_behind_an_untrained_encoder_is_said_and_stops_no_run(data, tmp_path, monkeypatch):
    scores = iter([90.0, 30.0, 31.0])
    monkeypatch.setattr(monitors.OnlineKNN, "accuracy", lambda *arguments: next(scores))
    _, said = train(SMALL, data, tmp_path / "run", on_collapse="stop")
    assert "kNN is 31.0 %, and the untrained encoder had 90.0 %" in said
