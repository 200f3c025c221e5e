"""Sheets of the best, the worst and some random test images: annotations on the left, detections on the right."""

import io
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool
from PIL import Image, ImageDraw, ImageFont
from PIL.PngImagePlugin import PngInfo

from ..files import write
from ..randomness import stream
from ..text import counted
from .data import AnnotatedImage
from .masks import decoded
from .metrics import Detections, area, intersection, overlap

EACH, COLUMNS = 6, 2
"""Images of a kind, and pairs in a row."""
SIDE, GAP, LETTER = 360, 8, 13  # pixels
SURE = 0.5
"""Score from which a detection is drawn and judged, and overlap from which it is right."""
TRUE, RIGHT, WRONG, SPARED = "#009E73", "#0072B2", "#D55E00", "#969A9E"
"""Objects, what was found of them, what is none, and what does not count: told apart by the colour-blind."""
SHINE = 0.4
"""Of a mask over its image."""


class Shown(NamedTuple):
    """A thing with an outline, as it is drawn."""

    box: Sequence[float]
    colour: str
    name: str
    mask: Bool[np.ndarray, "H W"] | None


def preview_files(folder: Path) -> dict[str, Path]:
    """Which images are drawn in a folder."""
    return {name: folder / f"{name}.png" for name in ("best", "worst", "random")}


def save_previews(
    images: Sequence[AnnotatedImage],
    detected: Sequence[Detections],
    classes: tuple[str, ...],
    folder: Path,
    masks: bool = False,
) -> dict[str, Path]:
    """Write best.png, worst.png and random.png, with the objects' masks where these are asked for; the files."""
    scores = [f1_score(image, each) for image, each in zip(images, detected, strict=True)]
    order = np.argsort(-np.array(scores), kind="stable").tolist()
    chance = torch.randperm(len(images), generator=stream(0, "pictures to draw")).tolist()
    chosen = {"best": order[:EACH], "worst": order[::-1][:EACH], "random": chance[:EACH]}
    files, about = preview_files(folder), PngInfo()
    about.add_text("Software", "logo-ssl")
    for name, file in files.items():
        pairs = [_pair(images[row], detected[row], classes, scores[row], masks) for row in chosen[name]]
        content = io.BytesIO()
        _sheet(pairs).save(content, "png", pnginfo=about)
        write(file, content.getvalue())
    return files


def f1_score(image: AnnotatedImage, detected: Detections) -> float:
    """Twice what was found rightly over what is asked for and what was found of it or wrongly (F1); 1 for none."""
    right = matched(image, detected)
    judged = (detected.scores >= SURE) & ~ignored(image, detected, right)
    n_all = int(counted_objects(image).sum()) + int(judged.sum())
    return 2 * int(right.sum()) / n_all if n_all else 1.0


def counted_objects(image: AnnotatedImage) -> Bool[np.ndarray, " n"]:
    """Which objects count: neither crowds nor difficult ones."""
    return ~(image.crowd | image.difficult)


def matched(image: AnnotatedImage, detected: Detections) -> Bool[np.ndarray, " found"]:
    """Which detections are sure and right: the surest first, each object once."""
    free = counted_objects(image)
    right = np.zeros(len(detected.scores), bool)
    shared = overlap(detected.boxes, image.boxes)
    for n in np.argsort(-detected.scores, kind="stable"):
        if detected.scores[n] < SURE or not len(free):
            continue
        fits = np.where(free & (image.labels == detected.labels[n]), shared[n], 0)
        best = int(fits.argmax())
        if fits[best] > SURE:
            free[best], right[n] = False, True
    return right


def ignored(
    image: AnnotatedImage, detected: Detections, right: Bool[np.ndarray, " found"]
) -> Bool[np.ndarray, " found"]:
    """Which detections are sure and of an object that is not asked for: neither right nor wrong.

    A difficult object is found like any other, as VOC has it, and a crowd by all that lie in it, as COCO does.
    """
    difficult = image.difficult & (overlap(detected.boxes, image.boxes) > SURE)
    inside = intersection(detected.boxes, image.boxes) > SURE * area(detected.boxes)[:, None]
    alike = image.labels == detected.labels[:, None]
    return (detected.scores >= SURE) & ~right & (alike & (difficult | (image.crowd & inside))).any(1)


def _pair(
    image: AnnotatedImage, detected: Detections, classes: tuple[str, ...], score: float, masks: bool
) -> Image.Image:
    seen = Image.fromarray(image.pixels())
    size, asked = (image.height, image.width), counted_objects(image)
    truth = [
        Shown(box, TRUE if asked[n] else SPARED, classes[label - 1], image.mask(n).astype(bool) if masks else None)
        for n, (box, label) in enumerate(zip(image.boxes, image.labels, strict=True))
    ]
    right = matched(image, detected)
    colours = np.where(right, RIGHT, np.where(ignored(image, detected, right), SPARED, WRONG)).tolist()
    shapes = detected.masks or (None,) * len(right)
    found = [
        Shown(
            detected.boxes[n],
            colours[n],
            f"{classes[detected.labels[n] - 1]} {detected.scores[n]:.2f}",
            None if shapes[n] is None else decoded(shapes[n], *size).astype(bool),
        )
        for n in np.flatnonzero(detected.scores >= SURE)
    ]
    sides = [_drawn(seen, things) for things in (truth, found)]
    pair = Image.new("RGB", (2 * SIDE, sides[0].height + 2 * LETTER), "white")
    for n, side in enumerate(sides):
        pair.paste(side, (n * SIDE, 2 * LETTER))
    titles = f"{image.path.name}: {counted(int(asked.sum()), 'object')}", f"found, F1 {score:.2f}"
    for n, title in enumerate(titles):
        ImageDraw.Draw(pair).text((n * SIDE + 2, LETTER // 2), title, "black", ImageFont.load_default(LETTER))
    return pair


def _drawn(seen: Image.Image, things: Iterable[Shown]) -> Image.Image:
    """An image, shrunk or enlarged to the sheet's scale, with things on it."""
    things = list(things)
    pixels = np.asarray(seen, np.float32)
    for thing in things:
        if thing.mask is not None:
            colour = np.array(Image.new("RGB", (1, 1), thing.colour), np.float32)[0, 0]
            pixels = np.where(thing.mask[..., None], (1 - SHINE) * pixels + SHINE * colour, pixels)
    scale = (SIDE - GAP) / max(seen.size)
    size = tuple(max(1, round(side * scale)) for side in seen.size)
    drawn = Image.fromarray(pixels.astype(np.uint8)).resize((size[0], size[1]))
    pen, letters = ImageDraw.Draw(drawn), ImageFont.load_default(LETTER)
    for thing in things:
        left, top, right, bottom = (float(edge) * scale for edge in thing.box)
        pen.rectangle((left, top, max(left, right - 1), max(top, bottom - 1)), outline=thing.colour, width=2)
        pen.text((left + 3, top + 1), thing.name, "white", letters, stroke_width=1, stroke_fill=thing.colour)
    return drawn


def _sheet(pairs: Sequence[Image.Image]) -> Image.Image:
    """Pairs beside and below each other, each row as high as its highest."""
    width, rows = 2 * SIDE + GAP, [pairs[start : start + COLUMNS] for start in range(0, len(pairs), COLUMNS)]
    heights = [max(pair.height for pair in row) + GAP for row in rows]
    sheet = Image.new("RGB", (min(COLUMNS, len(pairs)) * width, sum(heights)), "white")
    for n, row in enumerate(rows):
        for column, pair in enumerate(row):
            sheet.paste(pair, (column * width, sum(heights[:n])))
    return sheet
