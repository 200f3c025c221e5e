"""How is the next item ready before it is asked for? A thread makes it."""

import queue
import threading
from collections.abc import Iterable, Iterator
from typing import Any, Generic, TypeVar

T = TypeVar("T")
LOOK_S = 0.1  # between two looks whether items are still wanted


class Ahead(Iterator[T], Generic[T]):
    """Items of which a thread makes up to `most` before they are asked for; whatever it raises is raised here."""

    def __init__(self, items: Iterable[T], most: int, name: str) -> None:
        self.ready: queue.Queue[Any] = queue.Queue(most)
        self.closed = threading.Event()
        self.thread = threading.Thread(target=self._make, args=[items], name=name, daemon=True)
        self.thread.start()

    def __next__(self) -> T:
        while not self.closed.is_set():
            try:
                item, end = self.ready.get(timeout=LOOK_S)
            except queue.Empty:
                continue
            if end is None:
                return item
            self.closed.set()
            raise end
        raise StopIteration

    def close(self) -> None:
        """Want no more items; the one that is being made is not waited for, here or by whoever asked for it."""
        self.closed.set()

    def join(self, patience: float | None = None) -> None:
        """Wait until the thread has ended, for so many seconds at most."""
        self.close()
        self.thread.join(patience)

    def _make(self, items: Iterable[T]) -> None:
        try:
            for item in items:
                if not self._hand_over((item, None)):
                    return
            self._hand_over((None, StopIteration()))
        except BaseException as error:  # whoever waits must hear of it
            self._hand_over((None, error))

    def _hand_over(self, item: Any) -> bool:
        while not self.closed.is_set():
            try:
                self.ready.put(item, timeout=LOOK_S)
                return True
            except queue.Full:
                continue
        return False
