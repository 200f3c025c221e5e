"""Where do negatives come from? A first-in first-out queue of unit vectors, of any size, for batches of any size."""

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn


class Queue(nn.Module):
    """The last `size` keys; random directions until it has filled."""

    keys: Float[Tensor, "K D"]
    oldest: Tensor

    def __init__(self, size: int, dim: int) -> None:
        super().__init__()
        self.register_buffer("keys", F.normalize(torch.randn(size, dim), dim=-1))
        self.register_buffer("oldest", torch.tensor(0))  # on the device, so that no step waits for it

    @torch.no_grad()
    def push(self, keys: Float[Tensor, "N D"]) -> None:
        """Replace the oldest keys. Call it after the loss: a query must not meet its own positive as a negative."""
        size = len(self.keys)
        newest = F.normalize(keys[-size:], dim=-1).to(self.keys.dtype)
        places = (self.oldest + torch.arange(len(newest), device=newest.device)) % size
        self.keys.index_copy_(0, places, newest)
        self.oldest.copy_((self.oldest + len(newest)) % size)
