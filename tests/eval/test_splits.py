"""Splits share no image, follow their seed, and copies of training images among test images are counted."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from logo_ssl.data import ImageSet, Split, load_data
from logo_ssl.errors import UserError
from logo_ssl.eval.features import Extraction, LabelledFeatures
from logo_ssl.eval.splits import (
    balanced_share,
    count_copies,
    guessing,
    labelled_splits,
    split_rows_of,
    stratified_split,
)

labels_of_images = st.lists(st.integers(0, 6), min_size=1, max_size=80).map(torch.tensor)
fractions = st.floats(0.01, 1)


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


@given(labels_of_images, fractions)
def test_a_split_uses_every_image_once_and_leaves_each_class_to_train_on(labels, fraction):
    train, val = stratified_split(labels, fraction, seeded())
    assert sorted([*train.tolist(), *val.tolist()]) == list(range(len(labels)))
    assert set(labels[train].tolist()) == set(labels.tolist())
    for c in labels.unique():
        n, chosen = int((labels == c).sum()), int((labels[val] == c).sum())
        assert abs(chosen - n * fraction) <= 0.5 + 1e-4 or chosen in (1, n - 1)


@given(labels_of_images, fractions)
def test_a_share_holds_each_class_in_proportion_and_never_none(labels, fraction):
    share = balanced_share(labels, fraction, seeded())
    for c in labels.unique():
        n, chosen = int((labels == c).sum()), int((labels[share] == c).sum())
        assert chosen >= 1
        assert abs(chosen - n * fraction) <= 0.5 + 1e-4 or chosen == 1


@given(labels_of_images, fractions, fractions)
def test_a_larger_share_holds_the_smaller(labels, one, other):
    small, large = (set(balanced_share(labels, f, seeded()).tolist()) for f in sorted((one, other)))
    assert small <= large


def test_draws_follow_the_generator_alone():
    labels = torch.arange(300) % 7
    assert stratified_split(labels, 0.2, seeded(3))[1].equal(stratified_split(labels, 0.2, seeded(3))[1])
    assert not stratified_split(labels, 0.2, seeded(3))[1].equal(stratified_split(labels, 0.2, seeded(4))[1])


def data(*labels: int) -> LabelledFeatures:
    return LabelledFeatures(torch.arange(float(len(labels)))[:, None], torch.tensor(labels, dtype=torch.int64))


@pytest.mark.parametrize("official", [True, False])
def test_parts_never_share_an_image_and_their_rows_say_which_they_have(official):
    train = data(*(i % 5 for i in range(50)))
    parts = split_rows_of(train, data(0, 1) if official else None, seed=3)
    rows = [*parts.rows] if official else [*parts.rows, parts.test.features.flatten().long()]
    assert sorted(torch.cat(rows).tolist()) == list(range(50))
    for features, mine in zip((parts.train, parts.val), parts.rows, strict=True):
        assert features.features.flatten().tolist() == mine.tolist()
        assert features.labels.equal(train.labels[mine])


@pytest.mark.parametrize(
    ("train", "test", "what"),
    [(data(0, 1, 2), data(0, 1), "validation"), (data(0, 1, 2), None, "test"), (data(0, 0, 1, 1), None, "validation")],
)
def test_a_part_that_would_be_empty_is_refused(train, test, what):
    with pytest.raises(UserError, match=f"few has too few images .*{what}"):
        split_rows_of(train, test, 0, "few")


def test_the_rows_that_authors_chose_by_choose_given_an_official_test():
    train, val = data(*(i % 2 for i in range(6))), torch.tensor([0, 1, 1, 0, 0, 0]).bool()
    parts = split_rows_of(train, data(0, 1), 0, val=val)
    assert parts.official_val
    assert [part.features.flatten().tolist() for part in parts[:2]] == [[0, 3, 4, 5], [1, 2]]
    assert [rows.tolist() for rows in parts.rows] == [[0, 3, 4, 5], [1, 2]]
    counts = {"train_images": 6, "val_images": 2, "test_images": 2, "classes": 2, "chance": 50.0, "commonest": 50.0}
    assert parts.about() == {"official_test": True, "official_val": True, **counts}


def image_set(train: list[int] | None, test: list[int] | None = None, classes: tuple[str, ...] = ()) -> ImageSet:
    def split(labels: list[int] | None) -> Split:
        n = 4 if labels is None else len(labels)
        return Split(torch.zeros(n, 3, 8, 8, dtype=torch.uint8), None if labels is None else torch.tensor(labels))

    return ImageSet("set", split(train), None if test is None else split(test), classes)


def test_labels_are_numbered_from_0_in_both_splits_and_minus_1_means_none():
    train, test = labelled_splits(image_set([3, 7, 7, 5], [7, 3]))
    assert train.labels.tolist() == [0, 2, 2, 1]
    assert test.labels.tolist() == [2, 0]
    train, test = labelled_splits(image_set([-1, 4, 9, -1], [-1, 9]))
    assert train.labels.tolist() == [0, 1]
    assert len(test) == 1
    assert labelled_splits(image_set([0, 1], [-1]))[1] is None


@pytest.mark.parametrize(
    ("given", "named"),
    [
        (image_set(None), "set has no labels"),
        (image_set([-1, -1]), "set has no labels"),
        (image_set([1, 1, -1, 1], classes=("dog", "cat")), "one class only"),
        (image_set([0, 1], [1, 4, 4]), "2 test images .* of class 4"),
    ],
)
def test_labels_that_cannot_serve_are_refused(given, named):
    with pytest.raises(UserError, match=named):
        labelled_splits(given)


@pytest.mark.parametrize("known_too", [True, False])
def test_a_test_folder_of_a_class_that_train_lacks_is_refused_with_an_image(photos, known_too):
    for part in ("train", "val"):
        (photos / part).mkdir()
    for name in "abc":
        (photos / name).rename(photos / ("val" if name == "c" else "train") / name)
    if known_too:
        (photos / "val" / "a").mkdir()
        next((photos / "train" / "a").iterdir()).rename(photos / "val" / "a" / "0.png")
    with pytest.raises(UserError, match=r"10 test images .*val/c/.*png"):
        labelled_splits(load_data(str(photos), 16))


def test_what_guessing_gives_depends_on_how_common_classes_are():
    bank, asked = torch.tensor([0, 0, 0, 1]), torch.tensor([0, 1, 1, 1])
    assert guessing(asked, bank) == {"chance": 100 * (0.75 * 0.25 + 0.25 * 0.75), "commonest": 25.0}
    assert guessing(asked, bank, per_class=True) == {"chance": 50.0, "commonest": 50.0}


def test_copies_of_training_images_are_counted(parted, images) -> None:
    for i in (1, 4):
        (parted / "test" / "b" / f"copy {i}.png").write_bytes((parted / "train" / "b" / f"{i}.png").read_bytes())
    (parted / "train" / "a" / "0.png").write_bytes(b"")
    (parted / "test" / "a" / "0.png").write_bytes(b"")  # which are not copies of an image
    data, said = load_data(str(parted), 16), list[str]()
    found = count_copies(data.train, data.test, how=Extraction(say=said.append))
    assert found == {"test_images_compared": 17, "test_images_in_train": 2}
    assert "2 of 17 test images" in said[0]
    assert count_copies(images.train, images.test)["test_images_in_train"] == 0
    assert count_copies(images.train, images.train[torch.tensor([7])])["test_images_in_train"] == 1
    assert count_copies(images.train, None) == {}


def test_copies_among_validation_images_are_counted_where_these_choose(images) -> None:
    train, test = images.train, images.test
    val = Split(torch.cat([test.array[:2], train.array[:1]]), torch.tensor([0, 1, 0]))
    said: list[str] = []
    assert count_copies(train, test, val, how=Extraction(say=said.append)) == {
        "test_images_compared": 24,
        "test_images_in_train": 0,
        "val_images_compared": 3,
        "val_images_in_train": 1,
        "test_images_in_val": 2,
    }
    assert len(said) == 2
