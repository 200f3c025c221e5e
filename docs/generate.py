"""What is in the reference? Every command, recipe field, recipe and Python name, read from the code."""

import ast
import inspect
import re
import tempfile
import textwrap
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout
from dataclasses import MISSING, fields, is_dataclass
from io import StringIO
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, get_args, get_origin, get_type_hints
from unittest import mock

import tyro

import logo_ssl
from logo_ssl import cli
from logo_ssl.completion import RECIPES_FIRST, SHELLS
from logo_ssl.eval.commands import PROTOCOLS
from logo_ssl.frameworks import FRAMEWORKS
from logo_ssl.recipes import AUTO, BASES, RECIPES, Recipe, flat
from logo_ssl.strategies import STRATEGIES

HIDDEN, POSITIONAL = (get_args(marker[int])[1] for marker in (tyro.conf.Suppress, tyro.conf.Positional))
PARTS = {"framework": FRAMEWORKS, "strategy": STRATEGIES}
"""Fields of a recipe that are one of several kinds, each with fields of its own."""


class Option(NamedTuple):
    """What can be set, to what, and why."""

    name: str
    values: str
    default: str
    about: str


NEEDED = {"embed": ["--out", "features.npz"], "export": ["--to", "onnx"]}
"""What a command refuses to be without before it reads its arguments."""


class Parsed(Exception):  # noqa: N818 (the way out of a command once it is known what it would read)
    """What a command reads its arguments into."""

    def __init__(self, target: Any, default: Any) -> None:
        self.target, self.default = target, default


def pages() -> dict[str, str]:
    """Name and text of every generated page."""
    return {
        "commands.md": commands_page(),
        "recipe-fields.md": fields_page(),
        "recipes.md": recipes_page(),
        "python.md": python_page(),
    }


def commands_page() -> str:
    """Every command: what it does, its options, an example."""
    usages = usages_in(cli.HELP)
    parts = [
        "# Commands\n\nGenerated from the code. `logo-ssl COMMAND --help` says the same in a shell. "
        "What is yes or no is switched off with `no-`: `--no-cache`.\n\n"
        "| command | what |\n|---|---|\n"
        + "".join(f"| [`{usage}`](#{usage.split()[0]}) | {what} |\n" for usage, what in usages.items())
        + f"\nExit codes: {_section(cli.HELP, 'exit codes')[0].replace('   ', '; ')}.\n"
    ]
    for usage in usages:
        name = usage.split()[0]
        parts.append(f"## {name}\n\n`logo-ssl {usage}`\n")
        if name == "eval":
            parts.append(_printed(cli.COMMANDS["eval"], ["--help"]))
            parts += [f"### eval {protocol}\n\n{_command('eval', [protocol])}" for protocol in PROTOCOLS]
        else:
            parts.append(_completion() if name == "completion" else _command(name, []))
    return "\n".join(parts)


def fields_page() -> str:
    """Every field of a recipe, part by part."""
    text = (
        "# Recipe fields\n\nGenerated from the code. Each is an option of `pretrain`, `resume`, `bench` and "
        "`show-crops`, and a keyword in Python: `--strategy.lam 0.1` is `strategy__lam=0.1`. What is yes or no is "
        "switched off with `no-`: `--framework.no-constant-lr`. Defaults are those of the field; a recipe may have "
        "[its own](recipes.md), and `logo-ssl pretrain RECIPE --help` shows it.\n\n## Recipe\n"
    )
    text += "\n" + table(options(Recipe))
    for part in fields(Recipe):
        if part.name in PARTS:
            text += f"\n## {part.name}\n\n{_about(Recipe)[part.name]} `--{part.name} NAME` swaps it.\n"
            for kind, config in PARTS[part.name].items():
                text += f"\n### {part.name} {kind}\n\n{table(options(config, prefix=f'{part.name}.'))}"
        elif callable(part.default_factory) and is_dataclass(part.default_factory):
            config = part.default_factory
            text += f"\n## {part.name}\n\n{_about(Recipe)[part.name]}\n\n"
            text += table(options(config, prefix=f"{part.name}."))
    return text


def recipes_page() -> str:
    """Every recipe: its row of the paper, and in what it differs from the defaults."""
    text = (
        "# Recipes\n\nGenerated from the code. A recipe is a row of the paper, or one of ours. The figures are the "
        "paper's: what we measured is on [the pages of results](../results/index.md).\n\n"
        "| recipe | data | backbone | paper | kNN (%) | linear (%) |\n|---|---|---|---|---|---|\n"
    )
    for recipe in RECIPES.values():
        for row in recipe.paper or (None,):
            told = (f"Table {row.table}: {row.row}", _figure(row.knn), _figure(row.linear)) if row else ("", "", "")
            text += f"| [`{recipe.name}`](#{recipe.name}) | {recipe.data} | {recipe.backbone} | {' | '.join(told)} |\n"
    bases = ", ".join(f"`{name}`" for name in BASES)
    text += f"\n## {AUTO}\n\nOne of {bases}, with backbone, crops, batches, learning rate and epochs "
    text += "chosen for the images and the machine, and said. It is what `logo-ssl pretrain --data PATH` takes without "
    text += "a recipe ([0021](../decisions/0021-using-the-encoder.md)).\n"
    for recipe in RECIPES.values():
        text += f"\n## {recipe.name}\n\n```sh\nlogo-ssl pretrain {recipe.name}\n```\n\n| field | value |\n|---|---|\n"
        text += "".join(f"| `{field}` | {_value(value)} |\n" for field, value in _own(recipe).items())
    return text


def python_page() -> str:
    """Every public name."""
    text = "# Python\n\nGenerated from the code.\n"
    for name in logo_ssl.__all__:
        thing = getattr(logo_ssl, name)
        if callable(thing):
            text += f"\n## {name}\n\n```python\n{_signature(name, thing)}\n```\n\n{inspect.getdoc(thing)}\n"
    return text


def usages_in(text: str) -> dict[str, str]:
    """How each command is called, and what it does, from the help of all."""
    rows = (re.split(r" {2,}", line, maxsplit=1) for line in _section(text, "commands"))
    return {usage: _cell(what) for usage, what in rows}


def options_of(command: str, arguments: list[str]) -> list[Option]:
    """The options of a command; those of a recipe are left to their own page."""
    target, default = reads(command, arguments)
    found = options(target, default=default) if is_dataclass(target) else ()  # a function takes none
    return [
        option._replace(default=option.default.replace("runs/tiny", "runs/RECIPE"))
        for option in found
        if option.name != "--recipe"
    ]


def options(config: Any, prefix: str = "", default: Any = None) -> Iterator[Option]:
    """The fields of a dataclass that somebody can set."""
    hints, about = get_type_hints(config, include_extras=True), _about(config)
    for field in fields(config):
        marks = getattr(hints[field.name], "__metadata__", ())
        if HIDDEN in marks or (not prefix and is_dataclass(field.default_factory)):
            continue
        named = next((mark for mark in marks if hasattr(mark, "metavar")), None)
        flag = f"--{prefix}{(named and named.name) or field.name}".replace("_", "-")
        name = ((named and named.metavar) or field.name.upper()) if POSITIONAL in marks else flag
        value = getattr(default, field.name, field.default)
        told = "required" if value is MISSING else _value(value) if value else _hint(named) or _value(value)
        yield Option(name, _values(hints[field.name]), told, about[field.name])


def reads(command: str, arguments: list[str]) -> tuple[Any, Any]:
    """What a command would read its arguments into, found by asking it to."""

    read = tyro.cli

    def stop(target: Any, default: Any = None, **how: Any) -> Any:
        if how.get("return_unknown_args"):  # not yet all of them
            return read(target, **how)
        raise Parsed(target, default)

    with mock.patch.object(tyro, "cli", stop), tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "recipe.json").write_text(RECIPES["tiny"].to_json())
        about = "tiny" if command in RECIPES_FIRST else folder
        try:
            cli.COMMANDS[command](arguments or [about, *NEEDED.get(command, [])])
        except Parsed as parsed:
            return parsed.target, parsed.default
    raise AssertionError(f"{command} reads no arguments")


def table(rows: Any) -> str:
    """Options as a table."""
    lines = [f"| `{name}` | {values} | {default} | {_cell(about)} |" for name, values, default, about in rows]
    return "\n".join(["| option | values | default | what |", "|---|---|---|---|", *lines, ""]) if lines else ""


def _command(name: str, arguments: list[str]) -> str:
    target, _ = reads(name, arguments)
    story, _, example = (inspect.getdoc(target) or "").partition("example: ")
    found = options_of(name, arguments)
    more = "\nEvery [field of a recipe](recipe-fields.md) is an option too.\n" if _takes_recipe(target) else ""
    shown = f"\n```sh\n{example.strip()}\n```\n" if example else ""
    return f"{_cell(story, ' ')}\n{shown}{more}\n{table(found)}"


def _section(text: str, title: str) -> list[str]:
    """The lines below a title, up to an empty one."""
    return [line.strip() for line in text.partition(f"\n{title}:\n")[2].partition("\n\n")[0].splitlines()]


def _takes_recipe(target: Any) -> bool:
    return is_dataclass(target) and any(field.name == "recipe" for field in fields(target))


def _completion() -> str:
    return "| shell | line |\n|---|---|\n" + "".join(f"| {name} | `{how}` |\n" for name, how in SHELLS.items())


def _printed(command: Callable[[list[str]], None], arguments: list[str]) -> str:
    told = StringIO()
    with redirect_stdout(told):
        command(arguments)
    return f"```text\n{told.getvalue()}```\n"


def _about(config: type) -> dict[str, str]:
    """The sentence below each field, of the class and of those it is made from."""
    found: dict[str, str] = {}
    for cls in reversed(config.__mro__):
        if not is_dataclass(cls):
            continue
        (tree,) = ast.parse(textwrap.dedent(inspect.getsource(cls))).body
        assert isinstance(tree, ast.ClassDef)
        for field, below in zip(tree.body, [*tree.body[1:], None], strict=True):
            if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
                said = isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant)
                found[field.target.id] = inspect.cleandoc(str(below.value.value)) if said else ""
    return found


def _own(recipe: Recipe) -> dict[str, Any]:
    """The values of a recipe that are not the fields' defaults."""
    usual = Recipe(recipe.name, framework=type(recipe.framework)(), strategy=type(recipe.strategy)())
    default = flat(usual)
    left_out = ("name", "paper", "chosen")
    kinds = ("framework.kind", "strategy.kind")
    return {
        field: value
        for field, value in flat(recipe).items()
        if field not in left_out and (field in kinds or value != default[field])
    }


def _values(hint: Any) -> str:
    """The type of an option as a person would say it."""
    if get_origin(hint) is Annotated:
        return _values(get_args(hint)[0])
    if get_origin(hint) is Literal:
        return ", ".join(f"`{value}`" for value in get_args(hint))
    if get_origin(hint) is tuple:
        inner = [_values(each) for each in get_args(hint) if each is not ...]
        return f"{inner[0]} ..." if ... in get_args(hint) else " ".join(inner)
    if arguments := get_args(hint):
        return ", ".join(_values(each) for each in arguments if each is not type(None))
    return {int: "whole number", float: "number", str: "text", bool: "yes or no", Path: "path"}.get(hint, "")


def _hint(named: Any) -> str:
    """What the help says in place of a default."""
    hint = getattr(named, "help_behavior_hint", None)
    return hint.strip("()").removeprefix("default: ") if isinstance(hint, str) else ""


def _value(value: Any) -> str:
    if value is None or value == ():
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return " ".join(_value(each) for each in value)
    return f"`{value:g}`" if isinstance(value, float) else f"`{value}`"


def _figure(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"


def _cell(text: str, between: str = " ") -> str:
    """A text on one line; a bar would end its cell, and brackets or angles would be read as markup."""
    return between.join(text.split()).replace("|", "\\|").replace("<", "&lt;")


def _signature(name: str, thing: Any) -> str:
    parameters = [str(each.replace(annotation=each.empty)) for each in inspect.signature(thing).parameters.values()]
    line = f"logo_ssl.{name}({', '.join(parameters)})"
    return line if len(line) <= 100 else f"logo_ssl.{name}(\n    " + ",\n    ".join(parameters) + ",\n)"
