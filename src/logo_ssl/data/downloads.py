"""Who downloads a set that several processes want? One of them, and the others wait for it."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TypeVar

from ..lock import in_turn

Found = TypeVar("Found")


def found_or_fetched(root: Path, name: str, find: Callable[[], Found], fetch: Callable[[], Found]) -> Found:
    """What `find` finds below a folder; where it fails, or a download is under way, what `fetch` downloads in turn."""
    lock = root / f".{name}.lock"  # lies there while a download is under way, or after one was interrupted
    if not lock.exists():
        with suppress(RuntimeError, OSError):  # as torchvision tells of a set that is not there, or not whole
            return find()
    with _held(lock):
        if lock.exists():  # else another process has done it meanwhile
            found = fetch()
            with suppress(OSError):
                lock.unlink()
            return found
    return find()


@contextmanager
def _held(lock: Path) -> Iterator[None]:
    """Hold a file as soon as no other process does; where it cannot be written, nothing can be downloaded either."""
    with ExitStack() as stack:
        with suppress(OSError):
            lock.parent.mkdir(parents=True, exist_ok=True)
            stack.enter_context(in_turn(stack.enter_context(lock.open("a"))))
        yield
