"""The baseline: global crops of an image look alike."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from ..equations import global_to_global
from ..types import Objective, Projections, Similarity
from .base import PairWeights, Strategy


@dataclass(frozen=True)
class TwoViewConfig:
    """Settings of the baseline."""

    pairs: PairWeights = "mean"
    """`paper` asks one way only (MoCo's asymmetric loss), `mean` both ways (SimSiam, BYOL, SimCLR, a stronger MoCo)."""

    def build(self, n_global: int, n_local: int, dim: int) -> "TwoView":
        """The strategy for so many crops."""
        return TwoView(self.pairs, n_global, n_local)


class TwoView(Strategy):
    """min L_gg."""

    def outer(self, l_s: Similarity, p: Projections, randomness: Any, theta_e: Sequence[Tensor] = ()) -> Objective:
        """The framework's own loss."""
        l_gg = global_to_global(l_s, p.q_g, p.t_g, self.roles.pairs)  # Eq. 3
        return Objective(self.weight * l_gg, {"l_gg": l_gg / self.n_gg})
