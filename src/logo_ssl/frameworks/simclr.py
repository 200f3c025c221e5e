"""SimCLR (Chen et al. 2020): the other images of the batch are the negatives."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn

from ..models import Encoder, mlp, pick
from ..ranges import Count, Positive
from ..similarity_losses import info_nce
from ..system.distributed import all_gather, local_slice
from ..types import Crops, Latent, PerImage, Projections, Roles
from .base import Framework


@dataclass(frozen=True)
class SimCLRConfig:
    """Settings of SimCLR."""

    dim: Count = 128
    """Width of the latents."""
    tau: Positive = 0.5
    """Temperature of InfoNCE."""
    last_norm: bool = False
    """A batch norm without affine at the end of the projector."""

    def build(self, backbone: nn.Module, n_features: int) -> "SimCLR":
        """The framework on a backbone."""
        return SimCLR(self, backbone, n_features)


class SimCLR(Framework):
    """InfoNCE between two crops, against both crops of every other image: NT-Xent, one direction at a time."""

    def __init__(self, config: SimCLRConfig, backbone: nn.Module, n_features: int) -> None:
        super().__init__()
        self.config = config
        self.encoder = Encoder(backbone, mlp([n_features, n_features, config.dim], last_norm=config.last_norm))

    def similarity(self, q: Latent, t: Latent) -> PerImage:
        """InfoNCE (Eq. 1) with the 2 (B - 1) crops of other images as negatives, whichever process holds them."""
        q, t = F.normalize(q, dim=-1), F.normalize(t, dim=-1)
        everyone = all_gather(torch.stack([q, t]), dim=1)  # [2 B D]
        places = torch.arange(everyone.shape[1], device=q.device)
        same_image = (local_slice(places)[:, None] == places).repeat(1, 2)
        return info_nce(q, t, everyone.flatten(0, 1), self.config.tau, excluded=same_image)

    def project(self, crops: Crops, roles: Roles) -> Projections:
        """Latents ask and answer; both carry gradients between global crops."""
        z_g, z_l = self.encoder.encode(crops.x_g, crops.x_l)
        return Projections(z_g, z_l, q_g=pick(z_g, roles.queries), q_l=z_l, t_g=pick(z_g, roles.targets))
