"""How alike are two local crops, by a measure that is learned? The regressor f_theta_d and its frozen copy l_a."""

from itertools import pairwise

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn
from torch.func import functional_call

from .models.batch_norm import BatchNorm
from .types import Affinity


class Regressor(nn.Module):
    """f_theta_d: depth x (Linear + BatchNorm + ReLU), a linear head, softplus; symmetric in its two arguments."""

    def __init__(self, dim: int, depth: int = 5, width: int = 256) -> None:
        super().__init__()
        widths = [2 * dim] + [width] * depth
        blocks = [
            layer
            for n_in, n_out in pairwise(widths)
            for layer in (nn.Linear(n_in, n_out, bias=False), BatchNorm(n_out), nn.ReLU())
        ]
        self.blocks = nn.Sequential(*blocks)
        self.head = nn.Linear(width, 1)

    def forward(
        self, z_1: Float[Tensor, "N D"], z_2: Float[Tensor, "N D"], *, softplus: bool = True
    ) -> Float[Tensor, " N"]:
        """The affinity f_theta_d(z_1, z_2) > 0, from directions alone, in both orders."""
        z_1, z_2 = F.normalize(z_1, dim=-1), F.normalize(z_2, dim=-1)
        both_orders = torch.cat([torch.cat([z_1, z_2], dim=1), torch.cat([z_2, z_1], dim=1)])  # [2N 2D]
        score = self.head(self.blocks(both_orders)).view(2, -1).mean(dim=0)
        return F.softplus(score) if softplus else score

    def score(self, z_1: Float[Tensor, "N D"], z_2: Float[Tensor, "N D"]) -> Float[Tensor, " N"]:
        """The affinity before softplus: any real number."""
        return self(z_1, z_2, softplus=False)


def frozen(regressor: Regressor) -> Affinity:
    """l_a = f_theta_d* (Eq. 8): gradients reach its arguments only, and its buffers stay as they are."""
    state = {name: value.detach() for name, value in regressor.named_parameters()}
    state |= {name: value.clone() for name, value in regressor.named_buffers()}
    return lambda z_1, z_2: functional_call(regressor, state, (z_1, z_2))


def cosine_affinity(z_1: Float[Tensor, "N D"], z_2: Float[Tensor, "N D"]) -> Float[Tensor, " N"]:
    """The plain alternative to a learned measure, with which the paper saw training collapse."""
    return F.cosine_similarity(z_1, z_2, dim=-1)
