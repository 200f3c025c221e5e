"""What may stand in place of L2L: strategies of our own trials, none of which is in the package.

python benchmarks/l2l_arms.py pretrain imagenette-moco-multicrop --strategy koleo --data imagenette128 --out runs/koleo
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any, ClassVar, Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from logo_ssl.__main__ import main
from logo_ssl.ranges import NotNegative
from logo_ssl.strategies import STRATEGIES, LoGo, LoGoConfig, MultiCrop, MultiCropConfig
from logo_ssl.types import Latents, Objective, Projections, Scalar, Similarity, StepRandomness

sys.path.append(str(Path(__file__).parents[1] / "examples"))
import overlap_l2l  # noqa: F401 (registers the strategy `overlap`)

FEATURES = 512  # of ResNet-18


@dataclass(frozen=True)
class KoLeoConfig(MultiCropConfig):
    """Settings of multi-crop with KoLeo, the spread of DINOv2."""

    on: Literal["local", "global", "all"] = "local"
    """Whose latents are spread."""
    weight: NotNegative = 0.1
    """What KoLeo is multiplied by."""

    def build(self, n_global: int, n_local: int, dim: int) -> "KoLeo":
        """The strategy for so many crops."""
        return KoLeo(self, n_global, n_local)


class KoLeo(MultiCrop):
    """min L_gg + L_lg - weight mean log min_j |z_i - z_j|: it stops by itself once another image is the nearest."""

    def __init__(self, config: KoLeoConfig, n_global: int, n_local: int) -> None:
        super().__init__(config.pairs, n_global, n_local)
        self.config = config

    def outer(self, l_s: Similarity, p: Projections, randomness: Any, theta_e: Sequence[Tensor] = ()) -> Objective:
        """The similarity terms, and KoLeo."""
        pulled = super().outer(l_s, p, randomness)
        spread = {"local": p.z_l, "global": p.z_g, "all": torch.cat([p.z_g, p.z_l])}[self.config.on]
        l_ll = koleo(spread)
        return Objective(pulled.loss + self.config.weight * l_ll, pulled.terms | {"l_ll": l_ll})


def koleo(z: Latents) -> Scalar:
    """-mean log distance to the nearest other unit latent of the batch."""
    z = F.normalize(z.flatten(0, 1), dim=-1)
    with torch.no_grad():
        nearest = (z @ z.T).fill_diagonal_(-2).argmax(dim=1)
    return -(z - z[nearest]).norm(dim=1).clamp_min(1e-4).log().mean()


@dataclass(frozen=True)
class MeasuredConfig(LoGoConfig):
    """Settings of LoGo that logs how far its push is against its pull."""

    def build(self, n_global: int, n_local: int, dim: int) -> "Measured":
        """The strategy for so many crops and latents of width `dim`."""
        return Measured(self, n_global, n_local, dim)


class Measured(LoGo):
    """LoGo, with the cosine of both gradients at z^l as the term `push_pull`: -1 says that L2L only weakens L_lg."""

    def outer(
        self, l_s: Similarity, p: Projections, randomness: StepRandomness, theta_e: Sequence[Tensor] = ()
    ) -> Objective:
        """LoGo's."""
        found = super().outer(l_s, p, randomness, theta_e)
        both, push = (
            torch.autograd.grad(loss, p.z_l, retain_graph=True)[0] for loss in (found.loss, found.terms["l_ll"])
        )
        pull = both - self.lam(p) * found.terms["ratio"] * push
        return found._replace(terms=found.terms | {"push_pull": F.cosine_similarity(pull, push, dim=-1).mean()})


@dataclass(frozen=True)
class FeatureConfig(LoGoConfig):
    """Settings of LoGo whose regressor and push act on the features before the projector."""

    uses_features: ClassVar[bool] = True

    def build(self, n_global: int, n_local: int, dim: int) -> "FeatureLoGo":
        """The strategy for so many crops."""
        return FeatureLoGo(self, n_global, n_local, FEATURES)


class FeatureLoGo(LoGo):
    """LoGo away from the latents that the pull needs: what the projector discards may tell local crops apart."""

    def local_latents(self, p: Projections) -> Latents:
        """Features of the local crops."""
        assert p.features_l is not None
        return p.features_l


@dataclass(frozen=True)
class GeometryConfig(MultiCropConfig):
    """Settings of multi-crop that predicts where one local crop is, seen from the other."""

    uses_features: ClassVar[bool] = True
    uses_parameters: ClassVar[bool] = True
    weight: NotNegative = 0.1
    """What the error of the prediction is multiplied by."""

    def build(self, n_global: int, n_local: int, dim: int) -> "Geometry":
        """The strategy for so many crops."""
        return Geometry(self, n_global, n_local)


class Geometry(MultiCrop):
    """min L_gg + L_lg + weight |g(h_i, h_j) - (dy, dx, log scale)|: local crops stay tellable without an adversary."""

    def __init__(self, config: GeometryConfig, n_global: int, n_local: int) -> None:
        super().__init__(config.pairs, n_global, n_local)
        self.config = config
        self.head = nn.Sequential(nn.Linear(2 * FEATURES, 512), nn.ReLU(), nn.Linear(512, 3))

    def outer(self, l_s: Similarity, p: Projections, randomness: Any, theta_e: Sequence[Tensor] = ()) -> Objective:
        """The similarity terms, and the error of the prediction."""
        assert p.features_l is not None
        assert p.parameters_l is not None
        pulled = super().outer(l_s, p, randomness)
        errors = [
            F.l1_loss(self.head(torch.cat([p.features_l[i], p.features_l[j]], dim=1)), offset(one, other))
            for (i, one), (j, other) in combinations(enumerate(p.parameters_l), 2)
        ]
        l_ll = torch.stack(errors).mean()
        return Objective(pulled.loss + self.config.weight * l_ll, pulled.terms | {"l_ll": l_ll})


def offset(one: Float[Tensor, "B 9"], other: Float[Tensor, "B 9"]) -> Float[Tensor, "B 3"]:
    """Where the other box is, seen from the one as it is shown: dy and dx in its sides, and the log of the scales."""
    there = (other[:, :2] - one[:, :2]) / one[:, 2:4]
    mirrored = 1 - 2 * one[:, 8]
    scale = (other[:, 2:4].prod(dim=1) / one[:, 2:4].prod(dim=1)).log() / 2
    return torch.stack([there[:, 0], there[:, 1] * mirrored, scale], dim=1).clamp(-4, 4)


STRATEGIES["koleo"] = KoLeoConfig
STRATEGIES["measured-logo"] = MeasuredConfig
STRATEGIES["feature-logo"] = FeatureConfig
STRATEGIES["geometry"] = GeometryConfig

if __name__ == "__main__":
    main()
