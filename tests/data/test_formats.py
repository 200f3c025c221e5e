"""Are photographs from phones read where they can be, and never left out in silence?"""

import io
import os
import sys
from importlib.machinery import ModuleSpec
from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image, features

from logo_ssl.data import formats, load_data
from logo_ssl.data.decode import BadImage, decode
from logo_ssl.errors import UserError

HEIC = b"\0\0\0\x18ftypheic" + bytes(64)


@pytest.fixture
def without_heif(monkeypatch):
    monkeypatch.setitem(sys.modules, "pillow_heif", None)
    forget()
    yield
    monkeypatch.undo()
    forget()


def forget():
    for known in (formats.readable, formats.opened, formats.suffixes):
        known.cache_clear()


def picture(kind: str) -> bytes:
    Image.fromarray(np.full((20, 30, 3), 200, np.uint8)).save(file := io.BytesIO(), kind)
    return file.getvalue()


def place(folder, **files: bytes):
    for name, content in files.items():
        stem, _, ending = name.rpartition("_")
        path = folder / f"{stem}.{ending}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return str(folder)


@pytest.mark.skipif(not features.check("avif"), reason="this Pillow has no AVIF")
def test_avif_is_read_where_pillow_does(tmp_path):
    data = load_data(place(tmp_path, one_avif=picture("AVIF"), two_png=picture("PNG")), 32)
    assert len(data.train) == 2
    assert data.says == ()
    assert decode(data.train.images.read(0)).shape == (20, 30, 3)


def test_what_is_passed_over_is_said_with_its_cure(tmp_path, without_heif):
    folder = place(tmp_path, a_jpg=picture("JPEG"), b_heic=HEIC, c_HEIC=HEIC, d_mov=b"film", e_mov=b"film", f_txt=b"")
    (tmp_path / "README").touch()
    (tmp_path / ".DS_Store").touch()
    data = load_data(folder, 32)
    assert len(data.train) == 1
    (said,) = data.says
    assert said.startswith(
        f"Passed over in {folder}: 2 .heic (pip install 'logo-ssl[heic]' lets them be read), 2 .mov, "
    )
    assert "1 .txt" in said
    assert "1 without an ending" in said


def test_kinds_without_number_are_counted_together(tmp_path):
    names = {f"x{i}_k{i}": b"" for i in range(9)}
    (said,) = load_data(place(tmp_path, a_jpg=picture("JPEG"), **names), 32).says
    assert said.endswith(", 3 others.")


def test_a_folder_of_unreadable_photographs_says_what_would_read_them(tmp_path, without_heif):
    folder = place(tmp_path, a_heic=HEIC)
    with pytest.raises(UserError, match=r"No images in .*; there are 1 \.heic \(pip install 'logo-ssl\[heic\]'"):
        load_data(folder, 32)


def test_heic_under_another_name_is_bad_with_its_cure(without_heif):
    with pytest.raises(BadImage, match=r"HEIF; pip install 'logo-ssl\[heic\]' lets it be read"):
        decode(HEIC)


@pytest.mark.parametrize("broken", ["raise ImportError('libheif.so is gone')", "raise OSError('wrong machine')"])
def test_a_broken_package_for_heic_leaves_other_images_alone(tmp_path, monkeypatch, broken):
    (tmp_path / "packages").mkdir()
    (tmp_path / "packages" / "pillow_heif.py").write_text(broken)
    monkeypatch.syspath_prepend(tmp_path / "packages")
    monkeypatch.delitem(sys.modules, "pillow_heif", raising=False)
    forget()
    try:
        assert decode(picture("JPEG")).shape == (20, 30, 3)
        with pytest.raises(BadImage, match="HEIF; pip install"):
            decode(HEIC)
    finally:
        forget()


@pytest.mark.parametrize(
    ("major", "others", "name"),
    [(b"mif1", b"mif1avifmiaf", "AVIF"), (b"mif1", b"heic", "HEIF"), (b"mif1", b"", "HEIF")],
)
def test_a_file_is_of_the_format_that_all_of_its_brands_tell(monkeypatch, major, others, name):
    monkeypatch.setattr(formats, "readable", lambda: formats.PLAIN)
    data = (16 + len(others)).to_bytes(4) + b"ftyp" + major + bytes(4) + others + b"avis" * 9
    assert formats.what_reads(data).startswith(f"{name}; {formats.CURES[name]}")
    assert formats.what_reads(b"\0\0\0\x14ftypisom" + bytes(4) + b"mp42") is None


def test_folders_and_files_beside_the_splits_are_said(tmp_path):
    for part in ("train/a", "train/b", "val/a", "val/b", "test", "more"):
        place(tmp_path / part, one_png=picture("PNG"))
    place(tmp_path, notes_csv=b"", clip_mp4=b"")
    place(tmp_path / "val", notes_csv=b"")
    left_out, passed_over = load_data(str(tmp_path), 32).says
    assert left_out == f"Left out of {tmp_path}, of which train/ and val/ are used: more/, test/."
    assert passed_over == f"Passed over in {tmp_path}: 2 .csv, 1 .mp4."


def test_heic_is_read_once_its_package_is_there(tmp_path, monkeypatch):
    """With a stand-in for the package: it says how such bytes are opened, as the real one does."""
    stand_in = SimpleNamespace(
        register_heif_opener=lambda: Image.register_open(
            "HEIF", lambda file, name: Image.new("RGB", (8, 6)), lambda head: head[4:8] == b"ftyp"
        ),
        __spec__=ModuleSpec("pillow_heif", None),
    )
    monkeypatch.setitem(sys.modules, "pillow_heif", stand_in)
    kept = dict(Image.OPEN)
    forget()
    try:
        data = load_data(place(tmp_path, a_heic=HEIC), 32)
        assert data.says == ()
        assert decode(data.train.images.read(0)).shape == (6, 8, 3)
    finally:
        Image.OPEN.clear()
        Image.OPEN.update(kept)
        forget()


def test_real_heic_is_read_by_the_real_package(tmp_path):
    heif = pytest.importorskip("pillow_heif")
    pixels = Image.fromarray(np.full((40, 64, 3), 200, np.uint8))
    heif.from_pillow(pixels).save(tmp_path / "phone.HEIC")
    data = load_data(os.fspath(tmp_path), 32)
    assert data.says == ()
    assert abs(int(decode(data.train.images.read(0)).mean()) - 200) <= 2
