"""What a person at a shell sees of embed, search, export, doctor and completion."""

import re
from pathlib import Path

import pytest

from logo_ssl import cli
from logo_ssl.use import embedding


@pytest.fixture
def shell(capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)

    def run(line: str):
        with pytest.raises(SystemExit) as stop:
            cli.main(line.split())
        told = capsys.readouterr()
        return stop.value.code or 0, told.out, told.err

    return run


def test_photographs_are_embedded_searched_and_exported(shell, photos):
    encoder = "random/tiny --size 16"
    code, out, err = shell(f"embed {encoder} --data photos --out f.parquet --workers 0 --device cpu")
    assert code == 0, err
    assert "Features: f.parquet" in out
    (proposed,) = re.findall(r"^Next: logo-ssl (.*)$", out, re.MULTILINE)
    code, out, err = shell(proposed.replace("IMAGE", "photos/a/00.png").replace("random/tiny", encoder) + " --k 3")
    assert code == 0, err
    assert re.search(r"^   1   1\.0000  .*photos/a/00\.png  \(a\)$", out, re.MULTILINE)
    assert Path("sheet.png").read_bytes().startswith(b"\x89PNG")
    code, out, err = shell(f"export {encoder} --to safetensors")
    assert code == 0, err
    assert "Exported: encoder.safetensors" in out
    assert "encoder = logo_ssl.load('encoder.safetensors')" in out


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("embed", "Say which encoder first, for example: logo-ssl embed"),
        ("embed --out x.csv", "Say which encoder first"),
        ("embed random/tiny", "Say where the features go: --out features.parquet"),
        ("embed random/tiny --out f.csv", "name them with --data"),
        ("embed random/tiny --out f.txt --data photos", "none of .parquet, .npz, .csv"),
        ("embed random/tiny --out photos --data photos", "none of .parquet, .npz, .csv"),
        ("embed nowhere --out f.csv", "nowhere"),
        ("embed random/tiny --data photos --out f.csv --split val", "val"),
        ("embed random/tiny --data photos --out f.csv --max-bad 0", "more than max-bad 0 allows"),
        ("search random/tiny", "Say where and what to look for: logo-ssl search random/tiny"),
        ("search random/tiny --index f.csv --query photos/a/00.png", "There is no file f.csv; make it with"),
        ("search random/tiny --index f.csv --query photos/a/00.png --out s.jpg", "contact sheet is a .png"),
        ("export random/tiny", "Say where to: logo-ssl export random/tiny --to timm"),
        ("export random/tiny --to keras", "keras"),
        ("export random/tiny --to timm", "timm has no tiny"),
        ("doctor --data nowhere", "No data at"),
        ("doctor --device tpu", "tpu"),
        ("completion", r"Say for which shell: logo-ssl completion bash\|zsh\|fish"),
        ("completion tcsh", "Say for which shell"),
        ("serch", "No command is called 'serch'.*Did you mean search"),
    ],
)
def test_bad_input_is_one_sentence_and_leaves_nothing(shell, photos, tmp_path, line, sentence):
    before = sorted(tmp_path.rglob("*"))
    code, _, err = shell(f"{line} --workers 0" if "--max-bad" in line else line)
    assert code == 2
    assert re.search(sentence, err), err
    assert len(err.strip().splitlines()) == 1
    left = {child for child in tmp_path.rglob("*") if child not in before}
    assert {child.name for child in left} <= {".f.csv.parts", "f.csv-bad-images.csv"}


def test_ctrl_c_is_answered_with_how_to_go_on(shell, photos, monkeypatch):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(embedding, "_keep_features", interrupted)
    code, _, err = shell("embed random/tiny --data photos --out f.csv")
    assert code == 130
    assert "the same command goes on" in err


def test_the_doctor_looks_at_machine_and_data(shell, photos, monkeypatch):
    monkeypatch.setattr("logo_ssl.use.doctor.SECONDS", 0.0)
    code, out, err = shell("doctor --device cpu")
    assert code == 0, err
    for word in ("torch", "timm", "pyarrow", "device", "torch.compile", "nvJPEG", "free RAM"):
        assert word in out
    code, out, err = shell("doctor --data photos --device cpu")
    assert code == 0, err
    assert re.search(r"Data: photos, 25 images of about \d+ px, with labels", out)
    assert re.search(r"Speed: [\d,]+ images/s", out)
    assert "Chosen: tiny with the imagenet stem" in out
    assert "Next: logo-ssl pretrain --data photos" in out


@pytest.mark.parametrize("command", cli.COMMANDS)
def test_help_shows_an_example(shell, command):
    code, out, _ = shell(f"{command} --help")
    assert code == 0
    assert re.search(rf"examples?:\s+logo-ssl {command}", out)
