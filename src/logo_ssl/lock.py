"""Who may write to a file or a run folder, or run a row? One process at a time: others wait, or are refused."""

import contextlib
import os
import platform
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from .errors import UserError

try:
    import fcntl
except ImportError:  # not on Windows, where nothing is locked
    fcntl = None

FILE = ".lock"
"""What lies in a folder that is held."""
HELD: set[IO[str]] = set()
"""The lock files of this process. What it forks (workers) closes them, or would hold the lock after its parent."""

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=lambda: [file.close() for file in HELD])


class Held(UserError):  # noqa: N818 (a state, not an error)
    """Another process is at it."""

    def __init__(self, sentence: str, owner: str) -> None:
        super().__init__(sentence)
        self.owner = owner


@contextlib.contextmanager
def locked(path: Path, what: str) -> Iterator[None]:
    """Hold a file, or say that `what` is being done; the system lets go however the process ends, kill -9 included."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if fcntl is None:
        yield
        return
    with path.open("a+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            owner = file.read().strip() or "some process"
            raise Held(f"{what} by another process ({owner}); wait for it, or choose another --out.", owner) from None
        except OSError:  # a disk without locks (some network disks): better unlocked than not at all
            yield
            return
        file.truncate(0)
        file.write(f"process {os.getpid()} on {platform.node()}")
        file.flush()
        HELD.add(file)
        try:
            yield
        finally:
            HELD.discard(file)


@contextlib.contextmanager
def in_turn(file: IO[Any]) -> Iterator[None]:
    """Wait until no other process holds an open file, and hold it meanwhile."""
    if fcntl is None:
        yield
        return
    with contextlib.suppress(OSError):  # some network disks have no locks
        fcntl.flock(file, fcntl.LOCK_EX)
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            fcntl.flock(file, fcntl.LOCK_UN)
