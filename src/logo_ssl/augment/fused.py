"""The crops in a few kernels, by a compiler.

Every operation runs on every image and is selected where it concerns it, so no shape depends on what was drawn. Colours
are worked on plane by plane: all planes have one shape, and whatever has one shape becomes one kernel.
"""

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import torch
from jaxtyping import Bool, Float, Shaped
from torch import Tensor, nn

from . import transforms
from .draws import Draws

Plane = Float[Tensor, "N S S"]
"""One channel of all crops."""

CONTRAST, HUE = 1, 3
"""Their numbers in `Draws.order`; the numbers below `HUE` blend with another picture."""


@cache
def compiled(*settings: Any) -> Callable[[Tensor, Tensor], Tensor]:
    """`augment_fused` with its settings (all but the images and the table), compiled."""
    return torch.compile(_Fused(*settings))


class _Fused(nn.Module):
    """A module, since the compiler takes a module's numbers for constants."""

    def __init__(self, *settings: Any) -> None:
        super().__init__()
        self.settings = settings

    def forward(self, images: Tensor, table: Tensor) -> Tensor:
        return augment_fused(images, table, *self.settings)


def augment_fused(
    images: Shaped[Tensor, "B C H W"],
    table: Float[Tensor, "N 17"],
    size: int,
    mean: Sequence[float],
    std: Sequence[float],
    blurs: bool,
    solarises: bool,
    dtype: torch.dtype = torch.float32,
) -> Float[Tensor, "N C {size} {size}"]:
    """Make the crops of `Draws.table`, channels last.

    `blurs` and `solarises` say whether the plan ever does; by what was drawn, each case would be compiled anew.
    """
    draws = Draws.from_table(table)
    lines = transforms.resized_lines(images, draws.boxes, size, draws.flip)
    planes = [plane.float() / 255 for plane in lines.flatten(0, 1).unbind(dim=2)]
    planes = _jitter(planes, draws)
    if len(planes) == 3:
        grey = _luma(planes)
        planes = [_where(draws.grey, grey, plane) for plane in planes]
    if blurs:
        planes = _blur(planes, draws.sigma)
    if solarises:
        planes = [_where(draws.solarise, transforms.solarise(plane), plane) for plane in planes]
    planes = [(plane - m) / s for plane, m, s in zip(planes, mean, std, strict=True)]
    return torch.stack(planes, dim=1).to(dtype).contiguous(memory_format=torch.channels_last)


def _jitter(planes: list[Plane], draws: Draws) -> list[Plane]:
    """Recolour in the drawn order. Contrast alone looks beyond its own pixel: at the mean grey of what it is given."""
    mean_grey = _luma(_recolour(planes, draws, None)).mean(dim=(1, 2))
    return _recolour(planes, draws, mean_grey)


def _recolour(planes: list[Plane], draws: Draws, mean_grey: Float[Tensor, " N"] | None) -> list[Plane]:
    """Every slot's operation; without the mean grey, only those before contrast."""
    factors = torch.stack((draws.brightness, draws.contrast, draws.saturation, draws.hue), dim=1)
    going = draws.jitter
    for slot in range(4):
        chosen = draws.order[:, slot]
        factor = factors.gather(1, chosen[:, None]).squeeze(1)
        if mean_grey is None:
            going = going & (chosen != CONTRAST)
            other = torch.zeros_like(factor)[:, None, None]
        else:
            other = torch.where(chosen == CONTRAST, mean_grey, 0)[:, None, None]
        if len(planes) == 3:
            other = _where(chosen > CONTRAST, _luma(planes), other)  # saturation
            turned = _turn(planes, factor)
        else:
            turned = planes  # saturation and hue need red, green and blue
        blends = going & (chosen < (HUE if len(planes) == 3 else CONTRAST + 1))
        turns = going & (chosen == HUE) & (factor != 0)
        weight = factor[:, None, None]
        blended = [torch.lerp(other, plane, weight).clamp(0, 1) for plane in planes]
        planes = [
            _where(blends, mixed, _where(turns, hue, plane))
            for plane, mixed, hue in zip(planes, blended, turned, strict=True)
        ]
    return planes


def _turn(planes: list[Plane], shift: Float[Tensor, " N"]) -> list[Plane]:
    """`transforms.hue`, plane by plane."""
    r, g, b = planes
    low, high = torch.minimum(torch.minimum(r, g), b), torch.maximum(torch.maximum(r, g), b)
    chroma = high - low
    turn = torch.where(high == g, b - r + 2 * chroma, r - g + 4 * chroma)
    turn = torch.where(high == r, g - b, turn) / (6 * chroma.clamp(min=torch.finfo(r.dtype).tiny))
    turn = turn + shift[:, None, None]
    bright = (((turn + opposite / 6 + 1).frac() - 0.5).abs() * 6 - 1 for opposite in (6, 4, 2))
    return [share.clamp(0, 1) * chroma + low for share in bright]


def _luma(planes: list[Plane]) -> Plane:
    """`transforms.luma`, plane by plane."""
    weights = transforms.LUMA if len(planes) == 3 else (1 / len(planes),) * len(planes)
    shares = [weight * plane for weight, plane in zip(weights, planes, strict=True)]
    return sum(shares[1:], shares[0])


def _blur(planes: list[Plane], sigma: Float[Tensor, " N"]) -> list[Plane]:
    """`transforms.gaussian_blur` on lines of all planes, so that each image needs two products."""
    N, size, _ = planes[0].shape
    dtype = transforms.product_dtype(planes[0])
    matrix = transforms.blur_matrix(torch.where(sigma > 0, sigma, 1), size, transforms.blur_kernel(size)).to(dtype)
    lines = torch.stack(planes, dim=2).to(dtype)  # N, S, C, S
    down = torch.bmm(matrix, lines.view(N, size, -1))
    blurred = torch.bmm(down.view(N, -1, size), matrix.mT).view_as(lines)
    return [_where(sigma > 0, soft.float(), plane) for soft, plane in zip(blurred.unbind(dim=2), planes, strict=True)]


def _where(chosen: Bool[Tensor, " N"], yes: Tensor, no: Tensor) -> Tensor:
    return torch.where(chosen[:, None, None], yes, no)
