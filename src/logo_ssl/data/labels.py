"""What do names tell of an image? Its split and its class, and a class becomes a number."""

from collections.abc import Iterable, Mapping

import torch
from jaxtyping import Int64
from torch import Tensor

HELD_OUT = ("test", "val", "valid", "validation")
"""Names of splits that are not trained on, the preferred one to test on first."""


def test_and_val(labelled: Mapping[str, bool]) -> tuple[str | None, str | None]:
    """Which of the splits that are held out, by name and whether it has labels, is tested on, and which chosen by.

    Labelled ones first: ImageNet's val/ has labels, its test/ none. Beside a test, the next one is to choose by.
    """
    ranked = sorted(labelled, key=lambda name: (not labelled[name], HELD_OUT.index(name)))
    test = next(iter(ranked), None)
    return test, next(iter(ranked[1:]), None) if test == HELD_OUT[0] else None


def classes_of(names: Iterable[str | None]) -> tuple[str, ...]:
    """The classes among these names, in order (numbers by value)."""
    classes = sorted({name for name in names if name is not None})
    if all(name.isdecimal() for name in classes):
        classes.sort(key=int)
    return tuple(classes)


def numbered(names: Iterable[str | None], classes: tuple[str, ...]) -> Int64[Tensor, " N"] | None:
    """Each name's place among the classes, -1 where it is none of them; nothing where no image has a name.

    Nor where there is one class only, which tells nothing.
    """
    given, place = list(names), {name: i for i, name in enumerate(classes)}
    if len(classes) < 2 or all(name is None for name in given):
        return None
    return torch.tensor([-1 if name is None else place.get(name, -1) for name in given], dtype=torch.int64)
