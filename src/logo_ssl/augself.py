"""What was done to a crop? AugSelf (Lee et al. 2021): predict how the augmentations of two crops differ.

An auxiliary objective on backbone features, beside any framework and strategy: features that can tell keep what
invariance would throw away.
"""

from dataclasses import dataclass
from itertools import combinations

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from .models import mlp
from .ranges import Count, NotNegative
from .types import Objective

KINDS = {"crop": slice(0, 4), "colour": slice(4, 8)}
"""Which columns of the parameters belong to which kind (`augment.describe`)."""


@dataclass(frozen=True)
class AugSelfConfig:
    """Settings of AugSelf; all weights 0 switch it off."""

    crop: NotNegative = 0.0
    """Weight of predicting place and size of the box (the authors' code: 0.5 on ImageNet-100)."""
    colour: NotNegative = 0.0
    """Weight of predicting the colour jitter (the authors' code: 0.5 on ImageNet-100)."""
    hidden: Count = 512
    """Hidden width of the two predictors."""

    @property
    def weights(self) -> dict[str, float]:
        """The kinds that count."""
        return {kind: weight for kind in KINDS if (weight := getattr(self, kind)) > 0}


class AugSelf(nn.Module):
    """A small network for each kind of parameter, on the features of two crops side by side."""

    def __init__(self, config: AugSelfConfig, n_features: int) -> None:
        super().__init__()
        self.weights = config.weights
        self.predictors = nn.ModuleDict(
            {kind: mlp([2 * n_features, config.hidden, config.hidden, 4]) for kind in config.weights}
        )

    def forward(self, features: Float[Tensor, "G B F"], parameters: Float[Tensor, "G B 9"]) -> Objective:
        """The weighted mean square error of the predicted differences, over every two crops in both orders."""
        pairs = [pair for i, j in combinations(range(len(features)), 2) for pair in ((i, j), (j, i))]
        both = torch.cat([torch.cat([features[i], features[j]], dim=1) for i, j in pairs])
        change = torch.cat([difference(parameters[i], parameters[j]) for i, j in pairs])
        terms = {
            f"augself_{kind}": F.mse_loss(torch.tanh(self.predictors[kind](both)), change[:, KINDS[kind]])
            for kind in self.weights
        }
        loss = sum(weight * terms[f"augself_{kind}"] for kind, weight in self.weights.items())
        return Objective(torch.as_tensor(loss), terms)


def difference(one: Float[Tensor, "B 9"], other: Float[Tensor, "B 9"]) -> Float[Tensor, "B 8"]:
    """How the parameters of one crop differ from another's; left and right are as the first crop shows them."""
    change = one[:, :8] - other[:, :8]
    mirrored = torch.where(one[:, 8] > 0, -1.0, 1.0)
    return torch.cat([change[:, :1], change[:, 1:2] * mirrored[:, None], change[:, 2:]], dim=1)
