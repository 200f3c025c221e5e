"""Two processes with half a batch each are one process with the whole: the same gradients, weights, queue and files."""

import io
import os
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import safetensors.torch
import torch
from rich.console import Console

from logo_ssl import pretrain, resume
from logo_ssl.errors import UserError
from logo_ssl.run import Run
from logo_ssl.train.processes import Processes, refuse_uneven

sys.path.insert(0, str(Path(__file__).parent))

from together import CASES, cut_short, small, states

SCRIPT = str(Path(__file__).parent / "together.py")
MINUTES = 5  # more than anything here takes; hanging is what it catches
QUIET = Console(file=io.StringIO())
OPTIONS = (
    "--device cpu --epochs 2 --batch-size 16 --crops.global-size 16 --crops.local-size 8 --knn-every 1 "
    "--framework.queue 32 --strategy.depth 2 --strategy.width 16 --checkpoint-every 1 --loggers"
).split()


def start(*command, **environment):
    """A process that does not know of the pytest around it."""
    known = {name: value for name, value in os.environ.items() if not name.startswith(("SLURM_", "PYTEST_"))}
    variables = known | {"OMP_NUM_THREADS": "1"} | environment
    return subprocess.Popen(
        [sys.executable, *command], env=variables, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


def finish(process):
    """What a process said, and its exit code."""
    said = process.communicate(timeout=60 * MINUTES)[0]
    return said, process.returncode


def weights(run):
    return safetensors.torch.load_file(Run(run).backbone_file) | safetensors.torch.load_file(Run(run).heads_file)


def assert_close(got, expected):
    for name, value in expected.items():
        torch.testing.assert_close(got[name], value, rtol=2e-3, atol=2e-4, msg=lambda m, name=name: f"{name}: {m}")


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
    return pretrain(small(data), folder / "one", console=QUIET)


@pytest.fixture(scope="module")
def pair(folder, data):
    """What two processes leave, started as torchrun would: the states of each, and run folders beside them."""
    cut_short(small(data), folder / "cut-by-one")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    known = {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    processes = [
        start(SCRIPT, str(folder), data, RANK=rank, LOCAL_RANK=rank, TORCHELASTIC_RUN_ID="test", **known)
        for rank in "01"
    ]
    for said, code in map(finish, processes):
        assert code == 0, said
    return [torch.load(folder / f"states-{rank}.pt", weights_only=True) for rank in range(2)]


@pytest.mark.parametrize("case", CASES)
def test_two_halves_of_a_batch_learn_what_one_process_learns_from_the_whole(pair, case, tmp_path):
    for step, (expected, first, second) in enumerate(zip(states(case, tmp_path), pair[0][case], pair[1][case])):
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
    files = {file.relative_to(folder / "whole").as_posix() for file in (folder / "whole").rglob("*")}
    assert files == {file.relative_to(one.path).as_posix() for file in one.path.rglob("*")}


def test_two_processes_resume_exactly(pair, folder):
    expected, got = weights(folder / "whole"), weights(folder / "cut")
    assert all(torch.equal(got[name], value) for name, value in expected.items())


def test_a_run_is_resumed_by_another_number_of_processes(pair, folder, one):
    assert_close(weights(folder / "cut-by-one"), weights(one.path))
    resume(folder / "cut-by-two", console=QUIET, devices=1)
    assert_close(weights(folder / "cut-by-two"), weights(one.path))


def test_the_command_line_starts_processes_that_end_all_when_one_is_killed(data, tmp_path):
    out = tmp_path / "run"
    arguments = ["pretrain", "tiny", "--data", data, "--devices", "2", "--out", str(out), *OPTIONS]
    said, code = finish(start(SCRIPT, "die", *arguments))
    assert code == 2, said
    assert "Process 1 of 2 was killed by SIGKILL" in said or "Another process of this run has ended" in said
    assert f"go on with `logo-ssl resume {out}`" in said
    assert "Traceback" not in said
    said, code = finish(start("-m", "logo_ssl", "resume", str(out)))
    assert code == 0, said
    assert "Going on after 1 epochs." in said
    assert said.count("Done:") == 1
    assert len([line for line in Run(out).metrics() if "knn" in line]) == 3


def test_torchrun_brings_a_killed_process_back_from_the_checkpoint(data, tmp_path):
    out = tmp_path / "run"
    torchrun = "-m torch.distributed.run --standalone --nproc-per-node 2 --max-restarts 1".split()
    arguments = ["pretrain", "tiny", "--data", data, "--out", str(out), *OPTIONS]
    said, code = finish(start(*torchrun, SCRIPT, "die", *arguments))
    assert code == 0, said
    assert "Going on after 1 epochs." in said
    assert said.count("Done:") == 1
    assert [line["epochs_done"] for line in Run(out).metrics() if "knn" in line] == [0, 1, 2]


@pytest.mark.parametrize(("batch", "processes", "cure"), [(10, 4, "8 or 12"), (4, 4, "8"), (7, 4, "8")])
def test_a_batch_that_cannot_be_dealt_evenly_is_refused(batch, processes, cure):
    with pytest.raises(UserError, match=rf"use batch-size {cure}\."):
        refuse_uneven(batch, Processes(processes, 1))
