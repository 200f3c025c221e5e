"""Distillation: a frozen teacher answers; its features, and how alike it finds images (SEED, Fang et al. 2021)."""

from dataclasses import dataclass
from typing import Annotated, ClassVar

import torch
import torch.nn.functional as F
from torch import nn

from ..models import Encoder, Queue, Teacher, mlp, per_crop, pick
from ..ranges import Allowed, Count, NotNegative, Positive
from ..system.distributed import all_gather
from ..types import Crops, Latent, PerImage, Projections, Roles
from .base import Framework


@dataclass(frozen=True)
class DistilConfig:
    """Settings of distillation."""

    least_global: ClassVar[int] = 1
    teacher: Annotated[str, Allowed(bool, "a run folder, torchvision/NAME, timm/NAME or a checkpoint")] = ""
    """The encoder to learn from: a run folder, torchvision/NAME, timm/NAME, or a checkpoint file."""
    dim: Count = 256
    """Width of the latents."""
    hidden: Count = 2048
    """Hidden width of the projector."""
    cosine: NotNegative = 1.0
    """Weight of the cosine loss between predicted features and the teacher's."""
    relational: NotNegative = 1.0
    """Weight of the cross-entropy between the student's similarities to the queue and the teacher's."""
    tau: Positive = 0.1
    """Temperature of the student's similarities."""
    tau_t: Positive = 0.05
    """Temperature of the teacher's similarities."""
    queue: Count = 4096
    """Number of the teacher's earlier features to which both are compared."""

    def build(self, backbone: nn.Module, n_features: int) -> "Distil":
        """The framework on a backbone."""
        return Distil(self, backbone, n_features)


class Distil(Framework):
    """A prediction of the teacher's features from latents: its cosine, and its similarities to earlier features."""

    def __init__(self, config: DistilConfig, backbone: nn.Module, n_features: int) -> None:
        super().__init__()
        self.config = config
        self.encoder = Encoder(backbone, mlp([n_features, config.hidden, config.dim]))

    def take_teacher(self, teacher: Teacher) -> None:
        """The teacher, the predictor of its features, and the queue of them."""
        self.teacher = teacher
        self.h = nn.Linear(self.config.dim, teacher.num_features)
        self.queue = Queue(self.config.queue, teacher.num_features)

    def similarity(self, q: Latent, t: Latent) -> PerImage:
        """The cosine loss (Eq. 2), and the cross-entropy of similarities to the teacher's answer and the queue.

        All are seen from the mean of the queue: features behind a ReLU point into one direction, which tells nothing.
        """
        config, keys, vacant = self.config, self.queue.keys, F.pad(self.queue.vacant, (1, 0))
        centre = keys.sum(dim=0) / self.queue.pushed.clamp(1, len(keys))
        keys = F.normalize(keys - centre, dim=-1)
        q, t = F.normalize(q, dim=-1), F.normalize(F.normalize(t, dim=-1) - centre, dim=-1)
        asked, answered = (
            torch.cat([(x * t).sum(dim=-1, keepdim=True), x @ keys.T], dim=1).masked_fill(vacant, -torch.inf)
            for x in (q, t)
        )  # [B 1+K]
        target = F.softmax(answered / config.tau_t, dim=-1)
        relational = -(target * F.log_softmax(asked / config.tau, dim=-1).masked_fill(vacant, 0)).sum(dim=-1)
        return config.relational * relational - config.cosine * asked[:, 0]

    def project(self, crops: Crops, roles: Roles) -> Projections:
        """Queries are predictions h(z) of the teacher's features, which are the targets."""
        z_g, z_l = self.encoder.encode(pick(crops.x_g, roles.queries), crops.x_l)
        with torch.no_grad():
            t_g = per_crop(self.teacher, pick(crops.x_g, roles.targets))
        return Projections(z_g, z_l, self.h(z_g).to(z_g.dtype), self.h(z_l).to(z_g.dtype), t_g)

    def after_step(self, p: Projections, progress: float) -> None:
        """The teacher's features of one global crop are enqueued after their use."""
        self.queue.push(all_gather(p.t_g[0]))
