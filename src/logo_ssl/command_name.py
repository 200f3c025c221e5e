"""How does the command begin that somebody typed? `logo-ssl`, or a file of their own, which alone knows their parts."""

import shlex
import sys
from pathlib import Path

OURS = "logo-ssl"
_typed = OURS
_asked = "COMMAND"


def command() -> str:
    """How a command begins that knows what this one knows; whatever is proposed to be typed begins so."""
    return _typed


def by_own_file() -> str:
    """How the command that was typed begins where a file of somebody's own runs it; in Python nobody typed one."""
    return f"python FILE {_asked}"


def note_command(*, own_file: bool, asked: str = _asked) -> None:
    """Remember what was typed: ours, or the file that called `main`, and what was asked of it."""
    global _typed, _asked
    _typed, _asked = _own() if own_file else OURS, asked


def _own() -> str:
    """What runs a file of somebody's own again: by its name, or as a module, which may import its neighbours."""
    module = getattr(sys.modules["__main__"], "__spec__", None)
    if module is not None:
        return f"python -m {module.name.removesuffix('.__main__')}"
    return f"python {shlex.quote(sys.argv[0])}" if Path(sys.argv[0]).is_file() else OURS


def as_typed(help_text: str) -> str:
    """The text of a help, where commands are written as ours, with the command that was typed."""
    return help_text.replace(f"{OURS} ", f"{command()} ")
