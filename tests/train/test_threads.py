"""Are threads chosen by what steps take, without a trace in the run, and as they were in a run that goes on?"""

import time

import pytest
import torch
from small_runs import SMALL, assert_equal_runs, at_step, console, stop, train

from logo_ssl import resume
from logo_ssl.errors import Interrupted
from logo_ssl.system.hardware import seconds_by_threads, threads_kept
from logo_ssl.train import trainer


@pytest.fixture
def two_threads(monkeypatch):
    """A machine with two cores whose user has said nothing of threads."""
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    with threads_kept():
        torch.set_num_threads(2)
        yield


@pytest.fixture
def timings(monkeypatch):
    """One thread is the faster; and how often that was asked."""
    asked = []

    def timed(work, most):
        asked.append(most)
        for _ in range(3):
            work()
        return {1: 1.0, most: 2.0}

    monkeypatch.setattr(trainer, "seconds_by_threads", timed)
    return asked


def test_the_number_of_threads_that_takes_least_time_is_found():
    with threads_kept():
        seconds = seconds_by_threads(lambda: time.sleep(0.02 * torch.get_num_threads()), 4)
    assert sorted(seconds, key=seconds.__getitem__) == [1, 2, 4]


@pytest.mark.parametrize("framework", ["moco", "byol", "swav", "dino"])
def test_timing_leaves_no_trace_and_a_resumed_run_takes_the_number_without_it(
    data, tmp_path, two_threads, timings, monkeypatch, framework
):
    recipe = SMALL.changed(framework=framework, framework__dim=8)
    with monkeypatch.context() as patch:
        patch.setenv("OMP_NUM_THREADS", "1")
        torch.set_num_threads(1)
        told, _ = train(recipe, data, tmp_path / "told")
    torch.set_num_threads(2)
    assert timings == []
    with monkeypatch.context() as patch:
        at_step(patch, lambda module: stop(), 3)
        with pytest.raises(Interrupted):
            train(recipe, data, tmp_path / "timed")
    timed = resume(tmp_path / "timed", console=console())
    assert timings == [2]
    assert torch.get_num_threads() == 2  # as before the run
    assert "CPU, 1 thread" in timed.provenance_file.read_text()
    assert_equal_runs(told, timed, but=("callbacks",))


def test_threads_are_chosen_again_when_the_pace_drops(data, tmp_path, two_threads, timings, monkeypatch):
    steps = []
    monkeypatch.setattr(trainer, "STEPS_OF_PACE", 4)
    monkeypatch.setattr(trainer, "SLOW", 5.0)
    at_step(monkeypatch, lambda module: (steps.append(len(timings)), time.sleep(2.0)), *range(12, 15))
    train(SMALL, data, tmp_path / "run", epochs=5, knn_every=0)
    assert (steps[0], steps[-1]) == (1, 2)
