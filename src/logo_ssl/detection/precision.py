"""How is a detector's average precision told? In percent, over all classes, by class and by size."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float32, Int64

from .masks import RunLengths

THRESHOLDS = tuple(percent / 100 for percent in range(50, 100, 5))
"""Overlaps from which a detection counts; AP is the mean over them."""


class Detected(NamedTuple):
    """What a detector found in a picture."""

    boxes: Float32[np.ndarray, "n 4"]
    scores: Float32[np.ndarray, " n"]
    labels: Int64[np.ndarray, " n"]
    masks: tuple[RunLengths, ...] = ()


class AveragePrecision(NamedTuple):
    """Percent; None where there is nothing to find."""

    overall: dict[str, float | None]
    """AP, AP50, AP75, and by size where the metric knows sizes."""
    per_class: dict[str, float | None]
    """AP of each class."""


def summary(table: np.ndarray, classes: tuple[str, ...]) -> AveragePrecision:
    """AP, AP50 and AP75 of a table [thresholds x classes] of shares, negative where a class has no objects."""
    rows = {"AP": slice(None), "AP50": THRESHOLDS.index(0.5), "AP75": THRESHOLDS.index(0.75)}
    overall = {name: mean(table[row]) for name, row in rows.items()}
    return AveragePrecision(overall, {name: mean(table[:, k]) for k, name in enumerate(classes)})


def mean(shares: np.ndarray) -> float | None:
    """The mean in percent of those that are known."""
    known = shares[shares > -1]
    return round(100 * float(known.mean()), 4) if known.size else None
