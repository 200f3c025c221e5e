"""Does every name and every path lead to a data set, or to a sentence that says what is missing?"""

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from logo_ssl.data import NAMES, ImageSet, Split, load_data, locate
from logo_ssl.data.sources import data_root
from logo_ssl.errors import DataMissing, UserError


def test_scenes_are_painted_at_about_the_size_of_a_crop(monkeypatch):
    monkeypatch.setattr("logo_ssl.data.named.SCENES_TRAIN", 40)
    monkeypatch.setattr("logo_ssl.data.named.SCENES_TEST", 20)
    for size, painted in ((16, 32), (48, 48), (224, 96)):
        data = load_data("scenes", size)
        assert data.train.images.shape == (40, 3, painted, painted)
    assert len(data.test) == 20


def test_the_names_of_the_issue_are_known():
    wanted = "scenes cifar10 cifar100 stl10 imagenet100 tiny-imagenet food101 flowers102 oxfordiiitpet stanfordcars dtd"
    assert set(wanted.split()) <= set(NAMES)


def test_names_stay_and_paths_become_absolute(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", "/home/me")
    assert locate("cifar10") == "cifar10"
    assert locate("photos") == str(tmp_path / "photos")
    assert locate("/photos") == "/photos"
    assert locate("~/photos") == "/home/me/photos"


def test_a_path_loses_the_ways_back_that_lead_back_and_no_others(tmp_path, monkeypatch):
    for name in ("ext", "photos", "far/below"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "far" / "below")
    monkeypatch.chdir(tmp_path / "ext")
    assert locate("../photos") == locate("../photos/../ext/.././photos/") == str(tmp_path / "photos")
    assert locate("../new/table") == str(tmp_path / "new" / "table")
    assert locate("..") == str(tmp_path)
    assert locate("../link/../photos") == str(tmp_path / "link" / ".." / "photos")  # which is far/photos
    assert locate("../typo/../photos") == str(tmp_path / "typo" / ".." / "photos")  # which is nowhere
    assert locate("/../..") == "/"
    Image.new("RGB", (3, 3)).save(tmp_path / "photos" / "x.png")
    assert load_data(locate("../photos"), 8).train.images.name(0) == str(tmp_path / "photos" / "x.png")


def test_a_folder_called_like_the_path_from_here_is_found(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Image.new("RGB", (3, 3)).save(tmp_path / "x.png")
    assert load_data(".", 32).name == tmp_path.name


def test_a_folder_is_its_own_root_and_a_file_has_that_in_which_it_lies(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Image.new("RGB", (3, 3)).save(tmp_path / "x.png")
    (tmp_path / "list.txt").write_text("x.png\n")
    roots = [load_data(source, 32).root for source in (str(tmp_path), ".", "list.txt", str(tmp_path / "list.txt"))]
    assert roots == [str(tmp_path)] * 4


@pytest.mark.parametrize(
    ("source", "hint"), [("scene", "scenes"), ("CIFAR-10", "cifar10"), ("Food101", "food101"), ("/no/mnist ", "mnist")]
)
def test_missing_data_are_explained_with_the_nearest_name(source, hint):
    with pytest.raises(UserError, match=rf"No data at '{source}'; give a folder.*\.npz.*Did you mean {hint}\?"):
        load_data(source, 32)


def test_a_path_that_is_hardly_like_a_name_is_met_with_no_hint():
    with pytest.raises(UserError, match=r"No data at '/nonexist'; give a folder.*sets\.$"):
        load_data("/nonexist", 32)


@pytest.mark.parametrize("name", ["mit67", "imagenet", "fer2013"])
def test_a_folder_with_the_name_of_a_missing_set_is_hinted_at(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LOGO_DATA", "elsewhere")
    with pytest.raises(DataMissing) as without:
        load_data(name, 32)
    assert "lies here" not in str(without.value)
    (tmp_path / name).mkdir()
    with pytest.raises(DataMissing) as told:
        load_data(name, 32)
    assert str(told.value) == f"{without.value} A folder {name} lies here, too: ./{name} in place of {name} takes it."
    Image.new("RGB", (3, 3)).save(tmp_path / name / "x.png")
    assert len(load_data(locate(f"./{name}"), 32).train) == 1


def test_a_file_of_another_kind_is_explained(tmp_path):
    (tmp_path / "notes.pdf").write_text("hello")
    with pytest.raises(UserError, match=r"notes.pdf is none of what can be read: a folder.*\.npz"):
        load_data(str(tmp_path / "notes.pdf"), 32)


@pytest.mark.parametrize("value", [None, ""])
def test_named_sets_are_kept_in_the_users_cache_unless_told_otherwise(monkeypatch, value):
    monkeypatch.setenv("HOME", "/home/me")
    monkeypatch.delenv("LOGO_DATA", raising=False)
    if value is not None:
        monkeypatch.setenv("LOGO_DATA", value)
    assert data_root() == Path("/home/me/.cache/logo-ssl")
    monkeypatch.setenv("LOGO_DATA", "~/data")
    assert data_root() == Path("/home/me/data")


def test_an_image_read_back_is_the_file_that_was_saved(tmp_path):
    pixels = np.random.default_rng(0).integers(0, 256, (5, 7, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(tmp_path / "x.png")
    data = load_data(str(tmp_path), 32)
    assert data.train.images.read(0) == (tmp_path / "x.png").read_bytes()
    assert data.channels == 3


def taken(data: ImageSet) -> list[Split]:
    return [rows.taken() for rows in data.for_knn()]


def test_without_a_test_split_a_tenth_is_held_out_of_the_bank():
    images = torch.arange(40, dtype=torch.uint8).view(40, 1, 1, 1)
    bank, queries = taken(ImageSet("x", Split(images, torch.arange(40) % 2)))
    assert (len(bank), len(queries)) == (36, 4)
    assert not set(bank.images.flatten().tolist()) & set(queries.images.flatten().tolist())


def test_unlabelled_rows_stay_out_of_the_bank():
    images = torch.arange(40, dtype=torch.uint8).view(40, 1, 1, 1)
    labels = torch.where(torch.arange(40) < 20, torch.arange(40) % 2, -1)
    bank, queries = taken(ImageSet("stl", Split(images, labels)))
    assert (bank.labels >= 0).all()
    assert (queries.labels >= 0).all()


def test_images_that_all_have_labels_are_not_copied_for_neighbours():
    train, test = (Split(torch.zeros(n, 1, 2, 2, dtype=torch.uint8), torch.arange(n) % 2) for n in (40, 20))
    bank, queries = taken(ImageSet("x", train, test))
    assert bank.images.data_ptr() == train.images.data_ptr()
    assert queries.images.data_ptr() == test.images.data_ptr()


def test_images_for_neighbours_are_thinned_before_they_are_copied(monkeypatch):
    labels, copied = torch.where(torch.arange(1000) % 4 == 0, -1, torch.arange(1000) // 100), []
    data = ImageSet("x", Split(torch.zeros(1000, 1, 1, 1, dtype=torch.uint8), labels))
    take = Split.__getitem__
    monkeypatch.setattr(Split, "__getitem__", lambda split, rows: copied.append(len(rows)) or take(split, rows))
    bank, _ = (rows.thinned(50) for rows in data.for_knn())
    assert copied == []
    assert set(bank.taken().labels.tolist()) == set(range(10))
    assert copied == [50]


def test_rows_of_files_are_taken_like_rows_of_arrays(tmp_path):
    for label in ("a", "b"):
        (tmp_path / label).mkdir()
        for i in range(20):
            (tmp_path / label / f"{i:02d}.png").write_bytes(f"{label}{i}".encode())
    bank, queries = taken(load_data(str(tmp_path), 32))
    assert (len(bank), len(queries)) == (36, 4)
    assert [queries.images.read(i) for i in range(4)] == [b"a0", b"a10", b"b0", b"b10"]


def test_thinning_keeps_every_class_of_a_sorted_set():
    split = Split(torch.zeros(1000, 1, 1, 1, dtype=torch.uint8), torch.arange(1000) // 100)
    assert set(split.thinned(20).labels.tolist()) == set(range(10))
    assert len(split.thinned(20)) == 20
