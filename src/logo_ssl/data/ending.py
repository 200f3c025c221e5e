"""How do a loader's worker processes end? They are asked to; whoever does not hear is killed."""

import contextlib
import os
import threading
from collections.abc import Iterator, Sequence
from functools import cache
from multiprocessing import active_children
from multiprocessing.process import BaseProcess
from multiprocessing.util import Finalize
from typing import Any
from weakref import WeakKeyDictionary

from torch.utils.data import DataLoader
from torch.utils.data._utils import signal_handling

GRACE_S = 3.0
"""In which a worker that is well finishes what it does."""
BEGUN: WeakKeyDictionary[BaseProcess, int] = WeakKeyDictionary()
"""The workers, each with the number by which torch knows whose it is."""


def begin(loader: DataLoader[Any]) -> Iterator[Any]:
    """The loader's batches; its worker processes end with this one, even if nobody ends them before."""
    batches = iter(loader)
    BEGUN.update(dict.fromkeys(_workers_of(batches), id(batches)))
    _killed_at_exit(os.getpid())
    return batches


def end(batches: Iterator[Any]) -> None:
    """End the worker processes within seconds, whatever they do.

    Torch alone would wait for one after the other, and ask them to stop by a signal that they outlast.
    """
    if not (workers := _workers_of(batches)):
        return
    _expect_the_end(batches)
    killer = threading.Timer(GRACE_S, _kill, [workers])
    killer.daemon = True
    killer.start()
    try:
        batches._shutdown_workers()  # type: ignore[attr-defined] (of an iterator with workers)
    finally:
        killer.cancel()
        killer.join()  # two that wait for one process would each take it for alive for a moment
        _kill(workers)


def _workers_of(batches: Any) -> list[BaseProcess]:
    return getattr(batches, "_workers", [])


def _expect_the_end(batches: Any) -> None:
    """Let torch no longer raise an error, wherever this process is, when one of the workers ends."""
    if batches._worker_pids_set:
        signal_handling._remove_worker_pids(id(batches))
        batches._worker_pids_set = False


def _kill(workers: Sequence[BaseProcess]) -> None:
    for worker in workers:
        worker.kill()
    for worker in workers:
        worker.join(GRACE_S)


@cache
def _killed_at_exit(process: int) -> None:
    """Let this process kill its workers when it ends: multiprocessing would ask them, and wait without limit."""
    Finalize(None, _kill_all, exitpriority=0)


def _kill_all() -> None:
    workers = [worker for worker in active_children() if worker in BEGUN]
    for number in {BEGUN[worker] for worker in workers}:
        with contextlib.suppress(ValueError):  # torch knows them no more
            signal_handling._remove_worker_pids(number)
    _kill(workers)
