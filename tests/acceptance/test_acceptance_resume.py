"""Is nothing lost when a run is stopped, killed, torn or goes on for longer, alone or in two processes?"""

import io
import shutil
import signal
import subprocess
import tarfile
import time
from collections.abc import Callable
from pathlib import Path
from unittest.mock import patch

import pytest
import torch
from command_line import EPOCHS, ended, metrics, options, started, weights

import logo_ssl

PROJECT = Path(__file__).parents[2]
BEFORE = "c51c78a"
"""The last commit before the code was rebuilt."""


def until_step(run: Path, step: int, process: "subprocess.Popen[str]") -> None:
    """Wait until a run that goes on elsewhere has taken so many steps."""
    end = time.monotonic() + 120
    while process.poll() is None and time.monotonic() < end:
        with_steps = (run / "metrics.jsonl").is_file() and f'"step": {step},' in (run / "metrics.jsonl").read_text()
        if with_steps:
            return
        time.sleep(0.005)
    process.kill()
    raise AssertionError(f"no step {step}: {process.communicate()}")


def stop(cwd: Path, data: Path, number: int) -> tuple[int, str]:
    """A run, `cut`, that gets a signal in its third epoch; how it ended."""
    # a step of this run takes about 40 ms, and a checkpoint is written after each epoch
    process = started("pretrain", "tiny", "--data", data, "--out", "cut", *options(epochs=EPOCHS), cwd=cwd)
    until_step(cwd / "cut", 10, process)
    process.send_signal(number)
    end = ended(process)
    return end.code, end.err


@pytest.fixture(scope="module")
def stopped(tmp_path_factory, data) -> Callable[[str, Path], tuple[int, str]]:
    """Copies a run that a signal of that name has stopped, and tells how it ended."""
    known = {}

    def copied(name: str, cwd: Path) -> tuple[int, str]:
        if name not in known:
            folder = tmp_path_factory.mktemp(name)
            known[name] = (folder, stop(folder, data, getattr(signal, name)))
        folder, end = known[name]
        shutil.copytree(folder / "cut", cwd / "cut")
        return end

    return copied


def assert_like(whole: Path, run: Path) -> None:
    """Bit for bit the same weights, and the same curves."""
    expected, got = weights(whole), weights(run)
    assert expected.keys() == got.keys()
    assert all(torch.equal(got[name], value) for name, value in expected.items())
    names = ("loss", "omega", "ratio", "lr", "knn")
    curves = [[(line["step"], *(line.get(name) for name in names)) for line in metrics(each)] for each in (whole, run)]
    assert curves[0] == curves[1]


@pytest.mark.parametrize(("name", "code"), [("SIGINT", 130), ("SIGTERM", 143), ("SIGKILL", -9)])
def test_a_run_that_a_signal_stops_goes_on_and_ends_like_an_uninterrupted_one(logo, cwd, stopped, whole, name, code):
    got, err = stopped(name, cwd)
    assert got == code, err
    assert "Traceback" not in err
    assert not (cwd / "cut" / "backbone.safetensors").exists()
    done = logo("resume", "cut")
    assert done.code == 0, done.err
    assert_like(whole, cwd / "cut")


def test_a_torn_checkpoint_costs_only_the_steps_since_the_one_before(logo, cwd, stopped, whole):
    stopped("SIGKILL", cwd)
    *_, before, newest = sorted((cwd / "cut" / "checkpoints").glob("*.ckpt"))
    assert before.stat().st_size > 0
    newest.write_bytes(newest.read_bytes()[:-1000])
    done = logo("resume", "cut")
    assert done.code == 0, done.err
    assert_like(whole, cwd / "cut")


def test_an_unfinished_run_gives_the_encoder_of_its_newest_checkpoint_and_says_so(logo, cwd, stopped, run):
    stopped("SIGTERM", cwd)
    with pytest.warns(UserWarning, match="cut"):
        encoder = logo_ssl.load(cwd / "cut")
    x = torch.rand(1, 3, 32, 32)
    assert encoder(x).shape == logo_ssl.load(run)(x).shape
    done = logo("embed", "cut", "--out", "features.npz")
    assert done.code == 0, done.err


def test_a_finished_run_goes_on_for_more_epochs_and_python_does_the_same(logo, own_run, tmp_path):
    other = shutil.copytree(own_run, tmp_path / "other")
    done = logo("resume", own_run, "--epochs", "3")
    assert done.code == 0, done.err
    assert [line["epochs_done"] for line in metrics(own_run) if "knn" in line] == [0, 1, 2, 3]
    assert logo_ssl.resume(other, epochs=3).path == other
    assert_like(own_run, other)


def test_resuming_a_finished_run_changes_nothing(logo, own_run):
    before = weights(own_run)
    logo("resume", own_run)
    assert all(torch.equal(value, before[name]) for name, value in weights(own_run).items())


def assert_close(got: dict[str, torch.Tensor], expected: dict[str, torch.Tensor]) -> None:
    """Weights after some steps in float32, in which rounding grows; those of another seed are about 1.4 apart."""
    assert got.keys() == expected.keys()
    ours, theirs = (torch.cat([each[name].double().flatten() for name in expected]) for each in (got, expected))
    assert (ours - theirs).norm() / theirs.norm() < 1e-3


def test_two_processes_learn_what_one_learns_and_one_goes_on_with_what_they_left(cwd, logo, data, trained):
    one = trained("one", epochs=2)
    words = options(epochs=2, devices=2)
    two = ended(started("pretrain", "tiny", "--data", data, "--out", "two", *words, cwd=cwd))
    assert two.code == 0, two.err
    assert_close(weights(cwd / "two"), weights(one))
    ours, theirs = metrics(cwd / "two"), metrics(one)
    assert [line["step"] for line in ours] == [line["step"] for line in theirs]
    for mine, other in zip(ours, theirs, strict=True):
        for name in {"loss", "omega", "knn"} & other.keys():
            assert mine[name] == pytest.approx(other[name], rel=1e-2), (name, mine["step"])
    done = logo("resume", "two", "--devices", "1", "--epochs", "3")
    assert done.code == 0, done.err


@pytest.fixture(scope="module")
def source_before(tmp_path_factory) -> Path:
    """The package as it was before the code was rebuilt, out of git."""
    command = ["git", "-C", str(PROJECT), "archive", BEFORE, "src"]
    archive = subprocess.run(command, capture_output=True, check=False)
    if archive.returncode:
        pytest.skip(f"git does not give {BEFORE}")
    folder = tmp_path_factory.mktemp("before")
    with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as tar:
        tar.extractall(folder, filter="data")
    return folder / "src"


def test_a_run_finished_before_the_code_was_rebuilt_is_loaded_measured_and_continued(
    logo, cwd, data, run, source_before
):
    with patch("command_line.SOURCE", source_before):
        done = ended(started("pretrain", "tiny", "--data", data, "--out", "old", *options(), cwd=cwd))
    assert done.code == 0, done.err
    x = torch.rand(2, 3, 32, 32)
    assert torch.equal(logo_ssl.load(cwd / "old")(x), logo_ssl.load(run)(x))
    assert logo("eval", "knn", "old", "--out", "knn.json").code == 0
    assert logo("resume", "old", "--epochs", "2").code == 0
