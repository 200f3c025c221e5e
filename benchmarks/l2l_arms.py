"""What may stand in place of L2L: strategies of our own trials, none of which is in the package.

python benchmarks/l2l_arms.py pretrain imagenette-moco-multicrop --strategy region --data imagenette128
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
from torchvision.ops import roi_align

from logo_ssl.__main__ import main
from logo_ssl.models import pick
from logo_ssl.ranges import NotNegative, Positive
from logo_ssl.strategies import STRATEGIES, LoGo, LoGoConfig, MultiCrop, MultiCropConfig
from logo_ssl.types import Latents, Objective, Projections, Scalar, Similarity, StepRandomness

sys.path.append(str(Path(__file__).parents[1] / "examples"))
import overlap_l2l  # noqa: F401 (registers the strategy `overlap`)

FEATURES = 512  # of ResNet-18
CHANNELS = {"layer3": 256, "layer4": 512}  # of its maps


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


@dataclass(frozen=True)
class RegionConfig(MultiCropConfig):
    """Settings of multi-crop that finds each local crop's region in the global crops."""

    uses_parameters: ClassVar[bool] = True
    uses_feature_maps: Literal["layer3", "layer4"] = "layer3"
    """Whose maps are compared. At 128 px layer3 has 8 x 8 cells, layer4 4 x 4, and half the boxes are below 2.3 cells
    wide there: the own box of two was the more alike in 62 % and 53 % of 556 cases (untrained, Imagenette)."""
    weight: NotNegative = 0.1
    """What the contrast is multiplied by."""
    tau: Positive = 0.2
    """Its temperature."""
    least_seen: float = 0.5
    """The share of a local crop that a global crop must show."""

    def build(self, n_global: int, n_local: int, dim: int) -> "Region":
        """The strategy for so many crops."""
        return Region(self, n_global, n_local)


class Region(MultiCrop):
    """min L_gg + L_lg + weight InfoNCE: a local crop is like its own box of a global crop, unlike its siblings'."""

    def __init__(self, config: RegionConfig, n_global: int, n_local: int) -> None:
        super().__init__(config.pairs, n_global, n_local)
        self.config = config
        self.head = nn.Sequential(nn.Linear(CHANNELS[config.uses_feature_maps], 512), nn.ReLU(), nn.Linear(512, 128))

    def outer(self, l_s: Similarity, p: Projections, randomness: Any, theta_e: Sequence[Tensor] = ()) -> Objective:
        """The similarity terms, and the contrast in each global crop."""
        assert p.maps_g is not None
        assert p.maps_l is not None
        assert p.parameters_g is not None
        assert p.parameters_l is not None
        pulled = super().outer(l_s, p, randomness)
        z_l, losses = self.head(p.maps_l.mean(dim=(3, 4))), []
        shown = pick(p.parameters_g, self.roles.queries) if len(p.maps_g) < len(p.parameters_g) else p.parameters_g
        for maps, window in zip(p.maps_g, shown, strict=True):
            boxes, share = boxes_within(window, p.parameters_l)
            losses.append(region_contrast(z_l, self.head(regions(maps, boxes)), share, self.config))
        l_ll = torch.stack(losses).mean()
        return Objective(pulled.loss + self.config.weight * l_ll, pulled.terms | {"l_ll": l_ll})


def boxes_within(
    window: Float[Tensor, "B 9"], local: Float[Tensor, "L B 9"]
) -> tuple[Float[Tensor, "L B 4"], Float[Tensor, "L B"]]:
    """Left, top, right, bottom of local boxes in a global crop as it is shown, in its sides; the share inside it."""
    low = (local[..., :2] - local[..., 2:4] / 2 - window[:, :2]) / window[:, 2:4] + 0.5
    high = low + local[..., 2:4] / window[:, 2:4]
    (top, left), (bottom, right) = (corner.clamp(0, 1).unbind(dim=-1) for corner in (low, high))
    share = (bottom - top) * (right - left) / (high - low).prod(dim=-1)
    mirrored = window[:, 8] > 0.5
    left, right = torch.where(mirrored, 1 - right, left), torch.where(mirrored, 1 - left, right)
    return torch.stack([left, top, right, bottom], dim=-1), share


def regions(maps: Float[Tensor, "B C w w"], boxes: Float[Tensor, "L B 4"]) -> Float[Tensor, "L B C"]:
    """The mean of a map over each box."""
    image = torch.arange(len(maps), device=maps.device).to(boxes).expand(len(boxes), -1)
    rois = torch.cat([image[..., None], boxes], dim=-1).flatten(0, 1)
    return roi_align(maps, rois, 1, spatial_scale=float(maps.shape[-1]), aligned=True).view(*boxes.shape[:2], -1)


def region_contrast(
    z_l: Float[Tensor, "L B D"], z_r: Float[Tensor, "L B D"], share: Float[Tensor, "L B"], config: RegionConfig
) -> Scalar:
    """InfoNCE of each local crop over the regions of its siblings and itself; what is seen too little has weight 0."""
    seen = share >= config.least_seen
    own = torch.eye(len(z_l), dtype=torch.bool, device=z_l.device)
    cosines = torch.einsum("ibd,jbd->bij", F.normalize(z_l, dim=-1), F.normalize(z_r, dim=-1))
    logits = (cosines / config.tau).masked_fill(~(seen.T[:, None] | own), -torch.inf)
    nll = -logits.log_softmax(dim=2).diagonal(dim1=1, dim2=2)
    return (nll * seen.T).mean()


STRATEGIES["measured-logo"] = MeasuredConfig
STRATEGIES["feature-logo"] = FeatureConfig
STRATEGIES["geometry"] = GeometryConfig
STRATEGIES["region"] = RegionConfig

if __name__ == "__main__":
    main()
