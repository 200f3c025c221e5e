"""SimSiam (Chen & He 2021): a predictor and a stop-gradient are enough; the encoder answers itself."""

from dataclasses import dataclass

from torch import nn

from ..models import Encoder, mlp, per_crop, pick
from ..ranges import Count
from ..similarity_losses import negative_cosine
from ..types import Crops, Latent, PerImage, Projections, Roles
from .base import Framework


@dataclass(frozen=True)
class SimSiamConfig:
    """Settings of SimSiam."""

    dim: Count = 2048
    """Width of the latents and of the projector's hidden layers."""
    layers: Count = 3
    """Layers of the projector: 3 on ImageNet, 2 on CIFAR-10."""
    hidden: Count = 512
    """Hidden width of the predictor h."""
    constant_lr: bool = True
    """Keep the predictor's learning rate constant while the rest decays."""

    def build(self, backbone: nn.Module, n_features: int) -> "SimSiam":
        """The framework on a backbone."""
        return SimSiam(self, backbone, n_features)


class SimSiam(Framework):
    """Negative cosine between the prediction of one crop and the detached latent of another."""

    def __init__(self, config: SimSiamConfig, backbone: nn.Module, n_features: int) -> None:
        super().__init__()
        self.config = config
        projector = mlp([n_features] + [config.dim] * config.layers, last_norm=True)
        self.encoder = Encoder(backbone, projector)
        self.h = mlp([config.dim, config.hidden, config.dim])

    def similarity(self, q: Latent, t: Latent) -> PerImage:
        """The cosine loss (Eq. 2); `q` is h(z) already."""
        return negative_cosine(q, t)

    def project(self, crops: Crops, roles: Roles) -> Projections:
        """Queries are predictions h(z); targets are the latents themselves, without gradient."""
        z_g, z_l = self.encoder.encode(crops.x_g, crops.x_l)
        q_g = per_crop(self.h, pick(z_g, roles.queries))
        q_l = per_crop(self.h, z_l) if len(z_l) else z_l
        return Projections(z_g, z_l, q_g, q_l, t_g=pick(z_g, roles.targets).detach())

    def constant_lr_parameters(self) -> list[nn.Parameter]:
        """The predictor's: it should adapt to the latest latents (Chen & He, 4.2)."""
        return list(self.h.parameters()) if self.config.constant_lr else []
