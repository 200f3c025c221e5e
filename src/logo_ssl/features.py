"""What does a backbone see in an image? Frozen features of whole images, in eval mode."""

from collections.abc import Sequence
from functools import cache

import torch
import torch.nn.functional as F
from jaxtyping import Float, UInt8
from torch import Tensor, nn

from .data.decode import middle_of


@torch.no_grad()
def extract(
    backbone: nn.Module,
    images: UInt8[Tensor, "N C H W"],
    mean: Sequence[float],
    std: Sequence[float],
    size: int,
    batch_size: int = 512,
) -> Float[Tensor, "N F"]:
    """Features of central squares, on the backbone's device; batch norm uses its running statistics."""
    device = next(backbone.parameters()).device
    was_training = backbone.training
    backbone.eval()
    try:
        rows = []
        for batch in images.split(batch_size):
            x = prepared(batch.to(device, non_blocking=True), mean, std, size)
            if x.is_cuda:
                x = x.contiguous(memory_format=torch.channels_last)
            rows.append(backbone(x).float())
        return torch.cat(rows)
    finally:
        backbone.train(was_training)


def prepared(
    images: UInt8[Tensor, "N C H W"], mean: Sequence[float], std: Sequence[float], size: int
) -> Float[Tensor, "N C {size} {size}"]:
    """Central squares of images as a backbone wants them: resized and normalised."""
    middle = middle_of(images.shape[2], images.shape[3], size)
    x = images[:, :, *middle.strip].float() / 255
    if x.shape[2:] != middle.resized:
        x = F.interpolate(x, size=middle.resized, mode="bicubic", antialias=True).clamp(0, 1)
    x = x[:, :, *middle.square]
    return (x - _per_channel(tuple(mean), x.device)) / _per_channel(tuple(std), x.device)


@cache
def _per_channel(values: tuple[float, ...], device: torch.device) -> Float[Tensor, "1 C 1 1"]:
    """Sent to the device once: sending waits for all that the device has been given before."""
    with torch.inference_mode(False):  # it outlives whatever mode it was first asked for in
        return torch.tensor(values, dtype=torch.float32, device=device).view(1, -1, 1, 1)
