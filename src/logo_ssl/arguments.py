"""How does a line of arguments become values? tyro reads it, and its box of errors becomes one sentence."""

import contextlib
import io
import re
from collections.abc import Sequence
from itertools import dropwhile, takewhile
from typing import Any

import tyro

from .errors import UserError


def parse(target: Any, arguments: Sequence[str], **options: Any) -> Any:
    """Parse with tyro; its box of errors becomes one sentence."""
    box = io.StringIO()
    try:
        with contextlib.redirect_stderr(box):
            return tyro.cli(target, args=list(arguments), config=(tyro.conf.AvoidSubcommands,), **options)
    except SystemExit as stop:
        if stop.code in (0, None):
            raise
        raise UserError(f"{_sentence(box.getvalue())} `{options['prog']} --help` shows every option.") from None


def _sentence(box: str) -> str:
    """What stands in tyro's box above its first rule, and the option it suggests."""
    plain = re.sub(r"\x1b\[[0-9;]*m", "", box)
    lines = [line.strip("│╭╮╰╯|+ ") for line in plain.splitlines()[1:]]
    body = list(dropwhile(_is_rule, lines))  # a plain terminal gets one more rule, below the title
    message = " ".join(takewhile(lambda line: not _is_rule(line), body)).rstrip(".")
    options = [line.split()[0] for line in lines if re.match(r"--\w", line)]
    return message + "." + (f" Did you mean {options[0]}?" if options and "nrecognized" in message else "")


def _is_rule(line: str) -> bool:
    return not line.strip("─-")
