"""A framework of your own, in one file: alignment and uniformity (Wang & Isola 2020), trained with every strategy.

python examples/own_framework.py pretrain tiny --framework align-uniform --epochs 5 --out runs/own
python examples/own_framework.py report runs/own   # every command of logo-ssl knows the framework from here
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn

from logo_ssl.__main__ import main
from logo_ssl.frameworks import FRAMEWORKS, Framework
from logo_ssl.models import Encoder, mlp, pick
from logo_ssl.system.distributed import all_gather, local_slice
from logo_ssl.types import Crops, Latent, PerImage, Projections, Roles


@dataclass(frozen=True)
class AlignUniformConfig:
    """Settings of alignment and uniformity."""

    dim: int = 64
    """Width of the latents."""
    t: float = 2.0
    """How far images repel each other."""

    def build(self, backbone: nn.Module, n_features: int) -> "AlignUniform":
        """The framework on a backbone."""
        return AlignUniform(self, backbone, n_features)


class AlignUniform(Framework):
    """Two crops of an image lie close together, and images lie apart on the sphere."""

    def __init__(self, config: AlignUniformConfig, backbone: nn.Module, n_features: int) -> None:
        super().__init__()
        self.config = config
        self.encoder = Encoder(backbone, mlp([n_features, n_features, config.dim]))

    def similarity(self, q: Latent, t: Latent) -> PerImage:
        """l_s: the distance to the other crop, and the log of how close the other images are. Pure, per image."""
        q, t = F.normalize(q, dim=-1), F.normalize(t, dim=-1)
        everyone = all_gather(q)  # also of other processes, which hold the rest of the batch
        itself = local_slice(torch.eye(len(everyone), dtype=torch.bool, device=q.device))
        apart = torch.cdist(q, everyone).square().masked_fill(itself, torch.inf)
        return (q - t).square().sum(-1) + torch.logsumexp(-self.config.t * apart, dim=-1)

    def project(self, crops: Crops, roles: Roles) -> Projections:
        """The encoder asks and answers; there is no other state."""
        z_g, z_l = self.encoder.encode(crops.x_g, crops.x_l)
        return Projections(z_g, z_l, q_g=pick(z_g, roles.queries), q_l=z_l, t_g=pick(z_g, roles.targets))


FRAMEWORKS["align-uniform"] = AlignUniformConfig  # so that an option and recipe.json can name it

if __name__ == "__main__":
    main()
