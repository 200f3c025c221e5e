"""Every name and every path leads to a data set, or to an error that names what is missing."""

from pathlib import Path

import pytest
from PIL import Image

from logo_ssl.data import data_root, load_data, locate
from logo_ssl.errors import DataMissing, UserError


def test_scenes_are_painted_at_about_the_size_of_a_crop(monkeypatch):
    monkeypatch.setattr("logo_ssl.data.SCENES_TRAIN", 40)
    monkeypatch.setattr("logo_ssl.data.SCENES_TEST", 20)
    for size, painted in ((16, 32), (48, 48), (224, 96)):
        data = load_data("scenes", size)
        assert data.train.images.shape == (40, 3, painted, painted)
    assert len(data.test) == 20


def test_names_stay_and_paths_become_absolute(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", "/home/me")
    assert locate("cifar10") == "cifar10"
    assert locate("photos") == str(tmp_path / "photos")
    assert locate("/photos") == "/photos"
    assert locate("~/photos") == "/home/me/photos"


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
        ("long.txt", "line 2 has 131,073 characters"),
    ],
)
def test_a_source_that_leads_nowhere_is_refused(tmp_path, monkeypatch, source, named):
    monkeypatch.chdir(tmp_path)
    Path("notes.pdf").touch()
    Path("empty").mkdir()
    Path("empty", "readme.md").touch()
    Path("latin.txt").write_bytes(b"caf\xe9.png\n")
    Path("comments.txt").write_text("# nothing\n\n")
    Path("long.txt").write_text("x.png\n" + 131_073 * "y")
    with pytest.raises(UserError, match=named) as refused:
        load_data(source, 32)
    assert isinstance(refused.value, DataMissing) == ("No data" in str(refused.value))


@pytest.mark.parametrize("value", [None, ""])
def test_named_sets_are_kept_in_the_users_cache_unless_told_otherwise(monkeypatch, value):
    monkeypatch.setenv("HOME", "/home/me")
    monkeypatch.delenv("LOGO_DATA", raising=False)
    if value is not None:
        monkeypatch.setenv("LOGO_DATA", value)
    assert data_root() == Path("/home/me/.cache/logo-ssl")
    monkeypatch.setenv("LOGO_DATA", "~/data")
    assert data_root() == Path("/home/me/data")
