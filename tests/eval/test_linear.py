"""Linear classifiers give the figures of the features, and nothing is chosen on test images."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from small_sets import colour_set, colours, measured, poisoned, save_folder

from logo_ssl.data import Batches, ImageSet, load_data
from logo_ssl.eval import linear as linear_module
from logo_ssl.eval import splits as splits_module
from logo_ssl.eval.linear import Linear, SGDProbes
from logo_ssl.eval.splits import split_rows_of

PROTOCOLS = ["sgd", "sgd-augmented", "lbfgs"]


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_separable_features_are_separated_and_the_next_time_as_well(pooled, protocol: str) -> None:
    found = measured(Linear, pooled, colour_set(), protocol=protocol, epochs=8)
    assert found.figures[f"linear top-1, {protocol}"] > 95
    assert found.record["train_images"] == 60
    assert measured(Linear, pooled, colour_set(), protocol=protocol, epochs=8) == found


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_validation_images_beside_a_test_choose_and_are_then_learned_from(pooled, protocol: str, monkeypatch) -> None:
    data, chosen_by = replace(colour_set(), val=colours(12, 2)), []

    def noted(*given):
        chosen_by.append((parts := split_rows_of(*given)).val.labels)
        return parts

    monkeypatch.setattr(splits_module, "split_rows_of", noted)
    record = measured(Linear, pooled, data, protocol=protocol, epochs=2).record
    assert chosen_by[0].equal(data.val.labels)
    assert (record["official_val"], record["val_images"], record["train_images"]) == (True, 12, 72)
    assert "chosen on the validation split, then trained on train and validation" in record["protocol"]


def test_photographs_of_val_are_joined_to_those_of_train(pooled, tmp_path: Path) -> None:
    for seed, part in enumerate(("train", "val", "test")):
        save_folder(tmp_path / "set" / part, colours(24, seed))
    (tmp_path / "set" / "val" / "r" / "00.png").write_bytes(b"")
    record = measured(Linear, pooled, load_data(str(tmp_path / "set"), 8), protocol="sgd-augmented", epochs=2).record
    assert (record["val_images"], record["train_images"]) == (23, 47)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_wrong_test_labels_change_neither_choice_nor_classifier(pooled, protocol: str) -> None:
    data = colour_set()
    right, wrong = (
        measured(Linear, pooled, replace(data, test=test), protocol=protocol, epochs=5)
        for test in (data.test, poisoned(data.test))
    )
    for chosen in ("validation", "l2_weight" if protocol == "lbfgs" else "lr"):
        assert right.record[chosen] == wrong.record[chosen]
    assert right.figures[f"linear top-1, {protocol}"] > 95
    assert wrong.figures[f"linear top-1, {protocol}"] < 5


@pytest.fixture
def greys(tmp_path: Path) -> ImageSet:
    """30 images, each of a grey of its own, in three class folders; number 6, of the first class, cannot be read."""
    for i in range(30):
        file = tmp_path / "greys" / "abc"[i % 3] / f"{i:02}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.full((12 + i % 2, 12, 3), 8 * i, np.uint8)).save(file)
    (tmp_path / "greys" / "a" / "06.png").write_bytes(b"nothing")
    return load_data(str(tmp_path / "greys"), 8)


def numbers(features: torch.Tensor) -> list[int]:
    """Which of the greys these features are of."""
    return ((features[:, 0] * 0.25 + 0.5) * 255 / 8).round().int().tolist()


@pytest.fixture
def steps(monkeypatch) -> list[tuple[torch.Tensor, torch.Tensor, int]]:
    """Features, labels and the number of rates of every step of SGD."""
    noted, step = [], SGDProbes.step

    def stepped(self, features, labels, decay=1.0):
        noted.append((features.clone(), labels.clone(), len(self.rates)))
        step(self, features, labels, decay)

    monkeypatch.setattr(SGDProbes, "step", stepped)
    return noted


def test_an_unreadable_image_neither_lends_its_label_nor_leaks_validation(pooled, greys, steps, monkeypatch) -> None:
    chosen, select = set[int](), SGDProbes.select

    def selected(self, val):
        chosen.update(numbers(val.features))
        return select(self, val)

    monkeypatch.setattr(SGDProbes, "select", selected)
    data = replace(greys, test=greys.train[torch.tensor([11, 12, 25])])
    measured(Linear, pooled, data, protocol="sgd-augmented", epochs=2)
    assert all([i % 3 for i in numbers(features)] == labels.tolist() for features, labels, _ in steps)
    sweep = {i for features, _, n_rates in steps if n_rates > 1 for i in numbers(features)}
    assert sweep | chosen == {*range(30)} - {6}
    assert not sweep & chosen


def test_a_grey_image_in_place_of_one_that_cannot_be_read_teaches_nothing(pooled, steps, monkeypatch) -> None:
    class Failing(Batches):
        """Every fifth image of an epoch cannot be read; of the last, smaller batch none can."""

        def __iter__(self):
            for batch in super().__iter__():
                lost = torch.arange(len(batch.rows)) % 5 == 0 if len(batch.rows) > 44 else True
                yield batch._replace(rows=torch.where(torch.as_tensor(lost), -1, batch.rows))

    monkeypatch.setattr(linear_module, "Batches", Failing)
    measured(Linear, pooled, colour_set(300), protocol="sgd-augmented", epochs=1, rates=(0.1, 1.0))
    assert all((features.argmax(dim=1) == labels).all() for features, labels, _ in steps)
    assert [len(labels) for _, labels, _ in steps] == [192, 204]


def test_without_a_test_split_random_crops_never_show_the_held_out_fifth(pooled, greys, steps) -> None:
    measured(Linear, pooled, greys, protocol="sgd-augmented", epochs=1)
    seen = {i for features, *_ in steps for i in numbers(features)}
    assert len({*range(30)} - {6} - seen) == 6
