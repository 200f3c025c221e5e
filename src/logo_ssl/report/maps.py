"""Maps of images in feature space: PCA, and t-SNE if there are enough images; each point can be looked at."""

import math
import warnings
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from .gallery import COLOURS, Pictured, Thumbnails

SIDE = 96  # pixels of a thumbnail
SYMBOLS = {  # by plotly's names; seven and five colours tell 35 classes apart
    "circle": "\N{BLACK CIRCLE}",
    "square": "\N{BLACK SQUARE}",
    "diamond": "\N{BLACK DIAMOND}",
    "cross": "\N{HEAVY GREEK CROSS}",
    "triangle-up": "\N{BLACK UP-POINTING TRIANGLE}",
    "x": "\N{HEAVY MULTIPLICATION X}",
    "star": "\N{BLACK STAR}",
}
MOST_IN_LEGEND = 35
LEAST_FOR_TSNE = 10
PERPLEXITY = 30.0


class FeatureMap(NamedTuple):
    """Images and their places on each map."""

    images: Sequence[Pictured]
    places: Mapping[str, Float[np.ndarray, "N 2"]]
    """By the name of the projection."""
    notes: Mapping[str, str]
    """What to know about each projection."""
    of: str
    """Which images these are."""

    @property
    def classes(self) -> list[str]:
        """Their classes, in the order of their looks."""
        return sorted({image.label for image in self.images if image.label is not None})

    @property
    def legend(self) -> list[dict[str, str]]:
        """Name, colour and symbol of each class, unless there are too few or too many."""
        found = self.classes
        return [_look(i) | {"name": name} for i, name in enumerate(found)] if 1 < len(found) <= MOST_IN_LEGEND else []


def looks(i: int) -> dict[str, str]:
    """Colour and symbol of class i, as plotly takes them."""
    return {"color": COLOURS[i % len(COLOURS)], "symbol": list(SYMBOLS)[i % len(SYMBOLS)]}


def map_data(name: str, found: FeatureMap, thumbnails: Thumbnails) -> dict[str, Any]:
    """What the page's script needs to draw the maps of a run."""
    of_class = {label: i for i, label in enumerate(found.classes)}
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


def projections(unit: Float[np.ndarray, "N F"], seed: int) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """Places of unit vectors on each map, and what to know about it."""
    places, share = pca(unit)
    maps, notes = {"PCA": places}, {"PCA": f"{100 * share:.0f} % of the variance"}
    if len(unit) >= LEAST_FOR_TSNE and (drawn := tsne(unit, seed)) is not None:
        maps["t-SNE"] = drawn
        notes["t-SNE"] = "neighbours stay near, distances say nothing"
    return maps, notes


def pca(unit: Float[np.ndarray, "N F"]) -> tuple[Float[np.ndarray, "N 2"], float]:
    """The two directions of largest variance, each with its largest weight positive, and their share of it."""
    centred = unit.astype(float) - unit.astype(float).mean(axis=0)
    _, singular, directions = np.linalg.svd(centred, full_matrices=False)
    first = np.zeros((2, centred.shape[1]))
    first[: len(directions)] = directions[:2]
    signs = np.sign(np.take_along_axis(first, np.abs(first).argmax(axis=1, keepdims=True), axis=1))
    total = np.square(singular).sum()
    return centred @ (signs * first).T, float(np.square(singular[:2]).sum() / total) if total > 0 else 1.0


def tsne(unit: Float[np.ndarray, "N F"], seed: int) -> Float[np.ndarray, "N 2"] | None:
    """scikit-learn's t-SNE from PCA's places; None if all vectors are equal."""
    from sklearn.manifold import TSNE  # slow to import
    from threadpoolctl import threadpool_limits

    if float(unit.std(axis=0).max()) < 1e-6:
        return None
    perplexity = min(PERPLEXITY, (len(unit) - 1) / 3)
    # One thread: of several, each waits busily for the others in every step, ten times as long next to a training.
    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        drawn = TSNE(perplexity=perplexity, init="pca", random_state=seed).fit_transform(unit.astype(float))
    return drawn.astype(float) if math.isfinite(float(np.abs(drawn).max())) else None


def _look(i: int) -> dict[str, str]:
    """Colour and symbol of class i, as text."""
    look = looks(i)
    return {"color": look["color"], "symbol": SYMBOLS[look["symbol"]]}
