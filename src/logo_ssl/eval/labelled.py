"""Which images and labels does a labelled protocol get? Checked, and numbered from 0."""

from typing import NamedTuple

import torch
from jaxtyping import Int
from torch import Tensor

from ..data import ImageSet, Photos, Split
from ..errors import UserError
from ..text import counted


class LabelledSplits(NamedTuple):
    """Images that all have labels from 0 to n_classes - 1; `test` is none where nothing is held out."""

    train: Split
    test: Split | None

    @property
    def n_classes(self) -> int:
        """How many classes there are, each with an image in train."""
        return int(labels_of(self.train).max()) + 1


def labelled(data: ImageSet) -> LabelledSplits:
    """The labelled images of a data set, classes numbered from 0 in their order."""
    if len(data.classes) == 1:
        raise UserError(_one_class(data, len(data.train), 0))
    train = _with_labels(data.train)
    if train is None:
        raise UserError(
            f"{data.name} has no labels, and this evaluation needs them; give two or more class folders, an .npz with "
            f"train_labels, or a named set."
        )
    values = labels_of(train).unique()
    if len(values) == 1:
        raise UserError(_one_class(data, len(train), int(values[0])))
    test = None if data.test is None or data.test.labels is None else _held_out(data, data.test, values, "test")
    return LabelledSplits(_numbered(train, values), None if test is None else _numbered(test, values))


def labelled_val(data: ImageSet) -> Split | None:
    """The labelled images to choose by beside those of `labelled`, numbered like them."""
    train = _with_labels(data.train)
    if train is None or data.val is None or data.val.labels is None:
        return None
    values = labels_of(train).unique()
    val = _held_out(data, data.val, values, "validation")
    return None if val is None else _numbered(val, values)


def refuse_lost_classes(data: ImageSet, labels: Int[Tensor, " N"], readable: Int[Tensor, " n"]) -> None:
    """A class of which no training image can be read is missing, as one without a folder is."""
    numbers = labels.unique()
    lost = numbers[~torch.isin(numbers, readable)]
    if len(lost):
        train = _with_labels(data.train)
        assert train is not None
        first = _name(data, int(labels_of(train).unique()[lost[0]]))
        raise UserError(
            f"None of the {int((labels == lost[0]).sum())} training images of class {first} of {data.name} can be "
            "read; mend them, or take the class out of train and test."
        )


def labels_of(split: Split) -> Int[Tensor, " N"]:
    """The labels of a split that has them."""
    if split.labels is None:
        raise TypeError("this split has no labels; use `labelled` first")
    return split.labels


def with_rows(split: Split) -> Split:
    """The images labelled by their rows, which tell which of them could be read."""
    return Split(split.images, torch.arange(len(split)))


def _one_class(data: ImageSet, n_images: int, label: int) -> str:
    few = counted(n_images, "labelled image")
    return f"{data.name} has {few}, of one class only ({_name(data, label)}); give two classes or more."


def _held_out(data: ImageSet, split: Split, values: Int[Tensor, " classes"], part: str) -> Split | None:
    """What is held out, all of it of classes that train has."""
    labels = labels_of(split)
    if isinstance(split.images, Photos) and (labels < 0).any():  # a folder's only way to lack a class
        strangers = (labels < 0).nonzero()
        raise UserError(_strange(data, part, len(strangers), split.images.name(int(strangers[0]))))
    known = _with_labels(split)
    if known is None:
        return None
    strange = labels_of(known)[~torch.isin(labels_of(known), values)]
    if len(strange):
        raise UserError(_strange(data, part, len(strange), f"one of class {_name(data, int(strange[0]))}"))
    return known


def _strange(data: ImageSet, part: str, n: int, first: str) -> str:
    return (
        f"{data.name} has {counted(n, f'{part} image')} (the first: {first}) of classes that train has not; add "
        f"training images of these classes, or remove them from the {part}."
    )


def _with_labels(split: Split) -> Split | None:
    """Without the images that are marked, by -1, as having no label."""
    if split.labels is None or not (split.labels >= 0).any():
        return None
    return split if (split.labels >= 0).all() else split[split.labels >= 0]


def _numbered(split: Split, values: Int[Tensor, " classes"]) -> Split:
    return Split(split.images, torch.searchsorted(values, labels_of(split)))


def _name(data: ImageSet, label: int) -> str:
    return repr(data.classes[label]) if label < len(data.classes) else str(label)
