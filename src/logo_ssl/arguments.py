"""How does a line of arguments become values? tyro reads it, and its box of errors becomes one sentence."""

import contextlib
import io
import re
import shlex
import warnings
from collections.abc import Callable, Sequence
from dataclasses import fields, is_dataclass, make_dataclass
from itertools import dropwhile, takewhile
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import tyro

from .errors import UserError, nearest
from .help_words import readable

WANTED = {
    r"invalid literal for int\(\) with base 10: (.*)": "a whole number",
    r"could not convert string to float: (.*)": "a number",
    r"no type matching (?:\{None\}\|)?INT could be .* from \[(.*)\]": "a whole number",
    r"no type matching INT\|\{auto\} could be .* from \[(.*)\]": "a whole number, or auto",
    r"no type matching \{None\}\|\{INT INT\} could be .* from \[(.*)\]": "two whole numbers",
    r"no type matching .*INT FLOAT.* could be .* from \[(.*)\]": "k and tau in pairs, such as 5 0.07",
    r"no type matching .*INT.* could be .* from \[(.*)\]": "whole numbers",
    r"no type matching \{None\}\|FLOAT could be .* from \[(.*)\]": "a number",
    r"no type matching .*FLOAT.* could be .* from \[(.*)\]": "numbers",
    r"Could not parse arguments \[(.*)\] into tuple type .*float.*": "numbers",
}
"""What an option takes, by the words in which tyro and Python complain of a value."""
CHOICE = re.compile(r"invalid choice ('.*') for argument '--(\S+)'\. Expected one of \((.*)\)")
MISTYPED = re.compile(r"nrecognized options: .*?(--[^\s,=]+=)")
UNKNOWN = re.compile(r"(.*nrecognized options?: )(.*)")
TOO_FEW = re.compile(r"Missing value for argument '(--\S+)'\. Expected (\d+) values")


def parse(target: Any, arguments: Sequence[str], prog: str, **options: Any) -> Any:
    """Parse with tyro what stands behind the words `prog` of a command; its box of errors becomes one sentence."""
    box, typed = io.StringIO(), f"logo-ssl {prog}"
    try:
        with contextlib.redirect_stderr(box), warnings.catch_warnings():
            warnings.filterwarnings("ignore", "[^ ]* .* does not match any type in Union")  # somebody's own part
            config, registry = (tyro.conf.AvoidSubcommands,), readable() if asks_for_help(arguments) else None
            return tyro.cli(target, args=list(arguments), config=config, registry=registry, prog=typed, **options)
    except SystemExit as stop:
        if stop.code in (0, None):
            raise
        sentence = _sentence(box.getvalue(), getattr(options.get("default"), "recipe", None))
        if (apart := _apart(arguments, sentence)) != [*arguments]:
            return parse(target, apart, prog, **options)
        hint = _data_among(arguments, sentence) if _takes_data(target, options.get("default")) else ""
        hint = hint or _other_way(arguments, sentence, target)
        raise UserError(f"{sentence}{hint} `{typed} --help` shows every option.") from None


def refuse_without(arguments: Sequence[str], what: str, example: str) -> None:
    """What a command is about comes first."""
    if not arguments or (arguments[0].startswith("-") and arguments[0] not in ("-h", "--help")):
        raise UserError(f"Say {what} first, for example: logo-ssl {example}")


def data_option(path: str) -> str:
    """How images that lie at a path are named in a shell."""
    return shlex.join(["--data", path])


def asks_for_help(arguments: Sequence[str]) -> bool:
    """Whether the help is wanted, whatever else is said."""
    return bool({"-h", "--help"} & set(arguments))


def showing(value: Any, shown: Callable[[str], bool]) -> Any:
    """The dataclass instance as one whose help lists only those fields that `shown` picks by their full names."""
    return _retyped(value, lambda name, kind: kind if shown(name) else tyro.conf.Suppress[kind])


def hinting(value: Any, hint: Callable[[str], str | None]) -> Any:
    """The dataclass instance as one whose help says `hint` of a field's full name in place of its default."""

    def hinted(name: str, kind: Any) -> Any:
        words = hint(name)
        return kind if words is None else Annotated[kind, tyro.conf.arg(help_behavior_hint=f"({words})")]

    return _retyped(value, hinted)


def _retyped(value: Any, retype: Callable[[str, Any], Any], inside: str = "") -> Any:
    """The dataclass instance as one whose fields, by their full names, have the types that `retype` makes of theirs."""
    kind, hints = type(value), get_type_hints(type(value), include_extras=True)
    own: dict[str, Any] = {}
    changed: list[tuple[str, Any]] = []
    for field in fields(value):
        name, own[field.name] = inside + field.name, getattr(value, field.name)
        other = retype(name, hints[field.name])
        if other is not hints[field.name]:
            changed.append((field.name, other))
        elif is_dataclass(own[field.name]):
            own[field.name] = _retyped(own[field.name], retype, f"{name}.")
            changed.append((field.name, type(own[field.name])))
    return make_dataclass(kind.__name__, changed, bases=(kind,), frozen=True, kw_only=True)(**own)


def _sentence(box: str, recipe: Any = None) -> str:
    """What stands in tyro's box above its first rule, and who has such an option, or the likest that it suggests."""
    plain = re.sub(r"\x1b\[[0-9;]*m", "", box)
    lines = [line.strip("│╭╮╰╯|+ ") for line in plain.splitlines()[1:]]
    body = list(dropwhile(_is_rule, lines))  # a plain terminal gets one more rule, below the title
    message = " ".join(takewhile(lambda line: not _is_rule(line), body)).rstrip(".")
    options = [line.split()[0].rstrip(",") for line in lines if re.match(r"--\w", line)]
    if not (found := UNKNOWN.fullmatch(message)):
        return _plainly(message) + "."
    unknown = _without_values(found[2].split(", "))
    hint = next(filter(None, (recipe.lacks(name.lstrip("-")) for name in unknown if recipe)), "")
    if not hint and options and unknown[0].startswith("--"):
        hint = _likest(unknown[0].split("=")[0], options)
    return f"{found[1]}{', '.join(unknown)}.{hint and ' ' + hint.strip()}"


def _without_values(unknown: list[str]) -> list[str]:
    """The words that are in question: what follows an option that is none was meant for it."""
    first = next((i for i, word in enumerate(unknown) if word.startswith("--")), len(unknown))
    return [word for i, word in enumerate(unknown) if i < first or word.startswith("--")]


def _plainly(message: str) -> str:
    """The message, if it complains of a value that is wrong or missing, in words that are not a programmer's."""
    if found := CHOICE.fullmatch(message):
        listed = sorted(value for value in re.findall("'([^']*)'", found[3]) if value != "None")  # tyro's order varies
        return f"--{found[2]} is {found[1]}; choose {', '.join(listed)}"
    if found := TOO_FEW.fullmatch(message):
        return f"{found[1]} needs {'a value' if found[2] == '1' else f'{found[2]} values'}"
    for complaint, wanted in WANTED.items():
        if found := re.fullmatch(rf"Error parsing --(\S+): {complaint}", message):
            return f"--{found[1]} is {found[2]}; give {wanted}"
    return message


def _likest(typed: str, options: list[str]) -> str:
    """The hint for an option that is none; tyro's first, where none is spelt alike."""
    return nearest(typed, options) or f" Did you mean {options[0]}?"


def _apart(arguments: Sequence[str], sentence: str) -> list[str]:
    """The arguments with a mistyped option apart from its value: together tyro knows none that is like it."""
    mistyped = MISTYPED.search(sentence)
    return [
        part
        for word in arguments
        for part in (word.split("=", 1) if mistyped and word.startswith(mistyped[1]) else [word])
    ]


def _takes_data(target: Any, default: Any) -> bool:
    """Whether a command, or the recipe that it shows, has an option for images."""
    parts = (target, getattr(default, "recipe", None))
    return any(field.name == "data" for part in parts if is_dataclass(part) for field in fields(part))


def _data_among(arguments: Sequence[str], sentence: str) -> str:
    """The hint for a path that stands where none is expected."""
    stray = [word for word in arguments if sentence.endswith(f"nrecognized options: {word}.") and Path(word).exists()]
    return f" If these are your images, say {data_option(stray[0])}." if stray else ""


def _other_way(arguments: Sequence[str], sentence: str, target: Any) -> str:
    """The hint for a field that is changed as another command has it: by --set there, by an option of its own here."""
    found = UNKNOWN.fullmatch(sentence)
    if found is None or "Did you mean" in sentence:
        return ""
    unknown = {word.strip(".,") for word in found[2].split()}
    by_set = is_dataclass(target) and any(field.name == "settings" for field in fields(target))  # called --set
    if by_set and (stray := [word for word in arguments if word in unknown and re.match(r"[a-z][\w.]*=", word)]):
        return f" Say --set before each: {shlex.join(each for word in stray for each in ('--set', word))}."
    for place, word in enumerate(arguments):
        values = [*takewhile(lambda value: not value.startswith("--"), arguments[place + 1 :])]
        if word not in unknown or not word.startswith("--"):
            continue
        if by_set:
            return f" If that is a field of recipes: --set {word[2:].replace('-', '_')}={','.join(values) or 'VALUE'}."
        if word == "--set" and values and "=" in values[0]:
            name, _, value = values[0].partition("=")
            return f" Here a field is an option: --{name.replace('_', '-')} {value.replace(',', ' ')}."
    return ""


def _is_rule(line: str) -> bool:
    return not line.strip("─-")
