"""Multi-crop whose latents are spread by KoLeo: what stood best in place of L2L (docs/results/l2l.md)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from ..ranges import NotNegative
from ..system.distributed import all_gather, local_slice
from ..types import Latents, Objective, Projections, Scalar, Similarity
from .multi_crop import MultiCrop, MultiCropConfig


@dataclass(frozen=True)
class KoLeoConfig(MultiCropConfig):
    """Settings of multi-crop with KoLeo."""

    on: Literal["local", "global", "all"] = "local"
    """Whose latents are spread."""
    weight: NotNegative = 0.1
    """What KoLeo is multiplied by."""

    def build(self, n_global: int, n_local: int, dim: int) -> "KoLeo":
        """The strategy for so many crops."""
        return KoLeo(self, n_global, n_local)


class KoLeo(MultiCrop):
    """min L_gg + L_lg + weight KoLeo. A local crop leaves its sibling until another image's crop is nearer."""

    def __init__(self, config: KoLeoConfig, n_global: int, n_local: int) -> None:
        super().__init__(config.pairs, n_global, n_local)
        self.config = config

    def outer(self, l_s: Similarity, p: Projections, randomness: Any, theta_e: Sequence[Tensor] = ()) -> Objective:
        """The similarity terms, and KoLeo."""
        pulled = super().outer(l_s, p, randomness)
        z = {"local": p.z_l, "global": p.z_g, "all": torch.cat([p.z_g, p.z_l])}[self.config.on]
        l_ll = koleo(z)
        return Objective(pulled.loss + self.config.weight * l_ll, pulled.terms | {"l_ll": l_ll})


def koleo(z: Latents) -> Scalar:
    """-mean log distance to the nearest other unit latent, whichever process holds it (Sablayrolles et al. 2019)."""
    z = F.normalize(z, dim=-1)  # [V B D]
    everyone = all_gather(z, dim=1).flatten(0, 1)
    places = torch.arange(len(everyone), device=z.device).view(len(z), -1)
    own, z = local_slice(places, 1).reshape(-1, 1), z.flatten(0, 1)
    with torch.no_grad():
        nearest = (z @ everyone.T).scatter(1, own, -2).argmax(dim=1)
    return -(z - everyone[nearest]).norm(dim=1).clamp_min(1e-4).log().mean()
