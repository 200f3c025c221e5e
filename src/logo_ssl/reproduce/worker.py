"""What does the process of one row do? Its row, until its parent says stop or is gone."""

import os
import signal
import sys
import threading
from pathlib import Path
from typing import IO

from ..errors import AGAIN, DataMissing, Interrupted, UserError, refused_by_disk
from ..signals import SPOKEN, Stopped
from .plan import Place

DONE, FAILED, MISSING, UNHEARD, STOPPED = 0, 2, 3, 4, 130


def attempt(folder: Path, measurements: list[str], log: IO[str] | None = None) -> tuple[int, str]:
    """Do what is left of the row in a folder; gives back how it ended, and why. What it says is kept in a log, too."""
    try:
        from .rows import perform  # slow to import: the parent need not wait for it

        perform(Place(folder), measurements, log)
    except DataMissing as error:
        return MISSING, str(error)
    except Interrupted as error:
        return STOPPED, str(error)
    except UserError as error:
        return FAILED, str(error)
    except OSError as error:
        if sentence := refused_by_disk(error):
            return FAILED, sentence
        raise
    except Exception as error:
        error.__notes__ = []  # how a run goes on; a row does by the same command, and what went wrong is told last
        raise
    return DONE, ""


def main() -> None:
    """The row in the folder that the first argument names; the others say what to measure."""
    signal.signal(signal.SIGINT, signal.default_int_handler)  # shells have background jobs ignore it
    SPOKEN[signal.SIGINT] = "the end of `reproduce`"  # see `_stop_with_parent`
    folder, *measurements = sys.argv[1:]
    try:
        threading.Thread(target=_stop_with_parent, daemon=True).start()
        log = None if os.path.sameopenfile(1, 2) else sys.stderr  # to which standard output may go as well
        code, sentence = attempt(Path(folder), measurements, log)
    except KeyboardInterrupt:
        code, sentence = STOPPED, str(Stopped(signal.SIGINT).interrupted(AGAIN))
    try:
        sys.stderr.write(f"{sentence}\n")
    except OSError:  # the log may lie on a disk that is full
        code = UNHEARD if code in (FAILED, MISSING) else code
    sys.exit(code)


def _stop_with_parent() -> None:
    """Standard input ends when the parent closes it, or dies of whatever it may be."""
    while os.read(0, 1):  # not sys.stdin: its lock, held by a daemon, would break the interpreter's own end
        pass
    os.kill(os.getpid(), signal.SIGINT)


if __name__ == "__main__":
    main()
