"""DINO (Caron et al. 2021): a momentum teacher, centred and sharpened, answers with a distribution."""

from dataclasses import dataclass
from typing import ClassVar

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from ..models import Encoder, Prototypes, follow, mlp, momentum_copy, pick, scheduled_momentum
from ..ranges import Count, Positive, Share
from ..system.distributed import all_mean
from ..types import Crops, PerImage, Projections, Roles
from .base import Framework


@dataclass(frozen=True)
class DINOConfig:
    """Settings of DINO."""

    sharpness: ClassVar[str] = "tau_t"
    dim: Count = 256
    """Width of the latents: the bottleneck of the head."""
    hidden: Count = 2048
    """Hidden width of the projector."""
    out_dim: Count = 2048
    """Width of the last layer; 65536 on ImageNet."""
    batch_norm: bool = True
    """Batch norm in the projector, which vision transformers do without."""
    tau: Positive = 0.1
    """Temperature of the student."""
    tau_t: Positive = 0.02
    """Temperature of the teacher after its warm-up; 0.07 on ImageNet, where there are a hundred times as many steps."""
    tau_t_start: Positive = 0.02
    """Temperature of the teacher at the start; 0.04 on ImageNet."""
    tau_t_warmup: Share = 0.1
    """Share of training over which the teacher's temperature rises from tau_t_start to tau_t."""
    m: Share = 0.996
    """Momentum of the teacher at the start; it rises to 1 along a cosine."""
    centre_momentum: Share = 0.9
    """Momentum of the centre."""
    freeze_last_layer: Share = 0.005
    """Share of training at whose beginning the last layer is frozen."""

    def build(self, backbone: nn.Module, n_features: int) -> "DINO":
        """The framework on a backbone."""
        return DINO(self, backbone, n_features)


class DINO(Framework):
    """Cross-entropy between the student's distribution over prototypes and the teacher's."""

    kept = ("momentum_encoder.net.projector", "momentum_prototypes.weight")
    centre: Float[Tensor, " P"]
    tau_t: Tensor

    def __init__(self, config: DINOConfig, backbone: nn.Module, n_features: int) -> None:
        super().__init__()
        self.config = config
        widths = [n_features, config.hidden, config.hidden, config.dim]
        self.encoder = Encoder(backbone, mlp(widths, norm=config.batch_norm, activation=nn.GELU))
        self.prototypes = Prototypes(config.out_dim, config.dim, config.freeze_last_layer)
        self.momentum_encoder, self.momentum_prototypes = momentum_copy(self.encoder), momentum_copy(self.prototypes)
        self.register_buffer("centre", torch.zeros(config.out_dim))
        self.register_buffer("tau_t", torch.tensor(config.tau_t_start))  # a tensor, which a recorded step follows

    @property
    def final_encoder(self) -> Encoder:
        """The teacher, which is better than the student throughout training (Caron et al., 5.2)."""
        return self.momentum_encoder

    def similarity(self, q: Float[Tensor, "B P"], t: Float[Tensor, "B P"]) -> PerImage:
        """Cross-entropy of two rows of cosines: the teacher's are centred, and have a lower temperature."""
        target = F.softmax((t - self.centre) / self.tau_t, dim=-1)
        return -(target * F.log_softmax(q / self.config.tau, dim=-1)).sum(dim=-1)

    def project(self, crops: Crops, roles: Roles) -> Projections:
        """Queries are the student's cosines to its prototypes; targets are the teacher's."""
        z_g, z_l = self.encoder.encode(pick(crops.x_g, roles.queries), crops.x_l)
        with torch.no_grad():
            t_g = self.momentum_prototypes(self.momentum_encoder(pick(crops.x_g, roles.targets)))
        return Projections(z_g, z_l, self.prototypes(z_g), self.prototypes(z_l), t_g)

    def after_step(self, p: Projections, progress: float) -> None:
        """The teacher follows ever more slowly; centre, temperature and last layer follow training."""
        config, m = self.config, scheduled_momentum(self.config.m, progress)
        follow(self.momentum_encoder, self.encoder, m)
        follow(self.momentum_prototypes, self.prototypes, m)
        (mean,) = all_mean([p.t_g.flatten(0, 1).mean(dim=0)])
        self.centre.lerp_(mean, 1 - config.centre_momentum)
        warm = min(1.0, progress / config.tau_t_warmup) if config.tau_t_warmup else 1.0
        self.tau_t.fill_(config.tau_t_start + (config.tau_t - config.tau_t_start) * warm)
        for part in (self.prototypes, self.momentum_prototypes):
            part.after_step(progress)
