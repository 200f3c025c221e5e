"""Small images on the page: nearest neighbours, maps of features, crops compared with a reference crop; thumbnails."""

import base64
import io
import math
import warnings
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, UInt8
from PIL import Image, ImageDraw, ImageOps

Pixels = UInt8[np.ndarray, "_ _ 3"]
QUALITY = 82
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#D55E00")  # Okabe & Ito: readable by the colour-blind
OF_GROUPS = (*COLOURS, "#56B4E9", "#999933", "#AA4499")  # and Tol's, for classes and clusters
SYMBOLS = "●■◆✚▲✖★"  # seven and eight colours tell 56 classes apart
TILE, MANY, SMALL_TILE = 96, 1000, 64  # pixels of an image on the map, and if there are more than so many
DARK = 0.15  # brightness of what no head looks at
LARGE = 192  # pixels of an image among the neighbours
LEAST_FOR_TSNE = 10
SAME = 1e-6  # features that differ less are equal
PERPLEXITY = 30.0
FEWEST_CLUSTERS, MOST_CLUSTERS, IN_CLUSTER = 4, 12, 80  # images in one, if there are neither too few nor too many
EXAMPLES = 6  # images of a cluster
MEASURES = {"learned": "learned affinity", "cosine": "cosine similarity"}


class Pictured(NamedTuple):
    """An image, what it is called, and its class if it is known."""

    pixels: Pixels
    name: str
    label: str | None = None


class Cluster(NamedTuple):
    """A group of images that k-means found: how many there are, and those nearest to its centre."""

    name: str
    size: int
    examples: Sequence[int]


class FeatureMap(NamedTuple):
    """Images, their places on each map, and their nearest neighbours among others."""

    images: Sequence[Pictured]
    """Those that are asked, then those that only answer."""
    near: list[list[int]]
    """Rows of the neighbours of each image that is asked, nearest first."""
    cosine: list[list[float]]
    among: str
    of: str
    """Which images are asked."""
    places: Mapping[str, Float[np.ndarray, "Q 2"]]
    """By the name of the projection."""
    notes: Mapping[str, str]
    """What to know about each projection."""
    right: float | None = None
    """Percent of all images asked whose nearest neighbour has their class; None if it could have none."""
    clusters: Sequence[Cluster] = ()
    """Of images without classes."""
    cluster_of: Sequence[int] = ()
    large: Mapping[int, Pixels] = {}
    """Images that are shown larger than the encoder sees them, by their row."""

    @property
    def asked(self) -> int:
        """How many images are on the map."""
        return len(self.near)

    @property
    def groups(self) -> list[str]:
        """Classes, or clusters, in the order of their looks."""
        return [cluster.name for cluster in self.clusters] or sorted(
            {i.label for i in self.images if i.label is not None}
        )

    @property
    def group_of(self) -> list[int]:
        """The group of each image; -1 for none."""
        if self.clusters:
            return list(self.cluster_of)
        number = {name: k for k, name in enumerate(self.groups)}
        return [-1 if image.label is None else number[image.label] for image in self.images]

    def picture(self, row: int) -> Pixels:
        """An image as large as it is known."""
        return self.large.get(row, self.images[row].pixels)


class Attention(NamedTuple):
    """An image, and how much each head looks at each of its patches, as shares."""

    image: Pictured
    heads: Float[np.ndarray, "heads h w"]

    def pictures(self) -> dict[str, Pixels]:
        """The image, lit where the class token looks: the mean of all heads, then each."""
        heads = {f"head {i + 1}": head for i, head in enumerate(self.heads)}
        maps = {"mean of heads": self.heads.mean(axis=0)} | heads
        return {"image": self.image.pixels} | {name: lit(self.image.pixels, each) for name, each in maps.items()}


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
    return _webp(image)


def lit(pixels: Pixels, light: Float[np.ndarray, "h w"]) -> Pixels:
    """An image that is dark where there is little light."""
    size = (pixels.shape[1], pixels.shape[0])
    scaled = np.asarray(Image.fromarray(light / light.max()).resize(size, Image.Resampling.BILINEAR))
    return (pixels * (DARK + (1 - DARK) * scaled[..., None])).astype(np.uint8)


def atlas(images: Sequence[Pixels]) -> dict[str, Any]:
    """All images as squares in one WebP address, row by row, with their side and the number of columns."""
    side = min(TILE if len(images) <= MANY else SMALL_TILE, max(max(image.shape[:2]) for image in images))
    columns = math.ceil(math.sqrt(len(images)))
    sheet = Image.new("RGB", (columns * side, -(-len(images) // columns) * side))
    for i, pixels in enumerate(images):
        tile = ImageOps.fit(Image.fromarray(pixels), (side, side), Image.Resampling.LANCZOS)
        sheet.paste(tile, (i % columns * side, i // columns * side))
    return {"src": _webp(sheet), "side": side, "columns": columns}


def _webp(image: Image.Image) -> str:
    content = io.BytesIO()
    image.save(content, "WEBP", quality=QUALITY)
    return "data:image/webp;base64," + base64.b64encode(content.getvalue()).decode()


def group_look(i: int) -> dict[str, str]:
    """Colour and sign of class or cluster i."""
    return {"color": OF_GROUPS[i % len(OF_GROUPS)], "sign": SYMBOLS[i % len(SYMBOLS)]}


def map_data(name: str, found: FeatureMap) -> dict[str, Any]:
    """What the page's script needs to draw the map of a run, but for its images."""
    return {
        "run": name,
        "groups": [{"name": group, **group_look(i)} for i, group in enumerate(found.groups)],
        "group": found.group_of,
        "names": [image.name for image in found.images],
        "labelled": not found.clusters and bool(found.groups),
        "near": found.near,
        "cosine": [[round(value, 3) for value in row] for row in found.cosine],
        "places": {
            projection: [[float(f"{value:.4g}") for value in axis] for axis in places.T.tolist()]
            for projection, places in found.places.items()
        },
    }


def clustered(unit: Float[np.ndarray, "N F"], seed: int) -> tuple[list[Cluster], list[int]]:
    """Clusters of unit vectors by k-means, the largest first, and the cluster of each vector."""
    from sklearn.cluster import KMeans  # slow to import
    from threadpoolctl import threadpool_limits

    if len(unit) < 4 * FEWEST_CLUSTERS or float(unit.std(axis=0).max()) < SAME:
        return [], []
    with threadpool_limits(1):
        k = min(MOST_CLUSTERS, max(FEWEST_CLUSTERS, len(unit) // IN_CLUSTER))
        labels = KMeans(k, random_state=seed).fit_predict(unit)
    order = np.bincount(labels).argsort()[::-1]
    found = []
    for i, k in enumerate(order):
        (rows,) = np.nonzero(labels == k)
        nearest = rows[np.argsort(-(unit[rows] @ unit[rows].mean(axis=0)))]
        found.append(Cluster(f"cluster {i + 1}", len(rows), nearest[:EXAMPLES].tolist()))
    return found, np.argsort(order)[labels].tolist()


def projections(unit: Float[np.ndarray, "N F"], seed: int) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """Places of unit vectors by PCA, and by t-SNE if there are enough that differ; and what to know about each."""
    from sklearn.decomposition import PCA  # slow to import
    from sklearn.manifold import TSNE
    from threadpoolctl import threadpool_limits

    unit = unit.astype(float)
    if float(unit.std(axis=0).max()) < SAME:
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
