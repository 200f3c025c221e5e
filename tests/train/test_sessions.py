"""Does a run that was trained in several sessions tell so, and does each of them begin and end in order?"""

import errno
import importlib
import json
import multiprocessing
import os
import random
import re
import signal
import stat
import tempfile
import weakref
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import safetensors.torch
import torch
from small_runs import SMALL, assert_equal_runs, at_step, console, train
from test_interruptions import break_losses

from logo_ssl import load_backbone, pretrain, resume
from logo_ssl.cli import main
from logo_ssl.errors import Interrupted, UserError
from logo_ssl.files import write
from logo_ssl.randomness import global_streams, set_global_streams
from logo_ssl.run import Run, locked
from logo_ssl.signals import Stopped, heeded
from logo_ssl.strategies import LoGo
from logo_ssl.train import Pretraining, checkpoint, monitors
from logo_ssl.train.checkpoint import Agreement
from logo_ssl.train.weights import load_heads

FORKS = pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
OPTIONS = ("--epochs", "1", "--batch-size", "8", "--loggers", "--device", "cpu")


def told(run):
    return json.loads(run.provenance_file.read_text())


SPOKEN = {"SIGINT": "Ctrl-C"}


def stop(number=signal.SIGTERM):
    os.kill(os.getpid(), number)


def full_disk(monkeypatch, is_full):
    """torch.save fails whenever `is_full` says so."""
    real = torch.save

    def save(*arguments, **options):
        if is_full():
            raise OSError(errno.ENOSPC, "No space left on device")
        real(*arguments, **options)

    monkeypatch.setattr(torch, "save", save)


def test_what_diverged_is_freed_before_it_is_built_again(data, tmp_path, monkeypatch):
    built, original = [], Pretraining.__init__

    def watched(self, *arguments, **options):
        assert [module() for module in built] == [None] * len(built)
        original(self, *arguments, **options)
        built.append(weakref.ref(self))

    monkeypatch.setattr(Pretraining, "__init__", watched)
    break_losses(monkeypatch, 1, 4)
    run, said = train(SMALL, data, tmp_path / "run", log_every=1)
    assert said.count("with half the learning rate") == 2
    assert len(built) == 3
    assert run.is_finished


def test_the_end_tells_how_old_the_newest_checkpoint_is(data, tmp_path, monkeypatch):
    run = Run(tmp_path / "run")
    full_disk(monkeypatch, lambda: bool(run.saved()))
    _, said = train(SMALL, data, run.path, epochs=3)
    assert (
        "The last 2 checkpoints could not be saved (No space left on device), and the newest is of step 3 of 9." in said
    )
    assert said.count("The checkpoint could not be saved (No space left on device); training goes on") == 1
    assert "Make room in" in said
    assert told(run)["checkpoints"] | {"longest_blocked_s": 0, "mb": 0} == {
        "saved": 1,
        "failed": 2,
        "newest_step": 3,
        "longest_blocked_s": 0,
        "mb": 0,
    }


def test_checkpoints_that_fail_in_a_row_are_told_once_and_so_is_their_end(data, tmp_path, monkeypatch):
    fails = iter([True, True, False, True, False])
    full_disk(monkeypatch, lambda: next(fails))
    _, said = train(SMALL, data, tmp_path / "run", epochs=5)
    told = re.findall("could not be saved|saved again", said)
    assert told == ["could not be saved", "saved again"] * 2


def test_a_stop_that_cannot_be_saved_tells_which_step_is(data, tmp_path, monkeypatch):
    run = Run(tmp_path / "run")
    full_disk(monkeypatch, lambda: bool(run.saved()))
    at_step(monkeypatch, lambda module: stop(), 4)
    with pytest.raises(Interrupted, match=r"step 5 could not be saved \(the newest checkpoint is of step 3\); go on"):
        train(SMALL, data, run.path)


def test_a_disk_with_room_for_two_checkpoints_gives_up_the_older_one(data, tmp_path, monkeypatch):
    run = Run(tmp_path / "run")
    full_disk(monkeypatch, lambda: len(run.saved()) == 2)
    _, said = train(SMALL, data, run.path, epochs=4)
    assert "could not be saved" not in said
    assert run.newest_step() == 12


def test_a_rename_is_made_to_last(tmp_path, monkeypatch):
    synced, real = [], os.fsync
    monkeypatch.setattr(os, "fsync", lambda handle: (synced.append(os.fstat(handle)), real(handle)))
    write(tmp_path / "file", "text")
    assert [stat.S_ISDIR(kind.st_mode) for kind in synced] == [False, True]
    assert synced[1].st_ino == tmp_path.stat().st_ino


def test_a_backbone_and_heads_of_two_steps_are_refused_and_resume_mends_them(data, tmp_path):
    run, _ = train(SMALL, data, tmp_path / "run", epochs=1)
    with safetensors.safe_open(run.backbone_file, framework="pt") as file:
        assert file.metadata()["step"] == "3"
    old = run.heads_file.read_bytes()
    assert json.loads(run.provenance_file.read_text())["epochs_first_planned"] == 1
    resume(run.path, console=console(), epochs=2)
    told = json.loads(run.provenance_file.read_text())
    assert (told["epochs_first_planned"], told["epochs"]) == (1, 2)
    whole = safetensors.torch.load(run.heads_file.read_bytes())
    backbone, _ = load_backbone(run)
    load_heads(run, backbone)
    run.heads_file.write_bytes(old)
    run.provenance_file.unlink()  # as a power cut between two renames leaves it
    with pytest.raises(UserError, match=rf"is of step 6 and heads.safetensors of step 3.*resume {run.path}`"):
        load_heads(run, backbone)
    resume(run.path, console=console())
    load_heads(run, backbone)
    again = safetensors.torch.load(run.heads_file.read_bytes())
    assert all(torch.equal(again[name], value) for name, value in whole.items())


def test_seconds_and_checkpoints_add_up_over_sessions(data, tmp_path, monkeypatch):
    out = tmp_path / "run"
    for step in (1, 4):
        with monkeypatch.context() as patch:
            at_step(patch, lambda module: stop(), step)
            with pytest.raises(Interrupted):
                resume(out, console=console()) if out.exists() else train(SMALL, data, out)
    run = resume(out, console=console())
    sessions = json.loads(run.sessions_file.read_text())
    assert [session["step"] for session in sessions] == [2, 5, 6]
    assert [session["checkpoints"] for session in sessions] == [1, 2, 1]
    assert all(session["ended"] for session in sessions)
    assert (told(run)["sessions"], told(run)["sessions_killed"], told(run)["checkpoints"]["saved"]) == (3, 0, 4)
    assert told(run)["seconds"] == pytest.approx(sum(session["seconds"] for session in sessions), abs=0.3)


@pytest.mark.parametrize(("name", "code"), [("SIGTERM", 143), ("SIGUSR1", 138), ("SIGINT", 130)])
@pytest.mark.parametrize("moment", ["load_data", "place_images", "save_encoder"])
def test_a_signal_before_the_first_step_or_after_the_last_is_told(
    data, tmp_path, monkeypatch, capsys, moment, name, code
):
    function = moment
    module = importlib.import_module("logo_ssl.train.pretrain")  # the name pretrain also belongs to a function
    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGUSR1)}
    with monkeypatch.context() as patch:
        patch.setattr(module, function, lambda *arguments: stop(getattr(signal, name)))
        with pytest.raises(SystemExit) as end:
            main(["pretrain", "tiny", "--data", data, "--out", str(tmp_path / "run"), *OPTIONS])
    assert end.value.code == code
    begun = function != "load_data"
    cure = f"go on with `logo-ssl resume {tmp_path / 'run'}`" if begun else "start it again"
    how = "Interrupted" if (name, function) == ("SIGINT", "place_images") else f"Stopped by {SPOKEN.get(name, name)}"
    assert capsys.readouterr().err == f"logo-ssl: {how}; {cure}.\n"
    assert {number: signal.getsignal(number) for number in handlers} == handlers
    if begun:
        assert resume(tmp_path / "run", console=console()).is_finished


@FORKS
def test_a_forked_process_leaves_early_warnings_to_its_parent():
    def child():
        stop(signal.SIGUSR1)
        stop(signal.SIGTERM)

    with heeded():
        process = multiprocessing.get_context("fork").Process(target=child)
        process.start()
        process.join()
        assert process.exitcode == 143
        with pytest.raises(Stopped):
            stop(signal.SIGUSR1)


def hold(folder, ready):
    """Hold a folder, and have a worker that would never end."""
    with locked(folder):
        worker = os.fork()
        if worker:
            ready.send(worker)
        signal.pause()


@FORKS
def test_a_killed_process_leaves_no_lock_with_its_workers(tmp_path):
    here, there = multiprocessing.Pipe()
    holder = multiprocessing.get_context("fork").Process(target=hold, args=(tmp_path / "run", there))
    holder.start()
    worker = here.recv()
    try:
        with (
            pytest.raises(UserError, match=rf"by another process \(process {holder.pid} on .*\)"),
            locked(tmp_path / "run"),
        ):
            pass
        holder.kill()
        holder.join()
        with locked(tmp_path / "run"):
            os.kill(worker, 0)  # it lives
    finally:
        os.kill(worker, signal.SIGKILL)


def broken_regressor(monkeypatch, *steps):
    """Omega of these steps (from 0) has no finite gradient."""
    original, count = LoGo.inner, iter(range(1000))

    def broken(self, *arguments):
        objective = original(self, *arguments)
        return objective._replace(loss=objective.loss * (float("inf") if next(count) in steps else 1))

    monkeypatch.setattr(LoGo, "inner", broken)


def test_a_regressor_without_a_finite_gradient_is_counted_and_spared(data, tmp_path, monkeypatch):
    broken_regressor(monkeypatch, 1)
    run, said = train(SMALL, data, tmp_path / "run", log_every=1)
    assert "Up to step 2, 1 step of the regressor had no finite gradient." in said
    assert "taught nothing" not in said
    assert all(torch.isfinite(value).all() for value in torch.load(run.saved()[0])["state_dict"].values())


def test_a_regressor_that_stays_broken_counts_as_diverged(data, tmp_path, monkeypatch):
    broken_regressor(monkeypatch, 1, 2, 3)
    _, said = train(SMALL, data, tmp_path / "run", log_every=1)
    assert said.count("with half the learning rate") == 1


def test_processes_ask_each_other_every_few_seconds_however_long_steps_take(monkeypatch):
    clock, asked = SimpleNamespace(now=0.0), []
    monkeypatch.setattr(checkpoint.time, "monotonic", lambda: clock.now)
    monkeypatch.setattr(checkpoint, "world_size", lambda: 2)
    monkeypatch.setattr(checkpoint.dist, "all_reduce", lambda told, how: asked.append(clock.now))
    between = Agreement()
    for step in range(1, 1001):
        clock.now += 5.0 if step == 1 else 0.01 if step < 500 else 3.0  # compiling; fast steps; slow ones
        if between.is_due(step):
            wishes = (15 * (step == 700), 0)
            assert between.reach(wishes, step, torch.device("cpu")) == wishes
    gaps = [later - before for before, later in pairwise(asked)]
    assert max(gaps) <= 20 * 3.0
    assert sum(gap > 3.5 for gap in gaps) <= 2  # when steps became slow on a sudden
    assert len(asked) < 500 / 20 + 500 + 3


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
    assert "The checkpoint could not be saved (Read-only file system); training goes on" in said.file.getvalue()
    assert "metrics.jsonl cannot be written (Read-only file system)" in said.file.getvalue()
    assert_equal_runs(whole, resume(tmp_path / "run", console=console()))


def test_streams_that_others_draw_from_are_taken_back():
    def draw():
        return random.random(), np.random.rand(), torch.rand(()).item()

    cpu = torch.device("cpu")
    kept = global_streams(cpu)
    first = draw()
    assert draw() != first
    set_global_streams(kept, cpu)
    assert draw() == first


def test_a_regressor_that_was_broken_between_two_looks_counts_as_diverged(data, tmp_path, monkeypatch):
    broken_regressor(monkeypatch, 1, 2, 3)
    _, said = train(SMALL, data, tmp_path / "run", epochs=3, log_every=8)  # 3 steps an epoch, the fifth was fine
    assert said.count("with half the learning rate") == 1


def test_falling_behind_an_untrained_encoder_is_said_and_stops_no_run(data, tmp_path, monkeypatch):
    scores = iter([90.0, 30.0, 31.0])
    monkeypatch.setattr(monitors, "knn_accuracy", lambda *arguments: next(scores))
    _, said = train(SMALL, data, tmp_path / "run", on_collapse="stop")
    assert "a sign of collapse" not in said
    assert "kNN is 31.0 %, and the untrained encoder had 90.0 %" in said


@pytest.mark.parametrize("on_collapse", ["warn", "stop"])
def test_a_falling_knn_is_a_sign_of_collapse(data, tmp_path, monkeypatch, on_collapse):
    scores = iter([30.0, 80.0, 40.0])
    monkeypatch.setattr(monitors, "knn_accuracy", lambda *arguments: next(scores))
    told = "Epoch 2: kNN fell from 80.0 % to 40.0 %, a sign of collapse. Most likely a batch of 16 is small"
    if on_collapse == "warn":
        assert told in train(SMALL, data, tmp_path / "run")[1]
    else:
        with pytest.raises(UserError, match=rf"{told}.*Stopped, as on_collapse=stop asks"):
            train(SMALL, data, tmp_path / "run", on_collapse="stop")
