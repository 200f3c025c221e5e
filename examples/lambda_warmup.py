"""LoGo whose lambda rises over the first part of training, also in a recorded step on a GPU.

python examples/lambda_warmup.py pretrain tiny --strategy warm-logo --strategy.warmup 0.3 --out runs/warm
"""

from dataclasses import dataclass

from logo_ssl.__main__ import main
from logo_ssl.ranges import Share
from logo_ssl.strategies import STRATEGIES, LoGo, LoGoConfig
from logo_ssl.types import Projections, Scalar


@dataclass(frozen=True)
class WarmConfig(LoGoConfig):
    """Settings of LoGo with a warm-up of lambda."""

    warmup: Share = 0.1
    """Share of training over which lambda rises from 0."""

    def build(self, n_global: int, n_local: int, dim: int) -> "Warm":
        """The strategy for so many crops and latents of that width."""
        return Warm(self, n_global, n_local, dim)


class Warm(LoGo):
    """lambda(t) = lambda min(1, t / warmup), from a tensor: a number counted in Python would freeze in the graph."""

    config: WarmConfig

    def lam(self, p: Projections) -> Scalar:
        """lambda at this step."""
        assert p.progress is not None
        return self.config.lam * (p.progress / max(self.config.warmup, 1e-9)).clamp(max=1)


STRATEGIES["warm-logo"] = WarmConfig

if __name__ == "__main__":
    main()
