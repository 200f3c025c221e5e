"""Where do negatives come from? A first-in first-out queue of unit vectors, of any size, for batches of any size."""

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor, nn


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
