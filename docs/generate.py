"""The reference: a short page for each command, recipe fields, recipes and Python names, read from the code."""

import ast
import inspect
import textwrap
from collections.abc import Iterable, Iterator
from dataclasses import MISSING, Field, fields, is_dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

import tyro

import logo_ssl
from logo_ssl.cli import COMMANDS, Command
from logo_ssl.recipes import AUTO, BASES, PARTS, RECIPES, Recipe, flat

HIDDEN, POSITIONAL = (get_args(marker[int])[1] for marker in (tyro.conf.Suppress, tyro.conf.Positional))
PURPOSES = {
    "cifar10-tuned-*": "A row of Table 1 or 7 with settings of our choice.",
    "tiny": "A small encoder that learns made-up scenes in minutes on a CPU.",
    "cifar10-best": "Our highest kNN on CIFAR-10: MoCo with all pairs of six large crops.",
    "imagenette-*": "For photographs of about 128 px.",
    "*-supervised": "Learns from labels, for comparison.",
    "imagenet100-resnet50-moco-augself": "MoCo that also learns what was done to its crops, MoCo+Aug* of Table 5.",
    "imagenet100-resnet50-moco-multicrop": "MoCo-LoGo w/o L2L of Table 5.",
    "cifar10-*": "The paper's settings with a framework that the paper does not try.",
}
"""What recipes are for that have no row in the paper's tables, by patterns of their names; the first counts."""
COLUMNS = "| option | values | default | what |\n|---|---|---|---|\n"


def pages() -> dict[str, str]:
    """Path and text of every generated page."""
    return {
        "index.md": index_page(),
        **{f"commands/{name}.md": command_page(name, command) for name, command in COMMANDS.items()},
        "recipe-fields.md": fields_page(),
        "recipes.md": recipes_page(),
        "python.md": python_page(),
    }


def index_page() -> str:
    """What there is."""
    rows = "".join(f"| [`{name}`](commands/{name}.md) | {cell(each.about)} |\n" for name, each in COMMANDS.items())
    tree = "\n".join(["recipe-fields", "recipes", "python", *(f"commands/{name}" for name in COMMANDS)])
    return (
        "# Reference\n\nGenerated from the code. `logo-ssl COMMAND --help` shows the same in a shell.\n\n"
        f"| command | what |\n|---|---|\n{rows}\n"
        "Also: [recipe fields](recipe-fields.md), [recipes](recipes.md), [Python names](python.md).\n\n"
        f"```{{toctree}}\n:hidden:\n\n{tree}\n```\n"
    )


def command_page(name: str, command: Command) -> str:
    """What a command does, its options, an example; and the same for each command that may follow its name."""
    if command.commands is None:
        target = command.load()
        return f"# {name}\n\n{command_text(target)}{table(options(target))}"
    targets = {inner: each.load() for inner, each in command.commands.items()}
    rows = {inner: list(options(target)) for inner, target in targets.items()}
    first, *others = rows.values()
    of_all = [row for row in first if all(row in other for other in others)]
    text = f"# {name}\n\n`logo-ssl {name}`: {command.about}. All of them have these options:\n{table(of_all)}"
    for place, (inner, target) in enumerate(targets.items()):
        earlier = [other for other in list(targets)[:place] if flags(rows[other]) <= flags(rows[inner])]
        known = of_all + [row for other in earlier for row in rows[other]]
        also = "".join(f"\nAlso the options of `{name} {other}`, and:\n" for other in earlier)
        own = [row for row in rows[inner] if row not in known]
        text += f"\n## {name} {inner}\n\n{command_text(target)}{also}{table(own)}"
    return text


def flags(rows: Iterable[str]) -> set[str]:
    """The names of options."""
    return {row.split("`")[1] for row in rows}


def command_text(target: Any) -> str:
    """The docstring of a command's class, and its example."""
    story, _, example = (inspect.getdoc(target) or "").partition("example: ")
    shown = f"\n```sh\n{example.strip()}\n```\n" if example else ""
    takes_recipe = any(is_recipe(target, field) for field in fields(target))
    more = "\n[Fields of a recipe](../recipe-fields.md) are also options.\n" if takes_recipe else ""
    return f"{cell(story)}\n{shown}{more}"


def table(rows: Iterable[str]) -> str:
    """The rows below their header, if there are any."""
    text = "".join(rows)
    return f"\n{COLUMNS}{text}" if text else ""


def fields_page() -> str:
    """Every field of a recipe, part by part."""
    text = (
        "# Recipe fields\n\nGenerated from the code. Each is an option of `pretrain`, `bench` and `show-crops`, and a "
        "keyword in Python: `--strategy.lam 0.1` is `strategy__lam=0.1`. `resume` takes those that may change. "
        "`--no-NAME` switches off what is yes or no. A recipe may have [its own defaults](recipes.md).\n\n## Recipe\n\n"
        f"{COLUMNS}{''.join(options(Recipe))}"
    )
    about = sentences(Recipe)
    for part in (field.name for field in fields(Recipe) if is_dataclass(field.default_factory)):
        kinds: dict[str, Any] = PARTS.get(part) or {"": type(getattr(Recipe("any"), part))}
        text += f"\n## {part}\n\n{about[part]}"
        text += f" `--{part} NAME` swaps it.\n" if part in PARTS else "\n"
        for kind, config in kinds.items():
            text += f"\n### {part} {kind}\n" if kind else ""
            text += f"\n{COLUMNS}{''.join(options(config, prefix=f'{part}.'))}"
    return text


def purpose(name: str) -> str:
    """What a recipe is for that has no row in the paper's tables."""
    return next((about for pattern, about in PURPOSES.items() if fnmatchcase(name, pattern)), "")


def recipes_page() -> str:
    """Every recipe: what it is for, and in what it differs from the one that it is most like."""
    text = (
        "# Recipes\n\nGenerated from the code. `logo-ssl pretrain RECIPE --help` shows all settings of one. Here each "
        "has what differs from the recipe in the second column, or from [the defaults](recipe-fields.md). Figures are "
        "the paper's in percent, by kNN and a linear classifier; ours are in [the results](../results/index.md).\n\n"
    )
    bases = ", ".join(f"`{name}`" for name in BASES)
    text += (
        f"`{AUTO}`, which `logo-ssl pretrain --data PATH` takes, is one of {bases}. Backbone, crops, batch, learning "
    )
    text += "rate and epochs are chosen for the images and the machine.\n\n"
    text += "| recipe | like | but | for |\n|---|---|---|---|\n"
    earlier: list[Recipe] = []
    for recipe in RECIPES.values():
        base = min(earlier, key=lambda other: len(changes(recipe, other)), default=None)
        base = None if base and len(changes(recipe, base)) >= len(changes(recipe, None)) else base
        but = ", ".join(f"`{field}={setting(value)}`" for field, value in changes(recipe, base).items())
        like = f"`{base.name}`" if base else ""
        text += f"| `{recipe.name}` | {like} | {but} | {published(recipe) or purpose(recipe.name)} |\n"
        earlier.append(recipe)
    return text


def python_page() -> str:
    """Every public name."""
    text = "# Python\n\nGenerated from the code.\n"
    for name in logo_ssl.__all__:
        thing = getattr(logo_ssl, name)
        if callable(thing):
            text += f"\n## {name}\n\n```python\n{signature(name, thing)}\n```\n\n{inspect.getdoc(thing)}\n"
    return text


def options(config: type, prefix: str = "") -> Iterator[str]:
    """A row of a table for each field of a dataclass that somebody can set."""
    hints, about = get_type_hints(config, include_extras=True), sentences(config)
    for field in fields(config):
        marks = getattr(hints[field.name], "__metadata__", ())
        if HIDDEN in marks or is_dataclass(field.default_factory) or is_recipe(config, field):
            continue
        named = next((mark for mark in marks if hasattr(mark, "metavar")), None)
        flag = f"--{prefix}{(named and named.name) or field.name}".replace("_", "-")
        name = ((named and named.metavar) or field.name.upper()) if POSITIONAL in marks else flag
        default = "required" if field.default in (MISSING, tyro.MISSING) else shown(field.default)
        yield f"| `{name}` | {values(hints[field.name])} | {default} | {cell(about[field.name])} |\n"


def is_recipe(config: type, field: Field) -> bool:
    """Whether a field of a command holds a recipe, whose fields are options themselves."""
    hint = get_type_hints(config)[field.name]
    return isinstance(hint, type) and issubclass(hint, Recipe)


def sentences(config: type) -> dict[str, str]:
    """The sentence below each field, of the class and of those it is made from."""
    found: dict[str, str] = {}
    for cls in filter(is_dataclass, reversed(config.__mro__)):
        try:
            (tree,) = ast.parse(textwrap.dedent(inspect.getsource(cls))).body
        except OSError:  # made by make_dataclass, of fields whose sentences its bases have
            continue
        assert isinstance(tree, ast.ClassDef)
        for field, below in zip(tree.body, [*tree.body[1:], None], strict=True):
            if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
                there = isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant)
                found[field.target.id] = inspect.cleandoc(str(below.value.value)) if there else ""
    return found


def changes(recipe: Recipe, base: Recipe | None) -> dict[str, Any]:
    """The fields of a recipe that another recipe does not have, or has otherwise; without one, the defaults."""
    kinds, left_out = ("framework.kind", "strategy.kind"), ("name", "paper", "chosen", "replans")
    parts = {part: type(getattr(recipe, part))() for part in PARTS}
    known = flat(Recipe(recipe.name, **parts)) | (flat(base) if base else dict.fromkeys(kinds))
    return {field: value for field, value in flat(recipe).items() if field not in left_out and value != known[field]}


def values(hint: Any) -> str:
    """The type of an option in words."""
    if get_origin(hint) is Annotated:
        return values(get_args(hint)[0])
    if get_origin(hint) is Literal:
        return ", ".join(f"`{value}`" for value in get_args(hint))
    if get_origin(hint) is tuple:
        inner = [values(each) for each in get_args(hint) if each is not ...]
        return f"{inner[0]} ..." if ... in get_args(hint) else " ".join(inner)
    if arguments := get_args(hint):
        return ", ".join(values(each) for each in arguments if each is not type(None))
    return {int: "integer", float: "number", str: "text", bool: "yes/no", Path: "path"}.get(hint, "")


def shown(value: Any) -> str:
    """A value of an option in words."""
    if value is None or value in ((), ""):
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return " ".join(shown(each) for each in value)
    return f"`{value:g}`" if isinstance(value, float) else f"`{value}`"


def setting(value: Any) -> str:
    """A value as `--set` of `reproduce` takes it."""
    return ",".join(f"{each:g}" for each in value) if isinstance(value, list | tuple) else str(value)


def published(recipe: Recipe) -> str:
    """The paper's rows of a recipe: table, kNN, linear."""
    rows = [
        f"{row.table}: {', '.join(f'{each:.2f}' for each in (row.knn, row.linear) if each)}" for row in recipe.paper
    ]
    return "; ".join(f"Table {row}" for row in rows)


def cell(text: str) -> str:
    """A text on one line; a bar would end its cell, and angles would be read as markup."""
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")


def signature(name: str, thing: Any) -> str:
    """How a function is called."""
    parameters = [str(each.replace(annotation=each.empty)) for each in inspect.signature(thing).parameters.values()]
    line = f"logo_ssl.{name}({', '.join(parameters)})"
    return line if len(line) <= 100 else f"logo_ssl.{name}(\n    " + ",\n    ".join(parameters) + ",\n)"
