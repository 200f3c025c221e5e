"""How is it typed here what other commands have an option for? Fields of recipes by --set; the rest is theirs alone."""

import json
import re
import shlex
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, Literal, get_origin, get_type_hints

from ..errors import AGAIN, UserError
from ..models import FAMILIES
from ..recipes import Recipe
from ..recipes.fields import fits

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
ALIKE = ("data", "device", "out")
"""Options that `eval` has, too."""
MEASURING = {"workers": "loading.workers", "max_bad": "loading.max_bad"}
"""Options of `eval` that a row takes from its recipe, and the fields."""
DETECTING = ("detect", "segment")
"""Where no picture may be bad, whatever the recipe says."""
NUMBERS = r"-?\d+(?:\.\d+)?(?: -?\d+(?:\.\d+)?)+(?![\w.]*\w)"
OPTION = re.compile(
    rf"`[^`]*(?:logo-ssl|python) [^`]*`|(?<![^\s(`'\"])--([a-z][\w.-]*\w)(?: (?!--)({NUMBERS}|[^\s,;()`]*[^\s,;.()`]))?"
)
"""A whole command, which stays as it is, or an option and the word or the numbers behind it."""
RESUME = re.compile(r"go on with `[^`]* resume [^`]*`")
VERBS = ("is", "needs")
"""Words by which something is said of an option: they are no values."""


def by_set(sentence: str, recipe: Recipe, given: Collection[str] = (), named: Mapping[str, str] | None = None) -> str:
    """A sentence about options of `pretrain` in the words of this command, for rows by such a recipe.

    What is said of a field that was not `given` names no option. `named` are the fields of those options of another
    command that have one; without it, each option is called like its field.
    """

    def typed(found: re.Match[str]) -> str:
        option, word = (found[1] or "").replace("-", "_"), found[2] or ""
        name = option if named is None else named.get(option, "")
        place = part_with(recipe, name)
        if place is None:
            return found[0]
        here = f"--{name}" if name in OTHERWISE else f"--set {name}"
        if word in VERBS:
            return f"{here if name in given else name} {word}"
        hint = get_type_hints(type(place[0]))[place[1]]
        if word and name not in OTHERWISE and _is_value(word, name, hint):
            return f"{here}={word.replace(' ', ',')}"
        return f"{here}{'=True' if hint is bool else ''}{word and ' '}{word}"

    return OPTION.sub(typed, RESUME.sub(AGAIN, sentence))


def by_eval(sentence: str, recipe: Recipe, measurement: str, run: Path) -> str:
    """A sentence of `eval` in the words of this command; of an option that only `eval` has, it says so."""
    kind = measurement.partition("-")[0]
    named = {option: field for option, field in MEASURING.items() if option != "max_bad" or kind not in DETECTING}
    options = {found[1].replace("-", "_") for found in OPTION.finditer(sentence) if found[1]}
    told, theirs = by_set(sentence, recipe, named=named), options - {*named, *ALIKE}
    if not theirs:
        return told
    whose = "That is an option" if len(theirs) == 1 else "Those are options"
    return f"{told} {whose} of `logo-ssl eval {kind} {shlex.quote(str(run))}`; rows of a table have none."


@contextmanager
def retold(worded: Callable[[str], str]) -> Iterator[None]:
    """Have what went wrong told in other words."""
    try:
        yield
    except UserError as error:
        error.args = (worded(error.typed),)
        raise


def part_with(recipe: Recipe, name: str) -> tuple[Any, str] | None:
    """The part of a recipe that has a field, which is called by its full name, and the field's own name."""
    part: Any = recipe
    *outer, last = name.split(".")
    for each in outer:
        part = getattr(part, each) if _has(part, each) else None
    return (part, last) if _has(part, last) else None


def _has(part: Any, name: str) -> bool:
    return is_dataclass(part) and name in {field.name for field in fields(part)}


def _is_value(word: str, name: str, hint: Any) -> bool:
    """Whether what stands behind an option is its value: of texts, only those that are known, or else any would do."""
    if " " in word:
        return fits(tuple(map(float, word.split())), hint)
    if name == "backbone":
        return word in FAMILIES or word.startswith("timm/")
    try:
        return fits(json.loads(word), hint)
    except ValueError:  # no number
        return get_origin(hint) is Literal and fits(word, hint)
