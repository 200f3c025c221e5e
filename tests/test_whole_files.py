"""Is a file there whole or not at all, and those that belong together all or none?"""

import os

import pytest

from logo_ssl.files import write, write_together


def test_a_file_is_written_whole_or_not_at_all(tmp_path, monkeypatch):
    file = write(tmp_path / "deep" / "x.txt", "first")

    def full(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        write(file, "second")
    assert file.read_text() == "first"
    assert list(file.parent.iterdir()) == [file]


def test_of_files_that_belong_together_none_changes_if_one_fails(tmp_path):
    first, second = (write(tmp_path / name, "old") for name in ("first", "second"))
    with pytest.raises(TypeError):
        write_together({first: b"new", second: None})  # the first has a draft by then
    assert sorted(tmp_path.iterdir()) == [first, second]
    assert (first.read_text(), second.read_text()) == ("old", "old")
    write_together({first: b"new", second: b"new"})
    assert (first.read_text(), second.read_text()) == ("new", "new")


def test_a_link_stays_and_what_it_leads_to_is_written(tmp_path):
    (tmp_path / "elsewhere").mkdir()
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "elsewhere" / "file")
    write(link, "content")
    assert link.is_symlink()
    assert (tmp_path / "elsewhere" / "file").read_text() == "content"
