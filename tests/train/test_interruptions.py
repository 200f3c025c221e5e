"""Is anything lost when a run is interrupted, its disk fills, its numbers break or its folder is touched?"""

import errno
import itertools
import json
import os
import re
import resource
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from small_runs import SMALL, assert_equal_runs, at_step, compile_to_the_same, console, cut_short, train

from logo_ssl import load_backbone, pretrain, resume
from logo_ssl.cli import main
from logo_ssl.data import LoadingConfig, workers
from logo_ssl.data.images import Paths
from logo_ssl.data.loader import TensorFeed
from logo_ssl.errors import Interrupted, UserError
from logo_ssl.files import write_together
from logo_ssl.frameworks import BYOLConfig, SimCLRConfig, SimSiamConfig, SupervisedConfig
from logo_ssl.frameworks.moco import MoCo
from logo_ssl.recipes import OptimiserConfig
from logo_ssl.report.collect import signs_of_collapse
from logo_ssl.run import Run, locked
from logo_ssl.signals import SPOKEN, StopSignals
from logo_ssl.strategies import LoGoConfig, MultiCropConfig, TwoViewConfig
from logo_ssl.strategies.logo import LoGo
from logo_ssl.train import Pretraining, compile
from logo_ssl.train.checkpoint import Checkpoints, load
from logo_ssl.train.loggers import JsonlLogger, Sessions
from logo_ssl.train.monitors import OnlineKNN

STEPS = 6  # of the small recipe: two epochs of three


@pytest.mark.parametrize("strategy", [TwoViewConfig(), MultiCropConfig(), LoGoConfig(depth=2, width=16)])
@pytest.mark.parametrize(
    "framework",
    [
        SMALL.framework,
        SimSiamConfig(dim=8, hidden=4),
        BYOLConfig(dim=8, hidden=16),
        SimCLRConfig(dim=8),
        SupervisedConfig(),
    ],
    ids=lambda config: type(config).__name__,
)
def test_a_run_interrupted_anywhere_ends_like_an_uninterrupted_one(data, tmp_path, framework, strategy, monkeypatch):
    crops = replace(SMALL.crops, n_local=0 if isinstance(strategy, TwoViewConfig) else 2)
    if isinstance(framework, SupervisedConfig):
        if not isinstance(strategy, TwoViewConfig):
            pytest.skip("labels answer alone")
        crops = replace(crops, n_global=1)
    recipe = replace(SMALL, framework=framework, strategy=strategy, crops=crops)
    whole, _ = train(recipe, data, tmp_path / "whole")
    for step in (0, 1, 2, 4):  # inside an epoch, at its end, inside the next
        go = (
            partial(resume, tmp_path / "cut", console=console())
            if step
            else partial(train, recipe, data, tmp_path / "cut")
        )
        with monkeypatch.context() as patch:
            at_step(patch, lambda module: os.kill(os.getpid(), signal.SIGUSR1), step)
            with pytest.raises(Interrupted, match=rf"Stopped by SIGUSR1, saved at step {step + 1}; go on with"):
                go()
        assert not Run(tmp_path / "cut").is_finished
    assert_equal_runs(whole, resume(tmp_path / "cut", console=console()))


@pytest.mark.parametrize("compile", ["off", "on"])
def test_networks_that_draw_for_themselves_resume_exactly(data, tmp_path, monkeypatch, compile):
    original, recipe = Pretraining.project, replace(SMALL, compile=compile)

    def noisy(self, crops):
        noise = 1 + 0.1 * torch.rand(()) + 0.1 * np.random.rand()
        return original(self, crops._replace(x_g=noise * crops.x_g))

    compile_to_the_same(monkeypatch)
    monkeypatch.setattr(Pretraining, "project", noisy)
    whole, said = train(recipe, data, tmp_path / "whole")
    assert "Compiling is off" not in said
    torch.rand(7)  # elsewhere the streams stand elsewhere
    with monkeypatch.context() as patch:
        at_step(patch, lambda module: os.kill(os.getpid(), signal.SIGUSR1), 3)
        with pytest.raises(Interrupted):
            train(recipe, data, tmp_path / "cut")
    torch.rand(5)
    assert_equal_runs(whole, resume(tmp_path / "cut", console=console()))


def never_given(patch, step):
    """A signal comes while the batch of that step is waited for, and the batch never does."""
    original, given = TensorFeed.batches, itertools.count()

    def batches(self, order):
        for batch in original(self, order):
            if next(given) == step:
                os.kill(os.getpid(), signal.SIGTERM)
                threading.Event().wait(10)
                pytest.fail("nobody ended the wait")
            yield batch

    patch.setattr(TensorFeed, "batches", batches)


@pytest.mark.parametrize("step", [1, 3, 4], ids=["inside an epoch", "before an epoch", "inside the last epoch"])
def test_a_signal_ends_the_wait_for_a_batch_and_nothing_is_lost(data, tmp_path, monkeypatch, step):
    recipe = replace(SMALL, checkpoint_every=2)
    whole, _ = train(recipe, data, tmp_path / "whole")
    with monkeypatch.context() as patch:
        never_given(patch, step)
        with pytest.raises(Interrupted, match=rf"Stopped by SIGTERM, saved at step {step}; go on with") as stop:
            train(recipe, data, tmp_path / "cut")
    assert stop.value.code == 143
    assert load(Run(tmp_path / "cut").saved()[0])["global_step"] == step
    assert_equal_runs(whole, resume(tmp_path / "cut", console=console()))


def test_a_signal_ends_the_wait_for_the_first_batch_where_nothing_new_is_to_be_saved(data, tmp_path, monkeypatch):
    for go in (partial(train, SMALL, data, tmp_path / "run"), partial(resume, tmp_path / "run", console=console())):
        with monkeypatch.context() as patch:
            never_given(patch, 0)
            with pytest.raises(Interrupted, match="Stopped by SIGTERM; go on with") as stop:
                go()
        assert stop.value.code == 143
    assert not Run(tmp_path / "run").saved()
    assert resume(tmp_path / "run", console=console()).is_finished


def test_a_signal_ends_the_wait_for_a_compiler_that_never_answers(data, tmp_path, monkeypatch):
    def stuck(framework, trial, device):
        os.kill(os.getpid(), signal.SIGTERM)
        threading.Event().wait(10)
        pytest.fail("nobody ended the wait")

    with monkeypatch.context() as patch:
        patch.setattr(compile, "try_to_compile", stuck)
        with pytest.raises(Interrupted, match="Stopped by SIGTERM; go on with") as stop:
            train(SMALL, data, tmp_path / "run", compile="on")
    assert stop.value.code == 143
    assert not Run(tmp_path / "run").saved()


def test_a_signal_is_acted_upon_though_all_workers_are_stuck(photos, tmp_path, monkeypatch):
    gone, read, this, over = tmp_path / "disk is gone", Paths.read, os.getpid(), threading.Event()

    def blocked(self, i):
        while os.getpid() != this and gone.exists():
            time.sleep(0.05)
        return read(self, i)

    def tell_once_it_waits(module, step=-1):
        while step != module.global_step:
            step = module.global_step
            time.sleep(0.7)
        os.kill(this, signal.SIGTERM)
        if not over.wait(20):
            gone.unlink()

    def lose_the_disk(module):
        gone.touch()
        threading.Thread(target=tell_once_it_waits, args=[module], daemon=True).start()

    settings = {"batch_size": 4, "epochs": 1, "loading": LoadingConfig("disk", workers=2)}
    whole, _ = train(SMALL, photos, tmp_path / "whole", **settings)
    monkeypatch.setattr(workers, "GRACE_S", 0.3)
    with monkeypatch.context() as patch:
        patch.setattr(Paths, "read", blocked)
        at_step(patch, lose_the_disk, 2)
        with pytest.raises(Interrupted, match="Stopped by SIGTERM, saved at step"):
            train(SMALL, photos, tmp_path / "cut", **settings)
    over.set()
    assert gone.exists()
    assert 2 < load(Run(tmp_path / "cut").saved()[0])["global_step"] < 12
    assert_equal_runs(whole, resume(tmp_path / "cut", console=console()))


@pytest.mark.parametrize(("name", "code"), [("SIGTERM", 143), ("SIGUSR1", 138), ("SIGINT", 130)])
def test_a_signal_saves_and_ends_with_its_code(data, tmp_path, monkeypatch, capfd, name, code):
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)}
    at_step(monkeypatch, lambda module: os.kill(os.getpid(), getattr(signal, name)), 1)
    recipe = ("--epochs", "1", "--batch-size", "8", "--loggers", "--device", "cpu")
    with pytest.raises(SystemExit) as stop:
        main(["pretrain", "tiny", "--data", data, "--out", str(tmp_path / "run"), *recipe])
    assert stop.value.code == code
    told = capfd.readouterr().err
    answer, stopped = "Stopping after this step; Ctrl-C again stops at once.\n", "Stopped by "
    assert told.count(answer) == (name == "SIGINT")
    assert told.find(answer) < told.index(f"{stopped}{'Ctrl-C' if name == 'SIGINT' else name}, saved at step 2")
    assert "Traceback" not in told
    assert {number: signal.getsignal(number) for number in handlers} == handlers
    assert load(Run(tmp_path / "run").saved()[0])["global_step"] == 2


def test_ctrl_c_is_answered_at_once_by_one_process_and_the_second_does_not_wait(capfd, monkeypatch):
    def told(stop, *signals):
        stop.listen()
        try:
            for number in signals:
                os.kill(os.getpid(), number)
        finally:
            stop.ignore()
        return capfd.readouterr().err

    assert "Ctrl-C again stops at once" in told(StopSignals("resume"), signal.SIGINT)
    assert told(StopSignals("resume", speaks=False), signal.SIGINT) == ""
    with pytest.raises(KeyboardInterrupt):
        told(StopSignals("resume"), signal.SIGINT, signal.SIGINT)
    assert capfd.readouterr().err.count("Stopping") == 1
    stop = StopSignals("resume")
    stop.listen()
    if not (child := os.fork()):  # as loaders' workers are
        os.kill(os.getpid(), signal.SIGINT)
        os._exit(0)
    os.waitpid(child, 0)
    stop.ignore()
    assert capfd.readouterr().err == ""
    monkeypatch.setitem(SPOKEN, signal.SIGINT, "the end of `logo-ssl reproduce`")  # nobody typed it, nor types again
    assert told(StopSignals("resume"), signal.SIGINT) == ""


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
    kills = killed_run(data, tmp_path / "killed", kills=2)
    assert kills > 0
    told = json.loads((tmp_path / "killed" / "provenance.json").read_text())
    assert told["sessions"] == told["sessions_killed"] + 1 <= kills + 1  # one that saved nothing is not known
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
    about = json.loads((run.path / "provenance.json").read_text())["checkpoints"]
    assert about["saved"] == 6
    assert about["mb"] > 0


def test_a_torn_checkpoint_is_passed_over(data, tmp_path):
    whole, _ = train(SMALL, data, tmp_path / "whole")
    cut_short(data, tmp_path / "cut", before_step=4)
    run, said = Run(tmp_path / "cut"), console()
    newest = run.saved()[0]
    torn = newest.read_bytes()
    newest.write_bytes(torn[:-1] + bytes([torn[-1] ^ 1]))  # one bit
    (run.checkpoints / ".writing-999").write_bytes(torn[:100])  # what kill -9 leaves
    assert_equal_runs(whole, resume(run.path, console=said))
    assert f"{newest.name} is damaged" in said.file.getvalue()
    assert "Continuing after step 3 of" in said.file.getvalue()
    assert not list(run.checkpoints.glob(".writing*"))
    (run.path / "provenance.json").unlink()
    for file in run.saved():
        file.write_bytes(file.read_bytes()[:1000])
    with pytest.raises(UserError, match=r"All 2 checkpoints in"):
        resume(run.path, console=console())


def test_loading_a_checkpoint_runs_nothing_in_it(tmp_path):
    class Evil:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "harmed"),)

    torch.save({"global_step": 1, "evil": Evil()}, tmp_path / "evil.ckpt")
    with pytest.raises(UserError, match="cannot be read"):
        load(tmp_path / "evil.ckpt")
    assert not (tmp_path / "harmed").exists()


@pytest.mark.parametrize(("began_at", "has_saved", "minutes"), [(0, False, 1), (0, True, 10), (7, False, 10)])
def test_a_runs_first_checkpoint_comes_after_a_tenth_of_the_minutes(tmp_path, began_at, has_saved, minutes):
    saves = Checkpoints(
        tmp_path, replace(SMALL, checkpoint_minutes=10.0), StopSignals("resume"), Sessions(Run(tmp_path))
    )
    saves.began_at, saves.has_saved = began_at, has_saved
    for waited, due in ((minutes - 0.5, False), (minutes + 0.5, True)):
        saves.saved_at = time.monotonic() - 60 * waited
        assert saves._is_time() == due


def test_a_run_that_goes_on_normalises_as_it_began(data, tmp_path, monkeypatch):
    whole, _ = train(SMALL, data, tmp_path / "whole")
    cut_short(data, tmp_path / "run", before_step=4)
    others = (0.1,) * 3, (0.9,) * 3  # those of fewer images
    monkeypatch.setattr(sys.modules["logo_ssl.train.build"], "statistics", lambda images: others)
    again = resume(tmp_path / "run", console=console())
    assert all(torch.equal(a, b) for a, b in zip(_weights(whole), _weights(again), strict=True))
    assert load_backbone(again.path)[1] == load_backbone(whole.path)[1]


def _weights(run):
    return [load(run.saved()[0])["state_dict"][key] for key in sorted(load(run.saved()[0])["state_dict"])]


def test_a_full_disk_costs_a_checkpoint_and_nothing_else(data, tmp_path, monkeypatch):
    real, fails = torch.save, iter([True, False])

    def save(*arguments, **options):
        if next(fails, False):
            raise OSError(errno.ENOSPC, "No space left on device")
        real(*arguments, **options)

    monkeypatch.setattr(torch, "save", save)
    run, said = train(SMALL, data, tmp_path / "run")
    assert "The checkpoint could not be saved (No space left on device); training goes on" in said
    assert run.is_finished
    assert [file.name[:14] for file in run.saved()] == ["step-000000006"]
    assert not list(run.checkpoints.glob(".writing*"))


@pytest.mark.parametrize("writes", [0, 6])
def test_a_full_disk_ends_tensorboards_log_and_not_the_training(data, tmp_path, monkeypatch, capfd, writes):
    def refuse(*_):
        if next(room, None) is None:
            raise OSError(errno.ENOSPC, "No space left on device")

    room = iter(range(writes))
    monkeypatch.setattr("tensorboard.summary.writer.record_writer.RecordWriter.write", refuse)
    run, said = train(SMALL, data, tmp_path / "run", loggers=("tensorboard",), log_every=1)
    assert said.count("The log for tensorboard cannot be written (No space left on device); training goes on") == 1
    assert run.is_finished
    assert "Traceback" not in capfd.readouterr().err


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


def test_metrics_wait_in_memory_while_their_file_cannot_be_written(data, tmp_path, monkeypatch):
    real, refused = Path.open, []

    def read_only(self, mode="r", *arguments, **options):
        if self.name == "metrics.jsonl" and mode == "a" and len(refused) < 3:
            refused.append(self)
            raise OSError(errno.EROFS, "Read-only file system")
        return real(self, mode, *arguments, **options)

    monkeypatch.setattr(Path, "open", read_only)
    run, said = train(SMALL, data, tmp_path / "run")
    assert said.count("cannot be written (Read-only file system); its lines wait in memory") == 1
    monkeypatch.undo()
    plain, _ = train(SMALL, data, tmp_path / "plain")
    assert [line["step"] for line in run.metrics()] == [line["step"] for line in plain.metrics()]


def break_losses(monkeypatch, *steps):
    """Losses of these steps (from 0; each once) are not a number."""
    original, left = Pretraining.algorithm_1, set(steps)

    def broken(self, crops, randomness):
        if self.global_step in left:
            left.discard(self.global_step)
            crops = crops._replace(x_g=crops.x_g * float("nan"))
        return original(self, crops, randomness)

    monkeypatch.setattr(Pretraining, "algorithm_1", broken)


def break_gradients(monkeypatch, *steps):
    """Gradients of these steps are infinite, with sound activations."""
    original, left = Pretraining.manual_backward, set(steps)

    def broken(self, loss, *arguments, **options):
        if self.global_step in left:
            left.discard(self.global_step)
            loss = loss * float("inf")
        original(self, loss, *arguments, **options)

    monkeypatch.setattr(Pretraining, "manual_backward", broken)


def test_a_step_without_a_finite_gradient_is_left_out(data, tmp_path, monkeypatch):
    break_gradients(monkeypatch, 1)
    run, said = train(replace(SMALL, framework=SimSiamConfig(dim=8, hidden=4)), data, tmp_path / "run", log_every=1)
    assert "Up to step 2, 1 step had no finite gradient" in said
    assert "diverged" not in said
    assert all(value.isfinite().all() for value in _weights(run) if value.is_floating_point())


def test_a_run_that_breaks_goes_back_with_half_the_learning_rate(data, tmp_path, monkeypatch):
    break_losses(monkeypatch, 4)
    run, said = train(SMALL, data, tmp_path / "run", log_every=1)
    assert re.search(r"Training diverged at step 5 \(.*loss.* not finite\): back to step-000000003-\w+.ckpt", said)
    assert json.loads((run.path / "provenance.json").read_text())["lr_scale"] == 0.5
    rates = {line["step"]: line["lr"] for line in run.metrics() if "lr" in line}
    plain, _ = train(SMALL, data, tmp_path / "plain", log_every=1)
    expected = {line["step"]: line["lr"] for line in plain.metrics() if "lr" in line}
    assert rates[3] == expected[3]
    assert rates[4] == pytest.approx(expected[4] / 2)
    assert all(value.isfinite().all() for value in _weights(run) if value.is_floating_point())


def test_a_run_that_keeps_breaking_stops_with_a_diagnosis(data, tmp_path):
    sentence = r"Training diverged at step \d+ .* again after 2 returns .* Try .*a lower optimiser.lr \(1e\+30\)"
    with pytest.raises(UserError, match=sentence):
        train(SMALL, data, tmp_path / "run", optimiser=OptimiserConfig(lr=1e30), epochs=3)


def test_a_loss_that_never_was_finite_is_told_at_once_without_advice_on_rates(data, tmp_path, monkeypatch):
    outer = LoGo.outer

    def broken(*given):
        objective = outer(*given)
        return objective._replace(loss=objective.loss * float("nan"))

    monkeypatch.setattr(LoGo, "outer", broken)
    said = console()
    sentence = r"^The loss is not finite from the first step \(loss\); look .* outer of strategy logo"
    with pytest.raises(UserError, match=sentence) as told:
        pretrain(SMALL, tmp_path / "run", data=data, console=said)
    assert not re.search(r"\brate|diverged", f"{told.value}{said.file.getvalue()}")


@pytest.mark.parametrize("bound", ["logistic", "mean-difference"])
def test_a_regressor_that_breaks_the_first_loss_goes_back_with_half_its_rate(bound, data, tmp_path):
    said, changes = console(), {"strategy__lr": 1e30, "strategy__bound": bound}
    with pytest.raises(
        UserError, match=r"^Training diverged .* again after 2 returns .* Try .*lower strategy\.lr"
    ) as told:
        pretrain(SMALL, tmp_path / "run", data=data, console=said, **changes)
    assert ("strategy.bound=logistic" in str(told.value)) == (bound == "mean-difference")
    assert said.file.getvalue().count("back to the beginning, with half the learning rate") == 2


def test_a_gradient_of_the_similarity_that_never_was_finite_is_not_the_regressors(data, tmp_path, monkeypatch):
    whole = MoCo.similarity
    monkeypatch.setattr(MoCo, "similarity", lambda self, q, t: whole(self, q, t) + ((q - q).square().sum(-1)).sqrt())
    sentence = (
        r"^The loss is not finite from the first step \(loss, ratio\); look for .* a root or .* of framework moco"
    )
    with pytest.raises(UserError, match=sentence):
        pretrain(SMALL, tmp_path / "run", data=data, console=console())


@pytest.mark.parametrize("workers", [0, 2])
def test_images_that_vanish_while_training_are_replaced(photos, tmp_path, monkeypatch, workers):
    at_step(monkeypatch, lambda module: [f.unlink() for f in sorted(Path(photos).rglob("1?.jpg"))], 3)
    run, said = train(
        SMALL, photos, tmp_path / "run", loading=LoadingConfig("disk", workers=workers, max_bad=0.5), epochs=4
    )
    assert run.is_finished
    listed = run.bad_images_file.read_text()
    assert "No such file or directory" in listed
    assert f"{len(listed.splitlines()) - 1} images could not be read and were replaced by others" in said


def test_a_second_process_is_refused(data, tmp_path):
    cut_short(data, tmp_path / "run", before_step=2)
    before = {file: file.read_bytes() for file in (tmp_path / "run").rglob("*") if file.is_file()}
    with (
        locked(tmp_path / "run"),
        pytest.raises(UserError, match=rf"by another process \(process {os.getpid()} on .*\)"),
    ):
        resume(tmp_path / "run", console=console())
    before[tmp_path / "run" / ".lock"] = (tmp_path / "run" / ".lock").read_bytes()
    assert {file: file.read_bytes() for file in (tmp_path / "run").rglob("*") if file.is_file()} == before


def test_a_run_does_not_go_on_with_other_images(data, tmp_path):
    cut_short(data, tmp_path / "run", before_step=2)
    arrays = dict(np.load(data))
    np.savez(
        data, **arrays | {"train_images": arrays["train_images"][:40], "train_labels": arrays["train_labels"][:40]}
    )
    with pytest.raises(UserError, match=r"other images than this run was trained on \(48 then, 40 now\)"):
        resume(tmp_path / "run", console=console())
    np.savez(data, **arrays | {"train_images": arrays["train_images"] + np.uint8(1)})
    with pytest.raises(UserError, match=r"\(48 then, 48 now\)"):
        resume(tmp_path / "run", console=console())
    Path(data).rename(tmp_path / "moved.npz")
    np.savez(tmp_path / "moved.npz", **arrays)
    assert resume(tmp_path / "run", console=console(), data=str(tmp_path / "moved.npz")).is_finished


def test_files_with_new_contents_under_their_old_names_are_other_images(tmp_path, capsys):
    photos, pixels = tmp_path / "photos", np.random.default_rng(0).integers(0, 256, (48, 16, 16, 3), np.uint8)
    photos.mkdir()
    files = [photos / f"{i:02d}.bmp" for i in range(len(pixels))]
    for file, image in zip(files, pixels, strict=True):
        Image.fromarray(image).save(file)  # all of one size in bytes
    cut_short(str(photos), tmp_path / "run", before_step=2, loading__workers=0)
    contents = [file.read_bytes() for file in files]
    for file, content in zip(files, contents[1:] + contents[:1], strict=True):
        file.write_bytes(content)
    with pytest.raises(SystemExit) as ended:
        main(["resume", str(tmp_path / "run")])
    told = " ".join(capsys.readouterr().err.split())
    assert ended.value.code == 2
    assert "(48 then, 48 now)" in told
    files[7].rename(tmp_path / "elsewhere.bmp")
    with pytest.raises(UserError, match=r"\(48 then, 47 now\)"):
        resume(tmp_path / "run", console=console())
    (tmp_path / "elsewhere.bmp").rename(files[7])
    for file, content in zip(files, contents, strict=True):
        file.write_bytes(content)
    photos.rename(tmp_path / "moved")
    run = resume(tmp_path / "run", console=console(), data=str(tmp_path / "moved"))
    noted = json.loads(run.images_file.read_text())
    assert (noted["train_images"], list(noted["fingerprint"])) == (48, ["train"])


def test_a_collapse_stops_the_run_if_asked_and_names_the_cause(data, tmp_path, monkeypatch):
    from logo_ssl.train import monitors

    monkeypatch.setattr(monitors, "feature_std", lambda z: torch.tensor(0.0001))
    recipe = replace(SMALL, framework=SimSiamConfig(dim=8, hidden=4), epochs=1)
    _, said = train(recipe, data, tmp_path / "warned")
    assert "the latents are collapsing to one point" in said
    assert "Most likely a batch of 16 is small for batch norm" in said
    with pytest.raises(UserError, match=r"collapsing to one point.*Most likely.*Stopped, as on_collapse=stop asks"):
        train(recipe, data, tmp_path / "stopped", on_collapse="stop")


def test_a_thread_may_train(data, tmp_path):
    """Signals belong to the main thread; elsewhere training works without them."""
    runs = []
    thread = threading.Thread(target=lambda: runs.append(train(SMALL, data, tmp_path / "run", epochs=1)[0]))
    thread.start()
    thread.join()
    assert runs[0].is_finished


def test_a_damaged_checkpoint_never_outlives_a_whole_one(data, tmp_path, monkeypatch):
    cut_short(data, tmp_path / "run", before_step=4)
    run = Run(tmp_path / "run")
    torn = run.saved()[0]
    torn.write_bytes(torn.read_bytes()[:500])
    at_step(monkeypatch, lambda module: os.kill(os.getpid(), signal.SIGTERM), 3)
    with pytest.raises(Interrupted, match="saved at step 4"):
        resume(run.path, console=console(), checkpoint_keep=1)
    assert [file.name[:14] for file in run.saved()] == ["step-000000004"]


def test_a_second_return_halves_the_rate_again_even_in_another_session(data, tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        break_losses(patch, 4)
        at_step(patch, lambda module: module.lr_scale < 1 and os.kill(os.getpid(), signal.SIGTERM), 4)
        with pytest.raises(Interrupted):
            train(SMALL, data, tmp_path / "run", log_every=1)
    break_losses(monkeypatch, 5)
    run = resume(tmp_path / "run", console=console())
    assert json.loads((run.path / "provenance.json").read_text())["lr_scale"] == 0.25


def test_a_disk_without_locks_is_used_all_the_same(tmp_path, monkeypatch):
    def unknown(*arguments):
        raise OSError(errno.ENOSYS, "Function not implemented")

    monkeypatch.setattr("fcntl.flock", unknown)
    with locked(tmp_path / "run"):
        assert (tmp_path / "run").is_dir()


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


@pytest.mark.parametrize(("later", "told"), [((40.0, 50.0), None), ((60.0, 30.0), "kNN fell from 60.0 % to 30.0 %")])
def test_a_fall_of_knn_after_the_learning_rate_rose_is_no_collapse(data, tmp_path, monkeypatch, later, told):
    measured = iter((20.0, 80.0, 90.0, *later))
    monkeypatch.setattr(OnlineKNN, "accuracy", lambda self, module: next(measured))
    monkeypatch.setattr("logo_ssl.train.collapse.KNN_FALL", 25.0)  # of so few images that counts
    run, _ = train(SMALL, data, tmp_path / "run", on_collapse="stop")
    if told is None:
        resume(run.path, console=console(), epochs=4)
        assert signs_of_collapse(run.metrics(), SMALL) == []
        return
    with pytest.raises(UserError, match=told):
        resume(run.path, console=console(), epochs=4)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("compile", ["off", "on"])
def test_a_deterministic_run_on_cuda_resumes_exactly(data, tmp_path, monkeypatch, compile):
    recipe = replace(SMALL, device="cuda", compile=compile, deterministic=True, epochs=4)
    whole, _ = train(recipe, data, tmp_path / "whole")
    at_step(monkeypatch, lambda module: os.kill(os.getpid(), signal.SIGUSR1), 7)
    with pytest.raises(Interrupted):
        train(recipe, data, tmp_path / "cut")
    monkeypatch.undo()
    assert_equal_runs(whole, resume(tmp_path / "cut", console=console()))
