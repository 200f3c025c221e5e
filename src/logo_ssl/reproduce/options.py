"""Which fields of a recipe does `--set` not take, and which part of a recipe has a field?"""

from dataclasses import fields, is_dataclass
from typing import Any

from ..recipes import Recipe

OTHERWISE = {  # fields that have an option of their own, or that make a row what it is
    "data": "use --data",
    "seed": "use --seeds",
    "epochs": "use --epochs",
    "device": "use --device",
    "framework": "choose rows with --rows",
    "strategy": "choose rows with --rows",
    "framework.kind": "choose rows with --rows",
    "strategy.kind": "choose rows with --rows",
    "name": "choose rows with --rows",
    "paper": "choose rows with --rows",
    "chosen": "choose rows with --rows",
}


def part_with(recipe: Recipe, name: str) -> tuple[Any, str] | None:
    """The part of a recipe that has a field, which is called by its full name, and the field's own name."""
    part: Any = recipe
    *outer, last = name.split(".")
    for each in outer:
        part = getattr(part, each) if _has(part, each) else None
    return (part, last) if _has(part, last) else None


def _has(part: Any, name: str) -> bool:
    return is_dataclass(part) and name in {field.name for field in fields(part)}
