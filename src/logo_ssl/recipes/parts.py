"""Which frameworks and strategies can a recipe name? Ours, and those that others add under names of their own."""

from dataclasses import fields
from typing import Any

from ..errors import UserError, nearest
from ..frameworks import FRAMEWORKS
from ..strategies import STRATEGIES
from .fields import refuse_wrong_fields

PARTS: dict[str, dict[str, type]] = {"framework": FRAMEWORKS, "strategy": STRATEGIES}
"""What can be swapped by name, and others may add to."""
REGISTRIES = {"framework": "FRAMEWORKS", "strategy": "STRATEGIES"}


def kinds_with(name: str) -> tuple[str, list[str]]:
    """Of a field, `strategy.lam`, the part, and the names of those that have it."""
    part, _, field = name.partition(".")
    field = field.replace("-", "_")
    if part not in PARTS:
        return part, []
    return part, [kind for kind, config in registered(part).items() if field in {f.name for f in fields(config)}]


def registered(part: str) -> dict[str, type]:
    """The configs of all frameworks, or strategies, by name."""
    return PARTS[part]


def called(part: str, name: str) -> Any:
    """The config of a name, with the values that it has by default."""
    known = registered(part)
    if name not in known:
        raise UserError(f"No {part} is called {name!r}; choose {', '.join(known)}.{nearest(name, known)}")
    return known[name]()


def kind_of(part: str, config: object) -> str:
    """The name of a config: that of its own class, not of one which that extends."""
    known = registered(part)
    for name, kind in known.items():
        if type(config) is kind:
            return name
    raise UserError(
        f"{part} is {config!r}, which cannot be; choose {', '.join(known)}, or give a class of your own a name in "
        f"{REGISTRIES[part]} of logo_ssl.{REGISTRIES[part].lower()}."
    )


def refuse_wrong_part(part: str, config: Any) -> None:
    """Refuse a config without a name, with fields that a run cannot keep."""
    kind = kind_of(part, config)
    if "kind" in (field.name for field in fields(config)):
        raise UserError(f"{part}.kind is what recipe.json calls the {part}, {kind}; give the field another name.")
    refuse_wrong_fields(config, f"{part}.")
