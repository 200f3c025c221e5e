"""Images inside tar shards are found where they are, with their labels, whatever state a shard is in."""

import gzip
import io
import json
import tarfile
from pathlib import Path

import pytest

from logo_ssl.data import load_data
from logo_ssl.errors import UserError

CUT = tarfile.TarInfo("0.jpg")
CUT.size = 2000
CUT = CUT.tobuf() + bytes(488)
NESTED = b"[" * 200_000  # too deep for Python's reader


def shard(path: Path, files: dict[str, bytes], **options) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w", **options) as tar:
        for name, content in files.items():
            header = tarfile.TarInfo(name)
            header.size = len(content)
            tar.addfile(header, io.BytesIO(content))
    return path


def pair(i: int, label: int) -> dict[str, bytes]:
    return {f"{i:04d}.jpg": f"image {i}".encode(), f"{i:04d}.cls": f"{label}\n".encode()}


def contents(split) -> list[bytes]:
    return [split.images.read(i) for i in range(len(split))]


def test_a_folder_of_shards_is_read_in_place(tmp_path):
    shard(tmp_path / "b.tar", pair(2, 7))
    shard(tmp_path / "a.tar", pair(0, 10) | pair(1, 7))
    data = load_data(str(tmp_path), 32)
    assert contents(data.train) == [b"image 0", b"image 1", b"image 2"]
    assert data.train.labels.tolist() == [1, 0, 0]
    assert data.classes == ("7", "10")
    assert data.train.images.name(2) == f"{tmp_path}/b.tar:0002.jpg"
    assert data.train.images.stats[2, 0] == 7


@pytest.mark.parametrize("kind", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_every_tar_format_and_long_names_are_read(tmp_path, kind):
    long = "/".join(["folder" * 10] * 3) + "/" + "0" * 90 if kind != tarfile.USTAR_FORMAT else "folder/0"
    path = shard(tmp_path / "x.tar", {f"{long}.png": b"abc", "after.png": b"def"}, format=kind)
    data = load_data(str(path), 32)
    assert contents(data.train) == [b"abc", b"def"]


def test_shards_of_val_beside_those_of_test_are_to_choose_by(tmp_path):
    for i, part in enumerate(("train", "val", "test")):
        shard(tmp_path / "named" / f"{part}-0.tar", pair(2 * i, 0) | pair(2 * i + 1, 1))
        shard(tmp_path / "folders" / part / "0.tar", pair(2 * i, 0) | pair(2 * i + 1, 1))
    for layout in ("named", "folders"):
        data = load_data(str(tmp_path / layout), 32)
        firsts = [contents(split)[0] for split in (data.train, data.val, data.test)]
        assert firsts == [b"image 0", b"image 2", b"image 4"]
        assert data.val.labels.tolist() == [0, 1]


@pytest.mark.parametrize("held_out", ["val-000.tar", "test_0.tar", "validation.tar", "VAL0.tar"])
def test_splits_may_stand_in_the_names_of_shards(tmp_path, held_out):
    shard(tmp_path / "train-000.tar", pair(0, 0))
    shard(tmp_path / "train-001.tar", pair(1, 1))
    shard(tmp_path / held_out, pair(2, 1))
    data = load_data(str(tmp_path), 32)
    assert (contents(data.train), contents(data.test)) == ([b"image 0", b"image 1"], [b"image 2"])


@pytest.mark.parametrize("names", [("valley-0.tar", "testament.tar"), ("val-0.tar", "val-1.tar"), ("0.tar", "1.tar")])
def test_without_shards_to_train_on_all_are(tmp_path, names):
    for i, name in enumerate(names):
        shard(tmp_path / name, pair(i, i))
    data = load_data(str(tmp_path), 32)
    assert len(data.train) == 2
    assert data.test is None


def test_a_sample_is_named_up_to_the_first_dot_behind_the_last_slash(tmp_path):
    files = {
        "v1.0/a.cls": b"3",
        "v1.0/a.jpg": b"in v1.0",
        "v2.0/a.jpg": b"in v2.0",
        "v2.0/a.json": json.dumps({"label": 4}).encode(),
        "v2.0/b.seg.png": b"mask",
        "v2.0/b.PNG": b"b",
        "v2.0/c.left.png": b"c",
    }
    data = load_data(str(shard(tmp_path / "x.tar", files)), 32)
    assert contents(data.train) == [b"in v1.0", b"in v2.0", b"b", b"c"]
    assert data.train.labels.tolist() == [0, 1, -1, -1]


@pytest.mark.parametrize(
    ("extension", "content"),
    [
        *(("cls", content) for content in (b"", b"cat", b"1.5", b"\xff", b"-1")),
        *(
            ("json", content)
            for content in (b"", b"{", b"[3]", b'{"label": null}', b'{"label": [1]}', b'{"label": true}', NESTED)
        ),
    ],
)
def test_what_is_no_label_is_none(tmp_path, extension, content):
    files = pair(0, 0) | pair(1, 1) | {"2.jpg": b"x", f"2.{extension}": content}
    data = load_data(str(shard(tmp_path / "x.tar", files)), 32)
    assert data.train.labels.tolist() == [0, 1, -1]


def test_hidden_members_links_and_folders_are_no_images(tmp_path):
    path = tmp_path / "x.tar"
    with tarfile.open(path, "w") as tar:
        for name, kind in (("a.jpg", tarfile.SYMTYPE), ("b.jpg", tarfile.DIRTYPE), ("._c.jpg", tarfile.REGTYPE)):
            header = tarfile.TarInfo(name)
            header.type = kind
            tar.addfile(header)
    with pytest.raises(UserError, match=r"No images in .*x.tar"):
        load_data(str(path), 32)


def test_a_shard_that_cannot_be_read_to_its_end_is_named(tmp_path):
    path = shard(tmp_path / "x.tar", {f"{i:02}.jpg": bytes([i]) * 2000 for i in range(20)})
    whole = path.read_bytes()
    path.write_bytes(whole[: 12 * 2560])  # some programs write no end
    assert len(load_data(str(path), 32).train) == 12
    torn = [whole[: 12 * 2560 + 700], whole[: 12 * 2560 + 100], whole[: 12 * 2560] + b"\xaa" * 512 + whole[-9000:], CUT]
    for content in (*torn, b"", b"not a tar" * 100, gzip.compress(b"x" * 5000, mtime=0), b"\xff" * 2000):
        path.write_bytes(content)
        with pytest.raises(UserError, match=r"x\.tar is not a whole tar"):
            load_data(str(tmp_path), 32)


def test_an_archive_beside_its_unpacked_images_is_ignored(tmp_path):
    shard(tmp_path / "x.tar", pair(0, 0))
    for name in ("a.jpg", "b.jpg"):
        (tmp_path / name).write_bytes(b"unpacked")
    assert contents(load_data(str(tmp_path), 32).train) == [b"unpacked"] * 2


def test_what_is_passed_over_in_shards_and_around_them_is_said(tmp_path):
    files = pair(0, 0) | {"7.old.bin": b"", "6.npy": b"", "5.NPY": b"", ".hidden.npy": b""}
    shard(tmp_path / "train-0.tar", files)
    shard(tmp_path / "val-0.tar", pair(2, 0) | {"5.npy": b""})
    (tmp_path / "preview.png").touch()
    (tmp_path / "train-1.tar.gz").touch()  # in which no image can be read alone
    data = load_data(str(tmp_path), 32)
    assert (len(data.train), len(data.test)) == (1, 1)
    around, inside = data.says
    assert "1 images beside shards, 1 .gz" in around
    assert "3 .npy, 1 .bin" in inside
    with pytest.raises(UserError, match=r"train-1\.tar\.gz"):
        load_data(str(tmp_path / "train-1.tar.gz"), 32)
    with pytest.raises(UserError, match=r"1 \.npy"):
        load_data(str(shard(tmp_path / "x.tar", {"0.npy": b"", "0.cls": b"1"})), 32)
