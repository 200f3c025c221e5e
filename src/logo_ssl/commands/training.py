"""How is an encoder trained from a shell? demo, recipes, pretrain, resume and bench."""

import json
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from textwrap import fill
from typing import Annotated, NoReturn

import tyro
from rich.table import Table

from ..arguments import asks_for_help, hinting, parse, showing
from ..errors import UserError
from ..run import Run
from ..terminal import plain_console, put

ABOUT_RECIPES = (
    "For your own images take none: `logo-ssl pretrain --data photos/` chooses.",
    "*-logo have local crops that are pushed apart, *-multicrop those that are not.",
    "cifar10-tuned-* are the paper's rows by settings of ours, which end higher;",
    "cifar10-best has our highest kNN there; imagenette-* are for photographs of 128",
    "px. Tables and figures are the paper's; ours are in docs/results.",
    "What a recipe sets: `logo-ssl pretrain RECIPE --help`.",
)


def demo(arguments: Sequence[str]) -> None:
    """Pretrain a small encoder on made-up scenes and show that it learned."""
    from ..demo import Demo

    parse(Demo, arguments, prog="demo").run()


def recipes(arguments: Sequence[str]) -> None:
    """List the recipes."""
    if arguments and not arguments[0].startswith("-") and not Path(arguments[0]).exists():
        from ..recipes import AUTO, find_recipe

        name = arguments[0] if arguments[0] == AUTO else find_recipe(arguments[0]).name
        raise UserError(f"`logo-ssl recipes` lists all; `logo-ssl pretrain {name} --help` shows what {name} sets.")
    parse(list_recipes, arguments, prog="recipes")


def list_recipes() -> None:
    """List the recipes, with the paper's tables and figures; `logo-ssl pretrain RECIPE --help` shows one.

    example: logo-ssl recipes
    """
    from ..recipes import AUTO, RECIPES

    head = ("recipe", "backbone", "paper's\ntables", "paper\nkNN %", "paper\nlinear %")
    table = Table(*head, pad_edge=False, show_edge=False)
    table.add_row(AUTO, "chosen")
    for recipe in RECIPES.values():
        tables = ", ".join(str(row.table) for row in recipe.paper)
        known = ({getattr(row, what) for row in recipe.paper} - {None} for what in ("knn", "linear"))
        figures = (" / ".join(f"{value:.2f}" for value in sorted(of)) for of in known)
        table.add_row(recipe.name, recipe.backbone, tables, *figures)
    console = plain_console()
    console.print(table)
    for sentence in ABOUT_RECIPES:
        console.print(sentence)


def pretrain(arguments: Sequence[str]) -> None:
    """Pretrain an encoder by a recipe; any field of the recipe can be given as an option."""
    from ..chosen import recipe_of
    from ..recipes import AUTO, PARTS, RECIPES, check, described

    if arguments and arguments[0] in ("-h", "--help"):
        put(
            "usage: logo-ssl pretrain [RECIPE] [options]\n\nWithout a recipe, or with `auto`, everything is chosen for "
            f"the images and this machine.\n\nrecipes: {', '.join((AUTO, *RECIPES))}\n\n"
            "`logo-ssl pretrain auto --help` shows every option, `logo-ssl pretrain RECIPE --help` those of a recipe "
            "with its values.\n\nexamples:\n"
            "  logo-ssl pretrain --data photos/ --out runs/photos\n"
            "  logo-ssl pretrain --data photos/ --epochs 50 --backbone resnet50\n"
            "  logo-ssl pretrain cifar10-tuned-moco-logo --strategy.lam 0.02\n"
        )
        return
    chosen, rest = recipe_of("pretrain", arguments, own=["out"])

    @dataclass(frozen=True)
    class Options:
        """Pretrain an encoder."""

        recipe: Annotated[type(chosen), tyro.conf.arg(name="")]  # pyright: ignore (known once it runs)
        out: Path = Path("runs") / chosen.name
        """Run folder, new or empty."""

    parts = " and ".join(f"--{part} NAME ({', '.join(known)})" for part, known in PARTS.items())
    what = (
        f"Pretrain an encoder by {chosen.name}. {described(chosen)}" if chosen.name != AUTO else "Pretrain an encoder."
    )
    about = f"{what}\n{fill(f'{parts} swap these parts of the recipe.', 80)}"
    parsed = parse(Options, rest, prog=f"pretrain {chosen.name}", default=Options(chosen), description=about)
    check(parsed.recipe)
    from ..train import pretrain as run_pretraining  # slow to import: mistakes should be told before

    _say_next(run_pretraining(parsed.recipe, parsed.out))


def resume(arguments: Sequence[str]) -> None:
    """Go on with an interrupted run from its last checkpoint, or with a finished one for more epochs."""
    from ..recipes import Recipe, check, is_harmless, read_recipe

    if not arguments or arguments[0].startswith("-"):
        if asks_for_help(arguments):
            _help_with_resuming()
        raise UserError("Say which run to go on with, for example: logo-ssl resume runs/first")
    run = Run.existing(arguments[0])
    path, saved = run.path, read_recipe(run)

    if asks_for_help(arguments):
        shown = showing(saved, is_harmless)
        told = "Go on with a run. What decides what is learned stays as it was; this may change:"
        parse(type(shown), ["--help"], prog=f"resume {path}", default=shown, description=told)

    @dataclass(frozen=True)
    class Options:
        """Go on with a run. Options that would change what is learned are refused."""

        recipe: Annotated[Recipe, tyro.conf.arg(name="")]

    parsed = parse(Options, arguments[1:], prog=f"resume {path}", default=Options(saved))
    check(parsed.recipe)
    from ..train import resume as resume_pretraining  # slow to import: mistakes should be told before

    _say_next(resume_pretraining(path, parsed.recipe))


def _help_with_resuming() -> NoReturn:
    """What may change in any run; which values one has, the help of that run shows."""
    from ..recipes import find_recipe, flat, is_harmless

    any_recipe = find_recipe("tiny")
    fields = flat(any_recipe).keys()
    shown = showing(hinting(any_recipe, lambda name: "as in the run" if name in fields else None), is_harmless)
    told = (
        "Go on with an interrupted run from its last checkpoint, or with a finished one for more epochs: logo-ssl "
        "resume RUN --epochs 400\n\nWhat decides what is learned stays as it was; the options below may change. "
        "`logo-ssl resume RUN --help` shows the run's own values.\n\nexample: logo-ssl resume runs/first"
    )
    parse(type(shown), ["--help"], prog="resume RUN", default=shown, description=told)
    raise AssertionError("help ends the command")


def bench(arguments: Sequence[str]) -> None:
    """Measure the speed of a recipe; any of its fields can be given as an option."""
    from ..chosen import recipe_of

    if not arguments:
        raise UserError("Say which recipe to measure, for example: logo-ssl bench tiny")
    if arguments[0] in ("-h", "--help"):
        put(
            "usage: logo-ssl bench RECIPE [options]\n\n"
            "Trains for four epochs, keeps nothing, and prints one JSON line: images/s of data, augmentation, raw\n"
            "forward and backward, and the whole step; their ratio, start-up time and memory. Takes the options of\n"
            "`logo-ssl pretrain RECIPE`; --epochs says for how many the time is estimated.\n\n"
            "example: logo-ssl bench tiny\n"
        )
        return
    chosen, rest = recipe_of("bench", arguments)

    @dataclass(frozen=True)
    class Options:
        """Measure the speed of training."""

        recipe: Annotated[type(chosen), tyro.conf.arg(name="")]  # pyright: ignore (known once it runs)

    parsed = parse(Options, rest, prog=f"bench {chosen.name}", default=Options(chosen))
    from ..train.bench import bench as measure  # slow to import: mistakes should be told before

    put(json.dumps(measure(parsed.recipe)) + "\n")


def _say_next(run: Run) -> None:
    """Where the encoder is, and what can be done with it."""
    console = plain_console()
    console.print(f"Done: {run.backbone_file}")
    features = f"{run.path.absolute().name}-features.npz"  # of its own: those of another run are not replaced
    console.print(f"Next: logo-ssl embed {shlex.join([str(run.path), '--out', features])}")
