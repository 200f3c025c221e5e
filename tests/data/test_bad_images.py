"""Images that cannot be read are counted once, listed for all processes, and stop a run if they are too many."""

import csv
import os

import pytest

from logo_ssl.data import BadImages
from logo_ssl.data.bad_images import Bad
from logo_ssl.errors import UserError


def bad(*names: str) -> list[Bad]:
    return [Bad(name, "truncated") for name in names]


def listed(file) -> list[str]:
    with file.open(newline="", encoding="utf-8", errors="surrogateescape") as lines:
        return [row[0] for row in csv.reader(lines)]


def test_too_large_a_share_stops_with_its_numbers_and_the_option():
    found = BadImages(10, 0.3)
    found.note(bad("a", "b", "c", "a"))
    with pytest.raises(UserError, match=r"^4 of 10 images cannot be read .*max_bad=0.3"):
        found.note(bad("d"))


def test_a_list_from_before_an_interruption_is_continued_and_nothing_listed_twice(tmp_path):
    file = tmp_path / "run" / "bad-images.csv"
    odd = ["a,b.jpg", "new\nline.jpg", os.fsdecode(b"bad\xffname.jpg")]
    BadImages(100, 0.5, file).note(bad(*odd))
    again = BadImages(100, 0.5, file)
    assert len(again) == 3
    again.note(bad(*odd, "c.jpg"))
    assert listed(file) == ["image", *odd, "c.jpg"]


def test_images_below_the_root_are_called_as_seen_from_there_and_others_by_their_whole_path(tmp_path):
    file = tmp_path / "bad-images.csv"
    paths = ["/data/cat/1.jpg", "/data/x.tar:cat/1.jpg", "/data/image", "/database/cat/1.jpg", "MNIST[3]"]
    for _ in range(2):
        found = BadImages(100, 0.5, file, "/data")
        found.note(bad(*paths))
    assert all(path in found for path in paths)
    assert "/data/cat/2.jpg" not in found
    assert listed(file) == ["image", "cat/1.jpg", "x.tar:cat/1.jpg", "image", "/database/cat/1.jpg", "MNIST[3]"]


def test_processes_share_one_list(tmp_path):
    file = tmp_path / "bad-images.csv"
    ours, theirs = BadImages(100, 0.03, file), BadImages(100, 0.03, file)
    ours.note(bad("a.jpg"))
    theirs.note(bad("b.jpg", "a.jpg"))
    assert listed(file) == ["image", "a.jpg", "b.jpg"]
    with pytest.raises(UserError, match="4 of 100"):
        ours.note(bad("c.jpg", "d.jpg"))
    theirs.look_again()
    assert len(theirs) == 4


def test_the_first_is_said_once_unless_too_many_stop_the_run(tmp_path):
    said: list[str] = []
    found = BadImages(4, 0.5, tmp_path / "bad.csv", "/photos", say=said.append)
    for name in ("a", "a", "b"):
        found.note(bad(f"/photos/{name}.jpg"))
    assert len(said) == 1
    assert said[0].startswith("a.jpg cannot be read (truncated)")
    with pytest.raises(UserError):
        BadImages(4, 0.3, say=said.append).note(bad("a.jpg", "b.jpg"))
    assert len(said) == 1
