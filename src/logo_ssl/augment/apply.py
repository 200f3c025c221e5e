"""How do the drawn parameters reach the images they were drawn for?

The draws stay on the CPU and the images on their device; only index and factor tables travel, and nothing comes back,
so a GPU is never waited for.
"""

from collections.abc import Callable, Sequence

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from . import operations
from .draw import Draws

JITTER = (operations.brightness, operations.contrast, operations.saturation, operations.hue)
"""The jitter operations, in the numbering of `Draws.order`."""

NEUTRAL = (1.0, 1.0, 1.0, 0.0)
"""The factor with which each jitter operation changes nothing."""


def apply(
    images: Float[Tensor, "B C H W"], draws: Draws, size: int, mean: Sequence[float], std: Sequence[float]
) -> Float[Tensor, "N C {size} {size}"]:
    """Make N = V * B normalised crops from images in [0, 1], in the order of SimCLR and BYOL."""
    x = operations.resized_crop(images, to_device(draws.boxes.float(), images.device), size)
    _on(x, draws.flip, operations.hflip)
    _jitter(x, draws)
    if images.shape[1] == 3:
        _on(x, draws.grey, operations.greyscale)
    _blur(x, draws)
    _on(x, draws.solarise, operations.solarise)
    return operations.normalise(x, mean, std)


def blur_kernel(size: int) -> int:
    """The odd number of taps nearest to a tenth of the crop (SimCLR, appendix A), and at least 3."""
    return 2 * max(size // 20, 1) + 1


def to_device(table: Tensor, device: torch.device) -> Tensor:
    """Send a host tensor without waiting: CUDA copies asynchronously only from pinned memory."""
    if device.type == "cuda":
        table = table.pin_memory()
    return table.to(device, non_blocking=True)


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
    kernel = blur_kernel(x.shape[-1])
    _on(x, draws.sigma > 0, lambda part: operations.gaussian_blur(part, sigma, kernel))


def _on(x: Float[Tensor, "N C H W"], chosen: Bool[Tensor, " N"], operation: Callable[[Tensor], Tensor]) -> None:
    """Replace the chosen images by what the operation makes of them."""
    if chosen.any():
        _replace(x, to_device(chosen.nonzero().squeeze(1), x.device), operation)


def _replace(x: Float[Tensor, "N C H W"], rows: Tensor, operation: Callable[..., Tensor], *factors: Tensor) -> None:
    if len(rows):
        x.index_copy_(0, rows, operation(x.index_select(0, rows), *factors))
