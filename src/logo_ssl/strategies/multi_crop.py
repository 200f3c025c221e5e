"""The ablation "w/o L2L": local crops look like the global crops, and nothing tells them apart."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor

from ..equations import global_to_global, local_to_global
from ..types import Objective, Projections, Similarity
from .base import PairWeights, Strategy


@dataclass(frozen=True)
class MultiCropConfig:
    """Settings of multi-crop."""

    least_local: ClassVar[int] = 1
    pairs: PairWeights = "mean"
    """Weights of the pairs: the paper's 1 gg + 4 lg summed, symmetric 2 + 4 summed, or their mean."""

    def build(self, n_global: int, n_local: int, dim: int) -> "MultiCrop":
        """The strategy for so many crops."""
        return MultiCrop(self.pairs, n_global, n_local)


class MultiCrop(Strategy):
    """min L_gg + L_lg."""

    def outer(self, l_s: Similarity, p: Projections, randomness: Any, theta_e: Sequence[Tensor] = ()) -> Objective:
        """Both similarity terms."""
        l_gg = global_to_global(l_s, p.q_g, p.t_g, self.roles.pairs)  # Eq. 3
        l_lg = local_to_global(l_s, p.q_l, p.t_g)  # Eq. 4
        return Objective(self.weight * (l_gg + l_lg), {"l_gg": l_gg / self.n_gg, "l_lg": l_lg / self.n_lg})
