"""The plan of crops (tau^g and tau^l of the paper), and the random parameters drawn by it.

They are drawn on the CPU: the host may branch on them without waiting for a device.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Annotated, NamedTuple, TypeAlias

import torch
from jaxtyping import Bool, Float, Int
from torch import Generator, Tensor

from ..ranges import Allowed, Interval, Jitter, Scale, Share, Side, at_least
from ..system.hardware import one_thread

Range: TypeAlias = tuple[float, float]

ImageSize: TypeAlias = tuple[int, int] | Int[Tensor, "N 2"]
"""Height and width: the same for all images, or a row for each crop's own."""

TRIES = 10
"""How often torchvision's RandomResizedCrop looks for a box inside the image before it takes the central one."""

KNOWN = "independent, disjoint or another name in LAYOUTS"


@dataclass(frozen=True)
class CropPlan:
    """How many crops of each kind, how large, and how far their colours may move."""

    n_global: int = 2
    """Global crops of each image."""
    n_local: Annotated[int, at_least(0)] = 2
    """Local crops of each image; 0 for the two-view baseline."""
    global_size: Side = 32
    """Side of a global crop in pixels."""
    local_size: Side = 32
    """Side of a local crop in pixels."""
    global_scale: Scale = (0.4, 1.0)
    """Least (r_g) and greatest share of the image's area in a global crop."""
    local_scale: Scale = (0.05, 0.4)
    """Least and greatest (r_l) share of the image's area in a local crop."""
    layout: Annotated[str, Allowed(lambda name: name in LAYOUTS, KNOWN)] = "independent"
    """Where the local crops of an image are: independent of each other, disjoint, or as a function of your own says."""
    ratio: Interval = (3 / 4, 4 / 3)
    """Least and greatest width over height of the box that is cut."""
    flip: Share = 0.5
    """Probability of mirroring left and right."""
    jitter: Jitter = (0.4, 0.4, 0.4, 0.1)
    """Greatest change of brightness, contrast, saturation (factors around 1) and hue (share of the circle)."""
    jitter_p: Share = 0.8
    """Probability of colour jitter."""
    grey_p: Share = 0.2
    """Probability of dropping the colour."""
    blur_p: Share = 0.0
    """Probability of a Gaussian blur."""
    blur_sigma: Interval = (0.1, 2.0)
    """Least and greatest standard deviation of the blur, in pixels of the crop."""
    solarise_p: Share = 0.0
    """Probability of inverting the bright half of the pixel values."""


class Part(NamedTuple):
    """Which rows are wanted of those that are drawn: crop by crop, those of one of several equal parts of a batch."""

    number: int = 0
    parts: int = 1
    crops: int = 1


WHOLE = Part()


class Draws(NamedTuple):
    """The parameters of N crops, one row each, on the CPU."""

    boxes: Int[Tensor, "N 4"]
    """Top, left, height and width, in pixels of the source image."""
    flip: Bool[Tensor, " N"]
    jitter: Bool[Tensor, " N"]
    """Whether any of the next four factors applies."""
    brightness: Float[Tensor, " N"]
    contrast: Float[Tensor, " N"]
    saturation: Float[Tensor, " N"]
    hue: Float[Tensor, " N"]
    order: Int[Tensor, "N 4"]
    """Which factor comes first, second, third and fourth (0 brightness, 1 contrast, 2 saturation, 3 hue)."""
    grey: Bool[Tensor, " N"]
    sigma: Float[Tensor, " N"]
    """Blur in pixels of the crop; 0 where there is none."""
    solarise: Bool[Tensor, " N"]

    def table(self) -> Float[Tensor, "N 17"]:
        """All columns side by side, so that one copy takes them to a device; `from_table` parts them again."""
        columns = [column[:, None] if column.dim() == 1 else column for column in self]
        return torch.cat([column.float() for column in columns], dim=1)

    @classmethod
    def from_table(cls, table: Float[Tensor, "N 17"]) -> "Draws":
        """The draws in a table, on its device; what were integers stay floats."""
        widths = [4 if name in ("boxes", "order") else 1 for name in cls._fields]
        parts = dict(zip(cls._fields, table.split(widths, dim=1), strict=True))
        single = {name: part.squeeze(1) for name, part in parts.items() if name not in ("boxes", "order")}
        chances = {name: single[name] > 0.5 for name in ("flip", "jitter", "grey", "solarise")}
        return cls(**parts | single | chances | {"order": parts["order"].long()})


@one_thread()
def plan_draws(
    plan: CropPlan, sizes: Int[Tensor, "B 2"], generator: Generator, part: tuple[int, int] = (0, 1)
) -> tuple[Draws, Draws]:
    """Draw the parameters of the global and of the local crops: crop by crop, and image by image in each."""
    draws_g, draws_l = (
        draw(crops * len(sizes), sizes.repeat(crops, 1), generator, plan, scale, Part(*part, crops), boxes)
        for crops, scale, boxes in (
            (plan.n_global, plan.global_scale, draw_boxes),
            (plan.n_local, plan.local_scale, LAYOUTS[plan.layout]),
        )
    )
    return draws_g, draws_l


def draw(
    n: int,
    image_size: ImageSize,
    generator: Generator,
    plan: CropPlan,
    scale: Range,
    part: Part = WHOLE,
    boxes: Callable[..., Int[Tensor, "N 4"]] | None = None,
) -> Draws:
    """Draw the parameters of n crops, those of a part as in the whole; independent of each other but for `boxes`."""
    rand = partial(_rand, generator, part)
    brightness, contrast, saturation = (_uniform(rand(n), (max(0.0, 1 - s), 1 + s)) for s in plan.jitter[:3])
    sigma = _uniform(rand(n), plan.blur_sigma)
    return Draws(
        boxes=(boxes or draw_boxes)(n, image_size, scale, plan.ratio, generator, part),
        flip=rand(n) < plan.flip,
        jitter=rand(n) < plan.jitter_p,
        brightness=brightness,
        contrast=contrast,
        saturation=saturation,
        hue=_uniform(rand(n), (-plan.jitter[3], plan.jitter[3])),
        order=rand(n, 4).argsort(dim=1),
        grey=rand(n) < plan.grey_p,
        sigma=sigma * (rand(n) < plan.blur_p),
        solarise=rand(n) < plan.solarise_p,
    )


def draw_boxes(
    n: int, image_size: ImageSize, scale: Range, ratio: Range, generator: Generator, part: Part = WHOLE
) -> Int[Tensor, "N 4"]:
    """Draw n boxes with the distribution of torchvision's RandomResizedCrop."""
    rand = partial(_rand, generator, part)
    H, W = torch.as_tensor(image_size).view(-1, 2).double().unbind(dim=1)
    area = (H * W)[:, None] * _uniform(rand(n, TRIES), scale).double()
    aspect = _uniform(rand(n, TRIES), (math.log(ratio[0]), math.log(ratio[1]))).double().exp()
    heights, widths = (area / aspect).sqrt().round(), (area * aspect).sqrt().round()
    valid = (heights > 0) & (heights <= H[:, None]) & (widths > 0) & (widths <= W[:, None])
    first = valid.int().argmax(dim=1, keepdim=True)
    height, width = heights.gather(1, first).squeeze(1), widths.gather(1, first).squeeze(1)
    # float64, so that a number just below 1 times the count still rounds down to the last position.
    top, left = rand(2, n, dim=1, dtype=torch.float64)
    found = torch.stack(((top * (H - height + 1)).floor(), (left * (W - width + 1)).floor(), height, width), dim=1)
    return torch.where(valid.any(dim=1, keepdim=True), found, _central_boxes(H, W, ratio)).long()


def draw_disjoint_boxes(
    n: int, image_size: ImageSize, scale: Range, ratio: Range, generator: Generator, part: Part = WHOLE
) -> Int[Tensor, "N 4"]:
    """Boxes of which no two of an image share a pixel: each in a strip of its own, across or down the image.

    A strip bounds the box, so large ones are drawn smaller.
    """
    rand, crops = partial(_rand, generator, part), max(part.crops, 1)
    sizes = torch.as_tensor(image_size).view(-1, 2).expand(n, 2)
    strip = rand(n).view(crops, -1).argsort(dim=0).flatten()
    down = (rand(n).view(crops, -1)[0] < 0.5).long().repeat(crops)[:, None]  # the side that strips share out
    whole = sizes.gather(1, down)[:, 0]
    start, end = whole * strip // crops, whole * (strip + 1) // crops
    within = sizes.scatter(1, down, (end - start).clamp_min(1)[:, None])
    share = (min(scale[0] * crops, 1.0), min(scale[1] * crops, 1.0))
    boxes = draw_boxes(n, within, share, ratio, generator, part)
    return boxes.scatter_add(1, down, torch.minimum(start, whole - 1)[:, None])


Layout: TypeAlias = Callable[[int, ImageSize, Range, Range, Generator, Part], Int[Tensor, "N 4"]]
LAYOUTS: dict[str, Layout] = {"independent": draw_boxes, "disjoint": draw_disjoint_boxes}
"""Where the local crops of an image are. Others may add theirs: n boxes (`part.crops` for each image, crop by crop) in
images of these sizes, from shares of the area and ratios of width to height."""


def describe(
    draws: Draws, sizes: Int[Tensor, "N 2"], jitter: tuple[float, float, float, float], channels: int = 3
) -> Float[Tensor, "N 9"]:
    """Parameters that compare between images: centre and size of the box in image sides, four colour changes, flip.

    A colour change is its share of the range it was drawn from, 0 where nothing changed, as the saturation and hue of
    images without red, green and blue.
    """
    corner, extent = draws.boxes[:, :2] / sizes, draws.boxes[:, 2:] / sizes
    factors = torch.stack((draws.brightness - 1, draws.contrast - 1, draws.saturation - 1, draws.hue), dim=1)
    if channels != 3:
        factors[:, 2:] = 0
    range_ = torch.tensor([2 * strength if strength else 1.0 for strength in jitter])
    colours = factors / range_ * draws.jitter[:, None]
    return torch.cat([corner + extent / 2, extent, colours, draws.flip[:, None]], dim=1).float()


def _central_boxes(H: Tensor, W: Tensor, ratio: Range) -> Float[Tensor, "N 4"]:
    """The largest central boxes whose aspect ratio is allowed."""
    height = torch.where(ratio[0] > W / H, (W / ratio[0]).round(), H)
    width = torch.where(ratio[1] < W / H, (H * ratio[1]).round(), W)
    return torch.stack((((H - height) / 2).floor(), ((W - width) / 2).floor(), height, width), dim=1)


def _rand(generator: Generator, part: Part, *shape: int, dim: int = 0, dtype: torch.dtype = torch.float32) -> Tensor:
    """Numbers in 0 to 1 for the crops of a part, along `dim`; drawn for the whole batch, so that all parts agree."""
    if part.parts == 1:
        return torch.rand(shape, generator=generator, dtype=dtype)
    n = shape[dim]
    drawn = torch.rand(*shape[:dim], part.parts * n, *shape[dim + 1 :], generator=generator, dtype=dtype)
    crop_by_crop = drawn.unflatten(dim, (part.crops, part.parts, n // max(part.crops, 1)))
    return crop_by_crop.select(dim + 1, part.number).flatten(dim, dim + 1)


def _uniform(numbers: Tensor, bounds: Range) -> Tensor:
    low, high = bounds
    return low + (high - low) * numbers
