"""A strategy, a backbone and a recipe of your own, in one file.

python examples/own_parts.py pretrain mine --epochs 5 --out runs/mine   # every command of logo-ssl knows them from here
"""

from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import nn

from logo_ssl.__main__ import main
from logo_ssl.equations import global_to_global
from logo_ssl.models.backbones import FAMILIES, Stem
from logo_ssl.recipes import RECIPES
from logo_ssl.strategies import STRATEGIES, Strategy
from logo_ssl.types import Objective, Projections, Similarity, StepRandomness


@dataclass(frozen=True)
class ToMeanConfig:
    """Settings of to-mean."""

    least_local: ClassVar[int] = 1
    pull: float = 1.0
    """How hard local crops are pulled."""

    def build(self, n_global: int, n_local: int, dim: int) -> "ToMean":
        """The strategy for so many crops and latents of that width."""
        return ToMean(self.pull, n_global, n_local)


class ToMean(Strategy):
    """Global crops look alike, and a local crop like the mean of what its global crops answer."""

    def __init__(self, pull: float, n_global: int, n_local: int) -> None:
        super().__init__("mean", n_global, n_local)
        self.pull = pull

    def outer(self, l_s: Similarity, p: Projections, draws: StepRandomness, theta_e: tuple = ()) -> Objective:
        """Both terms; the log, the progress and the report show what is called l_..."""
        l_gg = global_to_global(l_s, p.q_g, p.t_g, self.roles.pairs) / self.n_gg
        mean = p.t_g.detach().mean(0)
        l_lm = torch.stack([l_s(q, mean).mean() for q in p.q_l]).mean()
        return Objective(l_gg + self.pull * l_lm, {"l_gg": l_gg, "l_lm": l_lm})


def patches(channels: int, stem: Stem) -> tuple[nn.Module, int]:
    """Patches of 4 px, mixed by two convolutions: a network that gives features [B F], and how many, F."""
    layers = [nn.Conv2d(channels, 64, 4, 4), nn.GELU(), nn.Conv2d(64, 128, 3, 2, 1), nn.BatchNorm2d(128), nn.GELU()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten()), 128


STRATEGIES["to-mean"], FAMILIES["patches"] = ToMeanConfig, patches  # so that options and recipe.json can name them
RECIPES["mine"] = replace(RECIPES["tiny"], name="mine", backbone="patches", strategy=ToMeanConfig(pull=2.0), paper=())

if __name__ == "__main__":
    main()
