"""What if Ctrl-C comes while libraries are imported? The command ends at once; so nothing large is imported before."""

import os
import signal
import sys
from types import FrameType
from typing import NoReturn

from .launch import is_first

CODE = 128 + signal.SIGINT
TOLD = b"logo-ssl: Stopped by Ctrl-C; give the same command again.\n"
SHOW_CURSOR = b"\x1b[?25h"  # which a bar of progress hides
IMPORTERS = ("importlib", "_frozen_importlib", "_frozen_importlib_external")


def main() -> NoReturn:
    """Run the command of `sys.argv`: what `logo-ssl` and `python -m logo_ssl` do."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # shells have background jobs ignore it
        signal.signal(signal.SIGINT, EndsImports())
    try:
        from .cli import main as run

        run()
    except KeyboardInterrupt:  # one more, while the first was answered
        sys.exit(CODE)


class EndsImports:
    """A handler of Ctrl-C: an import that we asked for ends with the process, anything else is interrupted as ever.

    Interrupted imports of numpy, torch and rich end in tracebacks, in other errors, or abort.
    """

    def __init__(self) -> None:
        self.process = os.getpid()

    def __call__(self, number: int, frame: FrameType | None) -> None:
        """Answer the signal."""
        if os.getpid() != self.process or not we_import(frame):  # a forked process is its parent's to end
            raise KeyboardInterrupt
        try:
            sys.stdout.flush()
            if sys.stdout.isatty():
                os.write(1, SHOW_CURSOR)
            if is_first():
                os.write(2, TOLD)
        finally:
            os._exit(CODE)


def we_import(frame: FrameType | None) -> bool:
    """Whether a frame lies within an import that this package asked for."""
    importing = False
    while frame is not None:
        package = frame.f_globals.get("__name__", "").split(".")[0]
        if importing and package == __package__:
            return True
        importing, frame = package in IMPORTERS, frame.f_back
    return False
