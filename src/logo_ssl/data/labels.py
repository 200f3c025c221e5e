"""What do names tell of an image? Its split and its class, and a class becomes a number."""

from collections.abc import Iterable

import torch
from jaxtyping import Int64
from torch import Tensor

HELD_OUT = ("test", "val", "valid", "validation")
"""Names of splits that are not trained on, the preferred one first."""


def classes_of(names: Iterable[str | None]) -> tuple[str, ...]:
    """The classes among these names, in order (numbers by value); none when there is only one, which tells nothing."""
    classes = sorted({name for name in names if name is not None})
    if all(name.isdecimal() for name in classes):
        classes.sort(key=int)
    return tuple(classes) if len(classes) > 1 else ()


def numbered(names: Iterable[str | None], classes: tuple[str, ...]) -> Int64[Tensor, " N"] | None:
    """Each name's place among the classes, -1 where it is not one of them; nothing when none is."""
    place = {name: i for i, name in enumerate(classes)}
    labels = torch.tensor([-1 if name is None else place.get(name, -1) for name in names], dtype=torch.int64)
    return labels if (labels >= 0).any() else None
