"""Small images on the page: thumbnails, nearest neighbours in feature space, crops that are alike to a reference."""

import base64
import io
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, UInt8
from PIL import Image, ImageDraw

Pixels = UInt8[np.ndarray, "_ _ 3"]
QUALITY = 82
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#D55E00")  # Okabe & Ito: readable by the colour-blind
CROP_SIDE, IMAGE_SIDE = 32, 64  # pixels, of thumbnails by the bars of affinity
MEASURES = {"learned": "learned affinity", "cosine": "cosine similarity"}


class Pictured(NamedTuple):
    """An image, what it is called, and its class if it is known."""

    pixels: Pixels
    name: str
    label: str | None = None


class Neighbour(NamedTuple):
    """An image near another."""

    image: Pictured
    cosine: float


class Query(NamedTuple):
    """An image and those near it, nearest first."""

    image: Pictured
    near: Sequence[Neighbour]


class Neighbourhood(NamedTuple):
    """Some queries, where their neighbours were looked for, and how often the nearest is right over all queries."""

    queries: Sequence[Query]
    among: str
    asked: int
    right: float | None = None
    """Percent of all images asked whose nearest neighbour has their class; None if it could have none."""


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
