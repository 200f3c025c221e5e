"""Who downloads a set that several processes want? One of them, and the others wait for it."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, TypeVar

from ..lock import in_turn

Found = TypeVar("Found")
MISSING = RuntimeError, OSError
"""As torchvision tells of a set that is not there, or not whole."""


def found_or_fetched(root: Path, name: str, find: Callable[[], Found], fetch: Callable[[], Found]) -> Found:
    """What `find` finds below a folder; where it fails, or a download is under way, what `fetch` downloads in turn."""
    lock = root / f".{name}.lock"  # lies there while a download is under way, or after one was interrupted
    before = _touched(root)
    if not lock.exists():
        with suppress(*MISSING):
            found = find()
            if not lock.exists() and _touched(root) == before:  # else another wrote while this one looked
                return found
    with _held(lock) as file:
        if file is None:
            return find()
        if _is_empty(file):  # nobody was interrupted; another may have done it between the look and the lock
            with suppress(*MISSING):
                return _released(lock, find())
        file.write("a download has begun")
        file.flush()
        return _released(lock, fetch())


@contextmanager
def _held(lock: Path) -> Iterator[IO[str] | None]:
    """A file as soon as no other process holds it; none if that one was done, or where nothing can be written."""
    try:
        lock.parent.mkdir(parents=True, exist_ok=True)
        file = lock.open("a")
    except OSError:
        yield None
        return
    with file, in_turn(file):
        yield file if _is_same(file, lock) else None


def _touched(folder: Path) -> int | None:
    """When something was last made or removed in a folder, as a lock is; none where there is no folder."""
    with suppress(OSError):
        return folder.stat().st_mtime_ns
    return None


def _released(lock: Path, found: Found) -> Found:
    with suppress(OSError):
        lock.unlink()
    return found


def _is_empty(file: IO[str]) -> bool:
    return os.fstat(file.fileno()).st_size == 0


def _is_same(file: IO[str], path: Path) -> bool:
    """Is it still the file of that name? One that was removed, and perhaps made anew, is not."""
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except OSError:
        return False
