"""Is a value of its field's type, and can recipe.json keep what is of that type?"""

import json
import os
from dataclasses import asdict, fields, is_dataclass
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import numpy as np

from ..errors import UserError, nearest

KEPT = (bool, int, float, str, NoneType, tuple)
"""Types whose values come back from JSON as they were; a `tuple` may hold the others."""


def as_python(value: Any) -> Any:
    """Numpy's numbers and arrays, lists and paths as numbers, tuples and text."""
    if isinstance(value, np.generic | np.ndarray):
        value = value.tolist()
    if isinstance(value, list | tuple):
        return tuple(map(as_python, value))
    return os.fspath(value) if isinstance(value, os.PathLike) else value


def fitting(part: Any, name: str, value: Any) -> Any:
    """The value as Python has it; a UserError where it is not of the field's type."""
    value, hint = as_python(value), get_type_hints(type(part))[name]
    if fits(value, hint):
        return value
    if get_origin(hint) is Literal:
        known = [str(each) for each in get_args(hint)]
        raise UserError(f"{name}={value!r}: choose {', '.join(known)}.{nearest(str(value), known)}")
    like = f"give something like {getattr(part, name)!r}"
    if isinstance(value, str):
        raise UserError(f"{name} is {value!r}, which cannot be, as it is text; {like}, without quotes.")
    raise UserError(f"{name} is {value!r}, which cannot be; {like}.")


def built(cls: Any, record: Any) -> Any:
    """The dataclass of what JSON has of it; unknown keys and values of other types are errors."""
    if not isinstance(record, dict):
        raise UserError(f"{record!r} in the recipe is no {cls.__name__}.")
    hints = get_type_hints(cls)
    for key in record.keys() - hints.keys():
        raise UserError(f"Unknown field {key!r} in the recipe's {cls.__name__}.{nearest(key, hints)}")
    values = {key: as_python(value) for key, value in record.items()}
    for key, value in values.items():
        if not is_dataclass(value) and not fits(value, hints[key]):  # parts are built and checked before
            raise UserError(f"{key} is {record[key]!r} in the recipe's {cls.__name__}, which cannot be.")
    return cls(**values)


def refuse_wrong_fields(config: Any, inside: str) -> None:
    """Refuse a config with a field that recipe.json cannot keep, or with a value of another type than its field's."""
    try:
        hints = get_type_hints(type(config))
    except NameError as error:
        raise UserError(
            f"A type of {type(config).__name__} is not known while it runs ({error}); import it there, not only for "
            "type checkers."
        ) from error
    for name in (field.name for field in fields(config)):
        if not _is_kept(hints[name]):
            raise UserError(
                f"{inside}{name} is of type {_worded(hints[name])}, which recipe.json cannot keep; use bool, int, "
                "float, str, Literal, None, or a tuple of these."
            )
        refuse_other_type(f"{inside}{name}", getattr(config, name), hints[name])
    _refuse_unlike_itself(config)


def refuse_other_type(name: str, value: Any, hint: Any) -> None:
    """Refuse a value that is not of its field's type."""
    if not fits(value, hint):
        raise UserError(f"{name} is {value!r}, which cannot be; give something of type {_worded(hint)}.")


def fits(value: Any, hint: Any) -> bool:
    """Whether a value is of a field's type; a whole number passes for a float, and a config for its base."""
    arguments = get_args(hint)
    match get_origin(hint):
        case None:
            if hint is float:
                return isinstance(value, int | float) and not isinstance(value, bool)
            return isinstance(value, hint or type(None)) and (hint is bool or not isinstance(value, bool))
        case origin if origin is Literal:
            return value in arguments
        case origin if origin is tuple:
            inner = arguments[:1] * len(value) if arguments[1:] == (...,) else arguments
            return len(value) == len(inner) and all(map(fits, value, inner)) if isinstance(value, tuple) else False
        case _:
            return any(fits(value, each) for each in arguments)


def _refuse_unlike_itself(config: Any) -> None:
    """Refuse a config that cannot be made again of what JSON keeps: with a field that its constructor does not take."""
    try:
        back = built(type(config), json.loads(json.dumps(asdict(config))))
        same = repr(asdict(back)) == repr(asdict(config))  # a tuple is no list, and nan is nan
        wrong = "other values come back"
    except (TypeError, ValueError, UserError) as error:
        same, wrong = False, str(error)
    if not same:
        raise UserError(
            f"{type(config).__name__} cannot be read back from recipe.json ({wrong}); let its fields make it."
        )


def _is_kept(hint: Any) -> bool:
    """Whether values of a type come back from JSON as they were."""
    arguments = get_args(hint)
    match get_origin(hint):
        case None:
            return hint in KEPT
        case origin if origin is Literal:
            return all(isinstance(each, KEPT) for each in arguments)
        case origin if origin in (tuple, Union, UnionType):
            return all(each is ... or _is_kept(each) for each in arguments)
        case _:
            return False


def _worded(hint: Any) -> str:
    """A type as one writes it."""
    return hint.__name__ if isinstance(hint, type) and not get_args(hint) else str(hint).replace("typing.", "")
