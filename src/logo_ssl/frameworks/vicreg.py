"""VICReg (Bardes et al. 2022): no negatives; latents keep their variance and lose their covariance."""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn

from ..models import Encoder, mlp, pick
from ..ranges import Count, NotNegative
from ..system.distributed import all_gather
from ..types import Crops, Latent, PerImage, Projections, Roles, Scalar
from .base import Framework


@dataclass(frozen=True)
class VICRegConfig:
    """Settings of VICReg."""

    dim: Count = 2048
    """Width of the latents and of the projector's hidden layers; 8192 in the paper."""
    layers: Count = 3
    """Layers of the projector."""
    invariance: NotNegative = 25.0
    """Weight of the distance between two crops."""
    variance: NotNegative = 25.0
    """Weight of the hinge that keeps each dimension's standard deviation above 1."""
    covariance: NotNegative = 1.0
    """Weight of the squared covariances between dimensions."""

    def build(self, backbone: nn.Module, n_features: int) -> "VICReg":
        """The framework on a backbone."""
        return VICReg(self, backbone, n_features)


class VICReg(Framework):
    """Invariance of two crops, with variance and covariance of each over the batch."""

    def __init__(self, config: VICRegConfig, backbone: nn.Module, n_features: int) -> None:
        super().__init__()
        self.config = config
        self.encoder = Encoder(backbone, mlp([n_features] + [config.dim] * config.layers))

    def similarity(self, q: Latent, t: Latent) -> PerImage:
        """The squared distance of each image, and the terms of the whole batch for every image."""
        config = self.config
        distance = (q - t).square().mean(dim=-1)
        both = all_gather(torch.stack([q, t]), dim=1)  # [2 B D]
        spread = torch.stack([_variance(z) for z in both]).mean()
        redundancy = torch.stack([_covariance(z) for z in both]).sum()
        return config.invariance * distance + config.variance * spread + config.covariance * redundancy

    def project(self, crops: Crops, roles: Roles) -> Projections:
        """Latents ask and answer; both carry gradients between global crops."""
        z_g, z_l = self.encoder.encode(crops.x_g, crops.x_l)
        return Projections(z_g, z_l, q_g=pick(z_g, roles.queries), q_l=z_l, t_g=pick(z_g, roles.targets))


def _variance(z: Float[Tensor, "B D"]) -> Scalar:
    """How far each dimension's standard deviation is below 1."""
    return (1 - (z.var(dim=0) + 1e-4).sqrt()).relu().mean()


def _covariance(z: Float[Tensor, "B D"]) -> Scalar:
    """The squared covariances of different dimensions."""
    centred = z - z.mean(dim=0)
    covariance = centred.T @ centred / (len(z) - 1)
    return (covariance.square().sum() - covariance.diagonal().square().sum()) / z.shape[1]
