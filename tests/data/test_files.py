"""Do names and places come back as they were, and do worker processes share them?"""

import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from logo_ssl.data.files import GONE, Member, Members, Paths, Stamp, stamps_of
from logo_ssl.data.images import Photos
from logo_ssl.data.texts import Texts


@given(st.lists(st.text(st.characters())))
def test_any_text_comes_back(texts):
    kept = pickle.loads(pickle.dumps(Texts(texts)))
    assert [kept[i] for i in range(len(kept))] == texts


def test_paths_are_text_however_they_are_given():
    paths = Paths([Path("a/b.jpg"), "c\udcff.jpg"])
    assert [paths.name(i) for i in range(len(paths))] == ["a/b.jpg", "c\udcff.jpg"]


def test_members_come_back_also_in_another_process():
    members = [Member(Path(f"{i % 2}.tar"), f"x/{i}.jpg", 2**40 + i, i) for i in range(5)]
    kept = pickle.loads(pickle.dumps(Members(members)))
    assert [kept[i] for i in range(len(kept))] == members
    assert kept.name(3) == "1.tar:x/3.jpg"
    assert len(Members([])) == 0


def test_stamps_are_asked_for_once_and_stay_where_they_were(tmp_path):
    for name in "abc":
        (tmp_path / name).write_bytes(name.encode() * 3)
    photos = Photos.all(Paths(tmp_path / name for name in ("a", "gone", "b", "c")))[torch.tensor([3, 1, 0])]
    assert [Stamp(*row) for row in photos.stamps.tolist()] == [photos.stamp(0), GONE, photos.stamp(2)]
    (tmp_path / "a").write_bytes(b"longer")
    assert photos.stamps[:, 0].tolist() == [3, -1, 3]
    assert "stamps" not in vars(pickle.loads(pickle.dumps(photos)))
    photos.forget_stamps()
    assert photos.stamps[:, 0].tolist() == [3, -1, 6]


def test_numbers_of_files_beyond_what_an_array_holds_are_told_apart(monkeypatch):
    monkeypatch.setattr(Stamp, "of", lambda path: Stamp(1, -5, 2**63 + int(path)))
    assert stamps_of(Paths("12"), np.arange(2)).tolist() == [[1, -5, 1 - 2**63], [1, -5, 2 - 2**63]]


SHARED = """
import gc, os, re, sys
from pathlib import Path
from logo_ssl.data.files import Member, Members, Paths

def copied():
    return sum(map(int, re.findall(r"Private_\\w+: +(\\d+) kB", Path("/proc/self/smaps_rollup").read_text())))

n = 100_000
shards = [Path(f"{i}.tar") for i in range(100)]
made = {
    "paths": lambda: Paths([f"photographs/of/something/{i:060}.jpg" for i in range(n)]),
    "members": lambda: Members([Member(shards[i % 100], f"{i:060}.jpg", 2**40 + i, 2**20 + i) for i in range(n)]),
}
files = made[sys.argv[1]]()
gc.collect()
gc.freeze()
if not os.fork():
    before = copied()
    for i in range(n):
        files.name(i)
    print(copied() - before, flush=True)
    os._exit(0)
os.wait()
"""


@pytest.mark.skipif(not Path("/proc/self/smaps_rollup").exists(), reason="memory is not told here")
@pytest.mark.parametrize("kind", ["paths", "members"])
def test_a_worker_that_looks_at_every_name_copies_none(kind):
    done = subprocess.run([sys.executable, "-c", SHARED, kind], capture_output=True, text=True, check=True)
    assert int(done.stdout) < 4000  # kB; names that are `str` are 14,000 and more
