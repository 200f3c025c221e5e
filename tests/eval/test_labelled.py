"""Are labels that cannot serve a labelled protocol refused, each with a sentence of its own?"""

from dataclasses import replace

import pytest
import torch

from logo_ssl.data import ImageSet, Split, load_data
from logo_ssl.errors import UserError
from logo_ssl.eval import labelled


def data(train: list[int] | None, test: list[int] | None = None) -> ImageSet:
    def split(labels: list[int] | None) -> Split:
        n = 4 if labels is None else len(labels)
        return Split(torch.zeros(n, 3, 8, 8, dtype=torch.uint8), None if labels is None else torch.tensor(labels))

    return ImageSet("set", split(train), None if test is None else split(test))


def test_labels_are_numbered_from_0_in_both_splits():
    train, test = labelled(data([3, 7, 7, 5], [7, 3]))
    assert train.labels.tolist() == [0, 2, 2, 1]
    assert test.labels.tolist() == [2, 0]
    assert labelled(data([3, 7])).n_classes == 2


def test_images_marked_as_unlabelled_are_left_out():
    train, test = labelled(data([-1, 4, 9, -1], [-1, 9]))
    assert train.labels.tolist() == [0, 1]
    assert len(test) == 1


@pytest.mark.parametrize("train", [None, [-1, -1]])
def test_data_without_labels_are_refused(train):
    with pytest.raises(UserError, match=r"set has no labels.*give two or more class folders"):
        labelled(data(train))


def test_one_class_is_refused_by_name():
    with pytest.raises(UserError, match=r"All 3 labelled images of set are of one class \('cat'\)"):
        labelled(replace(data([1, 1, -1, 1]), classes=("dog", "cat")))
    with pytest.raises(UserError, match="The 1 labelled image of set is of one class"):
        labelled(data([1, -1]))


def test_one_class_folder_is_refused_by_name(photos):
    for name in "bc":
        (photos / name).rename(photos.parent / name)
    with pytest.raises(UserError, match=r"All 10 labelled images of photos are of one class \('a'\)"):
        labelled(load_data(str(photos), 16))


def test_a_class_that_train_lacks_is_refused():
    with pytest.raises(
        UserError, match=r"2 test images of set \(the first: one of class 4\) are of no class.*take them"
    ):
        labelled(data([0, 1], [1, 4, 4]))
    with pytest.raises(
        UserError, match=r"1 test image of set \(the first: one of class 4\) is of no class.*take it out"
    ):
        labelled(data([0, 1], [1, 4]))


def test_a_test_split_without_labels_is_none():
    assert labelled(replace(data([0, 1]), test=data(None).train)).test is None


def test_a_folder_without_class_folders_is_refused(photos):
    for file in photos.glob("*/*.png"):
        file.rename(photos / file.name)
    for folder in photos.iterdir():
        if folder.is_dir():
            folder.rmdir()
    with pytest.raises(UserError, match="photos has no labels"):
        labelled(load_data(str(photos), 16))


@pytest.mark.parametrize("known_too", [True, False])
def test_a_test_folder_of_a_strange_class_is_refused_with_an_image(photos, known_too):
    (photos / "train").mkdir()
    (photos / "val").mkdir()
    for name in "abc":
        (photos / name).rename(photos / ("val" if name == "c" else "train") / name)
    if known_too:
        (photos / "val" / "a").mkdir()
        next((photos / "train" / "a").iterdir()).rename(photos / "val" / "a" / "0.png")
    with pytest.raises(UserError, match=r"10 test images of photos \(the first: .*val/c/.*png\) are of no class"):
        labelled(load_data(str(photos), 16))
