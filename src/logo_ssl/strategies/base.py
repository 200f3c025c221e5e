"""The base class of strategies, and what their configs answer."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from itertools import permutations
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn

from ..regressor import Regressor
from ..types import Objective, Projections, Roles, Similarity, StepRandomness

PAPER_MOMENTUM, PAPER_WEIGHT_DECAY = 0.9, 1e-4  # 4.1, "Optimization"
PairWeights = Literal["paper", "symmetric", "mean"]
"""paper: each global pair once, sums (1 gg + 4 lg). symmetric: both ways, sums (2 + 4). mean: both ways, averaged."""


class StrategyTraits(NamedTuple):
    """What others ask of a strategy's config.

    It answers by a field, a property or a `ClassVar` of the same name; where it has none, the default here holds.
    """

    least_local: int = 0
    """The fewest local crops that it can do with; 0 has no use for any."""
    pairs: PairWeights = "mean"
    """Weights of the pairs."""
    uses_features: bool = False
    """Whether `outer` wants the features before the projector: `p.features_g`, `p.features_l`."""
    uses_parameters: bool = False
    """Whether it wants boxes, colours and flips of the crops in their images: `p.parameters_g`, `p.parameters_l`."""
    uses_feature_maps: str = ""
    """The layer of the backbone, such as layer3 of a ResNet, whose feature maps it wants: `p.maps_g`, `p.maps_l`."""

    @classmethod
    def of(cls, config: object) -> "StrategyTraits":
        """What a config says of itself."""
        return cls(**{name: getattr(config, name) for name in cls._fields if hasattr(config, name)})


def assign_roles(pairs: PairWeights, n_global: int, n_local: int) -> Roles:
    """Who asks whom among the global crops. What nobody asks is not encoded, and what nobody is asked neither."""
    asked = [(i, j) for i, j in permutations(range(n_global), 2) if pairs != "paper" or i < j]
    asked = asked or [(0, 0)]  # a single crop has only itself, or the label that answers for it
    queries = sorted({i for i, _ in asked})
    targets = sorted({j for _, j in asked}) if n_local == 0 else list(range(n_global))
    return Roles(tuple(queries), tuple(targets), tuple((queries.index(i), targets.index(j)) for i, j in asked))


def own_roles(n_global: int) -> Roles:
    """Every global crop asks about itself: where a frozen teacher answers, nothing can collapse."""
    every = tuple(range(n_global))
    return Roles(every, every, tuple(zip(every, every, strict=True)))


class Strategy(nn.Module, ABC):
    """The bi-level problem, spelt out: `inner` is the argmax over theta_d, `outer` the min over theta_e.

    A strategy sees a similarity function and tensors, never a network. The terms it logs are means over pairs, whatever
    the weights, so that they compare between strategies.
    """

    inner_lr: float = 0.0
    """Learning rate of theta_d."""
    inner_steps: int = 1
    """Steps of theta_d for each step of theta_e."""

    def __init__(self, pairs: PairWeights, n_global: int, n_local: int) -> None:
        super().__init__()
        self.regressor: Regressor | None = None
        """f_theta_d, where it is learned."""
        self.averages, self.n_local = pairs == "mean", n_local
        self.assign(assign_roles(pairs, n_global, n_local))

    def assign(self, roles: Roles) -> None:
        """Who asks whom, and so how many pairs there are and what each of them weighs."""
        self.roles = roles
        self.n_gg, self.n_lg = len(roles.pairs), self.n_local * len(roles.targets)
        self.weight = 1 / (self.n_gg + self.n_lg) if self.averages else 1.0

    @property
    def kept(self) -> tuple[str, ...]:
        """What a run keeps beside the backbone, by name: all that it has."""
        return tuple(dict.fromkeys(name.split(".")[0] for name in self.state_dict()))

    def draw(self, n_images: int, generator: torch.Generator) -> Any:
        """What is left to chance in a step, drawn beforehand on the CPU: a NamedTuple of tensors.

        Whole numbers are places in the batch of all processes; others belong to images, along their second dimension,
        and each process gets its own.
        """
        return StepRandomness()

    def inner_parameters(self) -> list[nn.Parameter]:
        """theta_d, which learns by `inner`; all other parameters learn by `outer`, with the encoder's optimiser."""
        return [] if self.regressor is None else list(self.regressor.parameters())

    def inner_optimiser(self, theta_d: list[nn.Parameter]) -> torch.optim.Optimizer:
        """Plain SGD at a constant rate, with the paper's momentum and decay: theta_d must keep up with the encoder."""
        return torch.optim.SGD(
            theta_d,
            lr=self.inner_lr,
            momentum=PAPER_MOMENTUM,
            weight_decay=PAPER_WEIGHT_DECAY,
            fused=theta_d[0].is_cuda or None,
        )

    def inner(self, p: Projections, randomness: Any) -> Objective | None:
        """The objective of theta_d, if there is anything to learn; `p` has no gradients here."""
        return None

    @abstractmethod
    def outer(self, l_s: Similarity, p: Projections, randomness: Any, theta_e: Sequence[Tensor] = ()) -> Objective:
        """The objective of theta_e, the encoder's parameters. On a GPU its Python runs at the first calls alone."""

    def after_step(self, p: Projections, progress: float) -> None:
        """Move state of the strategy's own, in plain Python at every step; `progress` runs from 0 to 1."""
