"""What can be done from a shell? Commands by their names, and a sentence for whatever goes wrong."""

import os
import signal
import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import NoReturn

from . import __version__
from .commands.looking import affinity, evaluate, report, reproduce, show_crops, watch
from .commands.training import bench, demo, pretrain, recipes, resume
from .commands.using import doctor, use
from .errors import AGAIN, ELSEWHERE, Interrupted, UserError, nearest, refused_by_disk
from .launch import is_first
from .signals import Stopped, heeded
from .terminal import complain, put

HELP = """usage: logo-ssl COMMAND ...

Self-supervised pretraining of image encoders with local and global crops (LoGo, CVPR 2022).

commands:
  demo                 pretrain a small encoder on made-up scenes and show that it learned (minutes, no GPU)
  recipes              list the recipes, with the paper's tables and figures
  pretrain [RECIPE]    pretrain an encoder; without a recipe, all is chosen for --data and this machine
  resume RUN           go on with an interrupted run
  eval PROTOCOL RUN    measure an encoder: knn, linear, transfer, finetune, semi, detect, segment
  embed RUN            write features of images: path, label, split, vector
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
  0 done (a row that another `reproduce` is at is left to it)   1 a row of `reproduce` failed
  2 something to mend, said in a sentence   128 + n stopped by signal n

examples:
  logo-ssl pretrain --data photos/ --out runs/photos
  logo-ssl embed runs/photos --data photos/ --out features.npz
  logo-ssl search runs/photos --index features.npz --query cat.jpg --out sheet.png
  logo-ssl export runs/photos --to onnx
  logo-ssl pretrain tiny --framework byol --data photos/ --out runs/byol
"""


def completion(arguments: Sequence[str]) -> None:
    """Print the lines that make a shell complete commands, options and recipes."""
    from .completion import SHELLS, script

    if len(arguments) != 1 or arguments[0] not in SHELLS:
        if arguments and arguments[0] in ("-h", "--help"):
            put(
                "usage: logo-ssl completion SHELL\n\n"
                + "".join(f"  {name:5} {how}\n" for name, how in SHELLS.items())
                + "\nexample: logo-ssl completion fish\n"
            )
            return
        strange = f"{arguments[0]!r} is no shell that we complete. " if len(arguments) == 1 else ""
        raise UserError(f"{strange}Say for which shell: logo-ssl completion {'|'.join(SHELLS)}")
    put(script(arguments[0]))


COMMANDS: dict[str, Callable[[Sequence[str]], None]] = {
    "demo": demo,
    "recipes": recipes,
    "pretrain": pretrain,
    "eval": evaluate,
    "embed": partial(use, "embed", "runs/first --data photos/ --out features.npz"),
    "search": partial(use, "search", "runs/first --index features.npz --query image.jpg"),
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
    """Run a command, that of `sys.argv` by default; a UserError is printed without traceback, with exit code 2."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    try:
        with heeded():
            _dispatch(given)
    except Interrupted as stop:
        _tell(stop)
    except Stopped as stop:
        _tell(stop.interrupted("start it again"))
    except UserError as error:
        _fail(str(error))
    except KeyboardInterrupt:
        _tell(Stopped(signal.SIGINT).interrupted(AGAIN))
    except BrokenPipeError:  # `| head` has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
    except OSError as error:
        cure = "go on with `logo-ssl resume` and the run's folder" if given[:1] == ["pretrain"] else AGAIN
        told = f"{error.filename or 'A file'} cannot be used ({error.strerror or error}); choose another path."
        elsewhere = "allow it, or go on with a copy of the run" if given[:1] == ["resume"] else ELSEWHERE
        _fail(refused_by_disk(error, cure, elsewhere) or told)
    sys.exit(0)


def _dispatch(arguments: list[str]) -> None:
    match arguments:
        case [] | ["-h" | "--help", *_]:
            put(HELP)
        case ["--version", *_]:
            put(f"logo-ssl {__version__}\n")
        case [name, *rest] if name in COMMANDS:
            COMMANDS[name](rest)
        case [unknown, *_]:
            raise UserError(
                f"No command is called {unknown!r}; `logo-ssl --help` lists them.{nearest(unknown, COMMANDS)}"
            )


def _tell(stop: Interrupted) -> NoReturn:
    if stop.agreed and not is_first():
        sys.exit(stop.code)
    _fail(str(stop), code=stop.code)


def _fail(sentence: str, code: int = 2) -> NoReturn:
    complain(sentence)
    sys.exit(code)
