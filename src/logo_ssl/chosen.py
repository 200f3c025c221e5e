"""Which recipe does a command line mean? The named one, or one chosen for its data, with parts swapped by name."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from .arguments import data_option, hinting
from .errors import UserError, nearest
from .frameworks import FRAMEWORKS
from .recipes import AUTO, RECIPES, WEIGHTY, Recipe, examples, find_recipe, flat
from .strategies import STRATEGIES, TwoViewConfig


def recipe_of(arguments: Sequence[str]) -> tuple[Recipe, list[str]]:
    """The recipe that comes first, or one chosen for `--data`; and what else was said."""
    nameless = not arguments or arguments[0].startswith("-")
    name, rest = (AUTO, arguments) if nameless else (arguments[0], arguments[1:])
    if name not in (AUTO, *RECIPES) and Path(name).exists():
        listed = "`logo-ssl recipes` lists them"
        raise UserError(f"No recipe is called {name!r}; {listed}. If these are your images, say {data_option(name)}.")
    if name != AUTO:
        return choose_parts(find_recipe(name), rest)
    if {"-h", "--help"} & set(rest):
        recipe, rest = choose_parts(examples()[0], rest)
        return _with_hints(recipe), rest
    from .train.automatic import recipe_for

    wishes = {field: _wish(rest, field, kind) for field, kind in WEIGHTY.items()}
    told = {field: value for field, value in wishes.items() if value is not None}
    return choose_parts(recipe_for(option(rest, "--data"), option(rest, "--device") or "auto", told), rest)


def _with_hints(recipe: Recipe) -> Recipe:
    """The recipe as its help should show it: without the values that it has for one example's sake."""
    every = [flat(example) for example in examples()]
    open_fields = {name for name in every[0] if len({str(values[name]) for values in every}) > 1}
    if not isinstance(recipe.framework, type(examples()[0].framework)):  # another one is taken as it is
        open_fields = {name for name in open_fields if not name.startswith("framework.")}

    def hint(name: str) -> str | None:
        return "required" if name == "data" else "chosen from the data" if name in open_fields else None

    return hinting(recipe, hint)


def _wish(arguments: Sequence[str], field: str, kind: type) -> str | int | None:
    """What is asked for a field, if it can be understood; if not, it is refused when all options are read."""
    asked = option(arguments, f"--{field.replace('__', '.').replace('_', '-')}")
    try:
        return None if asked is None else kind(asked)
    except ValueError:
        return None


def option(arguments: Sequence[str], name: str) -> str | None:
    """The value of an option that must be known before the others can be read."""
    found = None  # the last one counts, as for tyro
    for place, word in enumerate(arguments):
        if word == name and place + 1 < len(arguments):
            found = arguments[place + 1]
        elif word.startswith(f"{name}="):
            found = word.partition("=")[2]
    return found


def choose_parts(recipe: Recipe, arguments: Sequence[str]) -> tuple[Recipe, list[str]]:
    """Swap the recipe's framework or strategy for the one named by `--framework NAME` or `--strategy NAME`."""
    rest = list(arguments)
    for part, registry in (("framework", FRAMEWORKS), ("strategy", STRATEGIES)):
        while f"--{part}" in rest:
            place = rest.index(f"--{part}")
            name = rest[place + 1] if place + 1 < len(rest) else ""
            if name not in registry:
                raise UserError(f"No {part} is called {name!r}; choose {', '.join(registry)}.{nearest(name, registry)}")
            del rest[place : place + 2]
            recipe = replace(recipe, **{part: registry[name]()})
    if isinstance(recipe.strategy, TwoViewConfig):
        recipe = replace(recipe, crops=replace(recipe.crops, n_local=0))
    return recipe, rest
