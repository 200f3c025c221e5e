"""Is anything lost when a run is interrupted, killed, torn or touched by others, and does it tell its sessions?"""

import itertools
import json
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from small_runs import (
    SMALL,
    assert_equal_runs,
    at_step,
    compile_to_the_same,
    console,
    cut_short,
    network_weights,
    stop,
    train,
)

from logo_ssl import load_backbone, resume
from logo_ssl.cli import main
from logo_ssl.data.loader import TensorFeed
from logo_ssl.errors import Interrupted, UserError
from logo_ssl.frameworks import (
    BarlowTwinsConfig,
    BYOLConfig,
    DINOConfig,
    DistilConfig,
    NNCLRConfig,
    SimCLRConfig,
    SimSiamConfig,
    SupervisedConfig,
    SwAVConfig,
    VICRegConfig,
)
from logo_ssl.run import Run, locked
from logo_ssl.strategies import MultiCropConfig, TwoViewConfig
from logo_ssl.system.signals import Stopped, StopSignals, heeded
from logo_ssl.train import Pretraining, compile
from logo_ssl.weights import load

FORKS = pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")


LATENTS = {
    "moco": SMALL.framework,
    "simsiam": SimSiamConfig(dim=8, hidden=4),
    "byol": BYOLConfig(dim=8, hidden=16),
    "simclr": SimCLRConfig(dim=8),
    "nnclr": NNCLRConfig(dim=8, hidden=16, queue=24),
    "swav": SwAVConfig(dim=8, hidden=16, prototypes=5, queue=24),
    "dino": DINOConfig(dim=8, hidden=16, out_dim=5),
    "vicreg": VICRegConfig(dim=8),
    "barlow-twins": BarlowTwinsConfig(dim=8),
    "distil": DistilConfig("random/tiny", dim=8, hidden=16, queue=24),
}
SUPERVISED = {
    "framework": SupervisedConfig(),
    "strategy": TwoViewConfig(),
    "crops": replace(SMALL.crops, n_global=1, n_local=0),
}
EVERYTHING = {
    f"{framework}-{name}": {"framework": config, "strategy": strategy, "crops": replace(SMALL.crops, n_local=n_local)}
    for framework, config in LATENTS.items()
    for name, strategy, n_local in (
        ("two-view", TwoViewConfig(), 0),
        ("multi-crop", MultiCropConfig(), 2),
        ("logo", SMALL.strategy, 2),
    )
} | {"supervised": SUPERVISED}


@pytest.mark.parametrize("changes", EVERYTHING.values(), ids=EVERYTHING)
def test_a_run_interrupted_anywhere_ends_like_an_uninterrupted_one(data, tmp_path, changes, monkeypatch):
    recipe = replace(SMALL, **changes)
    whole, _ = train(recipe, data, tmp_path / "whole")
    for step in (1, 2, 4):  # twice: inside an epoch, at its end, inside the next
        go = partial(resume, tmp_path / "cut", console=console())
        if step == 1:
            go = partial(train, recipe, data, tmp_path / "cut")
        with monkeypatch.context() as patch:
            at_step(patch, lambda module: stop(signal.SIGUSR1), step)
            with pytest.raises(Interrupted, match=rf"SIGUSR1, saved at step {step + 1}"):
                go()
        assert not Run(tmp_path / "cut").is_finished
    assert_equal_runs(whole, resume(tmp_path / "cut", console=console()))


def test_a_backbone_is_led_back_to_the_same_weights_after_an_interruption_even_if_their_file_is_gone(data, tmp_path):
    other, _ = train(SMALL, data, tmp_path / "other", epochs=1)
    optimiser = replace(SMALL.optimiser, frozen_epochs=0.5, backbone_lr=0.5, pull=5.0)
    adapted = {"init": str(other.backbone_file), "optimiser": optimiser}
    whole, _ = train(SMALL, data, tmp_path / "whole", **adapted)
    cut_short(data, tmp_path / "cut", before_step=4, **adapted)
    other.backbone_file.unlink()
    assert_equal_runs(whole, resume(tmp_path / "cut", console=console()))


def test_networks_that_draw_for_themselves_resume_exactly_compiled_or_not(data, tmp_path, monkeypatch):
    original, recipe = Pretraining.project, replace(SMALL, compile="on")

    def noisy(self, crops):
        noise = 1 + 0.1 * torch.rand(()) + 0.1 * np.random.rand()
        return original(self, crops._replace(x_g=noise * crops.x_g))

    compile_to_the_same(monkeypatch)
    monkeypatch.setattr(Pretraining, "project", noisy)
    whole, said = train(recipe, data, tmp_path / "whole")
    assert "Compiling is off" not in said
    torch.rand(7)  # elsewhere the streams stand elsewhere
    cut_short(data, tmp_path / "cut", before_step=3, compile="on")
    torch.rand(5)
    assert_equal_runs(whole, resume(tmp_path / "cut", console=console()))


def never_given(patch, step):
    """A signal comes while the batch of that step is waited for, and the batch never does."""
    original, given = TensorFeed.batches, itertools.count()

    def batches(self, order):
        for batch in original(self, order):
            if next(given) == step:
                stop()
                threading.Event().wait(10)
                pytest.fail("nobody ended the wait")
            yield batch

    patch.setattr(TensorFeed, "batches", batches)


@pytest.mark.parametrize("step", [1, 3], ids=["inside an epoch", "before an epoch"])
def test_a_signal_ends_the_wait_for_a_batch_and_nothing_is_lost(data, tmp_path, monkeypatch, step):
    recipe = replace(SMALL, checkpoint_every=2)
    whole, _ = train(recipe, data, tmp_path / "whole")
    with monkeypatch.context() as patch:
        never_given(patch, step)
        with pytest.raises(Interrupted, match=rf"SIGTERM, saved at step {step}") as end:
            train(recipe, data, tmp_path / "cut")
    assert end.value.code == 143
    assert_equal_runs(whole, resume(tmp_path / "cut", console=console()))


def test_a_signal_ends_the_wait_for_the_first_batch_if_there_is_nothing_new_to_save(data, tmp_path, monkeypatch):
    for go in (partial(train, SMALL, data, tmp_path / "run"), partial(resume, tmp_path / "run", console=console())):
        with monkeypatch.context() as patch:
            never_given(patch, 0)
            with pytest.raises(Interrupted) as end:
                go()
        assert end.value.code == 143
    assert not Run(tmp_path / "run").saved()


def test_a_signal_ends_the_wait_for_a_compiler_that_never_answers(data, tmp_path, monkeypatch):
    def stuck(*arguments):
        stop()
        threading.Event().wait(10)
        pytest.fail("nobody ended the wait")

    monkeypatch.setattr(compile, "try_to_compile", stuck)
    with pytest.raises(Interrupted) as end:
        train(SMALL, data, tmp_path / "run", compile="on")
    assert end.value.code == 143


@pytest.mark.parametrize(
    ("moment", "name", "code"),
    [("load_data", "SIGTERM", 143), ("place", "SIGINT", 130), ("save_encoder", "SIGUSR1", 138)],
)
def test_a_signal_before_the_first_step_or_after_the_last_says_how_to_go_on(
    data, tmp_path, monkeypatch, capsys, moment, name, code
):
    module = sys.modules["logo_ssl.train.pretrain"]  # the name pretrain also belongs to a function
    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGUSR1)}
    command = ["pretrain", "tiny", "--data", data, "--out", str(tmp_path / "run"), "--epochs", "1", "--batch-size", "8"]
    with monkeypatch.context() as patch:
        patch.setattr(module, moment, lambda *arguments: stop(getattr(signal, name)))
        with pytest.raises(SystemExit) as end:
            main([*command, "--loggers", "--device", "cpu"])
    assert end.value.code == code
    begun, told = moment != "load_data", capsys.readouterr().err
    assert (f"logo-ssl resume {tmp_path / 'run'}" in told) == begun
    assert told.count("\n") == 1
    assert {number: signal.getsignal(number) for number in handlers} == handlers
    if begun:
        assert resume(tmp_path / "run", console=console()).is_finished


def test_ctrl_c_is_answered_at_once_by_one_process_and_the_second_does_not_wait(capfd):
    def told(signals, *numbers):
        signals.listen()
        try:
            for number in numbers:
                stop(number)
        finally:
            signals.ignore()
        return capfd.readouterr().err

    assert "Ctrl-C again stops at once" in told(StopSignals("resume"), signal.SIGINT)
    assert told(StopSignals("resume", speaks=False), signal.SIGINT) == ""
    with pytest.raises(KeyboardInterrupt):
        told(StopSignals("resume"), signal.SIGINT, signal.SIGINT)
    assert capfd.readouterr().err.count("Stopping") == 1
    signals = StopSignals("resume")
    signals.listen()
    if not (child := os.fork()):  # as loaders' workers are
        stop(signal.SIGINT)
        os._exit(0)
    os.waitpid(child, 0)
    signals.ignore()
    assert capfd.readouterr().err == ""


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


CHILD = """
import os, random, sys, threading
sys.path.insert(0, {tests!r})
from small_runs import SMALL, train, console
from logo_ssl import resume
from logo_ssl.train import Pretraining
data, out, seed = sys.argv[1:]
delay = random.Random(int(seed)).uniform(0, 1.5)
start = Pretraining.on_train_start
def armed(self):
    start(self)
    if int(seed):
        threading.Timer(delay, os.kill, (os.getpid(), 9)).start()
Pretraining.on_train_start = armed
if os.path.exists(out + "/recipe.json"):
    resume(out, console=console())
else:
    train(SMALL, data, out, epochs=8, checkpoint_minutes=1e-9)
"""


def killed_run(data, out, kills, seed=1):
    """A run that is killed at random moments so often at most, then finished; how often it was."""
    code, survived = CHILD.format(tests=str(Path(__file__).parent)), 0
    for k in range(kills):
        done = subprocess.run([sys.executable, "-c", code, data, str(out), str(seed + k)], check=False)
        assert done.returncode in (0, -9)
        survived += done.returncode == -9
        if done.returncode == 0:
            return survived
    subprocess.run([sys.executable, "-c", code, data, str(out), "0"], check=True)
    return survived


def test_kill_9_loses_nothing_but_the_steps_since_the_last_checkpoint(data, tmp_path):
    assert killed_run(data, tmp_path / "killed", kills=1) == 1
    told = json.loads((tmp_path / "killed" / "provenance.json").read_text())
    assert told["sessions"] == told["sessions_killed"] + 1 <= 2  # one that saved nothing is not known
    whole, _ = train(SMALL, data, tmp_path / "whole", epochs=8, checkpoint_minutes=1e-9)
    assert_equal_runs(whole, Run(tmp_path / "killed"))


def test_minutes_bring_checkpoints_inside_an_epoch_and_only_the_newest_stay(data, tmp_path):
    saved = []

    def names():
        return [file.name[:14] for file in Run(tmp_path / "run").saved()]

    with pytest.MonkeyPatch.context() as patch:
        at_step(patch, lambda module: (module.trainer.strategy.checkpoint_io.wait(), saved.append(names())), *range(6))
        run, _ = train(SMALL, data, tmp_path / "run", checkpoint_minutes=1e-9, checkpoint_keep=3)
    assert saved[2] == ["step-000000002", "step-000000001"]
    assert names() == ["step-000000006", "step-000000005", "step-000000004"]
    assert json.loads(run.provenance_file.read_text())["checkpoints"] == 6


def test_a_checkpoint_with_one_wrong_bit_is_passed_over_and_never_outlives_a_whole_one(data, tmp_path, monkeypatch):
    cut_short(data, tmp_path / "run", before_step=4)
    run, said = Run(tmp_path / "run"), console()
    newest = run.saved()[0]
    torn = newest.read_bytes()
    newest.write_bytes(torn[:-1] + bytes([torn[-1] ^ 1]))
    (run.checkpoints / ".writing-999").write_bytes(torn[:100])  # what kill -9 leaves
    at_step(monkeypatch, lambda module: stop(), 3)
    with pytest.raises(Interrupted, match="saved at step 4"):
        resume(run.path, console=said, checkpoint_keep=1)
    assert f"{newest.name} is damaged" in said.file.getvalue()
    assert "Continuing after step 3 of" in said.file.getvalue()
    assert [file.name[:14] for file in run.checkpoints.iterdir()] == ["step-000000004"]
    for file in run.saved():
        file.write_bytes(file.read_bytes()[:1000])
    with pytest.raises(UserError, match="damaged"):
        resume(run.path, console=console())


def test_loading_a_checkpoint_runs_nothing_in_it(tmp_path):
    class Evil:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "harmed"),)

    torch.save({"global_step": 1, "evil": Evil()}, tmp_path / "evil.ckpt")
    with pytest.raises(UserError, match=r"evil\.ckpt"):
        load(tmp_path / "evil.ckpt")
    assert not (tmp_path / "harmed").exists()


def test_a_run_that_goes_on_normalises_as_it_began(data, tmp_path, monkeypatch):
    whole, _ = train(SMALL, data, tmp_path / "whole")
    cut_short(data, tmp_path / "run", before_step=4)
    others = (0.1,) * 3, (0.9,) * 3  # those of fewer images
    monkeypatch.setattr(sys.modules["logo_ssl.train.build"], "statistics", lambda images: others)
    again = resume(tmp_path / "run", console=console())
    assert all(torch.equal(a, b) for a, b in zip(network_weights(whole), network_weights(again), strict=True))
    assert load_backbone(again.path)[1] == load_backbone(whole.path)[1]


def test_a_second_process_is_refused_and_changes_nothing(data, tmp_path):
    cut_short(data, tmp_path / "run", before_step=2)
    before = {file: file.read_bytes() for file in (tmp_path / "run").rglob("*") if file.is_file()}
    with locked(tmp_path / "run"), pytest.raises(UserError, match=f"process {os.getpid()} on"):
        resume(tmp_path / "run", console=console())
    before[tmp_path / "run" / ".lock"] = (tmp_path / "run" / ".lock").read_bytes()
    assert {file: file.read_bytes() for file in (tmp_path / "run").rglob("*") if file.is_file()} == before


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
        with pytest.raises(UserError, match=f"process {holder.pid} on"), locked(tmp_path / "run"):
            pass
        holder.kill()
        holder.join()
        with locked(tmp_path / "run"):
            os.kill(worker, 0)  # it lives
    finally:
        os.kill(worker, signal.SIGKILL)


def test_a_run_goes_on_with_the_same_images_alone_wherever_they_are(data, tmp_path):
    cut_short(data, tmp_path / "run", before_step=2)
    arrays = dict(np.load(data))
    fewer = {name: arrays[name][:40] for name in ("train_images", "train_labels")}
    for others, n in ((fewer, 40), ({"train_images": arrays["train_images"] + np.uint8(1)}, 48)):
        np.savez(data, **arrays | others)
        with pytest.raises(UserError, match=rf"\(48 then, {n} now\)"):
            resume(tmp_path / "run", console=console())
    np.savez(tmp_path / "moved.npz", **arrays)
    assert resume(tmp_path / "run", console=console(), data=str(tmp_path / "moved.npz")).is_finished


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
    told = json.loads(run.provenance_file.read_text())
    assert (told["sessions"], told["sessions_killed"], told["checkpoints"]) == (3, 0, 4)
    assert told["seconds"] == pytest.approx(sum(session["seconds"] for session in sessions), abs=0.3)


def test_a_thread_may_train(data, tmp_path):
    """Signals belong to the main thread; elsewhere training works without them."""
    runs = []
    thread = threading.Thread(target=lambda: runs.append(train(SMALL, data, tmp_path / "run", epochs=1)[0]))
    thread.start()
    thread.join()
    assert runs[0].is_finished


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("compile", ["off", "on"])
def test_a_deterministic_run_on_cuda_resumes_exactly(data, tmp_path, monkeypatch, compile):
    recipe = replace(SMALL, device="cuda", compile=compile, deterministic=True, epochs=4)
    whole, _ = train(recipe, data, tmp_path / "whole")
    at_step(monkeypatch, lambda module: stop(signal.SIGUSR1), 7)
    with pytest.raises(Interrupted):
        train(recipe, data, tmp_path / "cut")
    monkeypatch.undo()
    assert_equal_runs(whole, resume(tmp_path / "cut", console=console()))
