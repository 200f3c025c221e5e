"""Which images and labels does a labelled protocol get? Checked, and numbered from 0."""

from typing import NamedTuple

import torch
from jaxtyping import Int
from torch import Tensor

from ..data import ImageSet, Photos, Split
from ..errors import UserError
from ..terminal import are, counted, them


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
            f"{data.name} has no labels, and this evaluation needs them; give two or more class folders, an .npz "
            "with train_labels, or a named set."
        )
    values = labels_of(train).unique()
    if len(values) == 1:
        raise UserError(_one_class(data, len(train), int(values[0])))
    test = None if data.test is None or data.test.labels is None else _test(data, data.test, values)
    return LabelledSplits(_numbered(train, values), None if test is None else _numbered(test, values))


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
    all_of_them = f"{'The' if n_images == 1 else 'All'} {counted(n_images, 'labelled image')} of {data.name}"
    return (
        f"{all_of_them} {are(n_images)} of one class ({_name(data, label)}), which leaves nothing to tell apart; give "
        "two classes or more."
    )


def _test(data: ImageSet, test: Split, values: Int[Tensor, " classes"]) -> Split | None:
    """What is held out, all of it of classes that train has."""
    labels = labels_of(test)
    if isinstance(test.images, Photos) and (labels < 0).any():  # a folder's only way to lack a class
        strangers = (labels < 0).nonzero()
        raise UserError(_strange(data, len(strangers), test.images.name(int(strangers[0]))))
    test_labelled = _with_labels(test)
    if test_labelled is None:
        return None
    strange = labels_of(test_labelled)[~torch.isin(labels_of(test_labelled), values)]
    if len(strange):
        raise UserError(_strange(data, len(strange), f"one of class {_name(data, int(strange[0]))}"))
    return test_labelled


def _strange(data: ImageSet, n: int, first: str) -> str:
    return (
        f"{counted(n, 'test image')} of {data.name} (the first: {first}) {are(n)} of no class that train has; add "
        f"training images of it, or take {them(n)} out of the test."
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
