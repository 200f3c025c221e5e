"""What a person at a shell sees of embed, search and doctor, beyond tests/acceptance."""

import re

import pytest
import torch
from PIL import Image
from use_encoders import untrained_run

from logo_ssl.data import ImageSet, Split


@pytest.mark.parametrize("options", ["--size 16", "--mean 0.1 0.2 0.3 --std 0.4 0.4 0.4", "--stem cifar"])
def test_the_proposed_search_sees_images_as_the_index_does(shell, photos, options):
    code, out, err = shell(f"embed random/tiny {options} --data photos --out f.npz --workers 0 --device cpu")
    assert code == 0, err
    (proposed,) = re.findall(r"^Next: logo-ssl (.*)$", out, re.MULTILINE)
    proposed = proposed.replace("IMAGE", "photos/a/00.png")
    code, out, err = shell(proposed)
    assert code == 0, err
    assert re.search(r"^   1   0\.\d{4}  .*photos/[abc]/\d\d\.(jpg|png)  \([abc]\)$", out, re.MULTILINE)
    code, _, err = shell(proposed.replace(options, "--size 24 --overwrite"))
    assert code == 2
    assert "f.npz" in err


def test_a_table_that_does_not_say_who_made_it_is_told(shell, photos):
    for name in ("f.csv", "f.npz"):
        shell(f"embed random/tiny --data photos --out {name} --workers 0 --device cpu")
        code, out, _ = shell(f"search random/tiny --index {name} --query photos/a/00.png --k 1")
        assert code == 0
        assert ("f.csv does not name its encoder" in out) == (name == "f.csv")


def test_the_doctor_counts_what_cannot_be_read(shell, photos, monkeypatch):
    monkeypatch.setattr("logo_ssl.embedding.doctor.SECONDS", 0.0)
    photos.rename("my photos")
    code, out, err = shell("doctor --data 'my photos' --device cpu")
    assert code == 0, err
    assert "; 2 of 25 cannot be read)" in out
    assert "Next: logo-ssl pretrain --data 'my photos' --out 'runs/my photos'" in out


def test_names_with_ends_of_lines_are_one_line_of_the_list(shell, tmp_path):
    folder = tmp_path / "odd" / "two\nlines"
    folder.mkdir(parents=True)
    for name in ("a\nb.png", "c\nd.png", "tab\there.png"):
        Image.new("RGB", (20, 20)).save(folder / name)
    assert shell("embed random/tiny --size 16 --data odd --out f.npz --workers 0 --device cpu")[0] == 0
    code, out, err = shell(f"search random/tiny --size 16 --index f.npz --query '{folder / name}' --k 2")
    assert code == 0, err
    _, _, query, *found = out.splitlines()
    assert r"two\nlines/tab\there.png:" in query
    assert sorted(line.split("/")[-1] for line in found) == [r"a\nb.png", r"c\nd.png"]


def test_an_index_from_before_further_training_is_refused(shell, photos):
    images = ImageSet("drawn", Split(torch.randint(0, 256, (40, 3, 32, 32), dtype=torch.uint8)))
    untrained_run("my run", images, seed=1)
    look_for = "search 'my run' --index f.npz --query photos/a/00.png"
    assert shell("embed 'my run' --data photos --out f.npz --workers 0 --device cpu")[0] == 0
    assert shell(look_for)[0] == 0
    untrained_run("my run", images, seed=2)
    code, _, err = shell(look_for)
    assert (code, "f.npz" in err) == (2, True), err
