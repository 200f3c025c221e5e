"""What if somebody says stop? A step is finished and the state saved; where no step is made, all ends at once."""

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any

from ..errors import Interrupted
from .launch import is_first

ENDING = ("SIGTERM", "SIGUSR1")
"""The end of a job; Slurm's early warning."""
ASKING = ("SIGINT", *ENDING)
"""And Ctrl-C."""
CTRL_C = "Ctrl-C"
SPOKEN = {signal.SIGINT: CTRL_C}
"""Signals that a sentence calls otherwise than the system does."""
STOPPING = b"\nStopping after this step; Ctrl-C again stops at once.\n"
"""What is said at once to Ctrl-C, below a line of progress that may stand there."""
ENDED = b"logo-ssl: Stopped by Ctrl-C; give the same command again.\n"
PATIENCE_S = 60
"""In which a step ends and is saved."""


class Stopped(BaseException):
    """A signal came while no step was being made. (Like Ctrl-C, it must not pass for a failure that can be mended.)"""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = signal.Signals(number)

    def interrupted(self, cure: str) -> Interrupted:
        """The sentence that says so, and how to go on; a terminal sends Ctrl-C to all processes of a run."""
        all_know = self.number == signal.SIGINT
        return Interrupted(f"Stopped by {_spoken(self.number)}; {cure}.", 128 + self.number, agreed=all_know)


@contextmanager
def heeded() -> Iterator[None]:
    """Let signals that would end this process without a word raise `Stopped`. (Only a main thread can.)"""
    before = _handled_by(ENDING, _Raise()) if threading.current_thread() is threading.main_thread() else {}
    try:
        yield
    finally:
        _give_back(before)


@contextmanager
def ends_imports() -> Iterator[None]:
    """Let Ctrl-C end the process at once while libraries are imported.

    An interrupted import of numpy, torch or rich ends in a traceback or another error, or aborts.
    """
    heeds = threading.current_thread() is threading.main_thread()
    if not heeds or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:  # shells have jobs ignore it
        yield
        return
    signal.signal(signal.SIGINT, _end_at_once)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _end_at_once(number: int, frame: FrameType | None) -> None:
    try:
        if is_first():
            os.write(2, ENDED)
    finally:
        os._exit(128 + number)


class StopSignals:
    """Remembers a signal until the step is over; a second Ctrl-C does not wait.

    Ctrl-C is answered at once, by the process that `speaks`.
    """

    def __init__(self, cure: str, speaks: bool = True) -> None:
        self.cure = cure
        self.speaks = speaks
        self.listening: int | None = None  # the process that listens
        self.received: signal.Signals | None = None
        self.waiting: int | None = None  # the process that waits; workers are forked from it while it does
        self.before: dict[signal.Signals, Any] = {}

    def listen(self) -> None:
        """Take the signals over. (Only a main thread can; elsewhere they keep their meaning.)"""
        if not self.before and threading.current_thread() is threading.main_thread():
            self.listening = os.getpid()
            self.before = _handled_by(ASKING, self._note)

    def ignore(self) -> None:
        """Give the signals back."""
        _give_back(self.before)
        self.before = {}

    @contextmanager
    def end_the_wait(self) -> Iterator[None]:
        """Let a signal that comes, or has come, raise `Stopped` at once: nothing is done here but to wait."""
        self.waiting = os.getpid()
        try:
            if self.received is not None:
                raise Stopped(self.received)
            yield
        finally:
            self.waiting = None

    def hear(self, number: int) -> bool:
        """Whether any process of the run received a signal; 0 is none, though this one may have received one since."""
        if number:
            self.received = signal.Signals(number)
        return bool(number)

    def interrupted(self, step: int, saved: bool, newest: int | None) -> Interrupted:
        """What to raise once the state is saved, or could not be: then the newest checkpoint is of an earlier step."""
        assert self.received is not None
        kept = "there is no checkpoint yet" if newest is None else f"the newest checkpoint is of step {newest}"
        told = f"saved at step {step}" if saved else f"step {step} could not be saved ({kept})"
        return Interrupted(
            f"Stopped by {_spoken(self.received)}, {told}; {self.cure}.", 128 + self.received, agreed=True
        )

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.received == signal.SIGINT == number:
            raise KeyboardInterrupt
        self.received = signal.Signals(number)
        if self.waiting == os.getpid():
            raise Stopped(number)
        self.acknowledge()

    def acknowledge(self) -> None:
        """Answer Ctrl-C, once; what a step is stopped by without it (a row's, by its parent) has no second one."""
        asked = self.received == signal.SIGINT and _spoken(self.received) == CTRL_C
        if asked and self.speaks and self.listening == os.getpid():
            self.speaks = False
            with suppress(OSError):
                os.write(2, STOPPING)  # a stream of Python's may be in the middle of a write of its own


def outlast(worker: int) -> None:
    """Let a loader's worker live on for a while after SIGTERM; a `worker_init_fn`.

    Slurm and systemd tell all processes at once. The end of a worker is an error for torch, which it would raise in the
    middle of the step that is to be saved.
    """
    if hasattr(signal, "alarm"):
        signal.signal(signal.SIGTERM, lambda *_: signal.alarm(PATIENCE_S))


class _Raise:
    """A handler that raises `Stopped` in the process that asked for it; one forked from it is ended by its parent."""

    def __init__(self) -> None:
        self.process = os.getpid()

    def __call__(self, number: int, frame: FrameType | None) -> None:
        if os.getpid() == self.process:
            raise Stopped(number)
        if number == signal.SIGTERM:
            os._exit(128 + number)


def _handled_by(names: tuple[str, ...], handler: Any) -> dict[signal.Signals, Any]:
    """Install a handler for all signals of these names that this system has; gives back what was there."""
    known = [signal.Signals[name] for name in names if name in signal.Signals.__members__]
    return {number: signal.signal(number, handler) for number in known}


def _give_back(before: dict[signal.Signals, Any]) -> None:
    for number, handler in before.items():
        signal.signal(number, handler)


def _spoken(number: signal.Signals) -> str:
    return SPOKEN.get(number, number.name)
