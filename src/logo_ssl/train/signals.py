"""What if somebody says stop? The step is finished, the state saved, and then training ends."""

import signal
import threading
from types import FrameType
from typing import Any

from ..errors import Interrupted

ASKING = ("SIGINT", "SIGTERM", "SIGUSR1")
"""Ctrl-C; the end of a job; Slurm's early warning."""


class StopSignals:
    """Remembers a signal until the step is over; a second Ctrl-C does not wait."""

    def __init__(self, cure: str) -> None:
        self.cure = cure
        self.received: signal.Signals | None = None
        self.before: dict[signal.Signals, Any] = {}

    def listen(self) -> None:
        """Take the signals over. (Only a main thread can; elsewhere they keep their meaning.)"""
        if self.before or threading.current_thread() is not threading.main_thread():
            return
        for name in ASKING:
            if number := getattr(signal, name, None):
                self.before[number] = signal.signal(number, self._note)

    def ignore(self) -> None:
        """Give the signals back."""
        for number, handler in self.before.items():
            signal.signal(number, handler)
        self.before = {}

    def interrupted(self, step: int, saved: bool) -> Interrupted:
        """What to raise once the state is saved."""
        name = self.received.name if self.received is not None else "a signal to another process"
        told = f"saved at step {step}" if saved else f"step {step} could not be saved"
        code = 128 + (self.received or signal.SIGTERM)
        return Interrupted(f"Stopped by {'Ctrl-C' if name == 'SIGINT' else name}, {told}; {self.cure}.", code)

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.received == signal.SIGINT == number:
            raise KeyboardInterrupt
        self.received = signal.Signals(number)
