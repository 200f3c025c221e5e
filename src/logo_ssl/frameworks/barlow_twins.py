"""Barlow Twins (Zbontar et al. 2021): the dimensions of two crops correlate with themselves, and not with others."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn

from ..models import Encoder, mlp, pick
from ..ranges import Count, NotNegative
from ..system.distributed import all_gather
from ..types import Crops, Latent, PerImage, Projections, Roles
from .base import Framework


@dataclass(frozen=True)
class BarlowTwinsConfig:
    """Settings of Barlow Twins."""

    dim: Count = 2048
    """Width of the latents and of the projector's hidden layers; 8192 in the paper."""
    layers: Count = 3
    """Layers of the projector."""
    redundancy: NotNegative = 0.005
    """Weight of correlations between different dimensions."""

    def build(self, backbone: nn.Module, n_features: int) -> "BarlowTwins":
        """The framework on a backbone."""
        return BarlowTwins(self, backbone, n_features)


class BarlowTwins(Framework):
    """The cross-correlation matrix of two crops, over the batch, becomes the identity."""

    def __init__(self, config: BarlowTwinsConfig, backbone: nn.Module, n_features: int) -> None:
        super().__init__()
        self.config = config
        self.encoder = Encoder(backbone, mlp([n_features] + [config.dim] * config.layers))

    def similarity(self, q: Latent, t: Latent) -> PerImage:
        """sum_i (1 - C_ii)^2 + redundancy sum_i sum_j!=i C_ij^2: the whole batch's, for every image."""
        n_here = len(q)
        q, t = (F.batch_norm(z, None, None, training=True) for z in all_gather(torch.stack([q, t]), dim=1))
        correlation = q.T @ t / len(q)  # C
        on = correlation.diagonal()
        off = correlation.square().sum() - on.square().sum()
        return ((1 - on).square().sum() + self.config.redundancy * off).expand(n_here)

    def project(self, crops: Crops, roles: Roles) -> Projections:
        """Latents ask and answer; both carry gradients between global crops."""
        z_g, z_l = self.encoder.encode(crops.x_g, crops.x_l)
        return Projections(z_g, z_l, q_g=pick(z_g, roles.queries), q_l=z_l, t_g=pick(z_g, roles.targets))
