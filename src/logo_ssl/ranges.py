"""Types of settings with the values that they may have: `tau: Positive = 0.2` is checked wherever a config is."""

from collections.abc import Callable
from dataclasses import fields
from math import inf
from typing import Annotated, Any, NamedTuple, get_args, get_type_hints

from .errors import UserError


class Allowed(NamedTuple):
    """What must hold of a field's value, and how a message says it; in the `Annotated` type of the field."""

    holds: Callable[[Any], bool]
    must: str


def check_range(name: str, value: Any, hint: Any) -> None:
    """UserError for a value that the type of its field does not allow."""
    for allowed in get_args(hint)[1:]:
        if isinstance(allowed, Allowed) and not allowed.holds(value):
            shown = " ".join(map(str, value)) if isinstance(value, tuple) else value
            raise UserError(f"{name}={shown}: must be {allowed.must}.")


def check_ranges(config: Any) -> None:
    """UserError for a field of a dataclass that has a value its type does not allow."""
    hints = get_type_hints(type(config), include_extras=True)
    for field in fields(config):
        check_range(field.name, getattr(config, field.name), hints[field.name])


def at_least(least: float, note: str = "") -> Allowed:
    """No less, and finite."""
    return Allowed(lambda value: least <= value < inf, f"{least} or more{note}")


Count = Annotated[int, at_least(1)]
Positive = Annotated[float, Allowed(lambda value: 0 < value < inf, "a positive number")]
NotNegative = Annotated[float, at_least(0)]
BelowOne = Annotated[float, Allowed(lambda value: 0 <= value < 1, "0 or more, and less than 1")]
Share = Annotated[float, Allowed(lambda value: 0 <= value <= 1, "0 to 1")]
Side = Annotated[int, at_least(8)]
"""Of a crop, in pixels."""
Scale = Annotated[tuple[float, float], Allowed(lambda pair: 0 < pair[0] <= pair[1] <= 1, "0 < low <= high <= 1")]
"""Least and greatest share."""
Interval = Annotated[tuple[float, float], Allowed(lambda pair: 0 < pair[0] <= pair[1] < inf, "0 < low <= high")]
"""Least and greatest positive number."""
Jitter = Annotated[
    tuple[float, float, float, float],
    Allowed(lambda jitter: min(jitter) >= 0 and jitter[3] <= 0.5, "0 or more, and hue 0.5 or less"),
]
Seed = Annotated[int, Allowed(lambda seed: 0 <= seed < 2**63, "0 to 2^63 - 1")]
