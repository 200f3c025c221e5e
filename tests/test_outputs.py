"""Is a file replaced only if we wrote it, or if somebody says so? One rule for every file that a command writes."""

import shlex
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from logo_ssl import cli
from logo_ssl.errors import UserError
from logo_ssl.outputs import claim, is_ours
from logo_ssl.report.page import page

LINES = {
    "f.npz": "embed random/tiny --size 16 --data photos --out f.npz --device cpu --workers 0",
    "f.csv": "embed random/tiny --size 16 --data photos --out f.csv --device cpu --workers 0",
    "f.parquet": "embed random/tiny --size 16 --data photos --out f.parquet --device cpu --workers 0",
    "sheet.png": "search random/tiny --size 16 --index index.npz --query photos/a/0.png --out sheet.png",
    "crops.png": "show-crops tiny --data photos --images 1 --out crops.png",
    "knn.json": "eval knn random/tiny --size 16 --data photos --protocols 2 0.07 --out knn.json --no-cache --workers 0",
    "all-photos.json": "eval transfer random/tiny --size 16 --sets photos --out all.json --no-cache --workers 0",
    "encoder.safetensors": "export random/tiny --size 16 --to safetensors",
    "encoder.onnx": "export random/tiny --size 16 --to onnx",
}


@pytest.fixture
def shell(capsys, monkeypatch, tmp_path):
    rng = np.random.default_rng(0)
    for i in range(18):
        file = tmp_path / "photos" / "ab"[i % 2] / f"{i}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(rng.integers(0, 256, (20, 24, 3), np.uint8)).save(file)
    monkeypatch.chdir(tmp_path)

    def run(line: str):
        with pytest.raises(SystemExit) as stop:
            cli.main(shlex.split(line))
        told = capsys.readouterr()
        return stop.value.code or 0, told.out, told.err

    return run


@pytest.mark.parametrize("name", LINES)
def test_what_we_wrote_is_replaced_and_said_and_other_files_stay(shell, name):
    if name == "sheet.png":
        shell(LINES["f.npz"].replace("f.npz", "index.npz"))
    Path(name).write_text("precious")
    code, _, err = shell(LINES[name])
    assert code == 2
    assert f"{name} is there, and not written by logo-ssl; choose another name, or replace it: --overwrite" in err
    assert Path(name).read_text() == "precious"
    code, out, err = shell(f"{LINES[name]} --overwrite")
    assert code == 0, err
    assert f"{name} (replaced)" in out
    code, out, err = shell(LINES[name])
    assert code == 0, err
    assert f"{name} (replaced)" in out
    Path(name).unlink()
    code, out, err = shell(LINES[name])
    assert code == 0, err
    assert "(replaced)" not in out


def test_a_page_says_who_made_it(tmp_path):
    (tmp_path / "report.html").write_text(page([]))
    assert claim(tmp_path / "report.html") is True


def test_an_empty_file_is_nobodys_and_a_link_that_leads_nowhere_somebodys(tmp_path):
    (tmp_path / "empty.csv").touch()
    assert is_ours(tmp_path / "empty.csv")
    (tmp_path / "link.csv").symlink_to(tmp_path / "gone")
    with pytest.raises(UserError, match="not written by logo-ssl"):
        claim(tmp_path / "link.csv")
    assert claim(tmp_path / "new.csv") is False


def test_a_picture_of_another_program_is_not_ours(tmp_path):
    Image.new("RGB", (4, 4)).save(tmp_path / "photo.png")
    assert not is_ours(tmp_path / "photo.png")
