"""The crops of a batch by a plan."""

from collections.abc import Sequence

import torch
from jaxtyping import Int, UInt8
from torch import Generator, Tensor

from ..system.hardware import to_device
from ..types import Crops, CropStack
from . import fused
from .draws import CropPlan, Draws, describe, plan_draws
from .transforms import augment_eager, in_lines


def make_crops(
    images: UInt8[Tensor, "B C H W"],
    plan: CropPlan,
    generator: Generator,
    mean: Sequence[float],
    std: Sequence[float],
    *,
    sizes: Int[Tensor, "B 2"] | None = None,
    part: tuple[int, int] = (0, 1),
    compiled: bool = False,
    described: bool = False,
    dtype: torch.dtype = torch.float32,
) -> Crops:
    """Draw and make the crops of a batch on its device; generator and sizes live on the CPU.

    Images of various sizes lie in the top left corners of equal canvases; `sizes` gives their heights and widths.
    Of a batch in several equal parts, `part` is the number of this one and of all: each is cropped as in the whole.
    If `described`, the parameters of the crops are handed out too.
    """
    B, C, H, W = images.shape
    various, sizes = sizes is not None, torch.tensor([[H, W]]).expand(B, 2) if sizes is None else sizes
    draws_g, draws_l = plan_draws(plan, sizes, generator, part)
    crops = cut(images, draws_g, draws_l, plan, mean, std, various=various, compiled=compiled, dtype=dtype)
    if not described:
        return crops
    n = plan.n_global + plan.n_local
    draws = Draws(*(torch.cat(pair) for pair in zip(draws_g, draws_l, strict=True)))
    parameters = to_device(describe(draws, sizes.repeat(n, 1), plan.jitter, channels=C), images.device)
    global_, local = parameters.unflatten(0, (n, B)).split([plan.n_global, plan.n_local])
    return crops._replace(parameters_g=global_, parameters_l=local)


@torch.no_grad()
def cut(
    images: UInt8[Tensor, "B C H W"],
    draws_g: Draws,
    draws_l: Draws,
    plan: CropPlan,
    mean: Sequence[float],
    std: Sequence[float],
    *,
    various: bool = False,
    compiled: bool = False,
    dtype: torch.dtype = torch.float32,
) -> Crops:
    """Make the crops that were drawn; `various` says that other batches come on other canvases."""
    B, C, _, _ = images.shape
    if not len(mean) == len(std) == C:
        raise ValueError(f"{len(mean)} means and {len(std)} deviations for {C} channels")
    images = in_lines(images)  # once for both kinds
    if compiled and various:  # the next canvas may be larger or smaller
        from torch._dynamo import maybe_mark_dynamic  # slow to import, and not needed on a CPU

        maybe_mark_dynamic(images, [2, 3])

    def crops(draws: Draws, size: int) -> CropStack:
        n_crops = len(draws.flip) // B
        if not compiled or not n_crops:
            return augment_eager(images, draws, size, mean, std).to(dtype).unflatten(0, (n_crops, B))
        settings = (size, tuple(mean), tuple(std), plan.blur_p > 0, plan.solarise_p > 0, dtype)
        table = to_device(draws.table(), images.device)
        return fused.compiled(*settings)(images, table).unflatten(0, (n_crops, B))

    # The crops are matrix products, which autocast would round to bfloat16.
    with torch.autocast(images.device.type, enabled=False):
        if plan.global_size == plan.local_size:  # both kinds in one pass: half the kernel launches
            both = crops(Draws(*(torch.cat(pair) for pair in zip(draws_g, draws_l, strict=True))), plan.global_size)
            return Crops(both[: plan.n_global], both[plan.n_global :])
        return Crops(crops(draws_g, plan.global_size), crops(draws_l, plan.local_size))
