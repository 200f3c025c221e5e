"""What can be done from a shell? Sub-commands: typed functions, nothing else."""

import errno
import json
import os
import shlex
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import tyro
from rich.console import Console
from rich.table import Table

from . import __version__
from .arguments import parse, showing
from .errors import Interrupted, UserError, nearest
from .launch import is_first
from .signals import Stopped, heeded
from .terminal import plain_console, signature

if TYPE_CHECKING:
    pass

MOST_SHOWN = 30

HELP = """usage: logo-ssl COMMAND ...

Self-supervised pretraining of image encoders with local and global crops (LoGo, CVPR 2022).

commands:
  demo                 pretrain a small encoder on made-up scenes and show that it learned (minutes, no GPU)
  recipes              list the recipes, with the paper's row and numbers
  pretrain [RECIPE]    pretrain an encoder; without a recipe, all is chosen for --data and this machine
  resume RUN           go on with an interrupted run
  eval PROTOCOL RUN    measure an encoder: knn, linear, transfer, finetune, semi, detect, segment
  embed RUN            write features of images: path, label, vector
  search RUN           find the images most like a query
  export RUN           write an encoder for torchvision, timm, ONNX, safetensors or the Hugging Face Hub
  affinity RUN         draw how alike crops are by the learned measure, beside cosine, and measure how well both rank
  report RUN ...       write one HTML page about some runs: numbers, curves, tables, pictures, settings
  watch RUN ...        the same page served on this machine while the runs go on, always new
  show-crops [RECIPE]  draw the crops of some images as the network sees them
  reproduce TABLE ...  run the rows of the paper's tables, and write them beside its numbers
  bench RECIPE         measure the speed of training and of its parts, as JSON
  doctor               look at this machine: versions, devices, speed, and what would be chosen for --data
  completion SHELL     print completion for bash, zsh or fish

options:
  -h, --help           show this and exit
  --version            show the version and exit

exit codes:
  0 done   1 a row of `reproduce` failed   2 something to mend, said in a sentence   128 + n stopped by signal n

examples:
  logo-ssl pretrain --data photos/ --out runs/photos
  logo-ssl embed runs/photos --data photos/ --out features.parquet
  logo-ssl search runs/photos --index features.parquet --query cat.jpg --out sheet.png
  logo-ssl export runs/photos --to onnx
  logo-ssl pretrain tiny --framework byol --data photos/ --out runs/byol
"""


def demo(arguments: Sequence[str]) -> None:
    """Pretrain a small encoder on made-up scenes and show that it learned."""
    from .demo import demo as show

    parse(show, arguments, prog="logo-ssl demo")


def recipes() -> None:
    """List the recipes, with the paper's row and numbers.

    example: logo-ssl recipes
    """
    from .recipes import RECIPES

    table = Table("recipe", "data", "backbone", "paper", "row", "kNN (%)", "linear (%)")
    for recipe in RECIPES.values():
        for row in recipe.paper or (None,):
            told = (
                ("", "", "", "")
                if row is None
                else (f"Table {row.table}", row.row, _number(row.knn), _number(row.linear))
            )
            table.add_row(recipe.name, recipe.data, recipe.backbone, *told)
    Console(width=None if sys.stdout.isatty() else 140).print(table)


def pretrain(arguments: Sequence[str]) -> None:
    """Pretrain an encoder by a recipe; any field of the recipe can be given as an option."""
    from .chosen import recipe_of
    from .recipes import RECIPES, Recipe, check

    if arguments and arguments[0] in ("-h", "--help"):
        _out(
            "usage: logo-ssl pretrain [RECIPE] [options]\n\nWithout a recipe, or with `auto`, everything is chosen for "
            f"the images and this machine.\n\nrecipes: {', '.join(RECIPES)}\n\n"
            "`logo-ssl pretrain RECIPE --help` shows every option of a recipe.\n\nexamples:\n"
            "  logo-ssl pretrain --data photos/ --out runs/photos\n"
            "  logo-ssl pretrain --data photos/ --epochs 50 --backbone resnet50\n"
            "  logo-ssl pretrain cifar10-simsiam-logo --strategy.lam 0.1\n"
        )
        return
    chosen, rest = recipe_of(arguments)

    @dataclass(frozen=True)
    class Options:
        """Pretrain an encoder.

        --framework NAME (moco, simsiam, byol, simclr, supervised) and --strategy NAME (two-view, multi-crop, logo) swap
        these parts of the recipe.
        """

        recipe: Annotated[Recipe, tyro.conf.arg(name="")]
        out: Path = Path("runs") / chosen.name
        """Run folder, new or empty."""

    parsed = parse(Options, rest, prog=f"logo-ssl pretrain {chosen.name}", default=Options(chosen))
    check(parsed.recipe)
    from .train import pretrain as run_pretraining  # slow to import: mistakes should be told before

    run = run_pretraining(parsed.recipe, parsed.out)
    console = plain_console()
    console.print(f"Done: {run.backbone_file}")
    console.print(f"Next: logo-ssl embed {shlex.quote(str(run.path))} --out features.npz")


def resume(arguments: Sequence[str]) -> None:
    """Go on with an interrupted run from its last checkpoint, or with a finished one for more epochs."""
    from .recipes import Recipe, check, is_harmless, read_recipe
    from .run import Run

    if not arguments or arguments[0].startswith("-"):
        if "-h" in arguments or "--help" in arguments:
            _out(
                "usage: logo-ssl resume RUN [options]\n\nGo on with an interrupted run from its last checkpoint, or "
                "with a finished one: logo-ssl resume RUN --epochs 400\n\n"
                "`logo-ssl resume RUN --help` shows what may change; all else is kept.\n\n"
                "example: logo-ssl resume runs/first\n"
            )
            return
        raise UserError("Say which run to go on with, for example: logo-ssl resume runs/first")
    path = Path(arguments[0])
    saved = read_recipe(Run.existing(path))

    if {"-h", "--help"} & set(arguments):
        shown = showing(saved, is_harmless)
        told = "Go on with a run. What decides what is learned stays as it was; this may change:"
        parse(type(shown), ["--help"], prog=f"logo-ssl resume {path}", default=shown, description=told)

    @dataclass(frozen=True)
    class Options:
        """Go on with a run. Options that would change what is learned are refused."""

        recipe: Annotated[Recipe, tyro.conf.arg(name="")]

    parsed = parse(Options, arguments[1:], prog=f"logo-ssl resume {path}", default=Options(saved))
    check(parsed.recipe)
    from .train import resume as resume_pretraining  # slow to import: mistakes should be told before

    plain_console().print(f"Done: {resume_pretraining(path, parsed.recipe).backbone_file}")


def show_crops(arguments: Sequence[str]) -> None:
    """Draw the crops of some images; the recipe decides how they are cut."""
    from .augment.picture import draw_crops
    from .chosen import choose_parts, option, recipe_of
    from .data import statistics
    from .data.samples import look_at
    from .data.sources import load_data, locate
    from .randomness import stream
    from .recipes import Recipe, check, find_recipe
    from .run import write

    named = [] if not arguments or arguments[0].startswith("-") else [arguments[0]]
    if named or option(arguments, "--data"):
        chosen, rest = recipe_of(arguments)
    else:
        chosen, rest = choose_parts(find_recipe("tiny"), arguments)

    @dataclass(frozen=True)
    class Options:
        """Draw the crops of some images as the network sees them, and their boxes on the originals.

        example: logo-ssl show-crops imagenet100-moco-logo --data photos/ --out crops.png
        """

        recipe: Annotated[Recipe, tyro.conf.arg(name="")]
        out: Path = Path("crops.png")
        """The picture to write."""
        images: int = 6
        """How many images to show, evenly spread over the data."""

    parsed = parse(Options, rest, prog=f"logo-ssl show-crops {' '.join(named)}".strip(), default=Options(chosen))
    recipe = parsed.recipe
    check(recipe)
    if not 1 <= parsed.images <= MOST_SHOWN:
        raise UserError(f"images is {parsed.images}; show 1 to {MOST_SHOWN}.")
    if parsed.out.suffix.lower() != ".png":
        raise UserError(f"--out is {parsed.out}; crops are drawn as a .png file.")
    data = load_data(locate(recipe.data), recipe.crops.global_size)
    shown = look_at(data.train, parsed.images, recipe.loading.max_side)
    picture = draw_crops(shown, recipe.crops, stream(recipe.seed, "show"), *statistics(data.train.images))
    plain_console().print(f"Crops: {write(parsed.out, picture)}")


def evaluate(arguments: Sequence[str]) -> None:
    """Measure a frozen encoder by a protocol; figures go to the screen and into the encoder's run."""
    from .evaluate.commands import PROTOCOLS

    usage = "usage: logo-ssl eval PROTOCOL ENCODER [options]\n\n" + "".join(
        f"  {name:10} {command.__doc__.splitlines()[0]}\n" for name, command in PROTOCOLS.items() if command.__doc__
    )
    usage += (
        "\nENCODER is a run folder, torchvision/NAME, timm/NAME, random/NAME, or a checkpoint of MoCo, SimSiam,\n"
        "lightly or solo-learn. `logo-ssl eval PROTOCOL --help` shows the options.\n\n"
        "examples:\n  logo-ssl eval knn runs/first\n  logo-ssl eval transfer torchvision/resnet50 --sets pets flowers\n"
    )
    if not arguments or arguments[0] in ("-h", "--help"):
        _out(usage)
        if not arguments:
            raise UserError("Say which protocol and which encoder, for example: logo-ssl eval knn runs/first")
        return
    if arguments[0] not in PROTOCOLS:
        hint = nearest(arguments[0], PROTOCOLS)
        raise UserError(f"No protocol is called {arguments[0]!r}; choose {', '.join(PROTOCOLS)}.{hint}")
    parse(PROTOCOLS[arguments[0]], arguments[1:], prog=f"logo-ssl eval {arguments[0]}").run()


def affinity(arguments: Sequence[str]) -> None:
    """Draw the learned affinity beside cosine similarity, and measure how well both rank crops."""
    _refuse_without(arguments, "which run", "affinity runs/first")
    from .show.affinity import Affinity

    parse(Affinity, arguments, prog="logo-ssl affinity").run()


def report(arguments: Sequence[str]) -> None:
    """Write one HTML page about some runs."""
    _refuse_without(arguments, "which runs", "report runs/first runs/second --out report.html")
    from .show.report import Report

    parse(Report, arguments, prog="logo-ssl report").run()


def watch(arguments: Sequence[str]) -> None:
    """Serve the report's page while runs go on."""
    _refuse_without(arguments, "which runs", "watch runs/first")
    from .show.watch import Watch

    parse(Watch, arguments, prog="logo-ssl watch").run()


def reproduce(arguments: Sequence[str]) -> None:
    """Run the rows of the paper's tables; exit code 1 when one of them failed or lacks its data."""
    _refuse_without(arguments, "what to reproduce", "reproduce table1 --seeds 3")
    from .reproduce.command import Reproduce

    if not parse(Reproduce, arguments, prog="logo-ssl reproduce").run():
        sys.exit(1)


def use(name: str, example: str, arguments: Sequence[str]) -> None:
    """Put an encoder to use: embed, search or export."""
    _refuse_without(arguments, "which encoder", f"{name} {example}")
    from .use.commands import USES

    parse(USES[name], arguments, prog=f"logo-ssl {name}").run()


def doctor(arguments: Sequence[str]) -> None:
    """Look at this machine: versions, devices, speed, and what would be chosen."""
    from .use.doctor import Doctor

    parse(Doctor, arguments, prog="logo-ssl doctor").run()


def completion(arguments: Sequence[str]) -> None:
    """Print the lines that make a shell complete commands, options and recipes."""
    from .completion import SHELLS, script

    if len(arguments) != 1 or arguments[0] not in SHELLS:
        if arguments and arguments[0] in ("-h", "--help"):
            _out(
                "usage: logo-ssl completion SHELL\n\n"
                + "".join(f"  {name:5} {how}\n" for name, how in SHELLS.items())
                + "\nexample: logo-ssl completion fish\n"
            )
            return
        raise UserError(f"Say for which shell: logo-ssl completion {'|'.join(SHELLS)}")
    _out(script(arguments[0]))


def bench(arguments: Sequence[str]) -> None:
    """Measure the speed of a recipe; any of its fields can be given as an option."""
    from .chosen import recipe_of
    from .recipes import Recipe

    if not arguments:
        raise UserError("Say which recipe to measure, for example: logo-ssl bench tiny")
    if arguments[0] in ("-h", "--help"):
        _out(
            "usage: logo-ssl bench RECIPE [options]\n\n"
            "Trains for a few epochs, keeps nothing, and prints one JSON line: images/s of data, augmentation, raw\n"
            "forward and backward, and the whole step; their ratio, start-up time and memory. Takes the options of\n"
            "`logo-ssl pretrain RECIPE`.\n\nexample: logo-ssl bench tiny\n"
        )
        return
    chosen, rest = recipe_of(arguments)

    @dataclass(frozen=True)
    class Options:
        """Measure the speed of training."""

        recipe: Annotated[Recipe, tyro.conf.arg(name="")]

    parsed = parse(Options, rest, prog=f"logo-ssl bench {chosen.name}", default=Options(chosen))
    from .train.bench import bench as measure  # slow to import: mistakes should be told before

    _out(json.dumps(measure(parsed.recipe)) + "\n")


COMMANDS: dict[str, Callable[[Sequence[str]], None]] = {
    "demo": demo,
    "recipes": lambda arguments: parse(recipes, arguments, prog="logo-ssl recipes"),
    "pretrain": pretrain,
    "eval": evaluate,
    "embed": partial(use, "embed", "runs/first --data photos/ --out features.parquet"),
    "search": partial(use, "search", "runs/first --index features.parquet --query image.jpg"),
    "export": partial(use, "export", "runs/first --to timm"),
    "doctor": doctor,
    "completion": completion,
    "affinity": affinity,
    "report": report,
    "watch": watch,
    "show-crops": show_crops,
    "reproduce": reproduce,
    "bench": bench,
    "resume": resume,
}


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run a command; whatever the user can mend is told in one sentence, with exit code 2."""
    try:
        with heeded():
            _dispatch(list(sys.argv[1:] if arguments is None else arguments))
    except Interrupted as stop:
        if stop.agreed and not is_first():
            sys.exit(stop.code)
        _fail(str(stop), code=stop.code)
    except Stopped as stop:
        told = stop.interrupted("start it again")
        _fail(str(told), code=told.code)
    except UserError as error:
        _fail(str(error))
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:  # `| head` has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            _fail("The disk is full; free some space, then go on with `logo-ssl resume` and the run's folder.")
        if error.errno in (errno.EACCES, errno.EROFS, errno.EPERM):
            _fail(f"{error.filename} cannot be written ({error.strerror}); choose another --out, or allow it.")
        _fail(f"{error.filename or 'A file'} cannot be used ({error.strerror or error}); choose another path.")
    sys.exit(0)


def _dispatch(arguments: list[str]) -> None:
    match arguments:
        case [] | ["-h" | "--help", *_]:
            _out(HELP)
        case ["--version", *_]:
            _out(f"logo-ssl {__version__}\n")
        case [command, *rest] if command in COMMANDS:
            COMMANDS[command](rest)
        case [unknown, *_]:
            raise UserError(
                f"No command is called {unknown!r}; `logo-ssl --help` lists them.{nearest(unknown, COMMANDS)}"
            )


def _refuse_without(arguments: Sequence[str], what: str, example: str) -> None:
    """What a command is about comes first."""
    if not arguments or (arguments[0].startswith("-") and arguments[0] not in ("-h", "--help")):
        raise UserError(f"Say {what} first, for example: logo-ssl {example}")


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"


def _out(text: str) -> None:
    sys.stdout.write(text)


def _fail(sentence: str, code: int = 2) -> NoReturn:
    sys.stderr.write(f"{signature()}: {sentence}\n")
    sys.exit(code)
