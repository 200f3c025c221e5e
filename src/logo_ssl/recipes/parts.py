"""Which frameworks and strategies can a recipe name? Ours, and those that others add under names of their own."""

from dataclasses import MISSING, fields, is_dataclass
from typing import Any

from ..errors import UserError, nearest
from ..frameworks import FRAMEWORKS, OUR_FRAMEWORKS
from ..strategies import OUR_STRATEGIES, STRATEGIES
from .fields import refuse_wrong_fields

PARTS: dict[str, dict[str, type]] = {"framework": FRAMEWORKS, "strategy": STRATEGIES}
"""What can be swapped by name, and others may add to."""
OURS: dict[str, dict[str, type]] = {"framework": OUR_FRAMEWORKS, "strategy": OUR_STRATEGIES}
REGISTRIES = {"framework": "FRAMEWORKS", "strategy": "STRATEGIES"}
NEEDED = {
    "framework": {"build": "a method `build(backbone, n_features)`", "dim": "a field `dim`, the width of its latents"},
    "strategy": {"build": "a method `build(n_global, n_local, dim)`"},
}
"""What is asked of a config, and in which words."""


def kinds_with(name: str) -> tuple[str, list[str]]:
    """Of a field, `strategy.lam`, the part, and the names of those that have it."""
    part, _, field = name.partition(".")
    field = field.replace("-", "_")
    if part not in PARTS:
        return part, []
    return part, [kind for kind, config in registered(part).items() if field in {f.name for f in fields(config)}]


def registered(part: str) -> dict[str, type]:
    """The configs of all frameworks, or strategies, by name; a UserError where a name would mean something else."""
    known, registry = PARTS[part], REGISTRIES[part]
    names: dict[type, str] = {}
    for name, config in known.items():
        if not (isinstance(config, type) and is_dataclass(config)):
            raise UserError(
                f"{registry}[{name!r}] is {config!r}, which is no config; register the dataclass whose `build` makes "
                f"the {part}."
            )
        if name in OURS[part] and config is not OURS[part][name]:
            raise UserError(
                f"{registry}[{name!r}] is {config.__name__}, and {name} is one of ours; register it under another name."
            )
        if config in names:
            raise UserError(
                f"{registry} has {config.__name__} as {names[config]} and as {name}, and recipe.json could not tell "
                "which; register it once, or make a class of its own for the other."
            )
        names[config] = name
    return known


def called(part: str, name: str) -> Any:
    """The config of a name, with the values that it has by default."""
    known = registered(part)
    if name not in known:
        raise UserError(f"No {part} is called {name!r}; choose {', '.join(known)}.{nearest(name, known)}")
    for field in fields(known[name]):
        if field.init and field.default is MISSING and field.default_factory is MISSING:
            raise UserError(
                f"{known[name].__name__} has no default for {field.name}, so that {part} {name} cannot be chosen by "
                "name; give it one."
            )
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
    """Refuse a config without a name, with fields that a run cannot keep, or without what is asked of it."""
    kind = kind_of(part, config)
    if "kind" in (field.name for field in fields(config)):
        raise UserError(f"{part}.kind is what recipe.json calls the {part}, {kind}; give the field another name.")
    refuse_wrong_fields(config, f"{part}.")
    for needed, words in NEEDED[part].items():
        if not hasattr(config, needed):
            raise UserError(f"{type(config).__name__} of {part} {kind} has no {needed}; give it {words}.")
