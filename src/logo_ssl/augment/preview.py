"""A page of crops as the network sees them: originals with the boxes of their crops, and the augmented crops."""

import io
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import UInt8
from PIL import Image, ImageDraw, ImageFont
from torch import Generator, Tensor

from .plan import CropPlan, cut, plan_draws

Picture = UInt8[np.ndarray, "_ _ 3"]

SIDE = 224  # pixels of the page that a global crop gets at least
MARGIN, GAP, LINE, TITLE = 26, 22, 3, 32  # pixels: page edge, between images, a border's width, text above an image
HUES = {"g": 210, "l": 25}
"""Of each kind's colour, in degrees: blue for global crops, orange for local ones."""
GREY = "#555555"


class _Crop(NamedTuple):
    """One crop on the page: what it is called, how it looks, and where it was cut."""

    name: str
    pixels: Picture
    box: tuple[int, int, int, int]
    flipped: bool
    colour: str


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
    canvases, sizes = _on_canvases(images)
    draws = plan_draws(plan, sizes, generator)
    crops = cut(canvases, *draws, plan, mean, std)
    side_g = plan.global_size * -(-SIDE // plan.global_size)
    enlarge = {"g": side_g // plan.global_size, "l": max(1, -(-side_g // (2 * plan.local_size)))}  # at least half of it
    spread, centre = (torch.tensor(value).view(-1, 1, 1) for value in (std, mean))
    rows: list[list[_Crop]] = [[] for _ in images]
    for kind, drawn, x in zip("gl", draws, (crops.x_g, crops.x_l), strict=True):
        for v, stack in enumerate(x):
            colour = f"hsl({HUES[kind]}, 80%, {30 + 30 * v // max(len(x) - 1, 1)}%)"
            for i, crop in enumerate(stack):
                seen = ((crop * spread + centre).clamp(0, 1) * 255).round().byte().permute(1, 2, 0).numpy()
                pixels = visible(seen).repeat(enlarge[kind], axis=0).repeat(enlarge[kind], axis=1)
                row = v * len(images) + i
                box = tuple(drawn.boxes[row].tolist())
                rows[i].append(_Crop(f"{kind}{v + 1}", pixels, box, bool(drawn.flip[row]), colour))
    return _page(_caption(plan, images[0].shape[2]), images, rows, (3 * side_g // 2, side_g))


def _on_canvases(images: list[UInt8[np.ndarray, "_ _ C"]]) -> tuple[UInt8[Tensor, "B C H W"], Tensor]:
    """Equal canvases with the images in their top left corners, and the images' heights and widths."""
    sizes = torch.tensor([image.shape[:2] for image in images])
    height, width = sizes.amax(dim=0).tolist()
    canvases = torch.zeros(len(images), images[0].shape[2], height, width, dtype=torch.uint8)
    for canvas, image in zip(canvases, images, strict=True):
        canvas[:, : image.shape[0], : image.shape[1]] = torch.tensor(image).permute(2, 0, 1)
    return canvases, sizes


def visible(image: UInt8[np.ndarray, "H W C"]) -> UInt8[np.ndarray, "H W 3"]:
    """Red, green and blue to show: one channel as grey, of many the first three, zero for a third that is not there."""
    channels = image.shape[2]
    if channels == 1:
        return image.repeat(3, axis=2)
    return np.pad(image[:, :, :3], ((0, 0), (0, 0), (0, max(0, 3 - channels))))


def _fitted(image: Picture, room: tuple[int, int]) -> Image.Image:
    """The whole image as large as it fits into a width and a height; pixels stay sharp when they grow."""
    scale = min(room[0] / image.shape[1], room[1] / image.shape[0])
    size = (max(1, round(image.shape[1] * scale)), max(1, round(image.shape[0] * scale)))
    return Image.fromarray(image).resize(size, Image.Resampling.NEAREST if scale > 1 else Image.Resampling.BOX)


def _caption(plan: CropPlan, channels: int) -> list[str]:
    def kind(n: int, name: str, scale: tuple[float, float], size: int) -> str:
        return f"{n} {name} crop{'s' * (n != 1)} ({100 * scale[0]:.3g}-{100 * scale[1]:.3g} % of the area, {size} px)"

    kinds = [kind(plan.n_global, "global", plan.global_scale, plan.global_size)]
    kinds += [kind(plan.n_local, "local", plan.local_scale, plan.local_size)] if plan.n_local else []
    shown = {2: ["the two channels as red and green"]}
    many = [f"the first 3 of {channels} channels as red, green and blue"] if channels > 3 else []
    return [" and ".join(kinds), *shown.get(channels, many)]


def _page(
    caption: list[str], images: list[UInt8[np.ndarray, "_ _ C"]], rows: list[list[_Crop]], room: tuple[int, int]
) -> bytes:
    """Lay everything out in pixels, so that no crop is resampled, and draw lines and words over it."""
    large, small = ImageFont.load_default(16), ImageFont.load_default(13)
    originals = [_fitted(visible(image), room) for image in images]
    widths = [max(original.width for original in originals), *(crop.pixels.shape[1] for crop in rows[0])]
    lefts = [MARGIN + sum(widths[:k]) + k * GAP for k in range(len(widths) + 1)]
    top = MARGIN + 24 * len(caption)
    height = top + sum(TITLE + room[1] + GAP for _ in rows) - GAP + MARGIN
    page = Image.new("RGB", (max(lefts[-1] - GAP + MARGIN, 2 * MARGIN + 9 * max(map(len, caption))), height), "white")
    pen = ImageDraw.Draw(page)
    pen.multiline_text((page.width / 2, MARGIN), "\n".join(caption), "black", large, anchor="ma", align="center")
    for image, original, crops in zip(images, originals, rows, strict=True):
        top += TITLE
        page.paste(original, (MARGIN, top))
        pen.text((MARGIN, top - 6), f"{image.shape[1]} x {image.shape[0]} px", GREY, small, anchor="ls")
        scale, taken = (original.height / image.shape[0], original.width / image.shape[1]), list[tuple[int, int]]()
        for crop, left in zip(crops, lefts[1:], strict=False):
            side = len(crop.pixels)
            page.paste(Image.fromarray(crop.pixels), (left, top))
            frame = (left - LINE, top - LINE, left + side + LINE - 1, top + side + LINE - 1)
            pen.rectangle(frame, None, crop.colour, LINE)
            title = f"{crop.name} (flipped)" if crop.flipped else crop.name
            pen.text((frame[0], frame[1] - 4), title, crop.colour, large, anchor="ls")
            y, x, tall, wide = (round(value * scale[k % 2]) for k, value in enumerate(crop.box))
            box = (MARGIN + x, top + y, MARGIN + x + wide - 1, top + y + tall - 1)
            pen.rectangle(box, None, "white", LINE + 1)  # a halo
            pen.rectangle(box, None, crop.colour, LINE - 1)
            corners = [(x, y) for y in (box[1] + 8, box[3] - 8) for x in (box[0] + 11, box[2] - 11)]
            free = [c for c in corners if all(abs(c[0] - t[0]) > 22 or abs(c[1] - t[1]) > 16 for t in taken)]
            taken.append((free or corners)[0])
        for crop, (x, y) in zip(crops, taken, strict=True):  # over all boxes
            pen.rectangle((x - 11, y - 8, x + 11, y + 8), crop.colour)
            pen.text((x, y), crop.name, "white", small, anchor="mm")
        top += room[1] + GAP
    page.save(file := io.BytesIO(), "PNG")
    return file.getvalue()
