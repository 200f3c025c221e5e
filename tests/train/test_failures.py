"""Does a run survive a full or read-only disk and broken numbers, and does it tell of a collapse?"""

import errno
import json
import os
import re
import resource
import signal
import stat
import tempfile
import weakref
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from small_runs import SMALL, assert_equal_runs, at_step, console, network_weights, stop, train

from logo_ssl import pretrain, resume
from logo_ssl.errors import Interrupted, UserError
from logo_ssl.files import write, write_together
from logo_ssl.frameworks import SimSiamConfig
from logo_ssl.report.collect import signs_of_collapse
from logo_ssl.run import Run, locked
from logo_ssl.strategies import LoGo
from logo_ssl.train import Pretraining, monitors
from logo_ssl.train.loggers import JsonlLogger
from logo_ssl.train.optim import rate_at


def full_disk(monkeypatch, is_full):
    """torch.save fails whenever `is_full` says so."""
    real = torch.save

    def save(*arguments, **options):
        if is_full():
            raise OSError(errno.ENOSPC, "No space left on device")
        real(*arguments, **options)

    monkeypatch.setattr(torch, "save", save)


def test_a_full_disk_costs_a_checkpoint_and_nothing_else(data, tmp_path, monkeypatch):
    fails = iter([True, False])
    full_disk(monkeypatch, lambda: next(fails))
    run, said = train(SMALL, data, tmp_path / "run")
    assert said.count("could not be saved") == 1
    assert run.is_finished
    assert [file.name[:14] for file in run.checkpoints.iterdir()] == ["step-000000006"]


def test_the_end_tells_how_old_the_newest_checkpoint_is(data, tmp_path, monkeypatch):
    run = Run(tmp_path / "run")
    full_disk(monkeypatch, lambda: bool(run.saved()))
    _, said = train(SMALL, data, run.path, epochs=3)
    assert "The last 2 checkpoints could not be saved (No space left on device), and the newest is of step 3" in said
    assert said.count("training goes on") == 1
    told = json.loads(run.provenance_file.read_text())["checkpoints"]
    assert [told[name] for name in ("saved", "failed", "newest_step")] == [1, 2, 3]


def test_a_stop_that_cannot_be_saved_tells_which_step_is(data, tmp_path, monkeypatch):
    run = Run(tmp_path / "run")
    full_disk(monkeypatch, lambda: bool(run.saved()))
    at_step(monkeypatch, lambda module: stop(), 4)
    with pytest.raises(Interrupted, match=r"step 5 could not be saved .* of step 3"):
        train(SMALL, data, run.path)


def test_a_disk_with_room_for_two_checkpoints_gives_up_the_older_one(data, tmp_path, monkeypatch):
    run = Run(tmp_path / "run")
    full_disk(monkeypatch, lambda: len(run.saved()) == 2)
    _, said = train(SMALL, data, run.path, epochs=4)
    assert "could not be saved" not in said
    assert run.newest_step() == 12


def test_older_checkpoints_give_way_to_what_was_learned(data, tmp_path, monkeypatch):
    real = write_together

    def write_if_there_is_room(contents):
        if len(Run(tmp_path / "run").saved()) > 1:
            raise OSError(errno.ENOSPC, "No space left on device")
        real(contents)

    monkeypatch.setattr("logo_ssl.train.weights.write_together", write_if_there_is_room)
    run, _ = train(SMALL, data, tmp_path / "run")
    assert run.is_finished
    assert [file.name[:14] for file in run.saved()] == ["step-000000006"]


def test_a_full_disk_ends_tensorboards_log_and_not_the_training(data, tmp_path, monkeypatch, capfd):
    def refuse(*_):
        if next(room, None) is None:
            raise OSError(errno.ENOSPC, "No space left on device")

    room = iter(range(6))
    monkeypatch.setattr("tensorboard.summary.writer.record_writer.RecordWriter.write", refuse)
    run, said = train(SMALL, data, tmp_path / "run", loggers=("tensorboard",), log_every=1)
    assert said.count("The log for tensorboard cannot be written (No space left on device)") == 1
    assert run.is_finished
    assert "Traceback" not in capfd.readouterr().err


def test_a_folder_that_turns_read_only_is_told_and_nothing_is_lost(data, tmp_path, monkeypatch):
    open_, said = Path.open, console()

    def refuse(path):
        raise OSError(errno.EROFS, "Read-only file system", str(path))

    def open_to_read(self, mode="r", *arguments, **options):
        return refuse(self) if mode in ("a", "wb") else open_(self, mode, *arguments, **options)

    def turn(module):
        monkeypatch.setattr(Path, "open", open_to_read)
        monkeypatch.setattr(tempfile, "mkstemp", lambda **options: refuse(options["dir"]))

    whole, _ = train(SMALL, data, tmp_path / "whole")
    with monkeypatch.context() as patch:
        at_step(patch, turn, 4)
        with pytest.raises(OSError, match="Read-only"):
            pretrain(SMALL, tmp_path / "run", data=data, console=said)
    monkeypatch.undo()
    assert said.file.getvalue().count("(Read-only file system); training goes on") == 1
    assert said.file.getvalue().count("metrics.jsonl cannot be written (Read-only file system)") == 1
    assert_equal_runs(whole, resume(tmp_path / "run", console=console()))


def test_metrics_wait_in_memory_while_their_file_cannot_be_written(tmp_path, monkeypatch):
    said = []
    journal = JsonlLogger(Run(tmp_path), said.append)
    journal.log_metrics({"l_gg": 1.0}, 1)
    with monkeypatch.context() as full:
        full.setattr(Path, "open", _no_room)
        for step in (2, 50, 60):
            journal.log_metrics({"knn": float(step)}, step)
    assert len(said) == 1
    journal.log_metrics({"l_gg": 1.0}, 61)
    assert [line["step"] for line in journal.run.metrics()] == [1, 2, 50, 60, 61]
    journal.forget_after(2)  # as a run that goes back does
    assert journal.latest["knn"] == 2.0
    assert [line["step"] for line in journal.run.metrics()] == [1, 2]


def _no_room(*_: object, **__: object) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


def test_half_a_line_of_metrics_is_taken_back(tmp_path):
    run, said = Run(tmp_path), []
    journal = JsonlLogger(run, said.append)
    journal.log_metrics({"loss": 1.0}, step=1)
    limit = run.metrics_file.stat().st_size + 10
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, before[1]))
    try:
        journal.log_metrics({"loss": 2.0}, step=2)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)
    assert [line["step"] for line in run.metrics()] == [1]
    assert len(said) == 1
    journal.log_metrics({"loss": 3.0}, step=3)
    assert [line["step"] for line in run.metrics()] == [1, 2, 3]


def test_a_rename_is_made_to_last(tmp_path, monkeypatch):
    synced, real = [], os.fsync
    monkeypatch.setattr(os, "fsync", lambda handle: (synced.append(os.fstat(handle)), real(handle)))
    write(tmp_path / "file", "text")
    assert [stat.S_ISDIR(kind.st_mode) for kind in synced] == [False, True]
    assert synced[1].st_ino == tmp_path.stat().st_ino


def test_a_disk_without_locks_is_used_all_the_same(tmp_path, monkeypatch):
    def unknown(*arguments):
        raise OSError(errno.ENOSYS, "Function not implemented")

    monkeypatch.setattr("fcntl.flock", unknown)
    with locked(tmp_path / "run"):
        assert (tmp_path / "run").is_dir()


def break_losses(monkeypatch, *steps):
    """Losses of these steps (from 0; each once) are not a number."""
    original, left = Pretraining.algorithm_1, set(steps)

    def broken(self, crops, *others):
        if self.global_step in left:
            left.discard(self.global_step)
            crops = crops._replace(x_g=crops.x_g * float("nan"))
        return original(self, crops, *others)

    monkeypatch.setattr(Pretraining, "algorithm_1", broken)


def break_regressor(monkeypatch, *steps):
    """Omega of these steps (from 0) has no finite gradient."""
    original, count = LoGo.inner, iter(range(1000))

    def broken(self, *arguments):
        objective = original(self, *arguments)
        return objective._replace(loss=objective.loss * (float("inf") if next(count) in steps else 1))

    monkeypatch.setattr(LoGo, "inner", broken)


def is_finite(run):
    return all(value.isfinite().all() for value in network_weights(run) if value.is_floating_point())


def test_a_step_without_a_finite_gradient_is_left_out(data, tmp_path, monkeypatch):
    backward = Pretraining.manual_backward
    monkeypatch.setattr(
        Pretraining,
        "manual_backward",
        lambda self, loss: backward(self, loss * (float("inf") if self.global_step == 1 else 1)),
    )
    run, said = train(replace(SMALL, framework=SimSiamConfig(dim=8, hidden=4)), data, tmp_path / "run", log_every=1)
    assert "Up to step 2, 1 step had no finite gradient." in said
    assert "diverged" not in said
    assert is_finite(run)


def test_a_regressor_without_a_finite_gradient_is_counted_and_spared(data, tmp_path, monkeypatch):
    break_regressor(monkeypatch, 1)
    run, said = train(SMALL, data, tmp_path / "run", log_every=1)
    assert "Up to step 2, 1 step of the regressor had no finite gradient." in said
    assert said.count("no finite gradient") == 1
    assert is_finite(run)


def test_a_regressor_that_was_broken_between_two_looks_counts_as_diverged(data, tmp_path, monkeypatch):
    break_regressor(monkeypatch, 1, 2, 3)
    _, said = train(SMALL, data, tmp_path / "run", epochs=3, log_every=8)  # 3 steps an epoch, the fifth was fine
    assert said.count("with half the learning rate") == 1


def test_a_run_that_breaks_goes_back_with_half_the_learning_rate_and_frees_what_diverged(data, tmp_path, monkeypatch):
    built, original = [], Pretraining.__init__

    def watched(self, *arguments, **options):
        assert [module() for module in built] == [None] * len(built)
        original(self, *arguments, **options)
        built.append(weakref.ref(self))

    monkeypatch.setattr(Pretraining, "__init__", watched)
    break_losses(monkeypatch, 1, 4)
    run, said = train(SMALL, data, tmp_path / "run", log_every=1)
    assert re.search(r"diverged at step 2 \(.*loss.* not finite\): back to the beginning", said)
    assert re.search(r"diverged at step 5 \(.*loss.* not finite\): back to step-000000003-\w+.ckpt", said)
    assert len(built) == 3
    assert json.loads(run.provenance_file.read_text())["lr_scale"] == 0.25
    rates = {line["step"]: line["lr"] for line in run.metrics() if "lr" in line}
    assert rates[3] == pytest.approx(rate_at(SMALL, 2, 3) / 2)
    assert rates[4] == pytest.approx(rate_at(SMALL, 3, 3) / 4)
    assert is_finite(run)


def test_a_second_return_halves_the_rate_again_even_in_another_session(data, tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        break_losses(patch, 4)
        at_step(patch, lambda module: module.lr_scale < 1 and stop(), 4)
        with pytest.raises(Interrupted):
            train(SMALL, data, tmp_path / "run", log_every=1)
    break_losses(monkeypatch, 5)
    run = resume(tmp_path / "run", console=console())
    assert json.loads(run.provenance_file.read_text())["lr_scale"] == 0.25


@pytest.mark.parametrize("setting", ["optimiser__lr", "strategy__lr"])
def test_a_run_that_keeps_breaking_stops_and_names_cures(data, tmp_path, setting):
    with pytest.raises(UserError, match=r"diverged at step \d+ .*2 returns .* optimiser\.lr, strategy\.lr"):
        train(SMALL, data, tmp_path / "run", **{setting: 1e30})


def test_a_collapse_stops_the_run_if_asked_and_names_the_cause(data, tmp_path, monkeypatch):
    monkeypatch.setattr(monitors, "feature_std", lambda z: torch.tensor(0.0001))
    recipe = replace(SMALL, framework=SimSiamConfig(dim=8, hidden=4), epochs=1)
    _, said = train(recipe, data, tmp_path / "warned")
    assert re.search(r"collapsing to one point.* a batch of 16 is small", said)
    with pytest.raises(UserError, match=r"collapsing to one point.*on_collapse=stop"):
        train(recipe, data, tmp_path / "stopped", on_collapse="stop")


def test_a_falling_knn_is_a_sign_of_collapse_but_not_if_the_learning_rate_rose(data, tmp_path, monkeypatch):
    scores = iter([20.0, 80.0, 90.0, 40.0, 50.0, 60.0, 10.0])
    monkeypatch.setattr(monitors, "knn_accuracy", lambda *arguments: next(scores))
    run, _ = train(SMALL, data, tmp_path / "run", on_collapse="stop")
    resume(run.path, console=console(), epochs=4)
    assert signs_of_collapse(list(run.metrics()), SMALL) == []
    with pytest.raises(UserError, match=r"from 60.0 % to 10.0 %.*on_collapse=stop"):
        resume(run.path, console=console(), epochs=6)


def test_falling_behind_an_untrained_encoder_is_said_and_stops_no_run(data, tmp_path, monkeypatch):
    scores = iter([90.0, 30.0, 31.0])
    monkeypatch.setattr(monitors, "knn_accuracy", lambda *arguments: next(scores))
    _, said = train(SMALL, data, tmp_path / "run", on_collapse="stop")
    assert "kNN is 31.0 %, and the untrained encoder had 90.0 %" in said
