"""BYOL (Grill et al. 2020): a predictor asks, a momentum encoder answers, no negatives."""

from dataclasses import dataclass

import torch
from torch import nn

from ..models import Encoder, follow, mlp, momentum_copy, per_crop, pick, scheduled_momentum
from ..ranges import Count, Share
from ..similarity_losses import negative_cosine
from ..types import Crops, Latent, PerImage, Projections, Roles
from .base import Framework


@dataclass(frozen=True)
class BYOLConfig:
    """Settings of BYOL."""

    dim: Count = 256
    """Width of the latents."""
    hidden: Count = 4096
    """Hidden width of projector and predictor."""
    m: Share = 0.996
    """Momentum of the target encoder at the start; it rises to 1 along a cosine."""

    def build(self, backbone: nn.Module, n_features: int) -> "BYOL":
        """The framework on a backbone."""
        return BYOL(self, backbone, n_features)


class BYOL(Framework):
    """Negative cosine between a prediction and the momentum encoder's latent."""

    def __init__(self, config: BYOLConfig, backbone: nn.Module, n_features: int) -> None:
        super().__init__()
        self.config = config
        self.encoder = Encoder(backbone, mlp([n_features, config.hidden, config.dim]))
        self.h = mlp([config.dim, config.hidden, config.dim])
        self.momentum_encoder = momentum_copy(self.encoder)

    def similarity(self, q: Latent, t: Latent) -> PerImage:
        """The cosine loss (Eq. 2); `q` is h(z) already."""
        return negative_cosine(q, t)

    def project(self, crops: Crops, roles: Roles) -> Projections:
        """Queries are predictions h(z); targets come from the momentum encoder."""
        z_g, z_l = self.encoder.encode(pick(crops.x_g, roles.queries), crops.x_l)
        q_g, q_l = per_crop(self.h, z_g), per_crop(self.h, z_l) if len(z_l) else z_l
        with torch.no_grad():
            t_g = self.momentum_encoder(pick(crops.x_g, roles.targets))
        return Projections(z_g, z_l, q_g, q_l, t_g)

    def after_step(self, p: Projections, progress: float) -> None:
        """The momentum encoder follows, ever more slowly."""
        follow(self.momentum_encoder, self.encoder, scheduled_momentum(self.config.m, progress))
