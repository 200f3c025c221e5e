"""Which random parameters does each crop get?

Everything is drawn on the CPU, so the host may branch on it without waiting for the device.
"""

import math
from typing import NamedTuple, TypeAlias

import torch
from jaxtyping import Bool, Float, Int
from torch import Generator, Tensor

Range: TypeAlias = tuple[float, float]

ImageSize: TypeAlias = tuple[int, int] | Int[Tensor, "N 2"]
"""Height and width: the same for all images, or a row for each crop's own."""

TRIES = 10
"""How often torchvision's RandomResizedCrop looks for a box inside the image before it takes the central one."""


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


def draw(
    n: int,
    image_size: ImageSize,
    generator: Generator,
    *,
    scale: Range,
    ratio: Range,
    flip: float,
    jitter: tuple[float, float, float, float],
    jitter_p: float,
    grey_p: float,
    blur_p: float,
    blur_sigma: Range,
    solarise_p: float,
) -> Draws:
    """Draw the parameters of n crops, independently of each other."""
    brightness, contrast, saturation = (_uniform((n,), (max(0.0, 1 - s), 1 + s), generator) for s in jitter[:3])
    sigma = _uniform((n,), blur_sigma, generator)
    return Draws(
        boxes=draw_boxes(n, image_size, scale, ratio, generator),
        flip=_chance(n, flip, generator),
        jitter=_chance(n, jitter_p, generator),
        brightness=brightness,
        contrast=contrast,
        saturation=saturation,
        hue=_uniform((n,), (-jitter[3], jitter[3]), generator),
        order=torch.rand(n, 4, generator=generator).argsort(dim=1),
        grey=_chance(n, grey_p, generator),
        sigma=sigma * _chance(n, blur_p, generator),
        solarise=_chance(n, solarise_p, generator),
    )


def draw_boxes(n: int, image_size: ImageSize, scale: Range, ratio: Range, generator: Generator) -> Int[Tensor, "N 4"]:
    """Draw n boxes with the distribution of torchvision's RandomResizedCrop."""
    H, W = torch.as_tensor(image_size).view(-1, 2).double().unbind(dim=1)
    area = (H * W)[:, None] * _uniform((n, TRIES), scale, generator).double()
    aspect = _uniform((n, TRIES), (math.log(ratio[0]), math.log(ratio[1])), generator).double().exp()
    heights, widths = (area / aspect).sqrt().round(), (area * aspect).sqrt().round()
    valid = (heights > 0) & (heights <= H[:, None]) & (widths > 0) & (widths <= W[:, None])
    first = valid.int().argmax(dim=1, keepdim=True)
    height, width = heights.gather(1, first).squeeze(1), widths.gather(1, first).squeeze(1)
    # float64, so that a number just below 1 times the count still rounds down to the last position.
    top, left = torch.rand(2, n, generator=generator, dtype=torch.float64)
    found = torch.stack(((top * (H - height + 1)).floor(), (left * (W - width + 1)).floor(), height, width), dim=1)
    return torch.where(valid.any(dim=1, keepdim=True), found, _central_boxes(H, W, ratio)).long()


def _central_boxes(H: Tensor, W: Tensor, ratio: Range) -> Float[Tensor, "N 4"]:
    """The largest central boxes whose aspect ratio is allowed."""
    height = torch.where(ratio[0] > W / H, (W / ratio[0]).round(), H)
    width = torch.where(ratio[1] < W / H, (H * ratio[1]).round(), W)
    return torch.stack((((H - height) / 2).floor(), ((W - width) / 2).floor(), height, width), dim=1)


def _uniform(shape: tuple[int, ...], bounds: Range, generator: Generator) -> Tensor:
    low, high = bounds
    return low + (high - low) * torch.rand(shape, generator=generator)


def _chance(n: int, p: float, generator: Generator) -> Bool[Tensor, " N"]:
    return torch.rand(n, generator=generator) < p
