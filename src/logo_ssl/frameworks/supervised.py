"""Supervised learning, in the same shape: the label answers for every crop. The baseline of the transfer table."""

from dataclasses import dataclass
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import nn

from ..models import Encoder, pick
from ..ranges import Count
from ..types import Crops, Latent, PerImage, Projections, Roles
from .base import Framework


@dataclass(frozen=True)
class SupervisedConfig:
    """Settings of supervised learning."""

    labelled: ClassVar[bool] = True
    least_global: ClassVar[int] = 1

    dim: Count = 1000
    """Number of classes; set to what the data have."""

    def build(self, backbone: nn.Module, n_features: int) -> "Supervised":
        """The framework on a backbone."""
        return Supervised(self, backbone, n_features)


class Supervised(Framework):
    """Cross-entropy of a linear classifier, which takes the projector's place."""

    def __init__(self, config: SupervisedConfig, backbone: nn.Module, n_features: int) -> None:
        super().__init__()
        self.config = config
        self.encoder = Encoder(backbone, nn.Linear(n_features, config.dim))

    def similarity(self, q: Latent, t: Latent) -> PerImage:
        """Cross-entropy between logits and a label as a probability of each class."""
        return -(t * F.log_softmax(q, dim=-1)).sum(dim=-1)

    def project(self, crops: Crops, roles: Roles) -> Projections:
        """Logits ask; whichever crop is asked, the label answers."""
        assert crops.labels is not None, "supervised learning needs labels"
        z_g, z_l = self.encoder.encode(pick(crops.x_g, roles.queries), crops.x_l)
        classes = torch.arange(self.config.dim, device=z_g.device)
        label = (crops.labels[:, None] == classes).to(z_g.dtype)  # -1, a grey image, is no class and teaches nothing
        return Projections(z_g, z_l, q_g=z_g, q_l=z_l, t_g=label.expand(len(roles.targets), *label.shape))
