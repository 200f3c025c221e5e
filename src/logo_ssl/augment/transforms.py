"""Augmentations of a batch, each image with its own parameter; values are floats in [0, 1].

`augment_eager` applies each only to the images that it concerns; `fused.augment_fused` is written for a compiler.
"""

from collections.abc import Callable, Sequence

import torch
from jaxtyping import Bool, Float, Shaped
from torch import Tensor

from ..system.hardware import to_device
from .draws import Draws

Batch = Float[Tensor, "N C H W"]
Factor = Float[Tensor, " N"]

LUMA = (0.2989, 0.587, 0.114)
"""ITU-R 601 weights of red, green and blue, with torchvision's digits."""

NEUTRAL = (1.0, 1.0, 1.0, 0.0)
"""The factor with which each jitter operation changes nothing."""


def augment_eager(
    images: Shaped[Tensor, "B C H W"], draws: Draws, size: int, mean: Sequence[float], std: Sequence[float]
) -> Float[Tensor, "N C {size} {size}"]:
    """Make N = V * B normalised crops, in the order of SimCLR and BYOL; `draws` are on the CPU.

    Nothing comes back from the device, so a GPU is never waited for.
    """
    x = resized_crop(images, to_device(draws.boxes.float(), images.device), size)
    _apply_where(draws.flip, x, lambda part: part.flip(-1))
    _jitter(x, draws)
    if images.shape[1] == 3:
        _apply_where(draws.grey, x, greyscale)
    sigma = to_device(draws.sigma[draws.sigma > 0], x.device)
    _apply_where(draws.sigma > 0, x, lambda part: gaussian_blur(part, sigma, blur_kernel(size)))
    _apply_where(draws.solarise, x, solarise)
    return normalise(x, mean, std)


def _jitter(x: Batch, draws: Draws) -> None:
    """Apply, slot by slot, to each image the operation that its own order puts there."""
    operations = (brightness, contrast, saturation, hue)  # in the numbering of `Draws.order`
    factors = torch.stack((draws.brightness, draws.contrast, draws.saturation, draws.hue), dim=1)
    active = draws.jitter[:, None] & (factors != torch.tensor(NEUTRAL))
    if x.shape[1] != 3:
        active[:, 2:] = False  # saturation and hue need red, green and blue
    idle = len(operations)
    chosen = torch.where(active.gather(1, draws.order), draws.order, idle)
    # Sorting a slot by operation makes the rows of each a slice, so two tables travel instead of one per operation.
    rows = chosen.argsort(dim=0)
    counts = (chosen[:, :, None] == torch.arange(idle)).sum(dim=0).tolist()
    factors = to_device(factors.gather(1, draws.order).gather(0, rows).T.contiguous(), x.device)
    rows = to_device(rows.T.contiguous(), x.device)
    for slot, slot_counts in enumerate(counts):
        begin = 0
        for operation, count in zip(operations, slot_counts, strict=True):
            span = slice(begin, begin + count)
            _apply_to(rows[slot, span], x, operation, factors[slot, span])
            begin += count


def _apply_where(chosen: Bool[Tensor, " N"], x: Batch, operation: Callable[[Tensor], Tensor]) -> None:
    if chosen.any():
        _apply_to(to_device(chosen.nonzero().squeeze(1), x.device), x, operation)


def _apply_to(rows: Tensor, x: Batch, operation: Callable[..., Tensor], *factors: Tensor) -> None:
    """Replace some images by what the operation makes of them."""
    if len(rows):
        x.index_copy_(0, rows, operation(x.index_select(0, rows), *factors))


def in_lines(images: Shaped[Tensor, "B C H W"]) -> Float[Tensor, "B C H W"]:
    """The images in the products' precision, lying in memory line by line, as the products want them."""
    return images.transpose(1, 2).contiguous().to(product_dtype(images)).transpose(1, 2)


def resized_crop(
    images: Shaped[Tensor, "B C H W"], boxes: Float[Tensor, "N 4"], size: int
) -> Float[Tensor, "N C {size} {size}"]:
    """Cut N = V * B boxes (V crops of image 0..B-1, one after the other) and resize them, bilinear and antialiased.

    Values come out in [0, 1].
    """
    lines = resized_lines(images, boxes, size)
    return lines.transpose(2, 3).reshape(len(boxes), images.shape[1], size, size).float().div_(255)


def resized_lines(
    images: Shaped[Tensor, "B C H W"],
    boxes: Float[Tensor, "N 4"],
    size: int,
    flip: Bool[Tensor, " N"] | None = None,
) -> Float[Tensor, "V B {size} C {size}"]:
    """The same as the products leave it: line by line, up to 255, in their precision; flipped where asked."""
    B, C, H, W = images.shape
    V = len(boxes) // B
    dtype = product_dtype(images)
    # Image by image, so that its V crops share one product with it and the batch is never repeated.
    top, left, height, width = boxes.view(V, B, 4).transpose(0, 1).reshape(B * V, 4).unbind(dim=1)
    rows = interpolation(top, height, H, size).to(dtype).view(B, V * size, H)
    columns = interpolation(left, width, W, size)
    if flip is not None:
        turned = flip.view(V, B).T.reshape(B * V, 1, 1)
        columns = torch.where(turned, columns.flip(1), columns)
    tall = torch.bmm(rows, in_lines(images).transpose(1, 2).view(B, H, C * W))
    crops = torch.bmm(tall.view(B * V, size * C, W), columns.to(dtype).mT)
    return crops.view(B, V, size, C, size).transpose(0, 1)


def interpolation(
    start: Float[Tensor, " N"], length: Float[Tensor, " N"], source: int, size: int
) -> Float[Tensor, "N {size} {source}"]:
    """The matrices that resize pixels [start, start + length) of a line to `size` pixels with a triangle filter."""
    scale = (length / size)[:, None, None]
    centre = (torch.arange(size, device=start.device) + 0.5)[:, None] * scale
    pixel = torch.arange(source, device=start.device) + 0.5 - start[:, None, None]
    weight = (1 - (pixel - centre).abs() / scale.clamp(min=1)).clamp(min=0)
    weight = weight * ((pixel > 0) & (pixel < length[:, None, None]))
    return weight / weight.sum(dim=2, keepdim=True)


def brightness(x: Batch, factor: Factor) -> Batch:
    """Blend with black."""
    return (x * factor[:, None, None, None]).clamp_(0, 1)


def contrast(x: Batch, factor: Factor) -> Batch:
    """Blend with the mean grey of the image."""
    return _blend(luma(x).mean(dim=(1, 2, 3), keepdim=True), x, factor)


def saturation(x: Float[Tensor, "N 3 H W"], factor: Factor) -> Float[Tensor, "N 3 H W"]:
    """Blend with the grey image."""
    return _blend(luma(x), x, factor)


def hue(x: Float[Tensor, "N 3 H W"], shift: Factor) -> Float[Tensor, "N 3 H W"]:
    """Turn the hue by `shift` of a full circle, keeping value and saturation."""
    r, g, b = x.unbind(dim=1)
    low, high = x.amin(dim=1), x.amax(dim=1)  # torch's aminmax is far slower over so short a dimension
    chroma = high - low
    # The hue as a share of the circle (red 0, green 1/3, blue 2/3); a grey pixel has none, and 0 / tiny is 0.
    turn = torch.where(high == g, (b - r).add_(chroma, alpha=2), (r - g).add_(chroma, alpha=4))
    turn = torch.where(high == r, g - b, turn).div_(6 * chroma.clamp(min=torch.finfo(x.dtype).tiny))
    turn.add_(shift[:, None, None])
    # A channel is brightest up to 1/6 away from its own hue and darkest from 1/3 on: a trapezoid of the angle.
    # A full turn more keeps the angle positive, as `frac` rounds towards 0 (`remainder` is far slower).
    opposite = torch.arange(6.0, 0.0, -2.0, device=x.device).view(3, 1, 1) / 6 + 1
    bright = (turn[:, None] + opposite).frac_().sub_(0.5).abs_().mul_(6).sub_(1).clamp_(0, 1)
    return bright.mul_(chroma[:, None]).add_(low[:, None])


def greyscale(x: Float[Tensor, "N 3 H W"]) -> Float[Tensor, "N 3 H W"]:
    """Give all three channels the luma."""
    return luma(x).expand_as(x)


def luma(x: Batch) -> Float[Tensor, "N 1 H W"]:
    """The grey image: ITU-R 601 for three channels, the plain mean for any other number."""
    if x.shape[1] != 3:
        return x.mean(dim=1, keepdim=True)
    r, g, b = x.split(1, dim=1)
    return (LUMA[0] * r).add_(g, alpha=LUMA[1]).add_(b, alpha=LUMA[2])


def gaussian_blur(x: Batch, sigma: Factor, kernel: int) -> Batch:
    """Blur with a Gaussian of `kernel` taps and reflected borders."""
    dtype = product_dtype(x)
    down, along = (blur_matrix(sigma, length, kernel).to(dtype)[:, None] for length in x.shape[2:])
    return (down @ x.to(dtype) @ along.mT).to(x.dtype)


def blur_matrix(sigma: Factor, length: int, kernel: int) -> Float[Tensor, "N {length} {length}"]:
    """The matrices that blur a line of pixels: tap t of output i falls on pixel i + t - kernel // 2, reflected."""
    offset = torch.arange(kernel, device=sigma.device) - kernel // 2
    taps = (-0.5 * (offset / sigma[:, None]) ** 2).softmax(dim=1)
    pixel = (torch.arange(length, device=sigma.device) + offset[:, None]).abs()
    pixel = length - 1 - (length - 1 - pixel).abs()
    place = (pixel[:, :, None] == torch.arange(length, device=sigma.device)).to(taps)
    return (taps @ place.view(kernel, -1)).view(-1, length, length)


def blur_kernel(size: int) -> int:
    """The odd number of taps nearest to a tenth of the crop (SimCLR, appendix A), and at least 3."""
    return 2 * max(size // 20, 1) + 1


def solarise(x: Float[Tensor, "*any"], threshold: float = 0.5) -> Float[Tensor, "*any"]:
    """Invert the pixels at or above the threshold."""
    return torch.where(x >= threshold, 1 - x, x)


def normalise(x: Batch, mean: Sequence[float], std: Sequence[float]) -> Batch:
    """Subtract each channel's mean and divide by its standard deviation."""
    centre, spread = torch.tensor((mean, std)).to(x.device, non_blocking=True).view(2, -1, 1, 1)
    return (x - centre).div_(spread)


def product_dtype(x: Tensor) -> torch.dtype:
    """Half precision on tensor cores: pixels are exact in it, weights to a tenth of a grey level (decision 0012)."""
    return torch.float16 if x.is_cuda else torch.float32


def _blend(other: Tensor, x: Batch, factor: Factor) -> Batch:
    return torch.lerp(other, x, factor[:, None, None, None]).clamp_(0, 1)
