"""Transfer measures each set by the table's protocol, and one that fails costs no other."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from small_sets import QUIET, colour_set, colours, listening, poisoned, save_folder, unbalanced

from logo_ssl.data import ImageSet, Split, load_data
from logo_ssl.eval import transfer as transfer_module
from logo_ssl.eval.transfer import SETS, Transfer, some_per_class


def folder(path: Path, n_train: int = 45) -> str:
    """Class folders of colours, the rest of 60 to test on."""
    save_folder(path / "train", colours(60, 0)[torch.arange(n_train)])
    save_folder(path / "test", colours(60, 0)[torch.arange(n_train, 60)])
    return str(path)


def transfer(encoder, sets, how=QUIET, **options):
    """The figure of each set and its value."""
    compared = Transfer(encoder.name, sets=tuple(sets), baselines=False, **options).evaluate(encoder, how)
    return {name: next(iter(found[encoder.name].figures.items())) for name, found in compared.items()}


def written(file: Path):
    return json.loads(file.read_text())


@pytest.fixture
def given(monkeypatch):
    """Makes all names stand for one set."""

    def give(data: ImageSet) -> ImageSet:
        monkeypatch.setattr(transfer_module, "data_for", lambda *_: data)
        return data

    return give


def test_a_set_that_cannot_be_measured_is_named_and_the_others_go_on(pooled, tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("LOGO_DATA", str(tmp_path / "data"))
    one, mine, (how, said) = (
        save_folder(tmp_path / "one" / "train", colours(60, 0)[torch.arange(0, 60, 3)]),
        folder(tmp_path / "mine"),
        listening(),
    )
    figures = transfer(pooled, ["mit67", str(one.parent), mine], how, out=tmp_path / "t.json")
    assert {name: figure for name, (figure, _) in figures.items()} == {mine: f"{mine} top-1"}
    assert figures[mine][1] > 90
    for title in ("MIT67", "one"):
        assert any(sentence.startswith(f"{title} is not measured: ") for sentence in said)
    record = written(tmp_path / "t-mine.json")
    assert (record["test_images"], record["source"], record["metric"]) == (15, mine, f"{mine} top-1")


def test_sets_of_one_name_have_files_of_their_own(pooled, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(folder(tmp_path / "other"))
    sets = [folder(tmp_path / "x" / "set"), folder(tmp_path / "y" / "set", n_train=30), "."]
    assert len(transfer(pooled, sets, out=tmp_path / "tr.json")) == 3
    files = sorted(tmp_path.glob("tr-*.json"))
    assert {written(file)["source"] for file in files} == {*sets[:2], str(tmp_path / "other")}
    assert files[0].name == "tr-other.json"


def test_weights_are_chosen_on_the_official_validation_split(pooled, given, tmp_path) -> None:
    train = colour_set().train
    wrong = torch.arange(60) >= 40  # to choose by, which no classifier then predicts
    given(replace(colour_set(), train=Split(train.images, (train.labels + wrong) % 3), val_in_train=wrong))
    transfer(pooled, ["flowers102", "flowers"], out=tmp_path / "t.json")
    assert [file.name for file in tmp_path.glob("t-*")] == ["t-flowers.json"]  # by whatever name
    record = written(tmp_path / "t-flowers.json")
    assert (record["official_val"], record["val_images"], record["train_images"]) == (True, 20, 60)
    assert record["validation"]["0.001"] < 10
    assert "chosen on the validation split" in record["protocol"]


def test_an_unreadable_photograph_leaves_the_official_split_as_it_is(pooled, given, tmp_path) -> None:
    data = load_data(folder(tmp_path / "mine"), 8)
    given(replace(data, val_in_train=torch.arange(len(data.train)) % 3 == 0))
    Path(data.train.images.name(3)).write_bytes(b"")  # of val
    Path(data.train.images.name(4)).write_bytes(b"")  # of train
    transfer(pooled, [str(tmp_path / "mine")], out=tmp_path / "t.json")
    record = written(tmp_path / "t-mine.json")
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


def test_wrong_test_labels_do_not_change_what_transfer_chooses(pooled, given, tmp_path) -> None:
    test, records = colours(30, 1), []
    for split in (test, poisoned(test)):
        given(ImageSet("colours", unbalanced(90, 0), split))
        transfer(pooled, ["pets"], out=tmp_path / "t.json", overwrite=True)
        records.append(written(tmp_path / "t-pets.json"))
    assert (records[0]["validation"], records[0]["l2_weight"]) == (records[1]["validation"], records[1]["l2_weight"])
    assert records[0]["value"] > 95
    assert records[1]["value"] < 5


def test_each_set_is_chosen_and_scored_by_its_own_figure(pooled, given, tmp_path) -> None:
    """The third class is rare; in the test its images are said to be of the second, and in validation none is found."""
    test = unbalanced(90, 1)
    few, many = (int((test.labels == label).sum()) for label in (2, 1))
    given(ImageSet("colours", unbalanced(90, 0), Split(test.images, test.labels.clamp(max=1))))
    figures = transfer(pooled, list(SETS), out=tmp_path / "t.json")
    per_class = {"pets", "flowers", "caltech101", "aircraft"}
    assert {name: figure for name, (figure, _) in figures.items()} == {
        name: f"{name} {'mean per class' if name in per_class else 'top-1'}" for name in SETS
    }
    assert figures["cars"][1] == pytest.approx(100 * 2 * many / (2 * many + few))
    assert figures["pets"][1] == pytest.approx(100 * (1 + many / (many + few)) / 2)
    for name, strongest in (("pets", 100 * 2 / 3), ("cars", 100 * 10 / 11)):  # of 30, 30 and 6 images
        validation = written(tmp_path / f"t-{name}.json")["validation"]
        assert validation["100000.0"] == pytest.approx(strongest)
