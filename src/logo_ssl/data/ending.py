"""How do a loader's worker processes start and end? Forked; asked to end, and killed if they do not hear."""

import gc
import os
import threading
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from multiprocessing import active_children
from multiprocessing.process import BaseProcess
from multiprocessing.util import Finalize
from typing import Any
from weakref import WeakSet

import torch
from torch.utils.data import DataLoader
from torch.utils.data._utils import signal_handling

from ..signals import outlast

GRACE_S = 3.0
"""In which a worker that is well finishes what it does."""
DEATHS = ("DataLoader worker (pid", "shared memory", "Pin memory thread")
"""Of whom torch speaks when a worker process has died."""
BEGUN: WeakSet[BaseProcess] = WeakSet()
"""The workers."""
_forking = threading.Lock()


def process_options(workers: int) -> dict[str, Any]:
    """What a loader is told of its worker processes."""
    return {
        "num_workers": workers,
        "worker_init_fn": _begin_worker,
        "generator": torch.Generator(),  # or each start of workers would draw from the networks' own stream
        "multiprocessing_context": "fork" if workers and hasattr(os, "fork") else None,
    }


def begin(loader: DataLoader[Any]) -> Iterator[Any]:
    """The loader's batches; its worker processes end with this one, even if nobody ends them before.

    Of one that dies only whoever waits for its batches hears, within seconds, by a RuntimeError: torch alone would
    raise it in the main thread, wherever that is.
    """
    with _uncollected():
        batches = iter(loader)
    if workers := _workers_of(batches):
        _hush(batches)
        BEGUN.update(workers)
        _killed_at_exit(os.getpid())
    return batches


def go_on_alone(error: RuntimeError) -> None:
    """Say that this process reads on alone, if a worker has died; raise the error if it is another."""
    if not any(words in str(error) for words in DEATHS):
        raise error
    warnings.warn(
        f"A worker process ended ({str(error).splitlines()[0]}); this process reads on alone, and more slowly. If "
        "memory ran out, fewer workers need less.",
        RuntimeWarning,
        stacklevel=3,
    )


def end(batches: Iterator[Any]) -> None:
    """End the worker processes within seconds, whatever they do.

    Torch alone would wait for one after the other, and ask them to stop by a signal that they outlast.
    """
    if not (workers := _workers_of(batches)):
        return
    killer = threading.Timer(GRACE_S, _kill, [workers])
    killer.daemon = True
    killer.start()
    try:
        batches._shutdown_workers()  # type: ignore[attr-defined] (of an iterator with workers)
    finally:
        killer.cancel()
        killer.join()  # two that wait for one process would each take it for alive for a moment
        _kill(workers)


@contextmanager
def _uncollected() -> Iterator[None]:
    """Let processes that are forked meanwhile not collect this one's garbage; `_begin_worker` forbids it for good.

    It may hold memory of a GPU, and a forked process that frees such memory is aborted.
    """
    with _forking:
        collecting = gc.isenabled()
        try:
            gc.disable()
            yield
        finally:
            if collecting:
                gc.enable()


def _begin_worker(number: int) -> None:
    """A loader's `worker_init_fn`: leave alone what the parent left, and outlast the signal that tells it to stop."""
    gc.freeze()
    gc.enable()
    outlast(number)


def _forked() -> None:
    global _forking  # the parent's may be held, by a thread that is not here
    _forking = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)


def _workers_of(batches: Any) -> list[BaseProcess]:
    return getattr(batches, "_workers", [])


def _hush(batches: Any) -> None:
    """Let torch not raise an error in the main thread when one of the workers ends."""
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
    _kill([worker for worker in active_children() if worker in BEGUN])
