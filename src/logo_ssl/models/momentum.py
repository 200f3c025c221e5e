"""The momentum encoder, and the queue of the keys that it gives."""

import math
from copy import deepcopy
from typing import TypeVar

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor, nn

Network = TypeVar("Network", bound=nn.Module)


def momentum_copy(network: Network) -> Network:
    """A copy that no gradient reaches, and that drops no paths, as DINO's teacher."""
    copy = deepcopy(network).requires_grad_(False)
    for module in copy.modules():
        if hasattr(module, "drop_prob"):  # timm's DropPath
            module.drop_prob = 0.0  # type: ignore[assignment] (a number)
    return copy


@torch.no_grad()
def follow(copy: nn.Module, network: nn.Module, m: float) -> None:
    """theta_copy <- m theta_copy + (1 - m) theta. Batch-norm buffers move with the copy's own forward passes."""
    torch._foreach_lerp_(list(copy.parameters()), list(network.parameters()), 1 - m)


def scheduled_momentum(m: float, progress: float) -> float:
    """From `m` at the start to 1 at the end: 1 - (1 - m)(cos(pi t/T) + 1) / 2."""
    return 1 - (1 - m) * (math.cos(math.pi * progress) + 1) / 2


class Queue(nn.Module):
    """The last `size` keys, and which places hold none yet.

    Places are not filled with random vectors at first, as is the custom: these pull all latents into the one direction
    that is far from them, and a short run does not recover (docs/decisions/0009).
    """

    keys: Float[Tensor, "K D"]
    pushed: Tensor

    def __init__(self, size: int, dim: int) -> None:
        super().__init__()
        self.register_buffer("keys", torch.zeros(size, dim))
        self.register_buffer("pushed", torch.tensor(0))  # keys so far; on the device, so that no step waits for it

    @property
    def vacant(self) -> Bool[Tensor, " K"]:
        """Which places hold no key yet."""
        return torch.arange(len(self.keys), device=self.keys.device) >= self.pushed

    @torch.no_grad()
    def push(self, keys: Float[Tensor, "N D"]) -> None:
        """Replace the oldest keys. Call it after the loss: a query must not meet its own positive as a negative."""
        size = len(self.keys)
        newest = F.normalize(keys[-size:], dim=-1).to(self.keys.dtype)
        places = (self.pushed + torch.arange(len(newest), device=newest.device)) % size
        self.keys.index_copy_(0, places, newest)
        self.pushed.add_(len(newest))
