"""What a person at a shell sees of embed, search, export, doctor and completion."""

import re
from pathlib import Path

import pytest
import torch
from PIL import Image
from use_encoders import untrained_run

from logo_ssl.data import ImageSet, Split


def test_photographs_are_embedded_searched_and_exported(shell, photos):
    encoder = "random/tiny --size 16"
    code, out, err = shell(f"embed {encoder} --data photos --out 'my f.npz' --workers 0 --device cpu")
    assert code == 0, err
    assert "Features: my f.npz" in out
    (proposed,) = re.findall(r"^Next: logo-ssl (.*)$", out, re.MULTILINE)
    proposed = proposed.replace("IMAGE", "photos/a/00.png")
    code, out, err = shell(proposed)
    assert code == 0, err
    assert re.search(r"^   1   1\.0000  .*photos/a/00\.png  \(a\)$", out, re.MULTILINE)
    assert Path("sheet.png").read_bytes().startswith(b"\x89PNG")
    code, out, err = shell(f"export {encoder} --to safetensors")
    assert code == 0, err
    assert "Exported: encoder.safetensors" in out
    assert "encoder = logo_ssl.load('encoder.safetensors')" in out


@pytest.mark.parametrize(
    ("line", "named"),
    [
        ("embed --out x.csv", "encoder"),
        ("embed random/tiny", "--out"),
        ("embed random/tiny --out f.csv", "--data"),
        ("embed random/tiny --out f.txt --data photos", "f.txt"),
        ("embed nowhere --out f.csv", "nowhere"),
        ("embed random/tiny --data photos --out f.csv --split val", "val"),
        ("embed random/tiny --data photos --out f.csv --split x", "x"),
        ("embed random/tiny --data photos --out f.csv --max-bad 0", "max_bad=0"),
        ("embed random/tiny --data photos --out precious.npz", "precious.npz"),
        ("search random/tiny --index photos/a/00.png", "--query"),
        ("search random/tiny --index f.csv --query photos/a/00.png", "f.csv"),
        ("search random/tiny --index photos/a/00.png --query gone.jpg", "gone.jpg"),
        ("search random/tiny --index photos/a/00.png --query photos/a/00.png --out s.jpg", "s.jpg"),
        ("export random/tiny", "--to"),
        ("export random/tiny --to tflite", "tflite"),
        ("export random/tiny --to safetensors --out precious.safetensors", "precious.safetensors"),
        ("export random/tiny --to timm", "tiny"),
        ("doctor --data nowhere", "nowhere"),
        ("doctor --device tpu", "tpu"),
    ],
)
def test_bad_input_is_exit_code_2_and_leaves_nothing(shell, photos, tmp_path, line, named):
    for name in ("precious.npz", "precious.safetensors"):
        (tmp_path / name).write_text("precious")
    before = sorted(tmp_path.rglob("*"))
    code, out, err = shell(f"{line} --workers 0" if "--max-bad" in line else line)
    assert (code, named in out + err, "Traceback" in err) == (2, True, False), err
    left = {child for child in tmp_path.rglob("*") if child not in before}
    assert {child.name for child in left} <= {".f.csv.parts", "f.csv-bad-images.csv"}


@pytest.mark.parametrize("options", ["--size 16", "--mean 0.1 0.2 0.3 --std 0.4 0.4 0.4", "--stem cifar"])
def test_the_proposed_search_sees_images_as_the_index_does(shell, photos, options):
    code, out, err = shell(f"embed random/tiny {options} --data photos --out f.npz --workers 0 --device cpu")
    assert code == 0, err
    (proposed,) = re.findall(r"^Next: logo-ssl (.*)$", out, re.MULTILINE)
    proposed = proposed.replace("IMAGE", "photos/a/00.png")
    code, out, err = shell(proposed)
    assert code == 0, err
    assert re.search(r"^   1   1\.0000  .*photos/a/00\.png  \(a\)$", out, re.MULTILINE)
    code, _, err = shell(proposed.replace(options, "--size 24 --overwrite"))
    assert code == 2
    assert "f.npz" in err


def test_a_table_that_does_not_say_who_made_it_is_told(shell, photos):
    for name in ("f.csv", "f.npz"):
        shell(f"embed random/tiny --data photos --out {name} --workers 0 --device cpu")
        code, out, _ = shell(f"search random/tiny --index {name} --query photos/a/00.png --k 1")
        assert code == 0
        assert ("f.csv does not name its encoder" in out) == (name == "f.csv")


def test_ctrl_c_is_answered_with_how_to_go_on(shell, photos, monkeypatch):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("logo_ssl.embedding.embeddings.SplitFeatures.complete", interrupted)
    code, _, err = shell("embed random/tiny --data photos --out f.csv")
    assert code == 130
    assert "the same command goes on" in err


def test_the_doctor_looks_at_machine_and_data(shell, photos, monkeypatch):
    monkeypatch.setattr("logo_ssl.embedding.doctor.SECONDS", 0.0)
    code, out, err = shell("doctor --device cpu")
    assert code == 0, err
    for word in ("torch", "timm", "pyarrow", "device", "torch.compile", "nvJPEG", "free RAM"):
        assert word in out
    code, out, err = shell("doctor --data photos --device cpu")
    assert code == 0, err
    assert re.search(r"Data: photos, 25 images of about \d+ px, with labels", out)
    assert re.search(r"Speed: [\d,]+ images/s", out)
    assert "Chosen: framework moco, strategy logo, tiny with the imagenet stem" in out
    assert "Next: logo-ssl pretrain --data photos" in out
    assert "; 2 of 25 cannot be read)" in out
    photos.rename("my photos")
    _, out, _ = shell("doctor --data 'my photos' --device cpu")
    assert "Next: logo-ssl pretrain --data 'my photos' --out 'runs/my photos'" in out


def test_names_with_ends_of_lines_are_one_line_of_the_list(shell, tmp_path):
    folder = tmp_path / "odd" / "two\nlines"
    folder.mkdir(parents=True)
    for name in ("a\nb.png", "tab\there.png"):
        Image.new("RGB", (20, 20)).save(folder / name)
    assert shell("embed random/tiny --size 16 --data odd --out f.npz --workers 0 --device cpu")[0] == 0
    code, out, err = shell(f"search random/tiny --size 16 --index f.npz --query '{folder / name}' --k 2")
    assert code == 0, err
    _, _, query, *found = out.splitlines()
    assert r"two\nlines/tab\there.png:" in query
    assert sorted(line.split("/")[-1] for line in found) == [r"a\nb.png", r"tab\there.png"]


def test_an_index_from_before_further_training_is_refused(shell, photos):
    images = ImageSet("drawn", Split(torch.randint(0, 256, (40, 3, 32, 32), dtype=torch.uint8)))
    untrained_run("my run", images, seed=1)
    look_for = "search 'my run' --index f.npz --query photos/a/00.png"
    assert shell("embed 'my run' --data photos --out f.npz --workers 0 --device cpu")[0] == 0
    assert shell(look_for)[0] == 0
    untrained_run("my run", images, seed=2)
    code, _, err = shell(look_for)
    assert (code, "f.npz" in err) == (2, True), err
