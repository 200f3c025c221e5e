"""What a shell starts: one line for an error that nobody foresaw, with the traceback in a file."""

import os
import signal
import sys
import tempfile
import traceback
from typing import NoReturn

from .system.signals import ends_imports


def main() -> NoReturn:
    """Run the command of `sys.argv`."""
    # OpenMP's threads spin while they wait for each other: on busy cores, small steps took 10 to 100 times as long.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # read when torch is imported
    if debug := "--debug" in sys.argv:
        sys.argv.remove("--debug")
    try:
        with ends_imports():
            from .cli import main as run

        run()
    except KeyboardInterrupt:  # one more, while the first was answered
        sys.exit(128 + signal.SIGINT)
    except Exception as error:
        if debug:
            raise
        from .system.terminal import complain

        with tempfile.NamedTemporaryFile("w", prefix="logo-ssl-", suffix=".txt", delete=False) as file:
            traceback.print_exc(file=file)
        what = " ".join([f"{type(error).__name__}: {error}.", *getattr(error, "__notes__", ())]).replace("\n", " ")
        complain(f"Unforeseen {what} The traceback is in {file.name}; --debug shows it.")
        sys.exit(1)


if __name__ == "__main__":
    main()
