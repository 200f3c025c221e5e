"""Does an interrupted training of a detector end like an uninterrupted one, and does its folder guard itself?"""

import json
import multiprocessing
import os
import signal
import subprocess
import threading
import time
from dataclasses import replace

import pytest
import torch
from small_detectors import HERE, HOW, SMALL, assert_equal, at_iteration, thin_encoder, train, untrained

from logo_ssl.detection import samples
from logo_ssl.detection.masks import packed
from logo_ssl.detection.samples import TrainingPictures
from logo_ssl.detection.training import alone_in, train_detector
from logo_ssl.errors import Interrupted, UserError
from logo_ssl.eval.detect import detect
from logo_ssl.eval.detect_identity import fingerprint
from logo_ssl.run import found_checkpoints

FORKS = pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")


def told(number):
    """Somebody says stop to this process and, a moment before, to its workers, as terminals and Slurm do."""

    def say():
        if workers := multiprocessing.active_children():
            subprocess.run(["kill", f"-{int(number)}", *(str(worker.pid) for worker in workers)], check=True)
            time.sleep(0.2)  # in which torch would hear of a worker's end
        os.kill(os.getpid(), number)

    return say


@pytest.fixture(scope="module")
def uninterrupted(data):
    return train(data)[0]


@pytest.mark.parametrize(
    ("iteration", "number", "name"),
    [(0, signal.SIGUSR1, "SIGUSR1"), (2, signal.SIGTERM, "SIGTERM"), (3, signal.SIGINT, "Ctrl-C")],
)
def test_an_interrupted_training_ends_like_an_uninterrupted_one(
    data, tmp_path, monkeypatch, iteration, number, name, uninterrupted
):
    with monkeypatch.context() as patch:
        at_iteration(patch, iteration, told(number))
        sentence = f"Stopped by {name}, saved at step {iteration + 1}; the same command goes on"
        with pytest.raises(Interrupted, match=sentence) as stop:
            train(data, tmp_path)
    assert stop.value.code == 128 + number
    assert [file.name[:14] for file in found_checkpoints(tmp_path)] == [f"step-{iteration + 1:09}"]
    resumed, said = train(data, tmp_path)
    assert f"Going on after {iteration + 1} iterations." in said
    assert_equal(resumed, uninterrupted)


@pytest.mark.usefixtures("enough_memory")
@pytest.mark.parametrize(
    ("workers", "number"), [(0, signal.SIGTERM), (2, signal.SIGTERM), (2, signal.SIGINT)], ids=["0", "2", "2, Ctrl-C"]
)
def test_a_training_with_masks_goes_on_exactly_from_worker_processes_too(data, tmp_path, monkeypatch, workers, number):
    whole, _ = train(data, masks=True)
    with monkeypatch.context() as patch:
        at_iteration(patch, 2, told(number))
        with pytest.raises(Interrupted):
            train(data, tmp_path, masks=True, workers=workers)
    resumed, said = train(data, tmp_path, masks=True, workers=workers)
    assert "Going on after 3 iterations." in said
    assert_equal(resumed, whole)


def test_a_signal_ends_the_wait_for_pictures_and_nothing_is_lost(data, tmp_path, monkeypatch, uninterrupted):
    read = samples.read

    def never_given(pictures, places, workers):
        for number, batch in enumerate(read(pictures, places, workers)):
            if number == 2:
                os.kill(os.getpid(), signal.SIGTERM)
                threading.Event().wait(10)
                pytest.fail("nobody ended the wait")
            yield batch

    with monkeypatch.context() as patch:
        patch.setattr(samples, "read", never_given)
        with pytest.raises(Interrupted, match="Stopped by SIGTERM, saved at step 2; the same command goes on"):
            train(data, tmp_path)
    resumed, said = train(data, tmp_path)
    assert "Going on after 2 iterations." in said
    assert_equal(resumed, uninterrupted)


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (KeyboardInterrupt(), "Interrupted; the same command goes on."),
        (
            RuntimeError("DataLoader worker (pid 28) is killed by signal: Killed. "),
            r"\(pid 28: .*\); try fewer --workers.",
        ),
        (torch.OutOfMemoryError("CUDA out of memory"), "too little memory for batches of"),
    ],
)
def test_what_ends_a_training_is_told_with_a_cure_that_the_command_has(data, tmp_path, monkeypatch, error, sentence):
    def fail():
        raise error

    at_iteration(monkeypatch, 1, fail)
    with pytest.raises(UserError, match=sentence):
        train(data, tmp_path)


def killed(data, folder, monkeypatch, number, **where):
    """Train in another process that is killed before the iteration of that number."""
    process = multiprocessing.get_context("fork").Process(target=train, args=(data, folder), kwargs=where)
    with monkeypatch.context() as patch:
        at_iteration(patch, number, lambda: os.kill(os.getpid(), signal.SIGKILL))
        process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL


@FORKS
def test_a_training_that_was_killed_between_checkpoints_ends_the_same(data, tmp_path, monkeypatch, uninterrupted):
    with monkeypatch.context() as patch:
        at_iteration(patch, 1, told(signal.SIGTERM))
        with pytest.raises(Interrupted):
            train(data, tmp_path)
    killed(data, tmp_path, monkeypatch, 4)
    assert [file.name[:14] for file in found_checkpoints(tmp_path)] == ["step-000000002"]
    resumed, said = train(data, tmp_path)
    assert "Going on after 2 iterations." in said
    assert_equal(resumed, uninterrupted)


@FORKS
def test_the_seconds_of_all_sessions_are_counted_of_one_that_was_killed_up_to_its_last_checkpoint(
    data, tmp_path, monkeypatch
):
    with monkeypatch.context() as patch:
        at_iteration(patch, 0, told(signal.SIGTERM))
        with pytest.raises(Interrupted):
            train(data, tmp_path)
    file = tmp_path / "sessions.json"
    (stopped,) = json.loads(file.read_text())
    assert stopped["ended"]
    file.write_text(json.dumps([stopped | {"seconds": 1000.0}]))
    killed(data, tmp_path, monkeypatch, 4, checkpoint_minutes=1e-9)
    newest = int(found_checkpoints(tmp_path)[0].name[5:14])
    first, second = json.loads(file.read_text())
    assert (first["seconds"], second["ended"]) == (1000.0, False)
    assert second["checkpoints"] == second["step"] - 1 > 0
    assert newest - second["step"] in (0, 1)  # the last one may be counted no more
    file.write_text(json.dumps([first, second | {"seconds": 500.0}]))
    pictures = TrainingPictures(data.train, SMALL, False)
    trained = train_detector(untrained(), pictures, SMALL, replace(HERE, folder=tmp_path))
    assert (trained.resumed_at, trained.sessions, trained.killed) == (newest, 3, 1)
    assert 1500 <= trained.seconds < 2100


def test_a_finished_training_is_not_repeated(data, tmp_path, uninterrupted):
    train(data, tmp_path)
    again, said = train(data, tmp_path)
    assert said[:1] == ["Going on after 5 iterations."]
    assert_equal(again, uninterrupted)


def test_another_training_is_not_gone_on_with(data, tmp_path):
    train(data, tmp_path, identity="one")
    with pytest.raises(UserError, match=r"holds an unfinished training of another encoder"):
        train(data, tmp_path, identity="other")


def test_one_process_at_a_time(tmp_path):
    with alone_in(tmp_path), pytest.raises(UserError, match="being trained by another process"), alone_in(tmp_path):
        pass


def test_weights_that_are_not_finite_are_never_saved(data, tmp_path):
    with pytest.raises(UserError, match="no finite number at iteration"):
        train(data, tmp_path, replace(SMALL, lr=1e30, warm_up=0))
    assert not found_checkpoints(tmp_path)


def test_an_interrupted_evaluation_goes_on_and_leaves_no_state(data, tmp_path, monkeypatch):
    encoder, out = thin_encoder(), tmp_path / "figures.json"
    whole = dict(detect(encoder, data, SMALL, HOW, out=tmp_path / "whole.json"))
    with monkeypatch.context() as patch:
        at_iteration(patch, 2, told(signal.SIGTERM))
        with pytest.raises(Interrupted):
            list(detect(encoder, data, SMALL, HOW, out=out))
    assert found_checkpoints(tmp_path / "figures-training")
    assert dict(detect(encoder, data, SMALL, HOW, out=out)) == whole
    assert not (tmp_path / "figures-training").exists()
    first, second = (json.loads(file.read_text()) for file in (tmp_path / "whole.json", out))
    assert [(each["resumed_at"], each["sessions"]) for each in (first, second)] == [(0, 1), (3, 2)]
    assert {file.name for file in (tmp_path / "figures-pictures").iterdir()} == {
        "best.png",
        "worst.png",
        "random.png",
        "boxes.json",
    }


def changed(picture, name):
    """The picture with other marks, areas or masks, and the same boxes."""
    if name == "segmentations":
        return replace(picture, segmentations=(packed([[1, 1, 9, 1, 9, 9]]), *picture.segmentations[1:]))
    return replace(picture, **{name: getattr(picture, name) + 1 if name == "area" else ~getattr(picture, name)})


@pytest.mark.parametrize(
    ("name", "of_boxes"), [("crowd", True), ("difficult", True), ("area", True), ("segmentations", False)]
)
def test_objects_that_changed_are_other_data(data, name, of_boxes):
    first, *rest = data.train.pictures
    other = replace(data.train, pictures=(changed(first, name), *rest))
    assert (fingerprint(data.train, masks=False) != fingerprint(other, masks=False)) == of_boxes
    assert fingerprint(data.train, masks=True) != fingerprint(other, masks=True)
    assert fingerprint(data.train, masks=True) != fingerprint(data.train, masks=False)


@pytest.mark.parametrize(
    ("mask", "other"),
    [
        ([[1.0, 1.0, 9.0, 1.0, 9.0, 9.5]], [[1.0, 1.0, 9.0, 1.0, 9.0, 9.0]]),
        ([[1.0, 1.0, 9.0, 1.0, 9.0, 1 / 3]], [[1.0, 1.0, 9.0, 1.0, 9.0, 2 / 3]]),
        ({"size": [64, 64], "counts": [4000, 96]}, {"size": [64, 64], "counts": [4001, 95]}),
        ({"size": [64, 64], "counts": "PT4"}, {"size": [64, 64], "counts": "QT4"}),
        ({"size": [64, 64], "counts": b"PT4"}, {"size": [64, 64], "counts": b"QT4"}),
    ],
)
def test_masks_of_every_kind_are_told_apart(data, mask, other):
    def of(*segmentations):
        pictures = tuple(replace(data.train.pictures[0], segmentations=(each, each)) for each in segmentations)
        return fingerprint(replace(data.train, pictures=pictures), masks=True)

    assert of(packed(mask)) == of(packed(mask))
    assert of(packed(mask)) != of(packed(other))


def test_an_interrupted_training_with_masks_does_not_go_on_with_others(data, tmp_path, monkeypatch):
    out, first = tmp_path / "figures.json", data.train.pictures[0]
    other = data._replace(
        train=replace(data.train, pictures=(changed(first, "segmentations"), *data.train.pictures[1:]))
    )
    with monkeypatch.context() as patch:
        at_iteration(patch, 2, told(signal.SIGTERM))
        with pytest.raises(Interrupted):
            list(detect(thin_encoder(), data, SMALL, HOW, masks=True, out=out))
    with pytest.raises(UserError, match=r"holds an unfinished training .* on other pictures"):
        list(detect(thin_encoder(), other, SMALL, HOW, masks=True, out=out))
