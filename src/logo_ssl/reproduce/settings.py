"""What is changed for all rows, and how does a recipe then differ from the paper's?"""

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any

import tyro

from ..arguments import parse
from ..data import locate
from ..errors import UserError, nearest
from ..hardware import best_device
from ..recipes import Differences, Recipe, check, differences, find_recipe, flat, is_harmless, kinds_with, unused
from ..text import listed
from .options import OTHERWISE, part_with
from .sources import IMAGES


@dataclass(frozen=True)
class _Fields:
    recipe: Annotated[Recipe, tyro.conf.arg(name="")]


def with_settings(
    recipes: Sequence[Recipe], settings: Sequence[str], own: Mapping[str, str] = MappingProxyType({})
) -> list[Recipe]:
    """The recipes with `field=value` set in each that has the field; a field that none has is refused.

    `own` are fields that have an option of their own.
    """
    given = [_split(setting) for setting in settings]
    if twice := next((field for i, (field, _) in enumerate(given) if field in dict(given[:i])), None):
        raise UserError(f"--set gives {twice} twice; say which.")
    for field, _ in given:
        if not any(_has(recipe, field) for recipe in recipes):
            known = {name for recipe in recipes for name in flat(recipe) if _has(recipe, name)}
            inner = sorted(name for name in known if name.endswith(f".{field}"))
            part, kinds = kinds_with(field)
            hint = f" Did you mean {' or '.join(inner)}?" if inner else nearest(field, known)
            hint = f" Rows with {part} {' or '.join(kinds)} have it." if kinds else hint
            hint = hint or f" `logo-ssl pretrain {recipes[0].name} --help` shows those of a row."
            raise UserError(f"No chosen row has the field {field!r}.{hint}")
    changed = [_set(recipe, [*given, *own.items()]) for recipe in recipes]
    for device in {recipe.device for recipe in changed}:
        best_device(device)  # refused, where it is not there
    return changed


def with_data(recipes: Sequence[Recipe], sources: Sequence[str]) -> list[Recipe]:
    """The recipes on data from elsewhere: `NAME=SOURCE` or a source called so for the rows on a set, or one for all."""
    sets = list(dict.fromkeys(recipe.data for recipe in recipes))
    places = dict[str, str]()
    for source in sources:
        name, equals, path = source.partition("=")
        if equals and name in sets:
            place, where = name, path
        elif equals and name in IMAGES:
            raise UserError(
                f"No chosen row is on {name}, so --data {source} is for none; they are on {', '.join(sets)}."
            )
        elif equals and Path(name).name == name and not Path(source).expanduser().exists():
            raise UserError(
                f"No set is called {name!r}, as --data {source} has it; the chosen rows are on {', '.join(sets)}."
                f"{nearest(name, sets)}"
            )
        elif len(sets) == 1 or name_of(source) in sets:
            place, where = sets[0] if len(sets) == 1 else name_of(source), source
        else:
            raise UserError(
                f"The chosen rows are on {', '.join(sets)}, so --data {source} is unclear; say --data {sets[0]}=SOURCE"
                f", and --rows '{sets[0]}-*' for those rows alone."
            )
        if place in places:
            raise UserError(f"--data has two sources for {place}, {places[place]} and {where}; give one.")
        places[place] = locate(where)
    return [replace(recipe, data=places.get(recipe.data, recipe.data)) for recipe in recipes]


def decisive_differences(ours: Recipe, theirs: Recipe) -> Differences:
    """The fields that decide a result and differ, with both values; a file named after a set is that set."""
    ours, theirs = (replace(recipe, data=name_of(recipe.data)) for recipe in (ours, theirs))
    idle = unused(ours) & unused(theirs)
    return {name: values for name, values in differences(ours, theirs).items() if name not in idle and matters(name)}


def changes(recipes: Sequence[Recipe]) -> Iterator[str]:
    """Each field that is not as the recipes of these names have it, but for data and seeds, and the rows it reaches."""
    reached: dict[tuple[str, str], dict[str, Any]] = {}
    for recipe in recipes:
        for field, (ours, theirs) in differences(recipe, find_recipe(recipe.name)).items():
            if field not in ("data", "seed"):
                reached.setdefault((field, spelt(ours)), {})[recipe.name] = spelt(theirs)
    together: dict[tuple[str, ...], list[str]] = {}
    for (field, ours), before in reached.items():
        told = f"{field} {ours} (recipe: {' or '.join(dict.fromkeys(before.values()))})"
        together.setdefault(tuple(before), []).append(told)
    n_rows = len({recipe.name for recipe in recipes})
    for rows, told in together.items():
        where = "all rows" if len(rows) == n_rows > 1 else listed(rows)
        yield f"Changed in {where}: {', '.join(told)}."


def spelt(value: object) -> str:
    """A value of a field, in a sentence."""
    return " ".join(map(str, value)) or "none" if isinstance(value, list) else str(value)


def matters(field: str) -> bool:
    """Whether a field decides what comes out, not only where, how fast and how closely watched a run is."""
    return field in ("data", "epochs") or (field != "seed" and not is_harmless(field))


def name_of(data: str) -> str:
    """What a data set is called, by itself or as a file or folder."""
    return Path(data).stem


def set_of(source: str) -> str:
    """Which set a source is, by `NAME=SOURCE` or as it is called."""
    name, equals, _ = source.partition("=")
    return name if equals and name in IMAGES else name_of(source)


def _split(setting: str) -> tuple[str, str]:
    field, equals, value = setting.partition("=")
    if not equals:
        raise UserError(f"--set takes FIELD=VALUE, for example --set optimiser.lr=0.12, and not {setting!r}.")
    field = field.strip().replace("-", "_")
    if field in OTHERWISE:
        raise UserError(f"--set does not take {field}; {OTHERWISE[field]}.")
    return field, value


def _set(recipe: Recipe, given: Sequence[tuple[str, str]]) -> Recipe:
    arguments = []
    for field, value in given:
        if place := part_with(recipe, field):
            arguments += [f"--{field.replace('_', '-')}", *_words(field, value, getattr(*place))]
    prog = f"pretrain {recipe.name}"
    changed = parse(tyro.conf.FlagConversionOff[_Fields], arguments, prog=prog, default=_Fields(recipe)).recipe
    check(changed)
    return changed


def _words(field: str, value: str, now: Any) -> list[str]:
    """The words of a value; several numbers may stand with commas or spaces between them."""
    try:
        return shlex.split(value.replace(",", " ") if isinstance(now, tuple) else value)
    except ValueError as error:
        raise UserError(f"--set {field}={value} cannot be read ({error}); close the quotes.") from error


def _has(recipe: Recipe, field: str) -> bool:
    return part_with(recipe, field) is not None
