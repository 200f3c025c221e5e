"""How is the minimum found? By L-BFGS: from the last steps and the diagonal of the curvature."""

import math
from collections import deque
from typing import NamedTuple, TypeAlias

import torch
from jaxtyping import Float
from torch import Tensor

from ..types import Scalar
from .line_search import line_search
from .objective import Problem, dot

REMEMBERED = 10
"""Steps; 5 and 20 took as many iterations along a path."""

PATIENCE = 10
"""Iterations that may pass while the objective falls by less than its own rounding."""


class Pair(NamedTuple):
    """A step, how it turned the gradient, and 1 / (step . turn), 0 where rounding left it no sense."""

    step: Float[Tensor, "K C"]
    turn: Float[Tensor, "K C"]
    rho: Scalar


History: TypeAlias = deque[Pair]


class Minimum(NamedTuple):
    """Where a search ended, how far from the minimum at most, as a share of theta, and after how long."""

    theta: Float[Tensor, "K C"]
    value: float
    error: float
    iterations: int


@torch.no_grad()
def minimise(problem: Problem, start: Float[Tensor, "K C"], tolerance: float, max_iterations: int) -> Minimum:
    """Go down until the error is within tolerance, rounding hides the way, or max_iterations are over."""
    point, history = problem.start(start), History(maxlen=REMEMBERED)
    rounding, values = torch.finfo(start.dtype).eps, deque([math.inf], maxlen=PATIENCE)
    iteration = 0
    while True:
        curvature = problem.curvature(point)
        error = problem.error(point, curvature)
        stalled = values[0] - point.value <= rounding * point.value
        if error <= tolerance or stalled or iteration == max_iterations:
            return Minimum(point.theta, point.value, error, iteration)
        iteration += 1
        direction = _direction(point.gradient, curvature, history)
        ray = problem.along(point, direction)
        trial = line_search(ray.trial, point.value, dot(point.gradient, direction).item(), 10 * rounding * point.value)
        if trial is None:
            if not history:
                return Minimum(point.theta, point.value, error, iteration)
            history.clear()  # spoilt by rounding; the curvature alone may still lead down
            continue
        before, point = point, ray.taken(trial)
        values.append(point.value)
        history.append(_pair(point.theta - before.theta, point.gradient - before.gradient))


def _pair(step: Float[Tensor, "K C"], turn: Float[Tensor, "K C"]) -> Pair:
    bend = dot(step, turn)
    return Pair(step, turn, torch.where(bend > 0, 1 / bend, 0.0))


def _direction(
    gradient: Float[Tensor, "K C"], curvature: Float[Tensor, "K C"], history: History
) -> Float[Tensor, "K C"]:
    """Nocedal's two loops, with the diagonal curvature, scaled to fit the last step, in their middle."""
    q, shares = gradient, []
    for step, turn, rho in reversed(history):
        shares.append(rho * dot(step, q))
        q = q - shares[-1] * turn
    q = q / curvature
    if history:
        scale = 1 / (history[-1].rho * dot(history[-1].turn, history[-1].turn / curvature))
        q = q * torch.where(scale.isfinite(), scale, 1.0)
    for (step, turn, rho), share in zip(history, reversed(shares), strict=True):
        q = q + (share - rho * dot(turn, q)) * step
    return -q
