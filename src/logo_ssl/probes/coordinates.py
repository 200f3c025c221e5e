"""In which coordinates is logistic regression easy? Those of the features' principal axes.

A rotation leaves scores and the L2 penalty as they are, so the minimum is the same; but along the axes the curvature is
nearly diagonal, and L-BFGS can divide by it. 45 weights took 2,198 iterations on breast_cancer, against 24,013 without,
when half of them did not converge; on 1,000 Pets under an untrained ResNet-18 202 against 307.
"""

from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from .linear import Linear


class Coordinates(NamedTuple):
    """Features along their principal axes, with what leads back; the bias is one more row of theta."""

    design: Float[Tensor, "N K"]
    squares: Float[Tensor, " K"]
    """The sum of each column's squares."""
    penalised: Float[Tensor, "K 1"]
    """1, and 0 for a bias that goes free."""
    axes: Float[Tensor, "D A"]
    centre: Float[Tensor, " F"] | None
    """What was subtracted; None where the bias is penalised as one more feature that is always 1."""

    def linear(self, theta: Float[Tensor, "K C"]) -> Linear:
        """The classifier of raw features; a free bias, which any constant may join, gets mean 0."""
        if self.centre is None:
            weight = self.axes @ theta
            return Linear(weight[:-1], weight[-1])
        weight = self.axes @ theta[:-1]
        bias = theta[-1] - self.centre @ weight
        return Linear(weight, bias - bias.mean())

    def theta(self, probe: Linear) -> Float[Tensor, "K C"]:
        """The coordinates of a classifier, without what is orthogonal to all features."""
        weight, bias = (part.to(self.axes) for part in probe)
        if self.centre is None:
            return self.axes.T @ torch.cat([weight, bias[None]])
        return torch.cat([self.axes.T @ weight, (bias + self.centre @ weight)[None]])


def principal(features: Float[Tensor, "N F"], penalise_bias: bool) -> Coordinates:
    """Rotate features to their principal axes, about their mean unless the bias is penalised."""
    one = features.new_ones(len(features), 1)
    centre = None if penalise_bias else features.mean(dim=0)
    rows = torch.cat([features, one], dim=1) if centre is None else features - centre
    # Fewer images than features span fewer axes: the triangle of a QR is as good as the rows, and smaller.
    span = torch.linalg.qr(rows.T).Q if len(rows) < rows.shape[1] else None
    inside = rows if span is None else rows @ span
    # In float64 whatever the features: axes that are orthogonal to 1e-6 only would bend the penalty as much.
    inside64 = inside.double()
    turn = torch.linalg.eigh(inside64.T @ inside64).eigenvectors.to(rows.dtype)
    design, axes = inside @ turn, turn if span is None else span @ turn
    penalised = features.new_ones(design.shape[1], 1)
    if centre is not None:
        design, penalised = torch.cat([design, one], dim=1), torch.cat([penalised, penalised.new_zeros(1, 1)])
    return Coordinates(design, design.square().sum(dim=0), penalised, axes, centre)
