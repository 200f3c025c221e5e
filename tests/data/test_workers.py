"""Photographs become batches whatever is wrong with some of them; worker processes end whatever they do."""

import gc
import os
import shutil
import signal
import subprocess
import time
from contextlib import suppress

import numpy as np
import pytest
import torch
from photographs import flat, folder, images_of, jpeg
from torch.utils.data import DataLoader, Dataset

from logo_ssl.data import BadImages, Photos
from logo_ssl.data.workers import (
    PER_MESSAGE,
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
    with pytest.raises((RuntimeError, EOFError, ConnectionError)):  # noqa: PT012 (it is raised anywhere)
        os.kill(feed.reader.batches._workers[0].pid, signal.SIGKILL)
        list(batches)
    with suppress(RuntimeError):  # torch tells it wherever this process is
        feed.close()


def test_starting_workers_leaves_the_streams_of_this_process_alone():
    """Else a run that begins its workers anew, as a resumed one does, would draw other numbers."""
    before = torch.get_rng_state()
    loader = DataLoader(Tidy(), **worker_options(1))
    stop(start(loader))
    assert torch.equal(torch.get_rng_state(), before)


def tell(processes, number: str) -> None:
    subprocess.run(["kill", f"-{number}", *(str(process.pid) for process in processes)], check=True)


class Stuck(Decoding):
    """The second worker reads as from a disk that is gone."""

    def __getitems__(self, rows: list[int]) -> Message:
        if rows[0] == PER_MESSAGE:
            os.read(os.pipe()[0], 1)
        return Message([Sent(row, row, (1, 1, 3)) for row in rows], torch.zeros(3 * len(rows), dtype=torch.uint8), [])


def test_a_worker_that_is_stuck_is_killed_when_its_reader_closes(monkeypatch):
    monkeypatch.setattr("torch.utils.data._utils.MP_STATUS_CHECK_INTERVAL", 0.2)
    reader = Reader(Stuck(Photos.from_paths([]), 640), 2)
    messages = reader.read(torch.arange(8 * PER_MESSAGE).split(PER_MESSAGE))
    assert next(messages)[0].about[0].row == 0
    processes = reader.batches._workers
    assert all(worker.is_alive() for worker in processes)
    reader.close()
    for worker in processes:
        worker.join(20)
        assert not worker.is_alive()


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
