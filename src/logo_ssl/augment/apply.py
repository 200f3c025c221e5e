"""How do the drawn parameters reach the images they were drawn for?

Two ways to the same crops: `apply_to_rows` touches only the images that an operation concerns, `apply_to_all` computes
every operation on every image and selects, which a compiler fuses into a few kernels. Nothing comes back from the
device, so a GPU is never waited for.
"""

from collections.abc import Callable, Sequence
from functools import cache

import torch
from jaxtyping import Bool, Float, UInt8
from torch import Tensor, nn

from ..hardware import to_device
from . import operations
from .draw import Draws

JITTER = (operations.brightness, operations.contrast, operations.saturation, operations.hue)
"""The jitter operations, in the numbering of `Draws.order`."""

NEUTRAL = (1.0, 1.0, 1.0, 0.0)
"""The factor with which each jitter operation changes nothing."""


def apply(
    images: UInt8[Tensor, "B C H W"],
    draws: Draws,
    size: int,
    mean: Sequence[float],
    std: Sequence[float],
    compiled: bool = False,
    blurs: bool = True,
    solarises: bool = True,
) -> Float[Tensor, "N C {size} {size}"]:
    """Make N = V * B normalised crops, in the order of SimCLR and BYOL; `draws` are on the CPU.

    `blurs` and `solarises` say whether the plan ever does; by what was drawn, each case would be compiled anew.
    """
    if not compiled:
        return apply_to_rows(images, draws, size, mean, std)
    table = to_device(draws.table(), images.device)
    return _compiled(size, tuple(mean), tuple(std), blurs, solarises)(images, table)


def apply_to_rows(
    images: UInt8[Tensor, "B C H W"], draws: Draws, size: int, mean: Sequence[float], std: Sequence[float]
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


def apply_to_all(
    images: UInt8[Tensor, "B C H W"],
    table: Float[Tensor, "N 17"],
    size: int,
    mean: Sequence[float],
    std: Sequence[float],
    blurs: bool,
    solarises: bool,
) -> Float[Tensor, "N C {size} {size}"]:
    """Each operation on all images, selected where it concerns them: no shape depends on what was drawn."""
    draws = Draws.from_table(table)
    x = operations.resized_crop(images, draws.boxes, size)
    x = _where(draws.flip, operations.hflip(x), x)
    factors = torch.stack((draws.brightness, draws.contrast, draws.saturation, draws.hue), dim=1)
    usable = len(JITTER) if images.shape[1] == 3 else 2  # saturation and hue need red, green and blue
    for slot in range(len(JITTER)):
        chosen = draws.order[:, slot]
        factor = factors.gather(1, chosen[:, None]).squeeze(1)
        before = x
        for i, operation in enumerate(JITTER[:usable]):
            x = _where(draws.jitter & (chosen == i) & (factor != NEUTRAL[i]), operation(before, factor), x)
    if images.shape[1] == 3:
        x = _where(draws.grey, operations.greyscale(x), x)
    if blurs:
        sigma = torch.where(draws.sigma > 0, draws.sigma, 1)
        x = _where(draws.sigma > 0, operations.gaussian_blur(x, sigma, blur_kernel(size)), x)
    if solarises:
        x = _where(draws.solarise, operations.solarise(x), x)
    return operations.normalise(x, mean, std).contiguous(memory_format=torch.channels_last)


class _Cut(nn.Module):
    """`apply_to_all` at one size. A module, since the compiler takes a module's numbers for constants."""

    def __init__(
        self, size: int, mean: tuple[float, ...], std: tuple[float, ...], blurs: bool, solarises: bool
    ) -> None:
        super().__init__()
        self.settings = size, mean, std, blurs, solarises

    def forward(self, images: Tensor, table: Tensor) -> Tensor:
        return apply_to_all(images, table, *self.settings)


@cache
def _compiled(
    size: int, mean: tuple[float, ...], std: tuple[float, ...], blurs: bool, solarises: bool
) -> Callable[..., Tensor]:
    return torch.compile(_Cut(size, mean, std, blurs, solarises))


def blur_kernel(size: int) -> int:
    """The odd number of taps nearest to a tenth of the crop (SimCLR, appendix A), and at least 3."""
    return 2 * max(size // 20, 1) + 1


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


def _where(chosen: Bool[Tensor, " N"], yes: Tensor, no: Tensor) -> Tensor:
    return torch.where(chosen[:, None, None, None], yes, no)


def _blur(x: Float[Tensor, "N C H W"], draws: Draws) -> None:
    sigma = to_device(draws.sigma[draws.sigma > 0], x.device)
    kernel = blur_kernel(x.shape[-1])
    _on(x, draws.sigma > 0, lambda part: operations.gaussian_blur(part, sigma, kernel))


def _on(x: Float[Tensor, "N C H W"], chosen: Bool[Tensor, " N"], operation: Callable[[Tensor], Tensor]) -> None:
    """Replace the chosen images by what the operation makes of them."""
    if chosen.any():
        _replace(x, to_device(chosen.nonzero().squeeze(1), x.device), operation)


def _replace(x: Float[Tensor, "N C H W"], rows: Tensor, operation: Callable[..., Tensor], *factors: Tensor) -> None:
    if len(rows):
        x.index_copy_(0, rows, operation(x.index_select(0, rows), *factors))
