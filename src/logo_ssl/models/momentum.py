"""Who answers? A slowly moving copy of the encoder."""

from copy import deepcopy
from typing import TypeVar

import torch
from torch import nn

Network = TypeVar("Network", bound=nn.Module)


def momentum_copy(network: Network) -> Network:
    """A copy that no gradient reaches."""
    return deepcopy(network).requires_grad_(False)


@torch.no_grad()
def follow(copy: nn.Module, network: nn.Module, m: float) -> None:
    """theta_copy <- m theta_copy + (1 - m) theta. Batch-norm buffers move with the copy's own forward passes."""
    torch._foreach_lerp_(list(copy.parameters()), list(network.parameters()), 1 - m)
