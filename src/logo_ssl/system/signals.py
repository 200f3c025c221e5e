"""Ctrl-C and the signals that end a job: a step is finished and saved; where no step is made, all ends at once."""

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any

from ..errors import Interrupted

ENDING = ("SIGTERM", "SIGUSR1")
"""The end of a job; Slurm's early warning."""
ASKING = ("SIGINT", *ENDING)
"""And Ctrl-C."""
STOPPING = b"\nStopping after this step; Ctrl-C again stops at once.\n"
"""What is said at once to Ctrl-C, below a line of progress that may stand there."""
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
    process = os.getpid()

    def end(number: int, frame: FrameType | None) -> None:
        if os.getpid() == process:
            raise Stopped(number)
        if number == signal.SIGTERM:  # in a process forked from it, which its parent ends
            os._exit(128 + number)

    before = _handled_by(ENDING, end) if threading.current_thread() is threading.main_thread() else {}
    try:
        yield
    finally:
        _give_back(before)


@contextmanager
def ends_imports() -> Iterator[None]:
    """Let Ctrl-C end the process at once while libraries are imported: numpy and torch make another error of it."""
    heeds = threading.current_thread() is threading.main_thread()
    if not heeds or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:  # shells have jobs ignore it
        yield
        return
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


class StopSignals:
    """Remembers a signal until the step is over; a second Ctrl-C does not wait.

    Ctrl-C is answered at once, by the process that `speaks`.
    """

    def __init__(self, cure: str, speaks: bool = True) -> None:
        self.cure, self.speaks, self.waits = cure, speaks, False
        self.process: int | None = None  # the one that listens: what is forked from it is ended by it
        self.received: signal.Signals | None = None
        self.before: dict[signal.Signals, Any] = {}

    def listen(self) -> None:
        """Take the signals over. (Only a main thread can; elsewhere they keep their meaning.)"""
        if not self.before and threading.current_thread() is threading.main_thread():
            self.process = os.getpid()
            self.before = _handled_by(ASKING, self._note)

    def ignore(self) -> None:
        """Give the signals back."""
        _give_back(self.before)
        self.before = {}

    @contextmanager
    def end_the_wait(self) -> Iterator[None]:
        """Let a signal that comes, or has come, raise `Stopped` at once: nothing is done here but to wait."""
        self.waits = True
        try:
            if self.received is not None:
                raise Stopped(self.received)
            yield
        finally:
            self.waits = False

    def hear(self, number: int) -> bool:
        """Whether any process of the run received a signal; 0 is none, though this one may have received one since."""
        if number:
            self.received = signal.Signals(number)
        return bool(number)

    def interrupted(self, step: int) -> Interrupted:
        """What to raise once the state is saved."""
        assert self.received is not None
        told = f"Stopped by {_spoken(self.received)}, saved at step {step}; {self.cure}."
        return Interrupted(told, 128 + self.received, agreed=True)

    def _note(self, number: int, frame: FrameType | None) -> None:
        if os.getpid() != self.process:
            return
        if self.received == signal.SIGINT == number:
            raise KeyboardInterrupt
        self.received = signal.Signals(number)
        if self.waits:
            raise Stopped(number)
        self.acknowledge()

    def acknowledge(self) -> None:
        """Answer Ctrl-C, once."""
        if self.received == signal.SIGINT and self.speaks:
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


def _handled_by(names: tuple[str, ...], handler: Any) -> dict[signal.Signals, Any]:
    """Install a handler for all signals of these names that this system has; gives back what was there."""
    known = [signal.Signals[name] for name in names if name in signal.Signals.__members__]
    return {number: signal.signal(number, handler) for number in known}


def _give_back(before: dict[signal.Signals, Any]) -> None:
    for number, handler in before.items():
        signal.signal(number, handler)


def _spoken(number: signal.Signals) -> str:
    return "Ctrl-C" if number == signal.SIGINT else number.name
