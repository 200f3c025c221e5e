"""How would a run be made again? By a command, which says in what it departs from the named recipe."""

import shlex
from dataclasses import replace
from typing import Any

from ..frameworks import FRAMEWORKS
from ..recipes import AUTO, DECIDED, RECIPES, Recipe, differences, flat
from ..strategies import STRATEGIES, TwoViewConfig


def departures(recipe: Recipe) -> list[str]:
    """In what a recipe differs from the named one it began as."""
    if recipe.name not in RECIPES:
        return ["a recipe of another version"]
    changes = differences(RECIPES[recipe.name], recipe)
    return [f"{field} ({before} -> {after})" for field, (before, after) in changes.items()]


def rerun(recipe: Recipe, out: str) -> str | None:
    """The command that trains by this recipe again, if its name is still known."""
    if recipe.name not in RECIPES:
        return None
    base, words = RECIPES[recipe.name], ["logo-ssl", "pretrain", recipe.name]
    for part, registry in (("framework", FRAMEWORKS), ("strategy", STRATEGIES)):
        kind = flat(recipe)[f"{part}.kind"]
        if flat(base)[f"{part}.kind"] != kind:
            base = replace(base, **{part: registry[kind]()})
            words += [f"--{part}", kind]
    if isinstance(base.strategy, TwoViewConfig):
        base = replace(base, crops=replace(base.crops, n_local=0))
    told = {field: value for field, (_, value) in differences(base, recipe).items()}
    if recipe.name == AUTO:  # other data or another machine would choose otherwise
        told |= {field: flat(recipe)[field] for field in DECIDED if field in flat(recipe)}
    for field, value in told.items():
        words += _option(field.replace("_", "-"), value)
    return shlex.join([*words, "--out", f"runs/{out.rsplit('/', 1)[-1]}-again"])


def _option(flag: str, value: Any) -> list[str]:
    if isinstance(value, bool):
        place, _, name = flag.rpartition(".")
        return [f"--{flag}"] if value else [f"--{place + '.' if place else ''}no-{name}"]
    return [f"--{flag}", *map(str, value)] if isinstance(value, list) else [f"--{flag}", str(value)]
