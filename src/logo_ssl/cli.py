"""The command line: which commands there are, and what reads the arguments and runs one of them."""

import os
import signal
import sys
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, make_dataclass
from importlib import import_module
from typing import Annotated, Any, Literal, NamedTuple, NoReturn, Union

import tyro
from tyro.constructors import MISSING_NONPROP as MISSING

from . import __version__
from . import eval as evaluation
from .errors import Interrupted, UserError
from .system.launch import is_first
from .system.signals import Stopped, ends_imports, heeded
from .system.terminal import complain, put

ABOUT = """Self-supervised pretraining of image encoders with local and global crops (LoGo, CVPR 2022).

examples:
  logo-ssl pretrain --data photos/ --out runs/photos
  logo-ssl embed runs/photos --data photos/ --out features.npz
  logo-ssl search runs/photos --index features.npz --query cat.jpg --out sheet.png
  logo-ssl export runs/photos --to onnx
  logo-ssl pretrain tiny --framework byol --data photos/ --out runs/byol

`logo-ssl --version` shows the version, `logo-ssl COMMAND --help` the options of a command. If something unforeseen goes
wrong, --debug shows the traceback, which is otherwise in a file.

exit codes:
  0 done    1 a row of `reproduce` failed, or something unforeseen    2 wrong input    128 + n stopped by signal n"""


class Command(NamedTuple):
    """One line of help, and the class of a command or the commands that may follow its name; nothing large is imported.

    Fields of the class are options, `run` does the work; `defaults`, if it has that, reads what decides other defaults.
    """

    about: str
    home: str = ""
    """The class: "module:Class"."""
    commands: "dict[str, Command] | None" = None

    def load(self) -> Any:
        """The class."""
        module, _, name = self.home.partition(":")
        return getattr(import_module(f".{module}", __package__), name)


PROTOCOLS = {name: Command(protocol.about, protocol.command) for name, protocol in evaluation.PROTOCOLS.items()}
COMMANDS: dict[str, Command] = {
    "demo": Command("pretrain a small encoder on made-up scenes and show that it learned", "training_commands:Demo"),
    "recipes": Command("list the recipes, with the tables and figures of the paper", "training_commands:Recipes"),
    "pretrain": Command(
        "pretrain an encoder; without a recipe, settings are chosen for --data", "training_commands:Pretrain"
    ),
    "resume": Command("continue an interrupted run, or a finished one for more epochs", "training_commands:Resume"),
    "eval": Command("evaluate an encoder by a protocol", commands=PROTOCOLS),
    "embed": Command("write features of images to a file: path, label, split, vector", "embedding.embeddings:Embed"),
    "compare": Command(
        "is an encoder better than another on your images, with labels or without?", "embedding.comparing:Compare"
    ),
    "finetune": Command("train a classifier on an encoder and keep it", "embedding.finetuning:Finetune"),
    "predict": Command("write what a kept model finds in new images: classes or objects", "predicting:Predict"),
    "search": Command("find the images most like a query", "embedding.searching:Search"),
    "export": Command(
        "write an encoder for torchvision, timm, ONNX or the Hugging Face Hub", "embedding.exporting:Export"
    ),
    "affinity": Command("draw the learned affinity of crops next to cosine similarity", "report.commands:Affinity"),
    "report": Command("write one HTML page about some runs", "report.commands:Report"),
    "watch": Command("serve this page while the runs are training", "report.commands:Watch"),
    "show-crops": Command("draw the crops of some images as the network sees them", "training_commands:ShowCrops"),
    "reproduce": Command("run the rows of the paper's tables and compare the figures", "reproduce.run:Reproduce"),
    "bench": Command("measure the speed of training and of its parts, as JSON", "training_commands:Bench"),
    "doctor": Command(
        "show versions, devices and speed of this machine, and what suits --data", "embedding.doctor:Doctor"
    ),
    "completion": Command("print completion for bash, zsh or fish", "cli:Completion"),
}


@dataclass(frozen=True)
class Completion:
    """Print the script that makes a shell complete commands, options and recipes.

    bash: eval "$(logo-ssl completion bash)" in ~/.bashrc. zsh: the same with zsh, after compinit, in ~/.zshrc. fish:
    logo-ssl completion fish | source, in ~/.config/fish/config.fish.

    example: logo-ssl completion bash
    """

    shell: tyro.conf.Positional[Literal["bash", "zsh", "fish"]]
    """The shell."""

    def run(self) -> None:
        """Print tyro's script for all commands with all their options."""
        read(_choice(COMMANDS, whole=True), ["--tyro-print-completion", self.shell], "logo-ssl")


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run a command, that of `sys.argv` by default; a UserError is printed without traceback, with exit code 2."""
    try:
        with heeded():
            with ends_imports():
                command = parse(sys.argv[1:] if arguments is None else arguments)
            done = command.run()
    except Stopped as stop:
        _end(stop.interrupted("start it again"))
    except KeyboardInterrupt:
        _end(Stopped(signal.SIGINT).interrupted("give the same command again"))
    except UserError as error:
        _end(error)
    except BrokenPipeError:  # `| head` has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
    except OSError as error:
        if error.filename is None:
            raise
        _end(UserError(f"{error.filename}: {error.strerror}."))
    sys.exit(1 if done is False else 0)


def parse(arguments: Sequence[str]) -> Any:
    """The command that the arguments ask for, with its options; tyro says what is wrong with them, and exits."""
    words, rest, commands, about = ["logo-ssl"], list(arguments), COMMANDS, ABOUT
    if rest[:1] == ["--version"]:
        put(f"logo-ssl {__version__}\n")
        sys.exit(0)
    if not rest:
        rest = ["--help"]
    while rest and rest[0] in commands:
        command = commands[rest[0]]
        words.append(rest.pop(0))
        if command.commands is None:
            target, prog = command.load(), " ".join(words)
            default = target.defaults(rest, prog) if hasattr(target, "defaults") else MISSING
            return read(target, rest, prog, default=default)
        commands, about = command.commands, f"{command.about}."
    return read(_choice(commands), rest, " ".join(words), description=about)


def read(target: Any, arguments: Sequence[str], prog: str, **how: Any) -> Any:
    """What tyro makes of arguments: its messages and its help reach the user as they are, from the first process."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "[^ ]* .* does not match any type in Union")  # somebody's own part
        config = (tyro.conf.AvoidSubcommands,)
        return tyro.cli(target, args=arguments, prog=prog, config=config, console_outputs=is_first(), **how)


def _choice(commands: dict[str, Command], *, whole: bool = False) -> Any:
    """The type of which tyro makes a subcommand for each command: its name alone or, if `whole`, all its options."""
    made = []
    for name, command in commands.items():
        target, default = make_dataclass("Named", []), MISSING
        if whole and command.commands is not None:
            inner = tyro.conf.OmitSubcommandPrefixes[_choice(command.commands, whole=True)]
            target = make_dataclass("Choice", [("command", inner)])
        elif whole:
            target = command.load()
            default = target.defaults(["--help"], name) if hasattr(target, "defaults") else MISSING
        made.append(Annotated[target, tyro.conf.subcommand(name, description=command.about, default=default)])
    return Union[tuple(made)]  # noqa: UP007 (known once it runs)


def _end(error: UserError) -> NoReturn:
    """Say what is wrong, once if all processes of a run know it, and exit."""
    if is_first() or not (isinstance(error, Interrupted) and error.agreed):
        complain(str(error))
    sys.exit(error.code if isinstance(error, Interrupted) else 2)
