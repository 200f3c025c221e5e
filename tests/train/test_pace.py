"""Is a run told that has become slow, once, and no other?"""

from unittest.mock import Mock

import lightning as L
import pytest
import torch
from small_runs import SMALL, train

from logo_ssl.hardware import about_a_slowdown
from logo_ssl.train.monitors import Pace, pace
from logo_ssl.types import ImageBatch

TRAINER = Mock(spec=L.Trainer, world_size=1)
CPU, CUDA = (Mock(spec=L.LightningModule, device=torch.device(kind)) for kind in ("cpu", "cuda"))
TEN = Mock(spec=ImageBatch, pixels=range(10))


def said_of(steps, module=CPU, between=0.0):
    """What is said of steps of 10 images that take so many seconds, with so many seconds between epochs of 5 steps."""
    said, now = [], [0.0]
    watch = Pace(said.append, lambda: now[0])
    for number, seconds in enumerate(steps):
        if number % 5 == 0:
            now[0] += between
            watch.on_train_epoch_start(TRAINER, module)
        now[0] += seconds
        watch.on_train_batch_end(TRAINER, module, None, TEN, number)
    return said


def test_a_lasting_fall_is_said_once():
    (sentence,) = said_of([1.0] * 40 + [10.0] * 50)
    assert sentence.startswith("Training has slowed down from 10 to 1.0 images/s")


@pytest.mark.parametrize(
    ("steps", "between"),
    [
        ([1.0] * 40 + [30.0] + [1.0] * 40, 0.0),
        ([1.0] * 40 + [4.0] * 40, 0.0),
        ([1.0] * 10 + [10.0] * 40, 0.0),
        ([10.0] * 10 + [1.0] * 100, 0.0),
        ([1.0] * 80, 1000.0),
        ([0.01] * 20 + [0.4] * 20, 0.0),
    ],
    ids=["once", "by less", "before anything is usual", "slow to begin with", "between epochs", "for a moment"],
)
def test_what_is_no_lasting_fall_is_not_said(steps, between):
    assert said_of(steps, between=between) == []


def test_nothing_is_said_of_a_gpu():
    assert said_of([1.0] * 40 + [10.0] * 50, CUDA) == []


def test_a_run_that_becomes_slow_says_so(data, tmp_path, monkeypatch):
    monkeypatch.setattr(pace, "WINDOW_S", 0.0)
    monkeypatch.setattr(pace, "FALL", float("inf"))  # so that every step is a fall from those before
    monkeypatch.setattr(pace, "USUAL", 0)
    monkeypatch.setattr(pace, "median", lambda speeds: 100.0)
    _, said = train(SMALL, data, tmp_path / "run")
    assert said.count("Training has slowed down from 100 to ") == 1


def test_the_likely_cause_is_told_with_the_load(monkeypatch):
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    told = {}
    for load in (6.12, 1.9, 0.0):
        for threads in (1, 2):
            monkeypatch.setattr("logo_ssl.hardware._load", lambda load=load: load)
            monkeypatch.setattr(torch, "get_num_threads", lambda threads=threads: threads)
            told[load, threads] = about_a_slowdown()
    assert told[6.12, 1] == ": most likely other programs take the 2 cores (load 6.1). End them or wait."
    assert told[6.12, 2].endswith("End them or wait; Ctrl-C and `resume` with OMP_NUM_THREADS=1 set lose less by it.")
    assert told[0.0, 1] == ": most likely other programs take the 2 cores. End them or wait."
    assert told[1.9, 1] == told[1.9, 2]
    assert told[1.9, 1].startswith("; the load is 1.9 for 2 cores, so look whether memory, disk")
