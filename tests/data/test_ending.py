"""Do worker processes end, whatever they do, and only when they should?"""

import gc
import os
import subprocess
import sys
import textwrap
from collections import deque
from itertools import repeat
from multiprocessing import get_context

import pytest
import torch
from logo_ssl.data.files import Paths
from torch.utils.data import Dataset

from logo_ssl.data import Photos, ending
from logo_ssl.data.workers import PER_MESSAGE, Decoding, Message, Reader, Reading
from logo_ssl.detection.samples import read


def never_return() -> None:
    """A loop in C: no handler that is written in Python is ever run."""
    deque(repeat(0), maxlen=0)


def wait_for_ever() -> None:
    """A read that is blocked, as from a disk that is gone."""
    os.read(os.pipe()[0], 1)


class Stuck(Reading):
    """Gives all messages but the second: the second worker is stuck, the first is well."""

    def __init__(self, stuck) -> None:
        super().__init__(Decoding(Photos.all(Paths([])), 640))
        self.stuck, self.both_work = stuck, get_context("fork").Event()

    def __getitems__(self, rows: list[int]) -> Message:
        if rows[0] == PER_MESSAGE:
            self.both_work.set()  # and no signal finds them before they know what to do about it
            self.stuck()
        return Message(rows, [], torch.zeros(1, dtype=torch.uint8), [], torch.zeros(1, dtype=torch.uint8), [], rows, [])


class StuckPictures(Dataset[int]):
    def __len__(self) -> int:
        return 8

    def __getitem__(self, place: int) -> int:
        if place == 1:
            never_return()
        return place


@pytest.fixture
def impatient(monkeypatch):
    monkeypatch.setattr(ending, "GRACE_S", 0.3)


def tell(workers, number: str) -> None:
    subprocess.run(["kill", f"-{number}", *(str(worker.pid) for worker in workers)], check=True)


def has_ended(worker) -> bool:
    worker.join(20)  # one that was killed may be a moment in dying, longer than the impatient wait
    return not worker.is_alive()


@pytest.mark.parametrize("stuck", [never_return, wait_for_ever])
@pytest.mark.parametrize("told", [False, True], ids=["", "after SIGTERM to all"])
def test_a_worker_that_hears_nothing_is_killed_when_its_reader_closes(impatient, stuck, told):
    reader = Reader(reading := Stuck(stuck), 2)
    messages = reader.read(torch.arange(8 * PER_MESSAGE).split(PER_MESSAGE))
    assert next(messages)[0].rows[0] == 0
    assert reading.both_work.wait(60)
    workers = reader.loader._iterator._workers
    if told:
        tell(workers, "TERM")
    assert all(worker.is_alive() for worker in workers)
    reader.close()
    assert all(has_ended(worker) for worker in workers)


def test_workers_that_are_stopped_are_killed_too(impatient):
    reader = Reader(Stuck(never_return), 2)
    next(reader.read(torch.arange(PER_MESSAGE).split(PER_MESSAGE)))
    workers = reader.loader._iterator._workers
    tell(workers, "STOP")
    reader.close()
    assert all(has_ended(worker) for worker in workers)


def test_workers_that_are_well_are_asked_and_not_killed():
    reader = Reader(Stuck(lambda: None), 2)
    assert len(list(reader.read(torch.arange(2 * PER_MESSAGE).split(PER_MESSAGE)))) == 2
    workers = reader.loader._iterator._workers
    tell(workers, "TERM")
    reader.close()
    assert [worker.exitcode for worker in workers] == [0, 0]


def test_stuck_workers_of_detection_are_killed_when_nobody_reads_on(impatient):
    batches = read(StuckPictures(), [[place] for place in range(8)], 2)
    assert next(batches) == [0]
    workers = batches.gi_frame.f_locals["batches"]._workers
    assert all(worker.is_alive() for worker in workers)
    batches.close()
    assert all(has_ended(worker) for worker in workers)


def test_a_process_ends_though_its_workers_are_stuck():
    """Else multiprocessing would wait for them without limit."""
    code = f"""
        import sys, torch
        sys.path.insert(0, {os.path.dirname(__file__)!r})
        from test_ending import PER_MESSAGE, Reader, Stuck, never_return
        reader = Reader(Stuck(never_return), 2)
        messages = reader.read(torch.arange(8 * PER_MESSAGE).split(PER_MESSAGE))
        next(messages)
        print(*(worker.pid for worker in reader.loader._iterator._workers))
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, timeout=300, check=True
    )
    assert done.stderr == ""
    for worker in done.stdout.split():
        with pytest.raises(ProcessLookupError):
            os.kill(int(worker), 0)


class Garbage:
    """Tells which processes collect it: it is kept by itself alone."""

    def __init__(self, told) -> None:
        self.told, self.itself = told, self

    def __del__(self) -> None:
        with self.told.open("a") as told:
            told.write(f"{os.getpid()}\n")


class Tidy(Dataset[bool]):
    """Collects garbage wherever it is read, and tells whether that would come by itself."""

    def __len__(self) -> int:
        return 2

    def __getitem__(self, place: int) -> bool:
        gc.collect()
        return gc.isenabled()


class Littering(list):
    """Places; asking for them leaves garbage."""

    def __init__(self, places, told) -> None:
        super().__init__(places)
        self.told, self.collected = told, []

    def __iter__(self):
        self.collected.append(gc.isenabled())
        Garbage(self.told)
        return super().__iter__()


def test_workers_leave_the_garbage_of_their_parent_alone(tmp_path):
    told = tmp_path / "told"
    gc.collect()
    gc.disable()  # or chance would decide who collects it
    try:
        Garbage(told)
        assert list(read(Tidy(), Littering([[0], [1]], told), 1)) == [[True], [True]]
        assert not gc.isenabled()  # as it was
    finally:
        gc.enable()
    assert not told.exists()
    gc.collect()
    assert set(told.read_text().split()) == {str(os.getpid())}


@pytest.mark.parametrize("workers", [0, 1])
def test_this_process_collects_garbage_as_before_but_while_it_forks(tmp_path, workers):
    places = Littering([[0], [1]], tmp_path / "told")
    gc.freeze()  # as somebody may who wants to fork, too
    try:
        frozen = gc.get_freeze_count()
        list(read(Tidy(), places, workers))
        assert places.collected[0] is False
        assert gc.isenabled()
        assert gc.get_freeze_count() > frozen / 2
    finally:
        gc.unfreeze()
        gc.collect()  # while the folder is there


class Nested(Dataset[list[int]]):
    """Reads with a loader of its own."""

    def __len__(self) -> int:
        return 1

    def __getitem__(self, place: int) -> list[list[bool]]:
        return list(read(Tidy(), [[0]], 0))


@pytest.mark.filterwarnings("error")
def test_a_worker_may_begin_a_loader_of_its_own(impatient):
    assert list(read(Nested(), [[0]], 1)) == [[[[True]]]]
