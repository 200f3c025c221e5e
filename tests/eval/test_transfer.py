"""Transfer measures each set by the table's protocol, and one that fails costs no other."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from PIL import Image
from small_sets import QUIET, Pooled, colours, poisoned, unbalanced

from logo_ssl.data import ImageSet, Split, load_data
from logo_ssl.eval import transfer as transfer_module
from logo_ssl.eval.encoder import FrozenEncoder
from logo_ssl.eval.options import Extraction
from logo_ssl.eval.transfer import SETS, SetFigure, show_transfer, some_per_class, transfer
from logo_ssl.paper_tables import TRANSFER
from logo_ssl.terminal import plain_console


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
    assert any(sentence.startswith("MIT67 is not measured") and "indoorCVPR_09" in sentence for sentence in said)
    record = json.loads((tmp_path / "t-mine.json").read_text())
    assert (record["test_images"], record["source"]) == (15, mine)
    assert len(record["data_fingerprint"]["train"]) == 64


def test_a_set_that_cannot_be_measured_is_said_and_the_others_go_on(encoder: FrozenEncoder, tmp_path: Path) -> None:
    sets = [folder(tmp_path / "one", "r"), folder(tmp_path / "ok")]
    how, said = listening()
    assert [metric.set for metric, _ in transfer(encoder, sets, how)] == [sets[1]]
    assert any(sentence.startswith("one is not measured: ") for sentence in said)


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

    select = transfer_module.select_weight
    monkeypatch.setattr(transfer_module, "select_weight", watched)
    figures = dict(transfer(encoder, ["flowers"], QUIET, out=tmp_path / "t.json"))
    assert list(figures) == [("flowers", "mean per class")]
    assert seen["train"].labels.equal(official.train.labels[:40])
    assert seen["val"].labels.equal(official.train.labels[40:])
    assert seen["penalise_bias"]
    record = json.loads((tmp_path / "t-flowers.json").read_text())
    assert (record["official_val"], record["val_images"], record["train_images"]) == (True, 20, 60)
    assert "chosen on the official validation split" in record["protocol"]
    assert "w |weight and bias|^2" in record["protocol"]
    list(transfer(encoder, ["flowers"], QUIET, penalise_bias=False, out=tmp_path / "t.json", overwrite=True))
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
    show_transfer(plain_console(), figures)
    shown = capsys.readouterr().out
    assert "\N{HORIZONTAL ELLIPSIS}" not in shown
    assert max(map(len, shown.splitlines())) <= 80
    assert shown.count("12.34") == len(SETS)
    assert all(f"{number:.2f}" in shown for row in TRANSFER.values() for number in row)


def test_wrong_test_labels_do_not_change_what_transfer_chooses(
    encoder: FrozenEncoder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    test, records = colours(30, 1), []
    for split in (test, poisoned(test)):
        data = ImageSet("colours", unbalanced(90, 0), split)
        monkeypatch.setattr("logo_ssl.eval.transfer.load_data", lambda source, size, data=data: data)
        list(transfer(encoder, ["pets"], QUIET, out=tmp_path / "t.json", overwrite=True))
        records.append(json.loads((tmp_path / "t-pets.json").read_text()))
    assert (records[0]["validation"], records[0]["l2_weight"]) == (records[1]["validation"], records[1]["l2_weight"])
    assert records[0]["value"] > 95
    assert records[1]["value"] < 5


def test_each_set_is_chosen_and_scored_by_its_own_figure(
    encoder: FrozenEncoder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The third class is rare; in the test its images are said to be of the second, and in validation none is found."""
    test = unbalanced(90, 1)
    few, many = (int((test.labels == label).sum()) for label in (2, 1))
    data = ImageSet("colours", unbalanced(90, 0), Split(test.images, test.labels.clamp(max=1)))
    monkeypatch.setattr("logo_ssl.eval.transfer.load_data", lambda source, size: data)
    measured = transfer(encoder, list(SETS), QUIET, out=tmp_path / "t.json")
    figures = {str(metric): value for metric, value in measured}
    per_class = {"pets", "flowers", "caltech101", "aircraft"}
    assert figures.keys() == {f"{name} {'mean per class' if name in per_class else 'top-1'}" for name in SETS}
    assert figures["cars top-1"] == pytest.approx(100 * 2 * many / (2 * many + few))
    assert figures["pets mean per class"] == pytest.approx(100 * (1 + many / (many + few)) / 2)
    for name, strongest in (("pets", 100 * 2 / 3), ("cars", 100 * 12 / 13)):  # of 6, 6 and 1 images
        validation = json.loads((tmp_path / f"t-{name}.json").read_text())["validation"]
        assert validation["100000.0"] == pytest.approx(strongest)
