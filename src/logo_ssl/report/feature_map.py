"""How do images lie in feature space? Maps of two dimensions, each point an image that can be looked at."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from .markup import Html, tag
from .neighbours import Pictured
from .style import COLOURS
from .thumbnails import Thumbnails

SIDE = 96  # pixels of a picture
SYMBOLS = {
    "circle": "\N{BLACK CIRCLE}",
    "square": "\N{BLACK SQUARE}",
    "diamond": "\N{BLACK DIAMOND}",
    "cross": "\N{HEAVY GREEK CROSS}",
    "triangle-up": "\N{BLACK UP-POINTING TRIANGLE}",
    "x": "\N{HEAVY MULTIPLICATION X}",
    "star": "\N{BLACK STAR}",
}
"""Seven beside five colours tell 35 classes apart."""
MOST_IN_LEGEND = 35


class FeatureMap(NamedTuple):
    """Images and their places on each map."""

    images: Sequence[Pictured]
    places: Mapping[str, Float[np.ndarray, "N 2"]]
    """By the name of the projection."""
    notes: Mapping[str, str]
    """What to know about each projection."""
    of: str
    """Which images these are."""


def map_data(name: str, found: FeatureMap, thumbnails: Thumbnails) -> dict[str, Any]:
    """What the page's script needs to draw the maps of a run."""
    of_class = {label: i for i, label in enumerate(classes_of(found))}
    return {
        "run": name,
        "classes": [{"name": label, **looks(i)} for label, i in of_class.items()] or [{"name": "image", **looks(0)}],
        "class": [0 if image.label is None else of_class[image.label] for image in found.images],
        "names": [image.name for image in found.images],
        "pictures": [thumbnails.add(image.pixels, SIDE) for image in found.images],
        "places": {
            projection: [[float(f"{value:.4g}") for value in axis] for axis in places.T.tolist()]
            for projection, places in found.places.items()
        },
    }


def feature_maps(maps: Sequence[tuple[str, FeatureMap]]) -> list[Html]:
    """For each run its maps side by side, the image that is looked at, and a slider that goes from one to the next."""
    return [_figure(i, name, found) for i, (name, found) in enumerate(maps)]


def looks(i: int) -> dict[str, str]:
    """Colour and symbol of class i."""
    return {"color": COLOURS[i % len(COLOURS)], "symbol": list(SYMBOLS)[i % len(SYMBOLS)]}


def classes_of(found: FeatureMap) -> list[str]:
    """The classes of the images, in the order of their looks."""
    return sorted({image.label for image in found.images if image.label is not None})


def _figure(i: int, name: str, found: FeatureMap) -> Html:
    last = len(found.images) - 1
    told = f"{name}: {len(found.images)} {found.of}, a point each"
    maps = [
        tag(
            "div",
            tag("p", tag("strong", projection), f": {found.notes[projection]}"),
            tag(
                "div",
                class_="plot map",
                data_map=i,
                data_projection=projection,
                role="img",
                aria_label=f"{told}; {projection}",
            ),
        )
        for projection in found.places
    ]
    slider = tag("input", type="range", min=0, max=last, value=0, data_slider=i, aria_label=f"{name}: image to look at")
    looked_at = tag("output", class_="looked-at", data_looked=i, aria_live="off")
    beside = tag("div", looked_at, tag("label", "Go through the images", slider), _legend(found), class_="beside")
    return tag("figure", tag("figcaption", told), tag("div", *maps, beside, class_="with-beside"), class_="mapped")


def _legend(found: FeatureMap) -> Html:
    classes = classes_of(found)
    if not 1 < len(classes) <= MOST_IN_LEGEND:
        return Html("")
    entries = []
    for i, label in enumerate(classes):
        look = looks(i)
        sign = tag("span", SYMBOLS[look["symbol"]], style=f"color:{look['color']}", aria_hidden="true")
        entries.append(tag("li", sign, f" {label}"))
    return tag("ul", *entries, class_="legend")
