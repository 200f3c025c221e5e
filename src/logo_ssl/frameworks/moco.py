"""MoCo (He et al. 2020; v2, Chen et al. 2020): a momentum encoder answers, a queue holds the negatives."""

from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..models import Encoder, Queue, follow, mlp, momentum_copy, pick
from ..models.batch_norm import fitting_splits, set_synchronised
from ..ranges import Count, Positive, Share
from ..similarity_losses import info_nce
from ..system.distributed import all_gather, index_device, permute_across_ranks, world_size
from ..types import Crops, CropStack, Latent, Latents, PerImage, Projections, Roles
from .base import Framework


@dataclass(frozen=True)
class MoCoConfig:
    """Settings of MoCo."""

    dim: Count = 128
    """Width of the latents."""
    head: Literal["linear", "mlp", "mlp-bn"] = "mlp"
    """The projector: one linear layer (MoCo v1), a hidden layer in between (v2), or that with batch norm."""
    last_norm: bool = False
    """A batch norm without affine at the end of the projector."""
    tau: Positive = 0.2
    """Temperature of InfoNCE."""
    m: Share = 0.999
    """Momentum of the key encoder."""
    queue: Count = 65536
    """Number of negatives; any size works with any batch size."""
    splits: Count = 8
    """Parts of a batch with batch norm of their own, as on so many GPUs; fewer if the batch does not divide."""

    def build(self, backbone: nn.Module, n_features: int) -> "MoCo":
        """The framework on a backbone."""
        return MoCo(self, backbone, n_features)


class MoCo(Framework):
    """Queries from the encoder, keys from its momentum copy, InfoNCE against a queue of earlier keys."""

    def __init__(self, config: MoCoConfig, backbone: nn.Module, n_features: int) -> None:
        super().__init__()
        self.config = config
        hidden = [] if config.head == "linear" else [n_features]
        projector = mlp([n_features, *hidden, config.dim], norm=config.head == "mlp-bn", last_norm=config.last_norm)
        self.encoder = Encoder(backbone, projector, config.splits)
        set_synchronised(self.encoder, False)  # statistics shared with the keys would give the answer away
        self.momentum_encoder = momentum_copy(self.encoder)
        self.queue = Queue(config.queue, config.dim)

    def similarity(self, q: Latent, t: Latent) -> PerImage:
        """InfoNCE (Eq. 1) with the queue's keys as negatives."""
        q, t, vacant = F.normalize(q, dim=-1), F.normalize(t, dim=-1), self.queue.vacant.expand(len(q), -1)
        return info_nce(q, t, self.queue.keys, self.config.tau, excluded=vacant)

    def project(self, crops: Crops, roles: Roles) -> Projections:
        """Queries are the latents themselves; keys come from the momentum encoder."""
        z_g, z_l = self.encoder.encode(pick(crops.x_g, roles.queries), crops.x_l)
        return Projections(z_g, z_l, q_g=z_g, q_l=z_l, t_g=self._keys(pick(crops.x_g, roles.targets)))

    def after_step(self, p: Projections, progress: float) -> None:
        """The momentum encoder follows; keys are enqueued after their use."""
        follow(self.momentum_encoder, self.encoder, self.config.m)
        self.queue.push(all_gather(p.t_g, dim=1).flatten(0, 1))

    @torch.no_grad()
    def _keys(self, x_g: CropStack) -> Latents:
        """Keys, normalised in other company than their queries (MoCo's shuffled batch norm)."""
        n_images, splits = x_g.shape[1], fitting_splits(x_g.shape[1], self.config.splits)
        dealt, back = _deal(n_images * world_size(), splits * world_size(), index_device(x_g.device))
        return permute_across_ranks(self.momentum_encoder(permute_across_ranks(x_g, dealt)), back)


def _deal(n_images: int, splits: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Deal images to splits like cards, and the way back. Batches come shuffled, so a fixed deal is as good as any."""
    dealt = torch.arange(n_images, device=device).view(-1, splits).T.flatten()
    return dealt, dealt.argsort()
