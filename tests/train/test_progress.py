"""Is the time that remains true, after a resume and a kNN too, and is the newest kNN told as what it is?"""

import io
import re

import pytest
from rich.console import Console
from small_runs import SMALL, at_step, console, stop

from logo_ssl import pretrain, resume
from logo_ssl.errors import Interrupted
from logo_ssl.recipes import find_recipe
from logo_ssl.train import Pretraining, loggers, monitors
from logo_ssl.train.monitors import OnlineKNN

COMPILING, STEP, KNN = 60.0, 1.0, 20.0  # seconds


class Clock:
    """Stands still unless it is moved."""

    now = 0.0

    def perf_counter(self):
        return self.now

    time = monotonic = perf_counter


@pytest.fixture
def timed(monkeypatch):
    """Runs by a clock: a step, a kNN and the wait before the first step of each session take what they should."""
    clock, step, accuracy = Clock(), Pretraining.training_step, OnlineKNN.accuracy

    def training_step(self, batch, batch_idx):
        step(self, batch, batch_idx)
        clock.now += STEP if hasattr(self, "compiled_before") else COMPILING
        self.compiled_before = True

    def measured(self, module):
        clock.now += KNN
        return accuracy(self, module)

    monkeypatch.setattr(Pretraining, "training_step", training_step)
    monkeypatch.setattr(OnlineKNN, "accuracy", measured)
    monkeypatch.setattr(monitors, "time", clock)
    monkeypatch.setattr(loggers, "time", clock)


@pytest.mark.parametrize("epochs", [1, 6, 7])
@pytest.mark.parametrize("every", [0, 1, 3, 10])
def test_as_many_evaluations_are_left_as_will_come(every, epochs):
    come = [epoch for epoch in range(1, epochs + 1) if every and (epoch % every == 0 or epoch == epochs)]
    recipe = find_recipe("tiny").changed(knn_every=every, epochs=epochs)
    for done in range(epochs + 1):
        assert recipe.evaluations_after(done) == sum(epoch > done for epoch in come)


def told(said):
    """Of each line of an epoch: its number, what it tells of kNN, and the time that remains."""
    return [
        (int(epoch), re.sub(r"[\d.]+%", "#", knn), left)
        for epoch, knn, left in re.findall(r"^epoch (\d+)/6 .*?(kNN .*?\)).*  ETA (.*)$", said, re.MULTILINE)
    ]


def test_the_remaining_time_is_true_in_every_line_of_an_interrupted_run(data, tmp_path, timed, monkeypatch):
    recipe, out, said = SMALL.changed(epochs=6, knn_every=3, batch_size=6), tmp_path / "run", console()
    with monkeypatch.context() as patch:
        at_step(patch, lambda module: stop(), 24)  # the first of the fourth epoch
        with pytest.raises(Interrupted, match="saved at step 25"):
            pretrain(recipe, out, data=data, console=said)
    assert told(said.file.getvalue()) == [
        (1, "kNN # (k=20, tau=0.07, epoch 0)", "80 s"),  # 40 steps and two times kNN
        (2, "kNN # (k=20, tau=0.07, epoch 0)", "72 s"),
        (3, "kNN # (k=20, tau=0.07, epoch 3)", "44 s"),
    ]
    said = console()
    resume(out, console=said)
    assert told(said.file.getvalue()) == [
        (4, "kNN # (k=20, tau=0.07, epoch 3)", "not yet known"),  # four steps do not tell
        (5, "kNN # (k=20, tau=0.07, epoch 3)", "28 s"),  # what kNN takes was seen before
        (6, "kNN # (k=20, tau=0.07, epoch 6)", "0 s"),
    ]


def test_a_bar_ends_with_the_time_that_it_took(data, tmp_path):
    screen = Console(file=io.StringIO(), force_terminal=True, width=250)
    pretrain(SMALL, tmp_path / "run", data=data, console=screen)
    *_, last = re.findall(r"100%.*", re.sub(r"\x1b\[[\d;?]*[a-zA-Z]", "", screen.file.getvalue()))
    assert re.search(r"kNN [\d.]+% \(k=20, tau=0.07, epoch 2\)  [\d,]+ images/s \d+ s *$", last)
