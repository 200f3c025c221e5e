"""How would a run be made again, and how does it stand to the paper? A command, and in what its settings differ."""

import shlex
from typing import Any

from ..recipes import AUTO, BASES, PARTS, RECIPES, Differences, PaperRow, Recipe, differences, literal


def began_as(recipe: Recipe) -> str:
    """The named recipe that this one began as; one that was chosen for its data is nearest to it."""
    if recipe.name != AUTO:
        return recipe.name
    return min(BASES, key=lambda name: len(differences(RECIPES[name], recipe)))


def departures(recipe: Recipe) -> list[str]:
    """In what a recipe differs from the one of the same row with the paper's settings."""
    name = began_as(recipe)
    if name not in RECIPES:
        return ["a recipe of another version"]
    changes = differences(literal(RECIPES[name]), recipe)
    return [f"{field} ({before} -> {after})" for field, (before, after) in changes.items()]


def stands_beside(recipe: Recipe) -> tuple[PaperRow, ...]:
    """The paper's rows that a recipe has settings of our choice for."""
    return literal(recipe).paper if recipe.name in RECIPES and not recipe.paper else ()


def rerun(recipe: Recipe, out: str) -> str | None:
    """The command that trains by this recipe again, if its name is still known."""
    name = began_as(recipe)  # where data and machine choose, others would choose otherwise
    if name not in RECIPES:
        return None
    base, words = RECIPES[name], ["pretrain", name]
    for part in PARTS:
        if base.kind(part) != (kind := recipe.kind(part)):
            base = base.with_part(part, kind)
            words += [f"--{part}", kind]
    words += options(differences(base, recipe))
    words += ["--out", f"runs/{out.rsplit('/', 1)[-1]}-again"]
    return f"logo-ssl {shlex.join(words)}"


def options(changed: Differences) -> list[str]:
    """The words by which fields get the latter of their values on a command line."""
    return [word for field, (_, value) in changed.items() for word in _option(field.replace("_", "-"), value)]


def _option(flag: str, value: Any) -> list[str]:
    if isinstance(value, bool):
        place, _, name = flag.rpartition(".")
        return [f"--{flag}"] if value else [f"--{place + '.' if place else ''}no-{name}"]
    return [f"--{flag}", *map(str, value)] if isinstance(value, list) else [f"--{flag}", str(value)]
