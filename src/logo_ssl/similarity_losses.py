"""How alike are two crops of one image? The similarity losses l_s of Eqs. 1 and 2.

Both are pure and give one value per image; the expectation over images is taken where Eqs. 3 and 4 ask for it.
"""

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor

from .types import Latent, PerImage


def info_nce(
    z: Latent,
    z_pos: Latent,
    z_neg: Float[Tensor, "K D"],
    tau: float,
    excluded: Bool[Tensor, "B K"] | None = None,
) -> PerImage:
    """The InfoNCE loss of unit vectors; `excluded` marks the entries of `z_neg` that are no negatives of a row."""
    pos = (z * z_pos).sum(dim=-1, keepdim=True) / tau  # [B 1]
    neg = z @ z_neg.T / tau  # [B K]
    if excluded is not None:
        neg = neg.masked_fill(excluded, -torch.inf)
    return torch.logsumexp(torch.cat([pos, neg], dim=1), dim=1) - pos.squeeze(1)  # Eq. 1


def negative_cosine(h_z: Latent, z: Latent) -> PerImage:
    """The cosine loss between a prediction h(z_1) and a latent z_2."""
    return -F.cosine_similarity(h_z, z, dim=-1)  # Eq. 2
