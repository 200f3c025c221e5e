"""LoGo, Algorithm 1: local crops look like the global crops, and unlike each other by a learned measure."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..equations import (
    draw_partners,
    global_to_global,
    gradient_ratio,
    local_to_global,
    local_to_local,
    omega,
    omega_logistic,
    other_image_pairs,
    same_image_pairs,
)
from ..ranges import Allowed, Count, NotNegative, Positive
from ..regressor import Regressor, cosine_affinity, frozen
from ..types import Affinity, Latents, Objective, Projections, Scalar, Similarity, StepRandomness
from .base import PairWeights, Strategy

AFFINITIES: dict[str, Affinity | None] = {"learned": None, "cosine": cosine_affinity}
"""Measures of how alike two latents are, to which others may add; None is the regressor."""
KNOWN = "learned, cosine or another name in AFFINITIES"


@dataclass(frozen=True)
class LoGoConfig:
    """Settings of LoGo."""

    least_local: ClassVar[int] = 2
    lam: NotNegative = 0.05
    """lambda: how strongly local crops of one image are pushed apart."""
    balance: Literal["latents", "parameters", "weight"] = "latents"
    """What lambda multiplies: the norm of the similarity gradient at z^l, or at theta_e (slower), or L_ll itself."""
    affinity: Annotated[str, Allowed(lambda name: name in AFFINITIES, KNOWN)] = "learned"
    """The similarity of local crops: learned; cosine, with which the paper saw a collapse; or one of your own."""
    bound: Literal["mean-difference", "logistic"] = "logistic"
    """Omega: Eq. 6 as written, which has no upper bound, or its logistic bound, as in the authors' code."""
    noise: NotNegative = 0.0
    """Norm of the Gaussian noise that the regressor's step adds to same-image latents (the authors' code: 0.3)."""
    depth: Count = 5
    """Blocks of the regressor."""
    width: Count = 256
    """Width of the regressor."""
    lr: Positive = 0.03
    """Learning rate of the regressor."""
    inner_optimiser: Literal["sgd", "adam"] = "sgd"
    """Its optimiser, at a constant rate."""
    inner_steps: Count = 1
    """Its steps for each step of the encoder."""
    pairs: PairWeights = "mean"
    """Weights of the pairs: the paper's 1 gg + 4 lg summed, symmetric 2 + 4 summed, or their mean."""

    def build(self, n_global: int, n_local: int, dim: int) -> "LoGo":
        """The strategy for so many crops and latents of width `dim`."""
        return LoGo(self, n_global, n_local, dim)


class LoGo(Strategy):
    """min over theta_e of L_gg + L_lg + lambda L_ll, subject to l_a = f_theta_d*, theta_d* = argmax Omega (Eq. 9)."""

    def __init__(self, config: LoGoConfig, n_global: int, n_local: int, dim: int) -> None:
        super().__init__(config.pairs, n_global, n_local)
        self.config, self.inner_lr, self.inner_steps = config, config.lr, config.inner_steps
        self.noise_shape = (n_local, dim)
        self.regressor = Regressor(dim, config.depth, config.width) if AFFINITIES[config.affinity] is None else None

    def draw(self, n_images: int, generator: torch.Generator) -> StepRandomness:
        """The partners of both steps, and noise where it is asked for."""
        n_local, dim = self.noise_shape
        noise = torch.randn(n_local, n_images, dim, generator=generator) if self.config.noise else None
        return StepRandomness(draw_partners(n_images, generator), draw_partners(n_images, generator), noise)

    def inner_optimiser(self, theta_d: list[nn.Parameter]) -> torch.optim.Optimizer:
        """SGD as in the paper, or Adam."""
        if self.config.inner_optimiser == "sgd":
            return super().inner_optimiser(theta_d)
        return torch.optim.Adam(theta_d, lr=self.inner_lr, capturable=theta_d[0].is_cuda)

    def inner(self, p: Projections, randomness: StepRandomness) -> Objective | None:
        """theta_d* = argmax Omega (Eq. 7): one step of telling same-image pairs from others."""
        if self.regressor is None:
            return None
        assert randomness.inner_partner is not None
        z_l = self.local_latents(p).detach()
        same = same_image_pairs(self._noisy(z_l, randomness.noise))
        other = other_image_pairs(z_l, randomness.inner_partner)
        if self.config.bound == "logistic":
            gap = omega_logistic(self.regressor.score, same, other)
        else:
            gap = omega(self.regressor, same, other)  # Eq. 6
        return Objective(-gap, {"omega": gap})  # Eq. 7

    def outer(
        self, l_s: Similarity, p: Projections, randomness: StepRandomness, theta_e: Sequence[Tensor] = ()
    ) -> Objective:
        """min L_gg + L_lg + lambda L_ll (Eq. 9), with the regressor as the inner step left it."""
        l_gg = global_to_global(l_s, p.q_g, p.t_g, self.roles.pairs)  # Eq. 3
        l_lg = local_to_global(l_s, p.q_l, p.t_g)  # Eq. 4
        l_ll = self.push(p, randomness)
        l_similar = self.weight * (l_gg + l_lg)
        balance = self.config.balance
        if balance == "parameters":
            ratio = gradient_ratio(l_similar, l_ll, theta_e, each_its_own=False)
        else:
            ratio = gradient_ratio(l_similar, l_ll, [self.local_latents(p)])
        scale = torch.ones_like(ratio) if balance == "weight" else ratio
        terms = {"l_gg": l_gg / self.n_gg, "l_lg": l_lg / self.n_lg, "l_ll": l_ll, "ratio": ratio}
        return Objective(l_similar + self.lam(p) * scale * l_ll, terms)  # Eq. 9

    def lam(self, p: Projections) -> float | Scalar:
        """lambda at this step; one that changes follows from the tensor `p.progress`."""
        return self.config.lam

    def push(self, p: Projections, randomness: StepRandomness) -> Scalar:
        """L_ll: how alike two local crops of an image are. Override it, or `affinity`, to push otherwise."""
        assert randomness.outer_partner is not None
        return local_to_local(self.affinity, self.local_latents(p), randomness.outer_partner)  # Eq. 5

    def local_latents(self, p: Projections) -> Latents:
        """What l_a compares and L_ll moves, where the gradients of pull and push are made lambda to 1."""
        return p.z_l

    @property
    def affinity(self) -> Affinity:
        """l_a, with the regressor as the inner step left it (Eq. 8)."""
        fixed = AFFINITIES[self.config.affinity]
        if fixed is not None:
            return fixed
        assert self.regressor is not None
        return frozen(self.regressor)

    def _noisy(self, z_l: Latents, noise: Latents | None) -> Latents:
        """Latents with noise of the configured norm, relative to their own."""
        if noise is None:
            return z_l
        return F.normalize(z_l, dim=-1) + noise.to(z_l.dtype) * (self.config.noise / z_l.shape[-1] ** 0.5)
