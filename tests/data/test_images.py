"""Names and files come back as they were; splits, rows for neighbours, fingerprints."""

import os
import pickle
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from logo_ssl.data import ImageSet, Split, data_identity, fingerprint
from logo_ssl.data.images import FILES_READ, Photos
from logo_ssl.data.images import test_and_val as held_out
from logo_ssl.data.shards import Member, photos_in


def test_members_come_back_also_in_another_process():
    members = [Member(Path(f"{i % 2}.tar"), f"x/{i}.jpg", 2**40 + i, i) for i in range(5)]
    kept = pickle.loads(pickle.dumps(photos_in(members)))
    assert [kept.name(i) for i in range(len(kept))] == [f"{i % 2}.tar:x/{i}.jpg" for i in range(5)]
    assert kept.spans[:, 1:].tolist() == [[2**40 + i, i] for i in range(5)]


def test_stats_are_asked_for_once_and_stay_where_they_were(tmp_path):
    for name in "abc":
        (tmp_path / name).write_bytes(name.encode() * 3)
    first, second = (Photos.from_paths(tmp_path / name for name in names) for names in (("a", "gone"), ("b", "c")))
    photos = first.joined(second)[torch.tensor([3, 1, 0])]
    assert photos.stats[:, 0].tolist() == [3, -1, 3]
    (tmp_path / "a").write_bytes(b"longer")
    assert photos.stats[:, 0].tolist() == [3, -1, 3]
    assert [photos.read(i) for i in (0, 2)] == [b"ccc", b"longer"]


SHARED = """
import gc, os, re
from pathlib import Path
from logo_ssl.data import Photos

def copied():
    return sum(map(int, re.findall(r"Private_\\w+: +(\\d+) kB", Path("/proc/self/smaps_rollup").read_text())))

n = 100_000
files = Photos.from_paths([f"photographs/of/something/{i:060}.jpg" for i in range(n)])
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
def test_a_worker_that_looks_at_every_name_copies_none():
    done = subprocess.run([sys.executable, "-c", SHARED], capture_output=True, text=True, check=True)
    assert int(done.stdout) < 4000  # kB; names that are `str` are 14,000 and more


def files(folder: Path, n: int = 200) -> Photos:
    for i in range(n):
        (folder / f"{i % 2}").mkdir(parents=True, exist_ok=True)
        (folder / f"{i % 2}" / f"{i:03}.jpg").write_bytes(bytes([i]) * 10)
    return Photos.from_paths(sorted(folder.rglob("*.jpg")))


def test_a_fingerprint_stays_where_files_are_moved_and_changes_with_names_sizes_order_and_what_is_read(tmp_path):
    photos = files(tmp_path / "here")
    before = fingerprint(photos)
    shutil.copytree(tmp_path / "here", tmp_path / "far" / "away")
    assert fingerprint(Photos.from_paths(sorted((tmp_path / "far").rglob("*.jpg")))) == before
    assert fingerprint(photos[torch.arange(200).flip(0)]) != before
    assert fingerprint(photos[torch.arange(199)]) != before
    read = np.linspace(0, 199, FILES_READ).astype(int)
    for row, content, changes in ((read[1], b"x" * 10, True), (2, b"x" * 11, True), (2, b"x" * 10, False)):
        assert (int(row) in read) or row == 2
        kept = photos.read(int(row))
        Path(photos.name(int(row))).write_bytes(content)
        assert (fingerprint(replace(photos)) != before) == changes
        Path(photos.name(int(row))).write_bytes(kept)
    os.rename(photos.name(5), f"{photos.name(5)}x")
    assert fingerprint(replace(photos)) != before  # unreadable


def test_a_fingerprint_of_an_array_is_of_its_bytes_and_shape_wherever_it_is():
    images = torch.arange(48, dtype=torch.uint8).view(4, 3, 2, 2)
    assert fingerprint(images) == fingerprint(images.clone().to(memory_format=torch.channels_last))
    assert len({fingerprint(images), fingerprint(images.flip(0)), fingerprint(images.view(4, 3, 4, 1))}) == 3


def test_fingerprints_are_those_that_runs_have_noted(tmp_path):
    """Else no run could go on."""
    images = torch.arange(48, dtype=torch.uint8).view(4, 3, 2, 2)
    assert fingerprint(images) == "73dca63d698b10bee1e93e5fd076dc128622cb2d9f326e9a1a6c88b3b04dfc7a"
    assert fingerprint(files(tmp_path, 4)) == "00bb9a60a634874b21c8b35c14acde4849080975241e7052d0b2d9654611e114"
    told = data_identity(ImageSet("x", Split(images), val=Split(images, torch.tensor([0, 1, 2, -1]))))
    assert {name: n for name, n in told.items() if name != "fingerprint"} == {
        "train_images": 4, "val_images": 4, "test_images": 0,
    }  # fmt: skip
    assert set(told["fingerprint"]) == {"train", "val"}


def arrays(n: int, labels: torch.Tensor | None = None) -> Split:
    return Split(torch.arange(n).to(torch.uint8).view(n, 1, 1, 1), labels)


def test_images_to_test_on_have_labels_if_any_do_and_those_to_choose_by_are_beside_a_test():
    with_labels, without = arrays(2, torch.tensor([0, 1])), arrays(2)
    assert held_out({}) == (None, None)
    assert held_out({"val": with_labels, "test": without}) == (with_labels, None)
    other = arrays(3, torch.tensor([0, 1, 0]))
    assert held_out({"validation": other, "test": with_labels}) == (with_labels, other)
    assert held_out({"val": without}) == (without, None)


def taken(data: ImageSet) -> tuple[Split, ...]:
    return data.for_knn()[:2]


def test_without_a_test_split_a_tenth_is_held_out_of_the_bank():
    bank, queries = taken(ImageSet("x", arrays(40, torch.arange(40) % 2)))
    assert (len(bank), len(queries)) == (36, 4)
    assert not set(bank.images.flatten().tolist()) & set(queries.images.flatten().tolist())


def test_unlabelled_rows_stay_out_of_the_bank():
    labels = torch.where(torch.arange(40) < 20, torch.arange(40) % 2, -1)
    assert all((split.labels >= 0).all() for split in taken(ImageSet("stl", arrays(40, labels))))


def test_images_for_neighbours_are_copied_only_if_they_must_be_and_thinned_evenly():
    train, test = (Split(torch.zeros(n, 1, 2, 2, dtype=torch.uint8), torch.arange(n) % 2) for n in (40, 20))
    bank, queries = taken(ImageSet("x", train, test))
    assert (bank.images.data_ptr(), queries.images.data_ptr()) == (train.images.data_ptr(), test.images.data_ptr())
    labels = torch.where(torch.arange(1000) % 4 == 0, -1, torch.arange(1000) // 100)
    bank, _, n = ImageSet("x", Split(torch.zeros(1000, 1, 1, 1, dtype=torch.uint8), labels)).for_knn(50)
    assert set(bank.labels.tolist()) == set(range(10))
    assert (len(bank), n) == (50, 675)


def test_splits_are_joined_if_their_images_are_alike(tmp_path):
    both = arrays(2, torch.tensor([0, 1])).joined(arrays(3, torch.tensor([0, 1, 0])))
    assert both.labels.tolist() == [0, 1, 0, 1, 0]
    photos = Split(files(tmp_path, 4))
    assert [photos.joined(photos).images.name(i)[-7:] for i in (0, 4)] == ["000.jpg", "000.jpg"]
    with pytest.raises(TypeError, match="squared"):
        _ = photos.array
