"""Small images on the page: nearest neighbours, maps of features, crops compared with a reference crop; thumbnails."""

import base64
import io
import warnings
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, UInt8
from PIL import Image, ImageDraw

Pixels = UInt8[np.ndarray, "_ _ 3"]
QUALITY = 82
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#D55E00")  # Okabe & Ito: readable by the colour-blind
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
MAP_SIDE, CROP_SIDE, IMAGE_SIDE = 96, 32, 64  # pixels of thumbnails: at a map, and by the bars of affinity
LEAST_FOR_TSNE = 10
PERPLEXITY = 30.0
MEASURES = {"learned": "learned affinity", "cosine": "cosine similarity"}


class Pictured(NamedTuple):
    """An image, what it is called, and its class if it is known."""

    pixels: Pixels
    name: str
    label: str | None = None


class Query(NamedTuple):
    """An image and those near it with their cosines, nearest first."""

    image: Pictured
    near: Sequence[tuple[Pictured, float]]


class Neighbourhood(NamedTuple):
    """Some queries, where their neighbours were looked for, and how often the nearest is right over all queries."""

    queries: Sequence[Query]
    among: str
    asked: int
    right: float | None = None
    """Percent of all images asked whose nearest neighbour has their class; None if it could have none."""


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
        found = [{"name": name, **class_look(i)} for i, name in enumerate(self.classes)]
        return found if 1 < len(found) <= MOST_IN_LEGEND else []


class Group(NamedTuple):
    """An image and its crops, with how alike each is to the reference, from 0 to 1."""

    title: str
    image: Pixels
    crops: Sequence[Pixels]
    learned: Float[np.ndarray, " n"]
    cosine: Float[np.ndarray, " n"]


class Comparison(NamedTuple):
    """A reference: its image, its crop and the crop's box (top, left, height, width), and whom it is compared with."""

    title: str
    image: Pixels
    box: Sequence[float]
    crop: Pixels
    groups: Sequence[Group]


class Heat(NamedTuple):
    """An image, and how alike each of its pixels is to the reference by each measure, from 0 to 1."""

    title: str
    image: Pixels
    learned: Float[np.ndarray, "H W"]
    cosine: Float[np.ndarray, "H W"]


class HeatMap(NamedTuple):
    """A reference crop, its box (top, left, height, width) in the first image, and the images it is sought in."""

    title: str
    box: Sequence[float]
    crop: Pixels
    images: Sequence[Heat]


class Thumbnails:
    """The small images of a page, each once; runs that saw the same images share them."""

    def __init__(self) -> None:
        self.addresses: dict[str, int] = {}

    def add(self, pixels: Pixels, side: int) -> int:
        """The number under which the page's script finds the image."""
        return self.addresses.setdefault(thumbnail(pixels, side), len(self.addresses))


def thumbnail(pixels: Pixels, side: int, box: Sequence[float] | None = None) -> str:
    """An image of at most `side` pixels as a WebP address; with a box (top, left, height, width) on it, of `side`."""
    image = Image.fromarray(pixels)
    scale = side / max(image.size) if box is not None else min(1.0, side / max(image.size))
    size = (max(1, round(image.width * scale)), max(1, round(image.height * scale)))
    image = image.resize(size, Image.Resampling.NEAREST if scale > 1 else Image.Resampling.LANCZOS)
    if box is not None:
        top, left, tall, wide = (edge * scale for edge in box)
        pen = ImageDraw.Draw(image)
        pen.rectangle((left - 1, top - 1, left + wide, top + tall), outline="white", width=3)
        pen.rectangle((left, top, left + wide - 1, top + tall - 1), outline="black", width=1)
    content = io.BytesIO()
    image.save(content, "WEBP", quality=QUALITY)
    return "data:image/webp;base64," + base64.b64encode(content.getvalue()).decode()


def affinity_data(name: str, comparisons: Sequence[Comparison], thumbnails: Thumbnails) -> dict[str, Any]:
    """What the page's script needs to draw the bars of each reference of a run."""
    looks = zip(MEASURES.items(), COLOURS, ("", "/"), strict=False)
    return {
        "run": name,
        "measures": [{"key": key, "name": words, "color": c, "pattern": p} for (key, words), c, p in looks],
        "references": [
            {
                "title": comparison.title,
                "groups": [
                    {
                        "title": group.title,
                        "picture": thumbnails.add(group.image, IMAGE_SIDE),
                        "crops": [thumbnails.add(crop, CROP_SIDE) for crop in group.crops],
                        **{key: [round(float(value), 3) for value in getattr(group, key)] for key in MEASURES},
                    }
                    for group in comparison.groups
                ],
            }
            for comparison in comparisons
        ],
    }


def class_look(i: int) -> dict[str, str]:
    """Colour and symbol of class i, by plotly's name and as text."""
    symbol = list(SYMBOLS)[i % len(SYMBOLS)]
    return {"color": COLOURS[i % len(COLOURS)], "symbol": symbol, "sign": SYMBOLS[symbol]}


def map_data(name: str, found: FeatureMap, thumbnails: Thumbnails) -> dict[str, Any]:
    """What the page's script needs to draw the maps of a run."""
    classes = found.classes
    return {
        "run": name,
        "classes": [{"name": label, **class_look(i)} for i, label in enumerate(classes or ["image"])],
        "class": [0 if image.label is None else classes.index(image.label) for image in found.images],
        "names": [image.name for image in found.images],
        "pictures": [thumbnails.add(image.pixels, MAP_SIDE) for image in found.images],
        "places": {
            projection: [[float(f"{value:.4g}") for value in axis] for axis in places.T.tolist()]
            for projection, places in found.places.items()
        },
    }


def projections(unit: Float[np.ndarray, "N F"], seed: int) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """Places of unit vectors by PCA, and by t-SNE if there are enough that differ; and what to know about each."""
    from sklearn.decomposition import PCA  # slow to import
    from sklearn.manifold import TSNE
    from threadpoolctl import threadpool_limits

    unit = unit.astype(float)
    if float(unit.std(axis=0).max()) < 1e-6:
        return {"PCA": np.zeros((len(unit), 2))}, {"PCA": "all features are equal"}
    pca = PCA(n_components=2, svd_solver="full")
    maps = {"PCA": pca.fit_transform(unit)}
    notes = {"PCA": f"{100 * pca.explained_variance_ratio_.sum():.0f} % of the variance"}
    if len(unit) >= LEAST_FOR_TSNE:
        # One thread: of several, each waits busily for the others in every step, ten times as long next to a training.
        with threadpool_limits(1), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tsne = TSNE(perplexity=min(PERPLEXITY, (len(unit) - 1) / 3), init="pca", random_state=seed)
            maps["t-SNE"] = tsne.fit_transform(unit).astype(float)
        notes["t-SNE"] = "neighbours stay near, distances say nothing"
    return maps, notes
