"""Collectives with gradients: each process holds a slice of the batch, and exchanges what the whole batch decides.

With one process every function here is the identity or plain indexing, and nothing is communicated. With more, each
computes the mean loss of its own slice; gradients flow back through what was exchanged, as of the sum of all losses, so
that their mean over processes (DDP's, and `all_mean`) is the gradient of the mean over the whole batch.
"""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist
from jaxtyping import Int, Shaped
from torch import Tensor

from .hardware import to_device

LOOK_S = 0.05
"""How often a process that waits looks up, for others and for signals."""
_rehearsing = False


@contextmanager
def simulated_peers() -> Iterator[None]:
    """Send no tensor meanwhile: each process answers for the others, as if they held what it holds.

    What is compiled meanwhile sends its messages afterwards.
    """
    global _rehearsing  # of all threads: on CUDA, autograd has its own
    _rehearsing = True
    try:
        yield
    finally:
        _rehearsing = False


def world_size() -> int:
    """How many processes train together."""
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def rank() -> int:
    """Which of them this is, from 0."""
    return dist.get_rank() if dist.is_available() and dist.is_initialized() else 0


def barrier() -> None:
    """Wait until all processes are here; signals are heard meanwhile."""
    if world_size() > 1 and (here := dist.barrier(async_op=True)) is not None:
        while not here.is_completed():
            time.sleep(LOOK_S)
        here.wait()


def local_slice(x: Tensor, dim: int = 0) -> Tensor:
    """This process's slice of what belongs to the whole batch."""
    return x if world_size() == 1 else x.chunk(world_size(), dim)[rank()]


def all_sum(x: Tensor) -> Tensor:
    """The sum over processes; gradients flow back to each."""
    return x if world_size() == 1 else _summed(x)


def all_gather(x: Tensor, dim: int = 0) -> Tensor:
    """The slices of all processes as one, in order; gradients flow back to each."""
    return x if world_size() == 1 else _Gathered.apply(x, dim)  # type: ignore[return-value] (apply is not typed)


def permute_across_ranks(x: Shaped[Tensor, "V B *rest"], order: Int[Tensor, " images"]) -> Shaped[Tensor, "V B *rest"]:
    """This process's slice of the whole batch in another order, which all know; no gradient comes from others.

    An image goes to the one process that wants it, so that what travels does not grow with their number.
    """
    if world_size() == 1:
        return x[:, order]
    x, n, me = x.detach(), x.shape[1], rank()
    wanted = order.view(world_size(), n)  # [by, images]
    holder, place = wanted // n, wanted % n
    asked, came_from = holder == me, holder[me]
    sent = x.transpose(0, 1)[to_device(place[asked], x.device)].contiguous()
    received = torch.empty_like(sent)
    counts = came_from.bincount(minlength=world_size())
    if _rehearsing:
        received.copy_(sent)
    else:
        dist.all_to_all_single(received, sent, counts.tolist(), asked.sum(dim=1).tolist())
    into_order = came_from.argsort(stable=True).argsort()
    return received[to_device(into_order, x.device)].transpose(0, 1)


def index_device(device: torch.device) -> torch.device:
    """Where `permute_across_ranks` needs its order: of several processes, each plans its messages on the CPU."""
    return device if world_size() == 1 else torch.device("cpu")


@torch.no_grad()
def all_mean(tensors: Sequence[Tensor]) -> list[Tensor]:
    """The mean over processes of each tensor, in one message."""
    if world_size() == 1:
        return list(tensors)
    together = torch.cat([tensor.flatten() for tensor in tensors])
    _add_up(together)
    parts = (together / world_size()).split([tensor.numel() for tensor in tensors])
    return [part.view_as(tensor) for part, tensor in zip(parts, tensors, strict=True)]


@torch.no_grad()
def gather_uneven(rows: Shaped[Tensor, "n *rest"]) -> Shaped[Tensor, "N *rest"]:
    """The rows of all processes, which may hold different numbers of them, in order."""
    if world_size() == 1:
        return rows
    counts = all_gather(torch.tensor([len(rows)], device=rows.device)).tolist()
    padded = rows.new_zeros(max(counts), *rows.shape[1:])
    padded[: len(rows)] = rows
    parts = all_gather(padded).split(max(counts)) if max(counts) else [rows] * len(counts)
    return torch.cat([part[:count] for part, count in zip(parts, counts, strict=True)])


def gather_objects(thing: Any) -> list[Any]:
    """The things of all processes, in order."""
    if world_size() == 1:
        return [thing]
    things: list[Any] = [None] * world_size()
    dist.all_gather_object(things, thing)
    return things


def _add_up(x: Tensor) -> None:
    """all_reduce, in place."""
    if _rehearsing:
        x.mul_(world_size())
    else:
        dist.all_reduce(x)


@torch.library.custom_op("logo_ssl::summed", mutates_args=())
def _summed(x: Tensor) -> Tensor:
    """all_reduce, which compilers do not look into: whether it is rehearsed is asked anew at each call."""
    total = x.clone(memory_format=torch.contiguous_format)
    _add_up(total)
    return total


@_summed.register_fake
def _(x: Tensor) -> Tensor:
    return torch.empty_like(x, memory_format=torch.contiguous_format)


_summed.register_autograd(lambda ctx, gradient: _summed(gradient))  # each process's losses depend on all summands


class _Gathered(torch.autograd.Function):
    """all_gather; the gradient of a slice is what all processes have to say about it."""

    @staticmethod
    def forward(ctx, x: Tensor, dim: int) -> Tensor:
        ctx.dim = dim
        if _rehearsing:
            return torch.cat([x] * world_size(), dim)
        parts = [torch.empty_like(x, memory_format=torch.contiguous_format) for _ in range(world_size())]
        dist.all_gather(parts, x.contiguous())
        return torch.cat(parts, dim)

    @staticmethod
    def backward(ctx, *grad_outputs: Tensor) -> tuple[Tensor, None]:
        gradient = grad_outputs[0].clone(memory_format=torch.contiguous_format)
        _add_up(gradient)
        return local_slice(gradient, ctx.dim), None
