"""A page of crops as the network sees them: originals with the boxes of their crops, and the augmented crops."""

import io
from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import UInt8
from torch import Generator

from .crops import cut
from .draws import CropPlan, plan_draws

DPI = 128
SIDE = 1.75  # inches of the page that a global crop takes
KINDS = {"g": ("Blues", "-"), "l": ("Oranges", (0, (3, 1.5)))}
"""Colour map and line of each kind: solid for global crops, dashed for local ones."""


def draw_crops(
    images: list[UInt8[np.ndarray, "_ _ C"]],
    plan: CropPlan,
    generator: Generator,
    mean: Sequence[float],
    std: Sequence[float],
) -> bytes:
    """Draw the crops that a batch of these images would get, one row for each image, as a PNG."""
    from matplotlib import colormaps  # slow to import: only where it is needed
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.patches import Rectangle
    from matplotlib.patheffects import withStroke

    sizes = torch.tensor([image.shape[:2] for image in images])
    canvases = torch.zeros(len(images), images[0].shape[2], *sizes.amax(dim=0).tolist(), dtype=torch.uint8)
    for canvas, image in zip(canvases, images, strict=True):
        canvas[:, : image.shape[0], : image.shape[1]] = torch.tensor(image).permute(2, 0, 1)
    drawn = plan_draws(plan, sizes, generator)
    x_g, x_l, *_ = cut(canvases, *drawn, plan, mean, std)
    spread, centre = (torch.tensor(value).view(-1, 1, 1) for value in (std, mean))
    small = max(0.5, min(1.0, plan.local_size / plan.global_size))
    widths = [1.5, *[1.0] * plan.n_global, *[small] * plan.n_local]
    figure = Figure((SIDE * sum(widths) * 1.1, (SIDE + 0.3) * len(images) + 0.6), DPI, layout="constrained")
    figure.suptitle(_caption(plan, images[0].shape[2]), fontsize=10)
    grid = figure.subplots(len(images), len(widths), squeeze=False, width_ratios=widths)

    def show(axes: Axes, image: UInt8[np.ndarray, "_ _ C"], title: str, colour: object) -> None:
        axes.imshow(visible(image), interpolation="nearest")
        axes.set(xticks=[], yticks=[], anchor="NW")
        axes.set_title(title, loc="left", fontsize=9, color=colour, family="DejaVu Sans")  # it has the arrow

    for i, (row, image) in enumerate(zip(grid, images, strict=True)):
        show(row[0], image, f"{image.shape[1]} x {image.shape[0]} px", "#555555")
        row[0].spines[:].set_visible(False)
        places = iter(row[1:])
        for (kind, (colours, line)), draws, x in zip(KINDS.items(), drawn, (x_g, x_l), strict=True):
            for v, crop in enumerate(((x[:, i] * spread + centre).clamp(0, 1) * 255).round().byte()):
                name, at, axes = f"{kind}{v + 1}", v * len(images) + i, next(places)
                colour = colormaps[colours](0.9 - 0.4 * v / max(len(x) - 1, 1))
                flipped = " \N{LEFT RIGHT ARROW}" if draws.flip[at] else ""
                show(axes, crop.permute(1, 2, 0).numpy(), name + flipped, colour)
                axes.spines[:].set(color=colour, linestyle=line, linewidth=2)
                top, left, height, width = draws.boxes[at].tolist()
                corner = (left - 0.5, top - 0.5)  # of a pixel, whose middle has whole numbers
                end, side = (left - 0.5, "left") if v % 2 == 0 else (left + width - 0.5, "right")
                halo = [withStroke(linewidth=3.5, foreground="white")]
                style = {"fill": False, "ec": colour, "ls": line, "lw": 1.5, "path_effects": halo}
                row[0].add_patch(Rectangle(corner, width, height, **style))
                label = {"facecolor": colour, "edgecolor": "none", "boxstyle": "square,pad=0.15"}
                row[0].text(end, corner[1], name, size=7, weight="bold", color="white", va="top", ha=side, bbox=label)
    figure.savefig(file := io.BytesIO(), metadata={"Software": "logo-ssl"})
    return file.getvalue()


def visible(image: UInt8[np.ndarray, "H W C"]) -> UInt8[np.ndarray, "H W 3"]:
    """Red, green and blue to show: one channel as grey, of many the first three, zero for a third that is not there."""
    channels = image.shape[2]
    if channels == 1:
        return image.repeat(3, axis=2)
    return np.pad(image[:, :, :3], ((0, 0), (0, 0), (0, max(0, 3 - channels))))


def _caption(plan: CropPlan, channels: int) -> str:
    def kind(n: int, name: str, scale: tuple[float, float], size: int) -> str:
        return f"{n} {name} crop{'s' * (n != 1)} ({100 * scale[0]:.3g}-{100 * scale[1]:.3g} % of the area, {size} px)"

    caption = kind(plan.n_global, "global", plan.global_scale, plan.global_size)
    if plan.n_local:
        caption += " and " + kind(plan.n_local, "local", plan.local_scale, plan.local_size)
    notes = {1: "", 2: "\nthe two channels as red and green", 3: ""}
    return caption + notes.get(channels, f"\nthe first 3 of {channels} channels as red, green and blue")
