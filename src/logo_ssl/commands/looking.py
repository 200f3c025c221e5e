"""How are crops, encoders and runs looked at from a shell? show-crops, eval, affinity, report, watch and reproduce."""

import signal
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import Annotated, Any

import tyro

from ..arguments import asks_for_help, parse, refuse_without
from ..encoder_names import refuse_no_encoder
from ..errors import UserError, nearest
from ..report.given import runs_at
from ..run import Run
from ..signals import Stopped
from ..terminal import plain_console, put

MOST_SHOWN = 30
PROTOCOL_NAMES = ("knn", "linear", "transfer", "finetune", "semi", "detect", "segment")
"""What `eval` measures by: known here too, since the protocols themselves import torch."""


def show_crops(arguments: Sequence[str]) -> None:
    """Draw the crops of some images; the recipe decides how they are cut."""
    from ..augment.preview import draw_crops
    from ..chosen import recipe_of
    from ..data import statistics
    from ..data.decode import look_at
    from ..data.sources import load_data, locate
    from ..files import check_output, write
    from ..randomness import stream
    from ..recipes import check, find_recipe

    named = [] if not arguments or arguments[0].startswith("-") else [arguments[0]]
    chosen, rest = recipe_of("show-crops", arguments, find_recipe("tiny"))

    @dataclass(frozen=True)
    class Options:
        """Draw the crops of some images as the network sees them, and their boxes on the originals.

        example: logo-ssl show-crops --data photos/ --out crops.png
        """

        recipe: Annotated[type(chosen), tyro.conf.arg(name="")]  # pyright: ignore (known once it runs)
        out: Path = Path("crops.png")
        """The picture to write."""
        images: int = 6
        """How many images to show, evenly spread over the data."""
        overwrite: bool = False
        """Replace --out if it exists."""

    parsed = parse(Options, rest, prog=" ".join(["show-crops", *named]), default=Options(chosen))
    recipe, console = parsed.recipe, plain_console()
    check(recipe)
    if not 1 <= parsed.images <= MOST_SHOWN:
        raise UserError(f"--images is {parsed.images}; show 1 to {MOST_SHOWN}.")
    if parsed.out.suffix.lower() != ".png":
        raise UserError(f"--out is {parsed.out}; crops are drawn as a .png file.")
    check_output(parsed.out, parsed.overwrite)
    data = load_data(locate(recipe.data), recipe.crops.global_size)
    for sentence in data.says:
        console.print(sentence)
    shown = look_at(data.train, parsed.images, recipe.loading.max_side)
    picture = draw_crops(shown, recipe.crops, stream(recipe.seed, "show"), *statistics(data.train.images))
    console.print(f"Crops: {write(parsed.out, picture)}")


def evaluate(arguments: Sequence[str]) -> None:
    """Measure a frozen encoder by a protocol; figures go to the screen and into the encoder's run."""
    if arguments and arguments[0] not in ("-h", "--help"):
        _refuse_wrong_names(*arguments[:2], helping=asks_for_help(arguments))
    from ..eval.commands import PROTOCOLS

    if not arguments or arguments[0] in ("-h", "--help"):
        put(_usage(PROTOCOLS))
        if not arguments:
            raise UserError("Say which protocol and which encoder, for example: logo-ssl eval knn runs/first")
        return
    asked = parse(PROTOCOLS[arguments[0]], arguments[1:], prog=f"eval {arguments[0]}")
    try:
        asked.run()
    except KeyboardInterrupt:
        raise Stopped(signal.SIGINT).interrupted("give the same command again") from None


def _usage(protocols: dict[str, Any]) -> str:
    return (
        "usage: logo-ssl eval PROTOCOL ENCODER [options]\n\n"
        + "".join(f"  {name:10} {command.__doc__.splitlines()[0]}\n" for name, command in protocols.items())
        + "\nENCODER is a run folder, torchvision/NAME, timm/NAME, random/NAME, a checkpoint of MoCo, SimSiam,\n"
        "lightly or solo-learn, or an exported encoder. `logo-ssl eval PROTOCOL --help` shows the options.\n\n"
        "examples:\n  logo-ssl eval knn runs/first\n  logo-ssl eval transfer torchvision/resnet50 --sets pets flowers\n"
    )


def _refuse_wrong_names(protocol: str, encoder: str = "-", *, helping: bool) -> None:
    """Raise a UserError for a protocol or an encoder that cannot be, before anything large is imported."""
    if protocol not in PROTOCOL_NAMES:
        hint = nearest(protocol, PROTOCOL_NAMES)
        raise UserError(f"No protocol is called {protocol!r}; choose {', '.join(PROTOCOL_NAMES)}.{hint}")
    if not encoder.startswith("-") and not helping:
        refuse_no_encoder(encoder)


def _named_first(arguments: Sequence[str]) -> list[Path]:
    """The paths before all options, to be looked at before anything large is imported; none where help is asked for."""
    words = [] if asks_for_help(arguments) else [*takewhile(lambda word: not word.startswith("-"), arguments)]
    if "" in words:
        raise UserError("RUN is empty: give a folder.")
    return [Path(word) for word in words]


def affinity(arguments: Sequence[str]) -> None:
    """Draw the learned affinity beside cosine similarity, and measure how well both rank crops."""
    refuse_without(arguments, "which run", "affinity runs/first")
    for path in _named_first(arguments[:1]):
        Run.existing(path)
    from ..report.affinity import Affinity

    parse(Affinity, arguments, prog="affinity").run()


def report(arguments: Sequence[str]) -> None:
    """Write one HTML page about some runs."""
    refuse_without(arguments, "which runs", "report runs/first runs/second --out report.html")
    runs_at(_named_first(arguments))
    from ..report.report import Report

    parse(Report, arguments, prog="report").run()


def watch(arguments: Sequence[str]) -> None:
    """Serve the report's page while runs go on."""
    refuse_without(arguments, "which runs", "watch runs/first")
    from ..report.watch import Watch

    parse(Watch, arguments, prog="watch").run()


def reproduce(arguments: Sequence[str]) -> None:
    """Run the rows of the paper's tables; exit code 1 when one of them failed or lacks its data."""
    refuse_without(arguments, "what to reproduce", "reproduce table1 --seeds 3")
    from ..reproduce.commands import Reproduce

    if not parse(Reproduce, arguments, prog="reproduce").run():
        sys.exit(1)
