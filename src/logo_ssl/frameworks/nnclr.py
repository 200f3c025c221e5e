"""NNCLR (Dwibedi et al. 2021): the nearest earlier latent answers in place of the crop's own."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn

from ..models import Encoder, Queue, mlp, per_crop, pick
from ..ranges import Count, Positive
from ..similarity_losses import info_nce
from ..system.distributed import all_gather, local_slice
from ..types import Crops, Latent, Latents, PerImage, Projections, Roles
from .base import Framework


@dataclass(frozen=True)
class NNCLRConfig:
    """Settings of NNCLR."""

    dim: Count = 256
    """Width of the latents."""
    hidden: Count = 2048
    """Hidden width of projector and predictor; the paper's predictor has 4096."""
    tau: Positive = 0.1
    """Temperature of InfoNCE."""
    queue: Count = 16384
    """Number of earlier latents among which neighbours are found; 98304 on ImageNet."""

    def build(self, backbone: nn.Module, n_features: int) -> "NNCLR":
        """The framework on a backbone."""
        return NNCLR(self, backbone, n_features)


class NNCLR(Framework):
    """InfoNCE between a neighbour and the predictions of all images of the batch."""

    def __init__(self, config: NNCLRConfig, backbone: nn.Module, n_features: int) -> None:
        super().__init__()
        self.config = config
        self.encoder = Encoder(backbone, mlp([n_features, config.hidden, config.hidden, config.dim], last_norm=True))
        self.h = mlp([config.dim, config.hidden, config.dim])
        self.queue = Queue(config.queue, config.dim)

    def similarity(self, q: Latent, t: Latent) -> PerImage:
        """InfoNCE (Eq. 1) of a neighbour: its image's prediction among those of all images, in all processes."""
        q, t = F.normalize(q, dim=-1), F.normalize(t, dim=-1)
        everyone = all_gather(q)
        places = torch.arange(len(everyone), device=q.device)
        itself = local_slice(places)[:, None] == places
        return info_nce(t, q, everyone, self.config.tau, excluded=itself)

    def project(self, crops: Crops, roles: Roles) -> Projections:
        """Queries are predictions h(z); targets are the neighbours of the latents."""
        z_g, z_l = self.encoder.encode(crops.x_g, crops.x_l)
        q_g = per_crop(self.h, pick(z_g, roles.queries))
        q_l = per_crop(self.h, z_l) if len(z_l) else z_l
        return Projections(z_g, z_l, q_g, q_l, t_g=self._neighbours(pick(z_g, roles.targets)))

    def after_step(self, p: Projections, progress: float) -> None:
        """Latents of one global crop are enqueued after their use."""
        self.queue.push(all_gather(p.z_g[0]))

    @torch.no_grad()
    def _neighbours(self, z: Latents) -> Latents:
        """The nearest key of the queue, by cosine; the latent itself while there is none."""
        keys, vacant = self.queue.keys.to(z.dtype), self.queue.vacant
        with torch.autocast(z.device.type, enabled=False):  # in bfloat16 many keys would be equally near
            cosines = F.normalize(z, dim=-1) @ keys.T
        nearest = cosines.masked_fill(vacant, -torch.inf).argmax(dim=-1)
        return torch.where(vacant.all(), z, keys[nearest])
