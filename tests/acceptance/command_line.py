"""How the acceptance tests call the command `logo-ssl`, in this process or in another, and read what a run leaves."""

import contextlib
import io
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

from safetensors.torch import load_file
from torch import Tensor

import logo_ssl
from logo_ssl.__main__ import main

SOURCE = Path(logo_ssl.__file__).parents[1]
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)

# Everything of the recipe `tiny` that decides what is learned, so that another `tiny` leaves these runs as they are.
SMALL = (
    *("--backbone", "tiny", "--stem", "imagenet", "--epochs", "1", "--batch-size", "16", "--seed", "0"),
    *("--framework", "moco", "--framework.dim", "32", "--framework.head", "mlp-bn", "--framework.queue", "32"),
    *("--framework.tau", "0.2", "--framework.m", "0.99", "--framework.splits", "2"),
    *("--strategy", "logo", "--strategy.lam", "0.05", "--strategy.depth", "2", "--strategy.width", "32"),
    *("--crops.n-global", "2", "--crops.n-local", "2", "--crops.global-size", "32", "--crops.local-size", "16"),
    *("--optimiser.kind", "sgd", "--optimiser.lr", "0.03", "--optimiser.warmup-epochs", "0"),
    *("--device", "cpu", "--precision", "fp32", "--knn-every", "1", "--log-every", "1", "--loggers"),
)
"""Options of `pretrain tiny` for runs that take a second; a later option of the same name would be another value."""
EPOCHS = 8
"""Of the run that others are interrupted on the way to."""


class Ended(NamedTuple):
    """How a command ended."""

    code: int
    out: str
    err: str


def options(*, of: tuple[str, ...] = SMALL, **changes: Any) -> list[str]:
    """These options, where `epochs=2` or `framework__dim=8` gives one another value and None leaves it out."""
    parts: dict[str, list[str]] = {}
    for word in of:
        if word.startswith("--"):
            parts[word] = []
        else:
            parts[list(parts)[-1]].append(word)
    for name, value in changes.items():
        option = "--" + name.replace("__", ".").replace("_", "-")
        parts.pop(option, None)
        if value is not None:
            values = value if isinstance(value, tuple | list) else (value,)
            parts[option] = [str(each) for each in values]
    return [word for option, values in parts.items() for word in (option, *values)]


@contextlib.contextmanager
def signals_kept() -> Iterator[None]:
    """Whatever a command makes of signals ends with it."""
    kept = {number: signal.getsignal(number) for number in SIGNALS}
    try:
        yield
    finally:
        for number, handler in kept.items():
            signal.signal(number, handler)


def here(*argv: object, cwd: Path) -> Ended:
    """What `logo-ssl` does, in this process: a new one takes seconds to import torch."""
    out, err, words = io.StringIO(), io.StringIO(), [str(word) for word in argv]
    with (
        signals_kept(),
        contextlib.chdir(cwd),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
        patch.object(sys, "argv", ["logo-ssl", *words]),
    ):
        try:
            main()
            code = 0
        except SystemExit as stop:
            code = stop.code if isinstance(stop.code, int) else int(stop.code is not None)
    return Ended(code, out.getvalue(), err.getvalue())


def environment() -> dict[str, str]:
    """That of this process, with one thread and this source tree."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("SLURM_")}
    return kept | {"PYTHONPATH": str(SOURCE), "OMP_NUM_THREADS": "1"}


def started(*argv: object, cwd: Path, program: tuple[str, ...] = ("-m", "logo_ssl")) -> subprocess.Popen[str]:
    """The command in a process of its own, still running."""
    command = [sys.executable, *program, *(str(word) for word in argv)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen(command, cwd=cwd, env=environment(), **pipes)


def ended(process: "subprocess.Popen[str]", seconds: float = 300) -> Ended:
    """Its end, or that of the test."""
    try:
        out, err = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        out, err = process.communicate()
        raise AssertionError(f"did not end in {seconds} s: {out}{err}") from None
    return Ended(process.returncode, out, err)


def named(text: str, word: str) -> bool:
    """Whether a text names an option, a field or a value: `--crops.n-local` also as Python's `crops.n_local`."""
    text, word = (_as_in_python(each) for each in (text, word))
    return re.search(rf"(?<!\w){re.escape(word)}(?!\w)", text) is not None


def _as_in_python(text: str) -> str:
    text = re.sub(r"\x1b\[[0-9;]*m", "", text)  # colours
    return re.sub(r"(?<!\w)--?(?=[a-z])", "", text).replace("-", "_")


def metrics(run: Path) -> list[dict[str, Any]]:
    """The lines of a run's curves."""
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


def weights(run: Path) -> dict[str, Tensor]:
    """Everything that a run has learned, by name."""
    files = (run / "backbone.safetensors", run / "heads.safetensors")
    return {f"{file.stem} {name}": x for file in files for name, x in load_file(file).items()}
