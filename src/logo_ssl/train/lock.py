"""Who may write to a run folder? One process at a time."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from ..errors import UserError

try:
    import fcntl
except ImportError:  # not on Windows, where nothing is locked
    fcntl = None

FILE = ".lock"
HELD: set[IO[str]] = set()
"""The lock files of this process. What it forks (workers) closes them, or would hold the lock after its parent."""

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=lambda: [file.close() for file in HELD])


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold the folder; the system lets go of it however the process ends, kill -9 included."""
    folder.mkdir(parents=True, exist_ok=True)
    if fcntl is None:
        yield
        return
    with (folder / FILE).open("a+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            owner = file.read().strip() or "unknown"
            raise UserError(
                f"{folder} is being trained by another process ({owner}); wait for it, or choose another --out."
            ) from None
        except OSError:  # a disk without locks (some network disks): better unlocked than not at all
            yield
            return
        file.truncate(0)
        file.write(f"process {os.getpid()}")
        file.flush()
        HELD.add(file)
        try:
            yield
        finally:
            HELD.discard(file)
