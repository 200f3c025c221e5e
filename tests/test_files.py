"""Files: whole or not at all, together all or none; an output that exists is left alone without --overwrite."""

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from logo_ssl.errors import UserError
from logo_ssl.files import check_output, whole, write, write_together


def test_a_file_is_written_whole_or_not_at_all(tmp_path, monkeypatch):
    file = write(tmp_path / "deep" / "x.txt", "first")

    def full(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        write(file, "second")
    assert file.read_text() == "first"
    assert list(file.parent.iterdir()) == [file]


@pytest.mark.parametrize("full", ["fsync", "write"])
def test_a_full_disk_names_the_file_as_it_was_given(tmp_path, monkeypatch, full):
    def refuse(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(*((os, "fsync") if full == "fsync" else (Path, "write_bytes")), refuse)
    with pytest.raises(OSError, match="No space left") as told:
        write(Path("deep/x.txt"), "content")
    assert told.value.filename == "deep/x.txt"
    with pytest.raises(OSError, match="No space left") as told, whole(Path("y.csv")):
        refuse()
    assert told.value.filename == "y.csv"


def test_another_error_keeps_the_file_that_it_names(tmp_path):
    with pytest.raises(FileNotFoundError) as told, whole(tmp_path / "x.txt"):
        (tmp_path / "gone").read_bytes()
    assert told.value.filename == str(tmp_path / "gone")


def test_of_files_that_belong_together_none_changes_if_one_fails(tmp_path):
    first, second = (write(tmp_path / name, "old") for name in ("first", "second"))
    with pytest.raises(TypeError):
        write_together({first: b"new", second: None})  # the first has a draft by then
    assert sorted(tmp_path.iterdir()) == [first, second]
    assert (first.read_text(), second.read_text()) == ("old", "old")
    write_together({first: b"new", second: b"new"})
    assert (first.read_text(), second.read_text()) == ("new", "new")


def test_what_a_killed_command_left_of_an_output_goes_with_the_next_write(tmp_path):
    code = "import os, sys; from logo_ssl.files import whole; from pathlib import Path\n"
    code += "with whole(Path(sys.argv[1])): os.kill(os.getpid(), 9)"
    file = tmp_path / "x.txt"
    subprocess.run([sys.executable, "-c", code, str(file)], check=False)
    assert len(list(tmp_path.iterdir())) == 1
    with whole(file) as (under_way,):
        write(file, "done")
        assert sorted(tmp_path.iterdir()) == sorted([under_way, file])


def test_a_link_stays_and_what_it_leads_to_is_written(tmp_path):
    (tmp_path / "elsewhere").mkdir()
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "elsewhere" / "file")
    write(link, "content")
    assert link.is_symlink()
    assert (tmp_path / "elsewhere" / "file").read_text() == "content"


def test_an_output_that_exists_is_replaced_only_with_overwrite(tmp_path):
    file = tmp_path / "features.npz"
    check_output(file)
    file.write_text("precious")
    with pytest.raises(UserError, match=r"features\.npz exists; add --overwrite"):
        check_output(file)
    check_output(file, overwrite=True)
    assert file.read_text() == "precious"
    assert [entry.name for entry in tmp_path.iterdir()] == ["features.npz"]


@pytest.mark.parametrize("out", [".", "file/x.json"], ids=["folder", "parent a file"])
def test_what_cannot_be_written_is_refused_even_with_overwrite(out, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError):
        check_output(tmp_path / out, overwrite=True)
