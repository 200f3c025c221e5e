"""What if a process ends while a thread of it computes? It ends at once, with the code that it would have."""

import atexit
import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from ..signals import Stopped

CTRL_C, FAILED = 130, 2


@contextmanager
def beside(work: Callable[[threading.Event], None]) -> Iterator[None]:
    """Let work be done in a thread until the block ends, which sets the event; a process that ends then waits for none.

    Python freezes such a thread when it goes away; one that is inside torch takes the process down with it (SIGABRT).
    """
    stop, codes = threading.Event(), [0]
    thread = threading.Thread(target=work, args=(stop,), daemon=True)
    atexit.register(_leave, thread, codes)
    thread.start()
    try:
        yield
    except BaseException as error:
        codes.append(_code(error))
        raise
    finally:
        stop.set()


def _code(error: BaseException) -> int:
    """With what a process ends that this ended."""
    if isinstance(error, Stopped):
        return 128 + error.number
    return CTRL_C if isinstance(error, KeyboardInterrupt) else FAILED


def _leave(thread: threading.Thread, codes: list[int]) -> None:
    if thread.is_alive():
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(codes[-1])
