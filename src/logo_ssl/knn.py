"""Frozen features of whole images, and weighted kNN on them (Wu et al. 2018)."""

from collections.abc import Callable, Sequence
from functools import cache
from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int, UInt8
from torch import Tensor, nn

from .data.decode import middle_of
from .system.hardware import available_memory

PROTOCOLS = ((20, 0.07), (200, 0.1))
"""(k, tau): the authors' public code, and the custom of the CIFAR-10 literature; the paper names neither."""
BLOCK_BYTES = 2**28  # of similarities at a time: 4096 queries meet 16384 features of the bank
DEVICE_SHARE = 0.5  # of what is free on a GPU may hold a bank that came from the CPU


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
    x = images.float() / 255
    if x.shape[2:] != middle.resized:
        x = F.interpolate(x, size=middle.resized, mode="bicubic", antialias=True).clamp(0, 1)
    x = x[:, :, *middle.square]
    return (x - _per_channel(tuple(mean), x.device)) / _per_channel(tuple(std), x.device)


@cache
def _per_channel(values: tuple[float, ...], device: torch.device) -> Float[Tensor, "1 C 1 1"]:
    """Sent to the device once: sending waits for all that the device has been given before."""
    with torch.inference_mode(False):  # it outlives whatever mode it was first asked for in
        return torch.tensor(values, dtype=torch.float32, device=device).view(1, -1, 1, 1)


class Neighbours(NamedTuple):
    """The features of a bank that are most similar to each query, nearest first, on the CPU."""

    cosine: Float[Tensor, "Q k"]
    row: Int[Tensor, "Q k"]


@torch.no_grad()
def nearest_neighbours(
    queries: Float[Tensor, "Q F"],
    bank: Float[Tensor, "N F"],
    k: int,
    *,
    leave_one_out: bool = False,
    device: torch.device | None = None,
    chunk: int = 4096,
    block_bytes: int = BLOCK_BYTES,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Neighbours:
    """The k most similar features (cosine) of each query, block by block; leaving one out, row i never finds itself."""
    device = queries.device if device is None else device
    if device.type == "cuda" and bank.nbytes <= DEVICE_SHARE * available_memory(device):
        bank = bank.to(device)  # once, not once for each chunk of queries
    k = min(k, len(bank) - leave_one_out)
    columns = max(1, block_bytes // (min(chunk, len(queries)) * queries.element_size()))
    rows: list[Neighbours] = []
    for first in range(0, len(queries), chunk):
        part = F.normalize(queries[first : first + chunk].to(device), dim=-1)
        cosine, row = part.new_empty(len(part), 0), torch.empty(len(part), 0, dtype=torch.int64, device=device)
        for start in range(0, len(bank), columns):
            block = part @ F.normalize(bank[start : start + columns].to(device), dim=-1).T  # [q n]
            if leave_one_out:
                block.diagonal(first - start).fill_(-torch.inf)
            near = block.topk(min(k, block.shape[1]), dim=1)
            cosine = torch.cat((cosine, near.values), dim=1)
            row = torch.cat((row, near.indices + start), dim=1)
            if start:  # the first block comes sorted
                best = cosine.topk(min(k, cosine.shape[1]), dim=1)
                cosine, row = best.values, row.gather(1, best.indices)
        rows.append(Neighbours(cosine.cpu(), row.cpu()))
        progress(first + len(part), len(queries))
    return Neighbours(*(torch.cat(parts) for parts in zip(*rows, strict=True)))


def votes(
    near: Neighbours, labels: Int[Tensor, " N"], n_classes: int, k: int, tau: float
) -> Float[Tensor, "Q classes"]:
    """Votes of the first k neighbours, each with weight exp(cosine / tau); on the CPU, where sums keep their order."""
    cosine, row = near.cosine[:, :k], near.row[:, :k]
    # relative to the nearest, which no ranking notices and float32 cannot overflow
    weight = torch.exp((cosine - cosine[:, :1]) / tau)
    return weight.new_zeros(len(weight), n_classes).scatter_add_(1, labels.cpu()[row], weight)


def top_accuracies(
    near: Neighbours,
    query_labels: Int[Tensor, " Q"],
    bank_labels: Int[Tensor, " N"],
    k: int,
    tau: float,
    tops: Sequence[int] = (1, 5),
    chunk: int = 4096,
) -> tuple[float, ...]:
    """Percent of queries whose class is among the 1, 5, ... with most votes; a class without any is no guess."""
    n_classes = int(torch.maximum(query_labels.max(), bank_labels.max())) + 1
    query_labels, bank_labels = query_labels.cpu(), bank_labels.cpu()
    right = [0] * len(tops)
    for cosine, row, truth in zip(*(part.split(chunk) for part in (*near, query_labels)), strict=True):
        scores = votes(Neighbours(cosine, row), bank_labels, n_classes, k, tau)
        best = scores.topk(min(max(tops), n_classes), dim=1)
        hit = (best.indices == truth[:, None]) & (best.values > 0)
        right = [count + int(hit[:, :top].sum()) for count, top in zip(right, tops, strict=True)]
    return tuple(100 * count / len(query_labels) for count in right)
