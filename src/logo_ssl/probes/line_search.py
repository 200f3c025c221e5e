"""How far to go along a direction? The strong Wolfe conditions, for a convex function of the step length."""

import math
from collections.abc import Callable
from typing import NamedTuple

from jaxtyping import Float
from torch import Tensor

TRIALS = 30
DECREASE, CURVATURE = 1e-4, 0.5
"""Nocedal and Wright's c1 and c2; they advise 0.9 for c2, but here a trial costs far less than an iteration."""


class Trial(NamedTuple):
    """What a step length leads to."""

    length: float
    value: float
    slope: float
    residuals: Float[Tensor, "N C"]


def line_search(at: Callable[[float], Trial], value: float, slope: float, slack: float) -> Trial | None:
    """A step that satisfies both conditions, the first up to a rounding error of slack; None if no trial does."""
    low, low_slope, high, high_slope = 0.0, slope, math.inf, math.nan
    length = 1.0
    for _ in range(TRIALS):
        trial = at(length)
        lower = trial.value <= value + DECREASE * length * slope + slack
        if lower and abs(trial.slope) <= CURVATURE * abs(slope):
            return trial
        if lower and trial.slope < 0:
            low, low_slope = length, trial.slope
        else:  # also where it overflowed and nothing compares
            high, high_slope = length, trial.slope
        length = 4 * length if high == math.inf else _between(low, low_slope, high, high_slope)
    return None


def _between(low: float, low_slope: float, high: float, high_slope: float) -> float:
    """Where a parabola would have its minimum, kept away from both ends; the middle if the slopes do not say."""
    share = low_slope / (low_slope - high_slope) if 0 < high_slope < math.inf else 0.5
    return low + min(max(share, 0.1), 0.9) * (high - low)
