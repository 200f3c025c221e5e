"""A page of crops as the network sees them: originals with the boxes of their crops, and the augmented crops."""

import io
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import UInt8
from PIL import Image
from torch import Generator, Tensor

from .crops import cut
from .plan import CropPlan, Draws, plan_draws

Picture = UInt8[np.ndarray, "_ _ 3"]

DPI = 128  # a power of two: pixels to inches and back is exact
SIDE = 224  # pixels of the page that a global crop gets at least
MARGIN, GAP, LINE, TITLE = 26, 22, 2, 32  # pixels: page edge, between images, a border's width, text above an image
LABEL = (13, 20)  # width of a character and height of a label, in pixels
HUES = {"g": ("Blues", "-"), "l": ("Oranges", (0, (3, 1.5)))}
"""Colour map and line of each kind: solid for global crops, dashed for local ones."""


class _Crop(NamedTuple):
    """One crop on the page: what it is called, how it looks, and where it was cut."""

    name: str
    title: str
    pixels: Picture
    box: tuple[int, int, int, int]
    colour: Any
    line: Any


def draw_crops(
    images: list[UInt8[np.ndarray, "_ _ C"]],
    plan: CropPlan,
    generator: Generator,
    mean: Sequence[float],
    std: Sequence[float],
) -> bytes:
    """Draw the crops that a batch of these images would get, one row for each image, as a PNG."""
    if not images:
        raise ValueError("no images to draw crops of")
    sizes = torch.tensor([image.shape[:2] for image in images])
    canvases = torch.zeros(len(images), images[0].shape[2], *sizes.amax(dim=0).tolist(), dtype=torch.uint8)
    for canvas, image in zip(canvases, images, strict=True):
        canvas[:, : image.shape[0], : image.shape[1]] = torch.tensor(image).permute(2, 0, 1)
    draws_g, draws_l = plan_draws(plan, sizes, generator)
    x_g, x_l, *_ = cut(canvases, draws_g, draws_l, plan, mean, std)
    enlarge_g = -(-SIDE // plan.global_size)
    side_g = enlarge_g * plan.global_size
    enlarge_l = max(1, -(-side_g // (2 * plan.local_size)))  # at least half a global crop's side
    spread, centre = (torch.tensor(value).view(-1, 1, 1) for value in (std, mean))
    seen_g, seen_l = (((x * spread + centre).clamp(0, 1) * 255).round().byte() for x in (x_g, x_l))
    rows = [
        _crops("g", i, draws_g, seen_g, enlarge_g) + _crops("l", i, draws_l, seen_l, enlarge_l)
        for i in range(len(images))
    ]
    originals = [_fitted(visible(image), (3 * side_g // 2, side_g)) for image in images]
    return _page(_caption(plan, images[0].shape[2]), images, originals, rows)


def _crops(kind: str, i: int, draws: Draws, x: UInt8[Tensor, "V B C h w"], enlarge: int) -> list[_Crop]:
    """The crops of one kind of image i, each pixel enlarged to a square of so many."""
    from matplotlib import colormaps

    (V, B), (colours, line) = x.shape[:2], HUES[kind]
    made = []
    for v in range(V):
        name, row = f"{kind}{v + 1}", v * B + i
        pixels = visible(x[v, i].permute(1, 2, 0).numpy()).repeat(enlarge, axis=0).repeat(enlarge, axis=1)
        colour = colormaps[colours](0.9 - 0.4 * v / max(V - 1, 1))
        title = f"{name} \N{LEFT RIGHT ARROW}" if draws.flip[row] else name
        made.append(_Crop(name, title, pixels, tuple(draws.boxes[row].tolist()), colour, line))
    return made


def visible(image: UInt8[np.ndarray, "H W C"]) -> UInt8[np.ndarray, "H W 3"]:
    """Red, green and blue to show: one channel as grey, of many the first three, zero for a third that is not there."""
    channels = image.shape[2]
    if channels == 1:
        return image.repeat(3, axis=2)
    return np.pad(image[:, :, :3], ((0, 0), (0, 0), (0, max(0, 3 - channels))))


def _fitted(image: Picture, room: tuple[int, int]) -> Picture:
    """The whole image as large as it fits into a width and a height; pixels stay sharp when they grow."""
    scale = min(room[0] / image.shape[1], room[1] / image.shape[0])
    size = (max(1, round(image.shape[1] * scale)), max(1, round(image.shape[0] * scale)))
    return np.array(
        Image.fromarray(image).resize(size, Image.Resampling.NEAREST if scale > 1 else Image.Resampling.BOX)
    )


def _caption(plan: CropPlan, channels: int) -> str:
    def kind(n: int, name: str, scale: tuple[float, float], of: str, size: int) -> str:
        share = f"{100 * scale[0]:.3g}-{100 * scale[1]:.3g} %{of}"
        return f"{n} {name} crop{'s' * (n != 1)} ({share}, {size} px)"

    caption = kind(plan.n_global, "global", plan.global_scale, " of the area", plan.global_size)
    if plan.n_local:
        caption += " and " + kind(plan.n_local, "local", plan.local_scale, "", plan.local_size)
    notes = {1: "", 2: "\nthe two channels as red and green", 3: ""}
    return caption + notes.get(channels, f"\nthe first 3 of {channels} channels as red, green and blue")


def _page(caption: str, images: list[Any], originals: list[Picture], rows: list[list[_Crop]]) -> bytes:
    """Lay everything out in pixels, so that no picture is resampled, and draw lines and words over it."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.patches import Rectangle
    from matplotlib.patheffects import withStroke
    from matplotlib.transforms import Affine2D

    head = MARGIN + 26 * len(caption.splitlines())
    first = max(original.shape[1] for original in originals)
    widths = [first, *(crop.pixels.shape[1] for crop in rows[0])]
    lefts = [MARGIN + sum(widths[:k]) + k * GAP for k in range(len(widths) + 1)]
    heights = [max(o.shape[0], *(c.pixels.shape[0] for c in r)) for o, r in zip(originals, rows, strict=True)]
    tops = [head + sum(heights[:k]) + k * GAP + (k + 1) * TITLE for k in range(len(heights) + 1)]
    width, height = lefts[-1] - GAP + MARGIN, tops[-1] - GAP - TITLE + MARGIN
    width = max(width, 2 * MARGIN + 11 * max(map(len, caption.splitlines())))  # 11 pixels for a letter

    page = np.full((height, width, 3), 255, dtype=np.uint8)
    figure = Figure(figsize=(width / DPI, height / DPI), dpi=DPI)
    downwards = Affine2D().scale(1, -1).translate(0, height)  # pixels from the top left corner

    def words(x: float, y: float, text: str, **style: Any) -> None:
        figure.text(x, y, text, transform=downwards, family="DejaVu Sans", **style)  # it has the arrow

    def frame(x: float, y: float, w: float, h: float, crop: _Crop, **style: Any) -> None:
        outline = Rectangle((x, y), w, h, fill=False, ec=crop.colour, ls=crop.line, transform=downwards, **style)
        figure.add_artist(outline)

    words(width / 2, MARGIN, caption, ha="center", va="top", size=10)
    for image, original, crops, top in zip(images, originals, rows, tops, strict=False):
        left, (h, w, _) = lefts[0], original.shape
        page[top : top + h, left : left + w] = original
        words(left, top - 8, f"{image.shape[1]} x {image.shape[0]} px", size=8, color="#555555")
        scale = h / image.shape[0], w / image.shape[1]
        taken: list[tuple[float, float]] = []
        for crop, place in zip(crops, lefts[1:], strict=False):
            side = len(crop.pixels)
            page[top : top + side, place : place + side] = crop.pixels
            frame(place - 2, top - 2, side + 4, side + 4, crop, lw=LINE)
            words(place - 2, top - 9, crop.title, size=9, weight="bold", color=crop.colour)
            y, x, tall, wide = (value * scale[k % 2] for k, value in enumerate(crop.box))
            halo = [withStroke(linewidth=LINE + 1.5, foreground="white")]
            frame(left + x, top + y, wide, tall, crop, lw=LINE * 0.75, path_effects=halo)
            corner = _free_corner(left + x, top + y, wide, tall, LABEL[0] * len(crop.name), taken)
            label = {"facecolor": crop.colour, "edgecolor": "none", "boxstyle": "square,pad=0.15"}
            words(*corner, crop.name, size=7, weight="bold", color="white", ha="center", va="center", bbox=label)
    figure.figimage(page)
    file = io.BytesIO()
    FigureCanvasAgg(figure).print_png(file, metadata={"Software": "logo-ssl"})
    return file.getvalue()


def _free_corner(
    x: float, y: float, wide: float, tall: float, label: float, taken: list[tuple[float, float]]
) -> tuple[float, float]:
    """The middle of a label in a corner of the box that no other label has taken, if there is one."""
    dx, dy = label / 2, LABEL[1] / 2
    corners = [(a, b) for b in (y + dy, y + tall - dy) for a in (x + dx, x + wide - dx)]
    free = [c for c in corners if all(abs(c[0] - t[0]) > label or abs(c[1] - t[1]) > LABEL[1] for t in taken)]
    chosen = (free or corners)[0]
    taken.append(chosen)
    return chosen
