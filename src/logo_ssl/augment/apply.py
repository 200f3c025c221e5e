"""How do the drawn parameters reach the images they were drawn for?

Two ways to the same crops: `apply_to_rows` touches only the images that an operation concerns, `apply_to_all` is
written for a compiler. Nothing comes back from the device, so a GPU is never waited for.
"""

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import torch
from jaxtyping import Bool, Float, Shaped
from torch import Tensor, nn

from ..hardware import to_device
from . import operations
from .draw import Draws
from .fused import apply_to_all

JITTER = (operations.brightness, operations.contrast, operations.saturation, operations.hue)
"""The jitter operations, in the numbering of `Draws.order`."""

NEUTRAL = (1.0, 1.0, 1.0, 0.0)
"""The factor with which each jitter operation changes nothing."""


def apply(
    images: Shaped[Tensor, "B C H W"],
    draws: Draws,
    size: int,
    mean: Sequence[float],
    std: Sequence[float],
    compiled: bool = False,
    blurs: bool = True,
    solarises: bool = True,
    dtype: torch.dtype = torch.float32,
) -> Float[Tensor, "N C {size} {size}"]:
    """Make N = V * B normalised crops, in the order of SimCLR and BYOL; `draws` are on the CPU.

    `blurs` and `solarises` say whether the plan ever does; by what was drawn, each case would be compiled anew.
    """
    if not compiled:
        return apply_to_rows(images, draws, size, mean, std).to(dtype)
    table = to_device(draws.table(), images.device)
    return _compiled(size, tuple(mean), tuple(std), blurs, solarises, dtype)(images, table)


def apply_to_rows(
    images: Shaped[Tensor, "B C H W"], draws: Draws, size: int, mean: Sequence[float], std: Sequence[float]
) -> Float[Tensor, "N C {size} {size}"]:
    """Each operation on the images that it concerns, which the host knows."""
    x = operations.resized_crop(images, to_device(draws.boxes.float(), images.device), size)
    _on(x, draws.flip, operations.hflip)
    _jitter(x, draws)
    if images.shape[1] == 3:
        _on(x, draws.grey, operations.greyscale)
    _blur(x, draws)
    _on(x, draws.solarise, operations.solarise)
    return operations.normalise(x, mean, std)


class _Cut(nn.Module):
    """`apply_to_all` with its settings. A module, since the compiler takes a module's numbers for constants."""

    def __init__(self, *settings: Any) -> None:
        super().__init__()
        self.settings = settings

    def forward(self, images: Tensor, table: Tensor) -> Tensor:
        return apply_to_all(images, table, *self.settings)


@cache
def _compiled(*settings: Any) -> Callable[[Tensor, Tensor], Tensor]:
    return torch.compile(_Cut(*settings))


def _jitter(x: Float[Tensor, "N C H W"], draws: Draws) -> None:
    """Apply, slot by slot, to each image the operation its own order puts there."""
    factors = torch.stack((draws.brightness, draws.contrast, draws.saturation, draws.hue), dim=1)
    active = draws.jitter[:, None] & (factors != torch.tensor(NEUTRAL))
    if x.shape[1] != 3:
        active[:, 2:] = False  # saturation and hue need red, green and blue
    idle = len(JITTER)
    chosen = torch.where(active.gather(1, draws.order), draws.order, idle)
    # Sorting a slot by operation makes the rows of each a slice, so two tables travel instead of one per operation.
    rows = chosen.argsort(dim=0)
    counts = (chosen[:, :, None] == torch.arange(idle)).sum(dim=0).tolist()
    factors = to_device(factors.gather(1, draws.order).gather(0, rows).T.contiguous(), x.device)
    rows = to_device(rows.T.contiguous(), x.device)
    for slot, slot_counts in enumerate(counts):
        begin = 0
        for operation, count in zip(JITTER, slot_counts, strict=True):
            span = slice(begin, begin + count)
            _replace(x, rows[slot, span], operation, factors[slot, span])
            begin += count


def _blur(x: Float[Tensor, "N C H W"], draws: Draws) -> None:
    sigma = to_device(draws.sigma[draws.sigma > 0], x.device)
    kernel = operations.blur_kernel(x.shape[-1])
    _on(x, draws.sigma > 0, lambda part: operations.gaussian_blur(part, sigma, kernel))


def _on(x: Float[Tensor, "N C H W"], chosen: Bool[Tensor, " N"], operation: Callable[[Tensor], Tensor]) -> None:
    """Replace the chosen images by what the operation makes of them."""
    if chosen.any():
        _replace(x, to_device(chosen.nonzero().squeeze(1), x.device), operation)


def _replace(x: Float[Tensor, "N C H W"], rows: Tensor, operation: Callable[..., Tensor], *factors: Tensor) -> None:
    if len(rows):
        x.index_copy_(0, rows, operation(x.index_select(0, rows), *factors))
