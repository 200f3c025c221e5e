"""LoGo that pushes local crops of an image apart by how little they share, and pulls those together that share most.

python examples/overlap_l2l.py pretrain tiny --strategy overlap --epochs 5 --out runs/overlap
"""

from dataclasses import dataclass
from itertools import combinations
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from logo_ssl.__main__ import main
from logo_ssl.equations import local_affinities
from logo_ssl.strategies import STRATEGIES, LoGo, LoGoConfig
from logo_ssl.types import Projections, Scalar, StepRandomness


@dataclass(frozen=True)
class OverlapConfig(LoGoConfig):
    """Settings of LoGo with a push by overlap."""

    uses_parameters: ClassVar[bool] = True  # so that p.parameters_l is there: the boxes of the local crops
    neutral: float = 0.5
    """The share of the smaller crop above which two crops are pulled together."""

    def build(self, n_global: int, n_local: int, dim: int) -> "Overlap":
        """The strategy for so many crops and latents of that width."""
        return Overlap(self, n_global, n_local, dim)


class Overlap(LoGo):
    """The mean over pairs of (1 - o / neutral) f(z_i, z_j), where o is the share of the smaller box in the other."""

    config: OverlapConfig

    def push(self, p: Projections, randomness: StepRandomness) -> Scalar:
        """L_ll, each pair with its weight."""
        assert p.parameters_l is not None
        assert randomness.outer_partner is not None
        pairs = combinations(p.parameters_l, 2)  # in the order of local_affinities
        weight = torch.stack([1 - overlap(one, other) / self.config.neutral for one, other in pairs])
        return (weight * local_affinities(self.affinity, p.z_l, randomness.outer_partner)).mean()


def overlap(one: Float[Tensor, "B 9"], other: Float[Tensor, "B 9"]) -> Float[Tensor, " B"]:
    """The area that two boxes of each image share, over that of the smaller one."""
    low = torch.maximum(one[:, :2] - one[:, 2:4] / 2, other[:, :2] - other[:, 2:4] / 2)  # top left corners
    high = torch.minimum(one[:, :2] + one[:, 2:4] / 2, other[:, :2] + other[:, 2:4] / 2)
    shared = (high - low).clamp_min(0).prod(dim=1)
    return shared / torch.minimum(one[:, 2:4].prod(dim=1), other[:, 2:4].prod(dim=1))


STRATEGIES["overlap"] = OverlapConfig

if __name__ == "__main__":
    main()
