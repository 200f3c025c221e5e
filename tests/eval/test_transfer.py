"""Does transfer measure each set by the table's protocol, and does one that fails cost no other?"""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from PIL import Image
from test_linear import Pooled, colours

from logo_ssl.data import ImageSet, Split, load_data
from logo_ssl.eval import Extraction
from logo_ssl.eval import transfer as transfer_module
from logo_ssl.eval.commands import _show_transfer
from logo_ssl.eval.encoders import FrozenEncoder
from logo_ssl.eval.table5 import PAPER, SETS
from logo_ssl.eval.transfer import SetFigure, some_per_class, transfer
from logo_ssl.terminal import plain_console

QUIET = Extraction(device="cpu", workers=0, cache=False)


@pytest.fixture
def encoder() -> FrozenEncoder:
    return FrozenEncoder("pooled", Pooled().eval(), (0.5,) * 3, (0.25,) * 3, 8, "pooled")


def folder(path: Path, classes: str = "rgb", n_train: int = 45) -> str:
    """Class folders of colours, a quarter of them to test on."""
    split = colours(60, 0)
    for i, (image, label) in enumerate(zip(split.array, split.labels.tolist(), strict=True)):
        if label < len(classes):
            file = path / ("train" if i < n_train else "test") / classes[label] / f"{i}.png"
            file.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(image.permute(1, 2, 0).numpy()).save(file)
    return str(path)


def listening() -> tuple[Extraction, list[str]]:
    said: list[str] = []
    return Extraction(device="cpu", workers=0, cache=False, say=said.append), said


def test_transfer_goes_on_where_a_set_is_missing(encoder: FrozenEncoder, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("LOGO_DATA", str(tmp_path / "data"))
    mine, (how, said) = folder(tmp_path / "mine"), listening()
    figures = dict(transfer(encoder, ["mit67", mine], how, out=tmp_path / "t.json"))
    assert list(figures) == [(mine, "top-1")]
    assert figures[mine, "top-1"] > 90
    assert any(sentence.startswith("MIT67 is missing") and "indoorCVPR_09" in sentence for sentence in said)
    record = json.loads((tmp_path / "t-mine.json").read_text())
    assert (record["test_images"], record["source"]) == (15, mine)
    assert len(record["data_fingerprint"]["train"]) == 64


def test_a_folder_with_the_name_of_a_missing_set_is_hinted_at_once(encoder, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LOGO_DATA", "elsewhere")
    how, said = listening()
    for name in ("cars", "mit67"):
        (tmp_path / name).mkdir()
    assert list(transfer(encoder, ["cars", "mit67"], how)) == []
    assert [sentence.count("lies here, too: ./") for sentence in said] == [1, 1]


def test_a_set_that_cannot_be_measured_is_said_and_the_others_go_on(encoder: FrozenEncoder, tmp_path: Path) -> None:
    sets = [folder(tmp_path / "one", "r"), folder(tmp_path / "ok")]
    how, said = listening()
    assert [metric.set for metric, _ in transfer(encoder, sets, how)] == [sets[1]]
    assert any(sentence.startswith("one is not measured: ") for sentence in said)


def test_why_a_set_is_not_measured_names_options_as_they_are_typed(encoder: FrozenEncoder, tmp_path: Path) -> None:
    name = folder(tmp_path / "torn")
    for image in Path(name).rglob("*.png"):
        image.write_bytes(b"torn")
    how, said = listening()
    assert list(transfer(encoder, [name], how)) == []
    assert "more than --max-bad 0.3 allows" in said[-1]


def test_sets_of_one_name_have_files_of_their_own_and_these_are_said(encoder: FrozenEncoder, tmp_path: Path) -> None:
    sets = [folder(tmp_path / "x" / "set"), folder(tmp_path / "y" / "set", n_train=30), folder(tmp_path / "other")]
    how, said = listening()
    figures = dict(transfer(encoder, sets, how, out=tmp_path / "tr.json"))
    files = [Path(sentence.removeprefix("Saved: ")) for sentence in said if sentence.startswith("Saved: ")]
    assert [json.loads(file.read_text())["source"] for file in files] == sets
    assert len(set(files)) == len(figures) == 3
    assert files[2] == tmp_path / "tr-other.json"


def test_names_with_a_figure_in_them_stay_whole(encoder: FrozenEncoder, tmp_path: Path) -> None:
    name = folder(tmp_path / "a mean b" / "top-1 set")
    ((metric, _),) = transfer(encoder, [name], QUIET)
    assert metric == (name, "top-1")
    assert str(metric) == f"{name} top-1"


@pytest.fixture
def official(monkeypatch) -> ImageSet:
    """A set whose authors chose by the last 20 of its 60 training images."""
    data = ImageSet("flowers102", colours(60, 0), colours(30, 1), ("r", "g", "b"), val_in_train=torch.arange(60) >= 40)
    monkeypatch.setattr(transfer_module, "load_data", lambda *_: data)
    return data


def test_weights_are_chosen_on_the_official_validation_split(encoder, official, tmp_path, monkeypatch) -> None:
    seen = {}

    def watched(train, val, *rest, **options):
        seen.update(options, train=train, val=val)
        return select(train, val, *rest, **options)

    select = transfer_module.select
    monkeypatch.setattr(transfer_module, "select", watched)
    figures = dict(transfer(encoder, ["flowers"], QUIET, out=tmp_path / "t.json"))
    assert list(figures) == [("flowers", "mean per class")]
    assert seen["train"].labels.equal(official.train.labels[:40])
    assert seen["val"].labels.equal(official.train.labels[40:])
    assert seen["penalise_bias"]
    record = json.loads((tmp_path / "t-flowers.json").read_text())
    assert (record["official_val"], record["val_images"], record["train_images"]) == (True, 20, 60)
    assert "chosen on the official validation split" in record["protocol"]
    assert "w |weight and bias|^2" in record["protocol"]
    list(transfer(encoder, ["flowers"], QUIET, penalise_bias=False, out=tmp_path / "t.json"))
    assert not seen["penalise_bias"]
    assert "w |weight|^2" in json.loads((tmp_path / "t-flowers.json").read_text())["protocol"]


def test_an_unreadable_photograph_leaves_the_official_split_as_it_is(encoder, tmp_path, monkeypatch) -> None:
    mine = folder(tmp_path / "mine")
    data = load_data(mine, 8)
    data = replace(data, val_in_train=torch.arange(len(data.train)) % 3 == 0)
    Path(data.train.images.name(3)).write_bytes(b"")  # of val
    Path(data.train.images.name(4)).write_bytes(b"")  # of train
    monkeypatch.setattr(transfer_module, "load_data", lambda *_: data)
    list(transfer(encoder, [mine], QUIET, out=tmp_path / "t.json"))
    record = json.loads((tmp_path / "t-mine.json").read_text())
    assert (record["val_images"], record["train_images"]) == (14, 43)


def test_caltech101_trains_on_thirty_images_of_each_class_and_tests_on_the_rest() -> None:
    labels = torch.cat([torch.full((n,), label) for label, n in enumerate((31, 50, 100))])
    images = torch.arange(len(labels), dtype=torch.uint8).view(-1, 1, 1, 1)
    n = SETS["caltech101"].per_class_train
    split = some_per_class(ImageSet("caltech101", Split(images, labels), None, ("a", "b", "c")), n)
    assert torch.bincount(split.train.labels).tolist() == [30] * 3
    assert torch.bincount(split.test.labels).tolist() == [1, 20, 70]
    rows = torch.cat([part.array.flatten() for part in (split.train, split.test)])
    assert rows.sort().values.equal(images.flatten())
    for part in (split.train, split.test):
        assert part.labels.equal(labels[part.array.flatten().long()])
    again = some_per_class(ImageSet("caltech101", Split(images, labels), val=Split(images, labels)), n)
    assert again.train.array.equal(split.train.array)
    assert again.val is None


def test_the_papers_rows_have_a_number_for_each_set() -> None:
    assert all(len(row) == len(SETS) == 10 for row in PAPER.values())


def test_a_set_of_the_table_has_its_figure_by_whatever_name(encoder, official, tmp_path) -> None:
    figures = dict(transfer(encoder, ["flowers102", "flowers"], QUIET, out=tmp_path / "t.json"))
    assert list(figures) == [("flowers", "mean per class")]
    assert [file.name for file in tmp_path.glob("t-*")] == ["t-flowers.json"]


def test_the_folder_where_we_are_has_its_name(encoder: FrozenEncoder, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(folder(tmp_path / "mine"))
    list(transfer(encoder, ["."], QUIET, out=tmp_path / "t.json"))
    assert [file.name for file in tmp_path.glob("t-*")] == ["t-mine.json"]


def test_all_ten_sets_and_the_papers_rows_fit_a_narrow_terminal(capsys, monkeypatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    figures = [
        (SetFigure(name, "mean per class" if found.per_class else "top-1"), 12.34) for name, found in SETS.items()
    ]
    _show_transfer(plain_console(), figures)
    shown = capsys.readouterr().out
    assert "\N{HORIZONTAL ELLIPSIS}" not in shown
    assert max(map(len, shown.splitlines())) <= 80
    assert shown.count("12.34") == len(SETS)
    assert all(f"{number:.2f}" in shown for row in PAPER.values() for number in row)


def test_a_folder_of_ones_own_has_no_row_of_the_paper_beside_it(capsys) -> None:
    _show_transfer(plain_console(), [(SetFigure("my[data]", "top-1"), 50.0)])
    shown = capsys.readouterr().out
    assert "my[data] top-1" in shown
    assert "MoCo" not in shown
