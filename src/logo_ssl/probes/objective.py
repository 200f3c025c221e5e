"""What does logistic regression minimise? The summed cross-entropy + w |theta|^2, and what a search must know of it."""

import math
from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from ..types import Scalar
from .coordinates import Coordinates
from .line_search import Trial


class Point(NamedTuple):
    """A place in the search."""

    theta: Float[Tensor, "K C"]
    scores: Float[Tensor, "N C"]
    residuals: Float[Tensor, "N C"]
    """The gradient by the scores."""
    gradient: Float[Tensor, "K C"]
    value: float


@dataclass(frozen=True)
class Problem:
    """One logistic regression."""

    coordinates: Coordinates
    labels: Int[Tensor, " N"]
    w: float

    def start(self, theta: Float[Tensor, "K C"]) -> Point:
        """The place of given parameters."""
        scores = self.coordinates.design @ theta
        loss, residuals = cross_entropy(scores, self.labels)
        value = loss.sum(dtype=torch.float64) + dot(self._pull * theta, theta) / 2
        return self.at(theta, scores, residuals, value.item())

    def along(self, point: Point, direction: Float[Tensor, "K C"]) -> "Ray":
        """What lies in a direction."""
        pulled = self._pull * direction
        terms = [dot(self._pull * point.theta, point.theta), dot(pulled, point.theta), dot(pulled, direction)]
        constant, linear, square = torch.stack(terms).tolist()
        penalty = (constant / 2, linear, square / 2)
        return Ray(self, point, direction, self.coordinates.design @ direction, penalty)

    def at(
        self, theta: Float[Tensor, "K C"], scores: Float[Tensor, "N C"], residuals: Float[Tensor, "N C"], value: float
    ) -> Point:
        """The place of parameters of which all but the gradient is known."""
        return Point(theta, scores, residuals, self.coordinates.design.T @ residuals + self._pull * theta, value)

    def curvature(self, point: Point) -> Float[Tensor, "K C"]:
        """The Hessian's diagonal, as if images were uncertain of a class independently of where they lie."""
        uncertain = point.residuals.abs()
        spread = (uncertain * (1 - uncertain)).mean(dim=0)  # p (1 - p), for the image's own class too
        diagonal = self.coordinates.squares[:, None] * spread + self._pull
        return diagonal.clamp_min(torch.finfo(diagonal.dtype).tiny)

    def error(self, point: Point, curvature: Float[Tensor, "K C"]) -> float:
        """|gradient| / |2 w theta|: strong convexity lets the minimum's theta differ by no larger a share."""
        # A free bias has no penalty: there the curvature stands in.
        firmness = torch.where(self.coordinates.penalised > 0, self._pull, curvature)
        squared = (point.gradient.double().square() / firmness).sum()
        penalty = dot(self._pull * point.theta, point.theta)
        return (squared / penalty.clamp_min(torch.finfo(torch.float64).tiny)).sqrt().item()

    @property
    def _pull(self) -> Float[Tensor, "K 1"]:
        return 2 * self.w * self.coordinates.penalised


class Ray(NamedTuple):
    """The objective as a function of the step length in one direction."""

    problem: Problem
    origin: Point
    direction: Float[Tensor, "K C"]
    change: Float[Tensor, "N C"]
    """Of the scores, per step length: a trial needs no further product of matrices."""
    penalty: tuple[float, float, float]
    """Its coefficients as a parabola."""

    def trial(self, length: float) -> Trial:
        """Value and slope there."""
        loss, residuals = cross_entropy(self.origin.scores + length * self.change, self.problem.labels)
        value, slope = torch.stack([loss.sum(dtype=torch.float64), dot(residuals, self.change)]).tolist()
        constant, linear, square = self.penalty
        value += constant + length * linear + length**2 * square
        return Trial(length, value, slope + linear + 2 * length * square, residuals)

    def taken(self, trial: Trial) -> Point:
        """The place where a trial leads."""
        theta = self.origin.theta + trial.length * self.direction
        scores = self.origin.scores + trial.length * self.change
        return self.problem.at(theta, scores, trial.residuals, trial.value)


def cross_entropy(
    scores: Float[Tensor, "N C"], labels: Int[Tensor, " N"]
) -> tuple[Float[Tensor, " N"], Float[Tensor, "N C"]]:
    """Each image's loss, and its gradient by the scores, with all their digits also where both are tiny."""
    own = labels[:, None]
    margin = scores - scores.gather(1, own)
    top = margin.amax(dim=1, keepdim=True)  # 0 where the class is right
    # Not below the root of the smallest number: exp takes a CPU 10 times as long where it ends in denormal numbers.
    floor = math.log(torch.finfo(scores.dtype).tiny) / 2
    odds = torch.exp((margin - top).clamp_min(floor))
    # The other classes' odds, never 1 - p: near p = 1, where weak penalties lead, that difference has no digits left.
    other = odds.scatter(1, own, 0).sum(dim=1, keepdim=True)
    total = other + odds.gather(1, own)
    loss = torch.where(top > 0, top + torch.log(total), torch.log1p(other))
    return loss[:, 0], (odds / total).scatter_(1, own, -other / total)


def dot(a: Tensor, b: Tensor) -> Scalar:
    """The inner product, summed in float64: near the minimum large terms of both signs cancel."""
    return (a * b).sum(dtype=torch.float64)
