"""How would a run be made again, and how does it stand to the paper? A command, and in what its settings differ."""

import shlex
from dataclasses import replace
from typing import Any

from ..frameworks import FRAMEWORKS
from ..recipes import AUTO, BASES, RECIPES, PaperRow, Recipe, differences, flat, literal
from ..strategies import STRATEGIES, TwoViewConfig


def began_as(recipe: Recipe) -> str:
    """The named recipe that this one began as; one that was chosen for its data is nearest to it."""
    if recipe.name != AUTO:
        return recipe.name
    return min(BASES, key=lambda name: len(differences(RECIPES[name], recipe)))


def departures(recipe: Recipe) -> list[str]:
    """In what a recipe differs from the one of the same row with the paper's settings."""
    if recipe.name not in RECIPES:
        return ["a recipe of another version"]
    changes = differences(literal(recipe), recipe)
    return [f"{field} ({before} -> {after})" for field, (before, after) in changes.items()]


def stands_beside(recipe: Recipe) -> tuple[PaperRow, ...]:
    """The paper's rows that a recipe has settings of our choice for."""
    return literal(recipe).paper if recipe.name in RECIPES and not recipe.paper else ()


def rerun(recipe: Recipe, out: str) -> str | None:
    """The command that trains by this recipe again, if its name is still known."""
    if recipe.name not in RECIPES:
        return None
    name = began_as(recipe)  # where data and machine choose, others would choose otherwise
    base, words = RECIPES[name], ["logo-ssl", "pretrain", name]
    for part, registry in (("framework", FRAMEWORKS), ("strategy", STRATEGIES)):
        kind = flat(recipe)[f"{part}.kind"]
        if flat(base)[f"{part}.kind"] != kind:
            base = replace(base, **{part: registry[kind]()})
            words += [f"--{part}", kind]
    if isinstance(base.strategy, TwoViewConfig):
        base = replace(base, crops=replace(base.crops, n_local=0))
    for field, (_, value) in differences(base, recipe).items():
        words += _option(field.replace("_", "-"), value)
    return shlex.join([*words, "--out", f"runs/{out.rsplit('/', 1)[-1]}-again"])


def _option(flag: str, value: Any) -> list[str]:
    if isinstance(value, bool):
        place, _, name = flag.rpartition(".")
        return [f"--{flag}"] if value else [f"--{place + '.' if place else ''}no-{name}"]
    return [f"--{flag}", *map(str, value)] if isinstance(value, list) else [f"--{flag}", str(value)]
