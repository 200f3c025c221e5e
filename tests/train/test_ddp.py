"""Two processes with half a batch each are one process with the whole: the same gradients, weights, queue and files."""

import io
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import safetensors.torch
import torch
from rich.console import Console

from logo_ssl import pretrain, resume
from logo_ssl.run import Run
from logo_ssl.train import trainer
from logo_ssl.train.trainer import Launcher

sys.path.insert(0, str(Path(__file__).parent))

from together import CASES, OPTIONS, cut_short, small, states

SCRIPT = str(Path(__file__).parent / "together.py")
MINUTES = 5  # more than anything here takes; hanging is what it catches
QUIET = Console(file=io.StringIO())


def python(*command):
    """What Python said, and its exit code."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("SLURM_")}
    done = subprocess.run(
        [sys.executable, *command],
        env=environment | {"OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=60 * MINUTES,
        check=False,
    )
    return done.stdout, done.returncode


def weights(run):
    return safetensors.torch.load_file(Run(run).backbone_file) | safetensors.torch.load_file(Run(run).heads_file)


def assert_close(got, expected):
    """Weights after six steps in float32, in which rounding grows; those of another seed are about 1.4 apart."""
    assert got.keys() == expected.keys()
    ours, theirs = (torch.cat([weights[name].double().flatten() for name in expected]) for weights in (got, expected))
    assert (ours - theirs).norm() / theirs.norm() < 1e-3


def files(run):
    """The names of all files, without the digests that checkpoints have in theirs."""
    return sorted(re.sub(r"-[0-9a-f]{16}\.", ".", file.relative_to(run).as_posix()) for file in run.rglob("*"))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("together")


@pytest.fixture(scope="module")
def data(folder):
    """48 + 16 noise images in three classes of brightness."""
    rng = np.random.default_rng(0)
    labels = np.arange(64) % 3
    images = (rng.integers(0, 90, (64, 16, 16, 3)) + 80 * labels[:, None, None, None]).astype(np.uint8)
    np.savez(
        folder / "data.npz",
        train_images=images[:48],
        train_labels=labels[:48],
        test_images=images[48:],
        test_labels=labels[48:],
    )
    return str(folder / "data.npz")


@pytest.fixture(scope="module")
def one(folder, data):
    """The run of one process."""
    return pretrain(small(data, devices=1), folder / "one", console=QUIET)


@pytest.fixture(scope="module")
def pair(folder, data):
    """What two processes leave: the states of each, and run folders beside them."""
    cut_short(small(data, devices=1), folder / "cut-by-one")
    said, code = python(SCRIPT, "learn", str(folder), data)
    assert code == 0, said
    assert said.count("Encoder:") == 1
    (folder / "said.txt").write_text(said)
    return [torch.load(folder / f"states-{rank}.pt", weights_only=True) for rank in range(2)]


@pytest.mark.parametrize("case", CASES)
def test_two_halves_of_a_batch_learn_what_one_process_learns_from_the_whole(pair, case, tmp_path):
    readings = zip(states(case, tmp_path), pair[0][case], pair[1][case], strict=True)
    for step, (expected, first, second) in enumerate(readings):
        assert expected.keys() == first.keys()
        assert any(name.startswith("gradient") for name in expected)
        for name, value in expected.items():
            where = f"{name}, reading {step}"
            torch.testing.assert_close(first[name], value, rtol=1e-7, atol=1e-9, msg=lambda m, w=where: f"{w}: {m}")
            assert torch.equal(first[name], second[name]), f"{where} differs between processes"


def test_a_run_of_two_processes_is_one_run_that_ends_like_that_of_one(pair, folder, one):
    assert_close(weights(folder / "whole"), weights(one.path))
    ours, theirs = list(Run(folder / "whole").metrics()), list(one.metrics())
    assert [line["step"] for line in ours] == [line["step"] for line in theirs]
    for mine, other in zip(ours, theirs, strict=True):
        for name in {"loss", "omega", "ratio", "z_std", "knn"} & other.keys():
            assert mine[name] == pytest.approx(other[name], rel=1e-2), (name, mine["step"])
    assert files(folder / "whole") == files(one.path)


def test_a_signal_to_any_process_saves_and_stops_all_and_nothing_is_lost(pair, folder):
    assert [json.loads((folder / f"codes-{rank}.json").read_text()) for rank in range(2)] == [[143, 143]] * 2
    said = (folder / "said.txt").read_text()
    for step in (2, 4):
        assert said.count(f"logo-ssl: Stopped by SIGTERM, saved at step {step}; go on with") == 1
    assert said.count("Stopped by") == 2
    assert "Traceback" not in said
    assert [session["step"] for session in json.loads(Run(folder / "stopped").sessions_file.read_text())] == [2, 4, 6]
    expected, got = weights(folder / "whole"), weights(folder / "stopped")
    assert all(torch.equal(got[name], value) for name, value in expected.items())


def test_a_compiler_that_fails_in_one_process_is_done_without_in_all(pair, folder):
    said = (folder / "half-compiled-0.txt").read_text()
    assert said.count("Compiling is off, and training slower: no compiler found (process 1 of 2)") == 1
    assert "long tale" not in said
    assert Run(folder / "half-compiled").backbone_file.is_file()


def test_a_signal_ends_the_wait_before_the_first_step_for_another_process(data, tmp_path):
    out = tmp_path / "run"
    command = ["pretrain", "tiny", "--data", data, "--devices", "2", "--compile", "on", "--out", str(out), *OPTIONS]
    said, code = python(SCRIPT, "never", *command)
    assert code == 143, said
    assert f"logo-ssl: Stopped by SIGTERM; go on with `logo-ssl resume {out}`." in said
    assert "Traceback" not in said
    assert not Run(out).saved()


def test_a_run_is_resumed_by_another_number_of_processes(pair, folder, one):
    assert_close(weights(folder / "cut-by-one"), weights(one.path))
    resume(folder / "cut-by-two", console=QUIET, devices=1)
    assert_close(weights(folder / "cut-by-two"), weights(one.path))


def test_a_killed_process_ends_the_run_with_a_sentence(one, data, tmp_path):
    out = tmp_path / "run"
    said, code = python(
        SCRIPT, "die", "pretrain", "tiny", "--data", data, "--devices", "2", "--out", str(out), *OPTIONS
    )
    assert code == 2, said
    assert f"logo-ssl: Process 1 of 2 was killed by SIGKILL; go on with `logo-ssl resume {out}`." in said
    assert "Traceback" not in said
    resume(out, console=QUIET, devices=1)
    assert_close(weights(out), weights(one.path))


def test_torchrun_brings_a_killed_process_back_from_the_checkpoint(one, data, tmp_path):
    out = tmp_path / "run"
    torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "--max-restarts", "1"]
    said, code = python(*torchrun, SCRIPT, "die", "pretrain", "tiny", "--data", data, "--out", str(out), *OPTIONS)
    assert code == 0, said
    # the lost connection or torchrun's signal, whichever comes first
    assert re.search("logo-ssl: (Another process of this run has ended|Stopped by SIGTERM)", said), said
    assert "Continuing after step 3 of 6." in said
    assert said.count("Encoder:") == 1
    assert [line["epochs_done"] for line in Run(out).metrics() if "knn" in line] == [0, 1, 2]
    assert_close(weights(out), weights(one.path))


def test_a_process_that_hangs_is_ended_when_another_is_gone(monkeypatch, capsys):
    launcher, codes = Launcher(None, 2, 1, cure="go on"), []

    def leave(code):
        codes.append(code)
        launcher.over.set()

    monkeypatch.setattr(trainer, "GRACE_S", 0.0)
    monkeypatch.setattr(os, "_exit", leave)
    launcher.procs = [subprocess.Popen(["sleep", "100"])]
    launcher.procs[0].kill()
    launcher._watch_children()
    assert codes == [2]
    assert capsys.readouterr().err == "logo-ssl: Process 1 of 2 was killed by SIGKILL; go on.\n"
