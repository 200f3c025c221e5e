"""Which recipe does a command line mean? The named one, or one chosen for its data, with parts swapped by name."""

from collections.abc import Sequence
from dataclasses import make_dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

from .arguments import asks_for_help, data_option, hinting, parse
from .errors import UserError
from .models import FAMILIES
from .recipes import AUTO, PARTS, RECIPES, WEIGHTY, Recipe, examples, find_recipe, flat

FIRST = dict.fromkeys(PARTS, str) | {"data": str, "device": str} | WEIGHTY
"""Fields that must be known before others have values; of parts, which decide what others there are, the names."""


def recipe_of(
    command: str, arguments: Sequence[str], dataless: Recipe | None = None, own: Sequence[str] = ()
) -> tuple[Recipe, list[str]]:
    """The recipe that comes first, or one chosen for `--data`, or `dataless` without either; and what else was said.

    `own` are the command's options that no recipe has.
    """
    nameless = not arguments or arguments[0].startswith("-")
    name, rest = (AUTO, arguments) if nameless else (arguments[0], arguments[1:])
    listed = "`logo-ssl recipes` lists them"
    if name not in (AUTO, *RECIPES) and Path(name).exists():
        raise UserError(f"No recipe is called {name!r}; {listed}. If these are your images, say {data_option(name)}.")
    if name not in (AUTO, *RECIPES) and name in FAMILIES:
        raise UserError(f"No recipe is called {name!r}; {listed}. For a backbone: --backbone {name}.")
    recipe = None if name == AUTO else find_recipe(name)
    said, rest = _first(rest, f"{command} {name}")
    if nameless and "data" not in said:
        recipe = dataless
    if recipe is not None:
        return recipe.changed(**said), rest
    if asks_for_help(rest):
        return _with_hints(examples()[0].changed(**said)), rest
    if "data" not in said:
        _refuse_mistyped(examples()[0].changed(**said), rest, own, f"{command} {AUTO}")
    from .train.automatic import recipe_for

    return recipe_for(said.get("data"), said.get("device", "auto"), said).changed(**said), rest


def _first(arguments: Sequence[str], prog: str) -> tuple[dict[str, Any], list[str]]:
    """What is said of the fields that must be known first; and the other arguments."""
    some = make_dataclass("Some", [(field, _collected(field, kind), ()) for field, kind in FIRST.items()])
    read, rest = parse(some, arguments, prog=prog, return_unknown_args=True, add_help=False)
    return {field: values[-1] for field, values in vars(read).items() if values}, rest  # the last one counts


def _refuse_mistyped(recipe: Recipe, arguments: Sequence[str], own: Sequence[str], prog: str) -> None:
    """Tell of a mistake in the options, which may be why `--data` is missing."""
    fields = [("recipe", Annotated[type(recipe), tyro.conf.arg(name="")]), *((name, str, "") for name in own)]
    options = make_dataclass("Options", fields)
    parse(options, arguments, prog=prog, default=options(recipe))


def _collected(field: str, kind: Any) -> Any:
    """The type of an option that may be left out, in the spelling of a shell."""
    values = tyro.conf.UseAppendAction[tuple[kind, ...]]
    return Annotated[values, tyro.conf.arg(name=field.replace("__", "."))]


def _with_hints(recipe: Recipe) -> Recipe:
    """The recipe as its help should show it: without the values that it has for one example's sake."""
    every = [flat(example) for example in examples()]
    open_fields = {name for name in every[0] if len({str(values[name]) for values in every}) > 1}
    if not isinstance(recipe.framework, type(examples()[0].framework)):  # another one is taken as it is
        open_fields = {name for name in open_fields if not name.startswith("framework.")}

    def hint(name: str) -> str | None:
        return "required" if name == "data" else "chosen from the data" if name in open_fields else None

    return hinting(recipe, hint)
