"""Are the images of a row on this machine, and how many are there? Looked up without downloading anything."""

from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import NamedTuple

from ..data import NAMES, ImageSet, data_root, is_placed, load_data
from ..errors import DataMissing

IMAGES = {"cifar10": 50_000, "stl10": 105_000, "imagenet100": 126_689}  # to train on, in the paper's sets


class Images(NamedTuple):
    """How many images there are to train on, if that is known, and what is to be said of them."""

    n: int | None
    remark: str = ""
    missing: bool = False
    """Whether they must be placed by hand before a row can run."""


@cache
def images_at(source: str, size: int) -> ImageSet:
    """The images of a source, listed once for all who ask before the rows run; then `cache_clear` frees them."""
    return load_data(source, size)


def look(data: str, size: int) -> Images:
    """What is known of a data set; one that is missing is told, not an error."""
    placed = is_placed(data)
    if not placed and NAMES[data].downloads:
        absent = f"{data} is not in {data_root()} yet, and would be downloaded where the network allows."
        return Images(IMAGES.get(data), absent)
    if placed and data in NAMES and NAMES[data].places:  # not listed: that takes long
        return Images(IMAGES.get(data))
    try:
        return Images(len(images_at(data, size).train))
    except DataMissing as error:
        return Images(IMAGES.get(data), str(error), missing=True)


def refuse_wrong_paths(sources: Iterable[str]) -> None:
    """Tell at once of data that the user named and that are not there."""
    for source in sources:
        if source not in NAMES and not Path(source).exists():
            load_data(source, size=0)
