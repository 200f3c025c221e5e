"""How do processes take turns? By a lock on a file, where the system has them."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import IO, Any

try:
    import fcntl
except ModuleNotFoundError:  # Windows
    fcntl = None


@contextmanager
def alone(file: IO[Any]) -> Iterator[None]:
    """Waits until no other process holds the lock of an open file, and holds it meanwhile."""
    if fcntl is None:
        yield
        return
    with suppress(OSError):  # some network disks have none
        fcntl.flock(file, fcntl.LOCK_EX)
    try:
        yield
    finally:
        with suppress(OSError):
            fcntl.flock(file, fcntl.LOCK_UN)
