"""Every name and every path leads to a data set, or to an error that names what is missing."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from logo_ssl.data import NAMES, data_root, is_placed, load_data, locate
from logo_ssl.errors import DataMissing, UserError


def test_scenes_are_painted_at_about_the_size_of_a_crop(monkeypatch):
    monkeypatch.setattr("logo_ssl.data.sources.SCENES_TRAIN", 40)
    monkeypatch.setattr("logo_ssl.data.sources.SCENES_TEST", 20)
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
    ("source", "named"),
    [
        ("scene", r"No data at 'scene'.*\.npz.*Did you mean scenes\?"),
        ("CIFAR-10", r"Did you mean cifar10\?"),
        ("/no/mnist ", r"Did you mean mnist\?"),
        ("/nonexist", r"No data at '/nonexist'; give a folder.*\)\.$"),
        (" ", "data is empty"),
        ("notes.pdf", r"data='notes.pdf': must be a folder.*\.npz"),
        ("empty", r"No images in .*\.jpg.*at any depth, and .tar\); there are 1 \.md"),
        ("latin.txt", "UTF-8"),
        ("comments.txt", "names no images"),
    ],
)
def test_a_source_that_leads_nowhere_is_refused(tmp_path, monkeypatch, source, named):
    monkeypatch.chdir(tmp_path)
    Path("notes.pdf").touch()
    Path("empty").mkdir()
    Path("empty", "readme.md").touch()
    Path("latin.txt").write_bytes(b"caf\xe9.png\n")
    Path("comments.txt").write_text("# nothing\n\n")
    with pytest.raises(UserError, match=named) as refused:
        load_data(source, 32)
    assert isinstance(refused.value, DataMissing) == ("No data" in str(refused.value))


def test_what_is_made_or_a_path_is_placed(tmp_path, monkeypatch):
    monkeypatch.setenv("LOGO_DATA", str(tmp_path))
    assert is_placed("scenes")
    assert is_placed("photos/")
    assert not is_placed("tiny-imagenet")


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
