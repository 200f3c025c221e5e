"""How are numbers written? Percent with two digits, shares with three, always the same."""

import math
from typing import Any

from ..run import is_number
from ..sampling import standard_error

PERCENTS = ("top1", "top-1", "top5", "top-5", "value", "knn", "linear", "validation")
"""Names of results that are percentages; so are AP, AP50 and the like."""


def percent(value: Any) -> str:
    """Two digits after the point, as the paper has them; nothing for what is no number."""
    return f"{value:.2f}" if is_number(value) else ""


def percent_on(value: Any, n_images: Any) -> str:
    """The share of so many test images that was right, with its standard error."""
    told = f"{percent(value)} %{on(n_images, 'image')}"
    known = percent(value) and math.isfinite(value) and isinstance(n_images, int) and n_images > 0
    return f"{told} (standard error {standard_error(value, n_images):.2f})" if known else told


def on(n: Any, what: str) -> str:
    """How many were looked at, where that is known."""
    return f" on {n:,} {what}{'s' * (n != 1)}" if isinstance(n, int) else ""


def result(name: str, value: Any) -> str:
    """A value of an evaluation, by what it is called."""
    if isinstance(value, int | float) and (name in PERCENTS or name.startswith("AP")):
        return percent(value)
    if name == "chance" and isinstance(value, float):
        return f"{value:.3f}"
    return words(value)


def words(value: Any) -> str:
    """Any value as text; a mean with its interval as shares."""
    match value:
        case {"mean": float(mean), "low": float(low), "high": float(high)}:
            return f"{mean:.3f} [{low:.3f}, {high:.3f}]"
        case dict():
            return "; ".join(f"{key}: {words(inner)}" for key, inner in value.items())
        case list() | tuple():
            return " ".join(map(words, value))
        case None:
            return "none"
        case _:
            return str(value)


def short(value: float) -> str:
    """Four digits that count: for what has no custom of its own."""
    return f"{value:,.0f}" if 1e4 <= abs(value) < 1e9 else f"{value:.4g}"
