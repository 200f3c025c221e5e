"""Two processes with half a batch each train the detector that one process trains with the whole."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from drawn import save_coco
from sharing import DONE, cut_short, train

from logo_ssl.detection import load_detection
from logo_ssl.detection.train import WITH_MASKS
from logo_ssl.errors import UserError
from logo_ssl.run import CHECKPOINT, found_checkpoints

SCRIPT = str(Path(__file__).parent / "sharing.py")
MINUTES = 5  # more than anything here takes; hanging is what it catches


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """What two processes left."""
    folder = tmp_path_factory.mktemp("sharing")
    save_coco(folder / "coco", {"train": 6, "val": 2})
    cut_short(load_detection(str(folder / "coco")), 1, folder / "by-one")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("SLURM_")}
    done = subprocess.run(
        [sys.executable, SCRIPT, str(folder)],
        env=environment | {"OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=60 * MINUTES,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    return folder


@pytest.fixture(scope="module")
def data(folder):
    return load_detection(str(folder / "coco"))


@pytest.fixture(scope="module")
def learned(folder):
    """By process, then by case: the weights after training and, of the first, those with refreshed norms."""
    return [torch.load(folder / f"learned-{number}.pt", weights_only=True) for number in range(2)]


def apart(ours, theirs):
    """How far weights are from each other, as a share of their size."""
    flat = [torch.cat([w[name].double().flatten() for name in theirs]) for w in (ours, theirs)]
    return ((flat[0] - flat[1]).norm() / flat[1].norm()).item()


def test_two_halves_of_a_batch_teach_what_one_process_learns_from_the_whole(learned, data):
    expected = train(data, 1)
    ours, theirs = (weights["whole"] for weights in learned)
    for name in expected[0]:
        assert torch.equal(ours[0][name], theirs[0][name]), name
    assert apart(ours[0], expected[0]) < 1e-5
    assert apart(ours[1], expected[1]) < 1e-5  # norms refreshed by one process, with whole batches
    assert apart(expected[1], expected[0]) > 1e-3


def test_a_training_goes_on_with_another_number_of_processes(learned, data, folder):
    expected = learned[0]["whole"][0]
    assert apart(learned[0]["by one"][0], expected) < 1e-5
    (newest,) = found_checkpoints(folder / "by-two")
    assert int(CHECKPOINT.fullmatch(newest.name)[1]) == DONE
    assert apart(train(data, 1, folder / "by-two")[0], expected) < 1e-5


def test_only_the_first_process_tests_and_writes(folder):
    assert [(folder / f"figures-of-{number}").read_text() for number in range(2)] == ["1", "0"]
    assert json.loads((folder / "figures.json").read_text())["results"]
    assert not (folder / "figures-training").exists()


def test_processes_share_the_workers_of_their_machine(folder):
    told = [(folder / f"workers-of-{number}").read_text() for number in range(2)]
    training, refreshing = (2, WITH_MASKS, 2), (4, WITH_MASKS, 1)  # of 4: half for each, all for the one that is left
    assert told == [str([training, refreshing]), str([training, training])]


def test_batches_that_cannot_be_dealt_are_refused(data):
    with pytest.raises(UserError, match="batch_size=4"):
        train(data, 3)
