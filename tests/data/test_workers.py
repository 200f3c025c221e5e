"""Photographs become batches whatever is wrong with some of them; worker processes end whatever they do."""

import gc
import os
import shutil
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections import deque
from collections.abc import Iterator
from itertools import repeat
from multiprocessing import get_context

import numpy as np
import pytest
import torch
from photographs import flat, folder, images_of, jpeg
from torch.utils.data import DataLoader, Dataset

from logo_ssl.data import BadImages, Photos, workers
from logo_ssl.data.images import Paths
from logo_ssl.data.workers import (
    PER_MESSAGE,
    BackgroundIterator,
    Decoding,
    Message,
    Reader,
    Sent,
    WorkerFeed,
    fitting_workers,
    start,
    stop,
    worker_options,
)


@pytest.mark.parametrize("n_workers", [0, 2])
def test_bad_images_are_replaced_counted_and_listed_once(tmp_path, n_workers):
    whole = jpeg(flat(200))
    photos = folder(tmp_path, [whole] * 20 + [b"", whole[: len(whole) // 2], b"not an image", b"\x89PNG\r\n\x1a\n bad"])
    (tmp_path / "005.jpg").unlink()  # vanished
    bad = BadImages(24, 0.5, tmp_path / "run" / "bad-images.csv", str(tmp_path))
    feed = WorkerFeed(Decoding(photos, 640), bad, n_workers)
    for _ in range(2):
        batches = feed.batches(torch.arange(24).split(4))
        assert all((image.float() - 200).abs().max() < 3 for batch in batches for image in images_of(batch))
    feed.close()
    rows = (tmp_path / "run" / "bad-images.csv").read_text().splitlines()
    assert sorted(row.split(",")[0] for row in rows) == ["005.jpg", *(f"02{i}.jpg" for i in range(4)), "image"]
    assert any("No such file" in row for row in rows)


def test_the_same_image_takes_the_place_of_a_bad_one_every_time_and_grey_that_of_all(tmp_path):
    photos = folder(tmp_path, [jpeg(flat(5 * i)) for i in range(40)] + [b""])
    first, again = (Decoding(photos, 640)[40] for _ in range(2))
    assert np.array_equal(first.pixels, again.pixels)
    assert first.row == again.row != 40
    (tmp_path / "none").mkdir()
    feed = WorkerFeed(Decoding(folder(tmp_path / "none", [b"", b""]), 640), BadImages(2, 1.0), 0)
    (batch,) = feed.batches([torch.arange(2)])
    assert batch.rows.tolist() == [-1, -1]


def test_pipes_and_impossible_names_are_bad_and_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "pipe.jpg")
    (tmp_path / "good.jpg").write_bytes(jpeg(flat(9)))
    photos = Photos.all(Paths([tmp_path / "pipe.jpg", tmp_path / "good.jpg", "nul\0.jpg"]))
    feed = WorkerFeed(Decoding(photos, 640), bad := BadImages(3, 1.0), 0)
    assert len(list(feed.batches(torch.arange(3).split(1)))) == 3
    assert len(bad) == 2


@pytest.mark.skipif(not os.path.isdir("/dev/shm"), reason="no /dev/shm")
def test_workers_are_as_many_as_shared_memory_can_serve(monkeypatch):
    usage = shutil.disk_usage("/")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=64 * 2**20))
    assert [fitting_workers(16, size) for size in (1_000_000, 100_000, 1_000)] == [0, 3, 16]


def test_workers_outlast_a_signal_to_all_processes(tmp_path):
    """Slurm tells all; the end of a worker would be an error in the middle of the step that is to be saved."""
    feed = WorkerFeed(Decoding(folder(tmp_path, [jpeg(flat(i)) for i in range(200)]), 640), BadImages(200, 0.3), 2)
    batches = feed.batches(torch.arange(200).split(40))
    seen = [next(batches)]
    tell(feed.reader.batches._workers, "TERM")
    time.sleep(0.2)
    assert len([*seen, *batches]) == 5
    feed.close()


def test_the_death_of_a_worker_is_an_error_within_seconds(tmp_path):
    """Not silence: Lightning's run ends with it, and can be resumed."""
    feed = WorkerFeed(Decoding(folder(tmp_path, [jpeg(flat(7))] * 400), 640), BadImages(400, 0.3), 2)
    batches = feed.batches(torch.arange(400).split(40))
    next(batches)
    with pytest.raises(RuntimeError, match="DataLoader worker"):  # noqa: PT012 (torch raises it anywhere)
        os.kill(feed.reader.batches._workers[0].pid, signal.SIGKILL)
        list(batches)
    feed.close()


def test_starting_workers_leaves_the_streams_of_this_process_alone():
    """Else a run that begins its workers anew, as a resumed one does, would draw other numbers."""
    before = torch.get_rng_state()
    loader = DataLoader(Tidy(), **worker_options(1))
    stop(start(loader))
    assert torch.equal(torch.get_rng_state(), before)


def never_return() -> None:
    """A loop in C: no handler that is written in Python is ever run."""
    deque(repeat(0), maxlen=0)


def wait_for_ever() -> None:
    """A read that is blocked, as from a disk that is gone."""
    os.read(os.pipe()[0], 1)


class Stuck(Decoding):
    """Gives all messages but the second: the second worker is stuck, the first is well."""

    def __init__(self, stuck) -> None:
        super().__init__(Photos.all(Paths([])), 640)
        self.stuck, self.both_work = stuck, get_context("fork").Event()

    def __getitems__(self, rows: list[int]) -> Message:
        if rows[0] == PER_MESSAGE:
            self.both_work.set()  # and no signal finds them before they know what to do about it
            self.stuck()
        return Message([Sent(row, row, (1, 1, 3)) for row in rows], torch.zeros(3 * len(rows), dtype=torch.uint8), [])


def tell(processes, number: str) -> None:
    subprocess.run(["kill", f"-{number}", *(str(process.pid) for process in processes)], check=True)


def has_ended(worker) -> bool:
    worker.join(20)  # one that was killed may be a moment in dying, longer than the impatient wait
    return not worker.is_alive()


@pytest.mark.parametrize(
    ("stuck", "told"), [(never_return, None), (never_return, "TERM"), (wait_for_ever, "TERM"), (never_return, "STOP")]
)
def test_a_worker_that_hears_nothing_is_killed_when_its_reader_closes(monkeypatch, stuck, told):
    monkeypatch.setattr(workers, "GRACE_S", 0.3)
    reader = Reader(reading := Stuck(stuck), 2)
    messages = reader.read(torch.arange(8 * PER_MESSAGE).split(PER_MESSAGE))
    assert next(messages)[0].about[0].row == 0
    assert reading.both_work.wait(60)
    processes = reader.batches._workers
    if told:
        tell(processes, told)
    assert all(worker.is_alive() for worker in processes)
    began = time.perf_counter()
    reader.close()
    assert all(has_ended(worker) for worker in processes)
    assert time.perf_counter() - began < 20


def test_a_process_ends_though_its_workers_are_stuck():
    """Else multiprocessing would wait for them without limit."""
    code = f"""
        import sys, torch
        sys.path.insert(0, {os.path.dirname(__file__)!r})
        from test_workers import PER_MESSAGE, Reader, Stuck, never_return
        reader = Reader(Stuck(never_return), 2)
        messages = reader.read(torch.arange(8 * PER_MESSAGE).split(PER_MESSAGE))
        next(messages)
        print(*(worker.pid for worker in reader.batches._workers))
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
        self.told = told

    def __iter__(self):
        Garbage(self.told)
        return super().__iter__()


def read(dataset, places, n_workers: int) -> list:
    batches = start(DataLoader(dataset, batch_sampler=places, collate_fn=list, **worker_options(n_workers)))
    try:
        return list(batches)
    finally:
        stop(batches)


def test_workers_leave_the_garbage_of_their_parent_alone(tmp_path):
    told = tmp_path / "told"
    gc.collect()
    gc.disable()  # or chance would decide who collects it
    try:
        Garbage(told)
        assert read(Tidy(), Littering([[0], [1]], told), 1) == [[True], [True]]
        assert not gc.isenabled()  # as it was
    finally:
        gc.enable()
    assert not told.exists()
    gc.collect()
    assert set(told.read_text().split()) == {str(os.getpid())}


def test_items_of_a_thread_come_in_order_and_end():
    items = BackgroundIterator(iter(range(50)), 3, "numbers")
    assert list(items) == list(range(50))
    assert list(items) == []  # and does not wait for more


def test_no_more_items_are_made_than_may_wait():
    made, full = [], threading.Event()

    def numbers() -> Iterator[int]:
        for number in range(100):
            made.append(number)
            if number == 4:
                full.set()  # three wait, and this is the second that has no place
            yield number

    items = BackgroundIterator(numbers(), 3, "numbers")
    assert next(items) == 0
    assert full.wait(60)
    items.join()
    assert made == [0, 1, 2, 3, 4]


def test_what_the_thread_raises_is_raised_where_the_items_are_used():
    def broken() -> Iterator[int]:
        yield 1
        raise ValueError("broken")

    items = BackgroundIterator(broken(), 2, "broken")
    assert next(items) == 1
    with pytest.raises(ValueError, match="broken"):
        next(items)
    assert list(items) == []


def test_neither_closing_nor_a_waiting_reader_depends_on_a_thread_that_hangs():
    go_on, got = threading.Event(), []

    def stuck() -> Iterator[int]:
        go_on.wait(60)
        yield 1

    items = BackgroundIterator(stuck(), 2, "stuck")
    waiting = threading.Thread(target=lambda: got.append(list(items)), daemon=True)
    waiting.start()
    items.join(0.01)
    assert items.thread.is_alive()
    waiting.join(10)
    assert got == [[]]
    go_on.set()
    items.join()
    assert not items.thread.is_alive()
