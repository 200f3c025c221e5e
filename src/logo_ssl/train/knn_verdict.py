"""Has training helped? The last kNN beside the untrained encoder's, and whether they differ by more than chance."""

import math
from collections.abc import Iterable, Mapping
from typing import Any

from ..run import is_number
from ..sampling import standard_error
from ..text import counted
from .monitors import knn_loss

BEYOND = 2  # standard errors of a difference between independent draws, which is cautious: both are of the same images
ADVICE = "More epochs may help, or more images (docs/how-to/hardware-and-data-size.md)."


def knn_verdict(lines: Iterable[Mapping[str, Any]]) -> str | None:
    """A sentence about what was logged; none where nothing was measured on the same images before and after."""
    measured = [line for line in lines if _is_measured(line)]
    if not measured or measured[0]["epochs_done"] != 0 or measured[-1]["epochs_done"] == 0:
        return None
    first, last = measured[0], measured[-1]
    if first.get("knn_of") != last.get("knn_of"):
        return None
    before, after, n = first["knn"], last["knn"], last.get("knn_images")
    both = f"kNN {after:.1f} % (epoch {last['epochs_done']}), untrained {before:.1f} %"
    if not isinstance(n, int) or n < 1:
        return f"{both}: on how many images is not known, nor whether this is chance."
    error = math.hypot(standard_error(before, n), standard_error(after, n))
    told = f"{both}, on {counted(n, 'image')} (standard error of the difference {error:.1f})"
    if after - before > BEYOND * error:
        return f"{told}: training has helped, by more than chance."
    if before - after > BEYOND * error:
        alarmed = knn_loss(before, after, n)  # which came with a cure
        return f"{told}: training has made it worse, by more than chance.{'' if alarmed else f' {ADVICE}'}"
    return f"{told}: no difference shows. {ADVICE}"


def _is_measured(line: Mapping[str, Any]) -> bool:
    """Whether a line holds a kNN that can be one: a damaged log may hold anything."""
    accuracy = line.get("knn")
    return is_number(accuracy) and 0 <= accuracy <= 100 and isinstance(line.get("epochs_done"), int)
