"""How does --help read well? tyro writes it, from fields that are put in the words of a person."""

import re
from dataclasses import is_dataclass, replace
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

import tyro
from tyro.constructors import (
    MISSING_NONPROP,
    ConstructorRegistry,
    PrimitiveConstructorSpec,
    PrimitiveTypeInfo,
    StructConstructorSpec,
    StructFieldSpec,
    StructTypeInfo,
)

MUST_BE_GIVEN = "(required)"
REQUIRED = tyro.conf.arg(help_behavior_hint=MUST_BE_GIVEN)
"""For an option that has a default only so that a command can say in its own words that it is missing."""


def readable() -> ConstructorRegistry:
    """How tyro is to read dataclasses for their help alone: with fields in the words of a person."""
    registry, asking = ConstructorRegistry(), False

    @registry.struct_rule
    def _(info: StructTypeInfo) -> StructConstructorSpec | None:
        nonlocal asking
        if asking or not is_dataclass(info.type):
            return None  # this is left to tyro's own rules
        asking = True
        try:
            found = ConstructorRegistry.get_struct_spec(info)
        finally:
            asking = False
        if not isinstance(found, StructConstructorSpec):
            return None
        return replace(found, fields=tuple(replace(field, type=_in_words(field)) for field in found.fields))

    return registry


def _in_words(field: StructFieldSpec) -> Any:
    """The type of a field, whose help then names values that can be typed, and a default if there is one."""
    kind, *marks = get_args(field.type) if get_origin(field.type) is Annotated else (field.type,)
    hint = MUST_BE_GIVEN if field.default is MISSING_NONPROP else _default
    words = tyro.conf.arg(metavar=_values(kind), help_behavior_hint=hint)
    return Annotated[(kind, words, *marks)]  # pyright: ignore (what a field says itself comes later, and counts)


def _default(value: str) -> str:
    """What is said of a default: nothing, where that is nothing."""
    return f"(default: {value})" if value not in ("", "''", "None") else ""


def _values(kind: Any) -> str | None:
    """What stands for an option's values: INT for {None}|INT, INT ... for [INT [INT ...]]; None: what tyro says."""
    either = get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)
    typed = Union[tuple(each for each in either if each is not type(None))]  # noqa: UP007 (known once it runs)
    told = re.sub(r"\[(.+) \[\1 \.\.\.\]\]", r"\1 ...", _metavar(typed))
    return told if told != _metavar(kind) else None


def _metavar(kind: Any) -> str:
    """What tyro says of an option's values; nothing, where there are options in it."""
    spec = ConstructorRegistry.get_primitive_spec(PrimitiveTypeInfo.make(kind, set()))
    return spec.metavar if isinstance(spec, PrimitiveConstructorSpec) else ""
