"""What sits on top of a backbone? Projectors and predictors: small perceptrons with batch norm."""

from collections.abc import Sequence
from itertools import pairwise

from torch import nn

from .norm import BatchNorm


def mlp(widths: Sequence[int], *, norm: bool = True, last_norm: bool = False) -> nn.Sequential:
    """Linear layers of the given widths, (batch norm and) ReLU between them; `last_norm` ends in one without affine."""
    layers: list[nn.Module] = []
    for n_in, n_out in pairwise(widths[:-1]):
        layers.append(nn.Linear(n_in, n_out, bias=not norm))  # batch norm makes a bias superfluous
        if norm:
            layers.append(BatchNorm(n_out))
        layers.append(nn.ReLU())
    layers.append(nn.Linear(widths[-2], widths[-1], bias=not last_norm))
    if last_norm:
        layers.append(BatchNorm(widths[-1], affine=False))
    return nn.Sequential(*layers)
