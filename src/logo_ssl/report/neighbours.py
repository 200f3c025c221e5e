"""Which images does an encoder find alike? Some held-out images, each with its nearest ones in feature space."""

from collections.abc import Sequence
from typing import NamedTuple

from .markup import Html, tag
from .thumbnails import Pixels, thumbnail

SIDE = 72  # pixels of a picture


class Pictured(NamedTuple):
    """An image, what it is called, and its class where it is known."""

    pixels: Pixels
    name: str
    label: str | None = None


class Neighbour(NamedTuple):
    """An image near another."""

    image: Pictured
    cosine: float


class Query(NamedTuple):
    """An image and what lies near it, nearest first."""

    image: Pictured
    near: Sequence[Neighbour]


class Neighbourhood(NamedTuple):
    """Some queries, where their neighbours were looked for, and how often the nearest is right over all queries."""

    queries: Sequence[Query]
    among: str
    asked: int
    right: float | None = None
    """Percent of all images asked whose nearest neighbour has their class; unknown where it could have none."""


def neighbours(name: str, found: Neighbourhood) -> Html:
    """A row for each image: its nearest ones, marked by sign and word where classes are known."""
    told = f"{name}: nearest among {found.among}, by the cosine of backbone features, which stands below each"
    if found.right is not None:
        told += f". Over all {found.asked} images asked, drawn evenly from the classes, the nearest has the same class "
        told += f"for {found.right:.2f} %"
    depth = max(len(query.near) for query in found.queries)
    head = tag("tr", *(tag("th", cell, scope="col") for cell in ("image", *map(_nth, range(1, depth + 1)))))
    rows = [
        tag("tr", tag("th", _shown(query.image), scope="row"), *(_cell(query.image, near) for near in query.near))
        for query in found.queries
    ]
    whole = tag(
        "table", tag("caption", tag("span", told + ".")), tag("thead", head), tag("tbody", *rows), class_="near"
    )
    return tag("div", whole, class_="wide", tabindex="0", role="region", aria_label=f"{name}: nearest neighbours")


def _cell(asked: Pictured, near: Neighbour) -> Html:
    cosine = tag("small", f"{near.cosine:.3f}")
    if asked.label is None or near.image.label is None:
        return tag("td", _shown(near.image), cosine)
    right = asked.label == near.image.label
    mark = tag("small", "\N{CHECK MARK} right" if right else "\N{MULTIPLICATION X} wrong", class_="mark")
    return tag("td", _shown(near.image), mark, cosine, class_="right" if right else "wrong")


def _shown(image: Pictured) -> Html:
    says = image.name if image.label is None else f"{image.label} ({image.name})"
    source = thumbnail(image.pixels, SIDE)
    sharp = "sharp" if max(image.pixels.shape) < SIDE else None
    tall, wide, _ = image.pixels.shape
    size = {"width": SIDE, "height": round(SIDE * tall / wide)}
    picture = tag("img", src=source, alt=says, title=says, **size, class_=sharp, loading="lazy")
    return tag("span", picture, tag("small", image.label or image.name))


def _nth(place: int) -> str:
    return "nearest" if place == 1 else f"{place}."
