"""Is a set that several processes want downloaded once, and one that is there read by all at once?"""

import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial

import pytest

from logo_ssl.data import downloads
from logo_ssl.data.downloads import found_or_fetched


class Set:
    """A set of two files; of those who download it, no two may write at the same time."""

    def __init__(self, root):
        self.root, self.folder = root, root / "set"
        self.under_way, self.downloads = threading.Lock(), 0

    def find(self):
        if not self.folder.exists():  # as torchvision looks: whether it is whole is not seen
            raise RuntimeError("Dataset not found or corrupted.")
        return sorted(file.name for file in self.folder.iterdir())

    def fetch(self):
        assert self.under_way.acquire(blocking=False), "two write to the same files"
        self.downloads += 1
        self.folder.mkdir(exist_ok=True)
        (self.folder / "first").touch()
        time.sleep(0.2)
        (self.folder / "last").touch()
        self.under_way.release()
        return self.find()

    def by_all(self, n):
        """What so many get at once; of threads, each takes locks of its own, as processes do."""
        ask = partial(found_or_fetched, self.root, "set", self.find, self.fetch)
        with ThreadPoolExecutor(n) as pool:
            return [future.result() for future in [pool.submit(ask) for _ in range(n)]]


def test_a_set_is_downloaded_once_whoever_asks_at_the_same_time(tmp_path):
    wanted = Set(tmp_path)
    assert wanted.by_all(4) == 4 * [["first", "last"]]
    assert wanted.downloads == 1
    assert [file.name for file in tmp_path.iterdir()] == ["set"]


def test_a_download_that_was_interrupted_is_done_again(tmp_path):
    wanted = Set(tmp_path)
    wanted.folder.mkdir()
    (tmp_path / ".set.lock").write_text("a download has begun")
    assert wanted.by_all(4) == 4 * [["first", "last"]]
    assert wanted.downloads == 1


def test_what_was_found_while_another_began_to_write_is_not_believed(tmp_path):
    wanted = Set(tmp_path)
    wanted.folder.mkdir()
    looks = iter([["first"], ["first", "last"]])

    def find():
        (tmp_path / ".set.lock").touch()  # another's, which is done before this one's turn
        return next(looks)

    assert found_or_fetched(tmp_path, "set", find, wanted.fetch) == ["first", "last"]
    assert wanted.downloads == 0
    assert [file.name for file in tmp_path.iterdir()] == ["set"]


def test_what_was_found_while_another_downloaded_all_of_it_is_not_believed_either(tmp_path):
    wanted = Set(tmp_path)
    wanted.folder.mkdir()
    looks = iter([["first"], ["first", "last"]])
    os.utime(tmp_path, ns=(0, 0))  # long ago, by the clock of the disk

    def find():
        (tmp_path / ".set.lock").touch()
        (tmp_path / ".set.lock").unlink(missing_ok=True)
        return next(looks)

    assert found_or_fetched(tmp_path, "set", find, wanted.fetch) == ["first", "last"]
    assert wanted.downloads == 0


def test_a_set_that_was_fetched_between_the_look_and_the_lock_is_not_fetched_again(tmp_path):
    wanted = Set(tmp_path)
    seen, looks = wanted.find, []

    def find():
        looks.append(wanted.folder.exists())
        if len(looks) == 1:
            wanted.folder.mkdir()  # by another, after this one has looked in vain
            raise RuntimeError("Dataset not found or corrupted.")
        return seen()

    assert found_or_fetched(tmp_path, "set", find, wanted.fetch) == []
    assert looks == [False, True]
    assert wanted.downloads == 0


def test_a_lock_that_was_removed_while_one_waited_is_not_held(tmp_path, monkeypatch):
    lock, wanted = tmp_path / ".set.lock", Set(tmp_path)
    wanted.folder.mkdir()
    lock.touch()

    @contextmanager
    def waited(file):
        lock.rename(tmp_path / "done")  # by the one before, so that the number of its file is not given again
        lock.write_text("a third downloads")
        yield

    monkeypatch.setattr(downloads, "in_turn", waited)
    assert found_or_fetched(tmp_path, "set", wanted.find, wanted.fetch) == []
    assert wanted.downloads == 0
    assert lock.exists()


def test_one_that_is_seen_not_to_be_whole_is_downloaded_by_one(tmp_path):
    wanted = Set(tmp_path)
    wanted.folder.mkdir()
    seen = wanted.find

    def find():
        if "last" not in seen():
            raise RuntimeError("Dataset not found or corrupted.")
        return seen()

    wanted.find = find
    assert wanted.by_all(4) == 4 * [["first", "last"]]
    assert wanted.downloads == 1


def test_a_set_that_is_there_is_read_by_all_at_once_and_nothing_is_written(tmp_path):
    wanted, both = Set(tmp_path), threading.Barrier(2)
    wanted.folder.mkdir()
    wanted.find = lambda: both.wait(timeout=60)
    assert sorted(wanted.by_all(2)) == [0, 1]
    assert [file.name for file in tmp_path.iterdir()] == ["set"]


def test_where_nothing_can_be_written_it_is_said_that_nothing_is_there(tmp_path):
    (tmp_path / "file").touch()
    wanted = Set(tmp_path / "file" / "sets")
    with pytest.raises(RuntimeError, match="not found"):
        found_or_fetched(wanted.root, "set", wanted.find, wanted.fetch)
    assert wanted.downloads == 0
