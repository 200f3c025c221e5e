"""How long was a run trained, and in how many sessions? `sessions.json` has an entry for each."""

import contextlib
import json
import time
from dataclasses import asdict, dataclass, fields
from typing import Any

from ..files import write
from ..run import Run


@dataclass
class Session:
    """From a start of training to its end; one that was killed is known up to its last checkpoint."""

    began: float | None = None
    """Seconds since 1970."""
    seconds: float = 0.0
    step: int = 0
    """Of the last checkpoint."""
    checkpoints: int = 0
    """How many were written."""
    failed: int = 0
    """How many could not be."""
    longest_blocked_s: float | None = None
    """The longest time that one of them held training up."""
    ended: bool = False
    """By itself: not killed."""
    epochs: int | None = None
    """As many as were planned then; of a run without epochs, none."""


class Sessions:
    """The sessions of a run so far, and the one that begins now."""

    def __init__(self, run: Run, *, resumed: bool = False, epochs: int | None = None) -> None:
        self.file, self.since = run.sessions_file, time.monotonic()
        self.earlier = _earlier(run, resumed)
        self.now = Session(began=round(time.time(), 3), epochs=epochs)

    def blocked(self, seconds: float) -> None:
        """Count the time for which a checkpoint held training up."""
        self.now.longest_blocked_s = round(max(seconds, self.now.longest_blocked_s or 0.0), 4)

    def wrote(self, step: int) -> None:
        """Count a checkpoint, and keep the account: this session may be killed any time."""
        self.now.checkpoints, self.now.step = self.now.checkpoints + 1, step
        self.save()

    def save(self, *, ended: bool = False) -> None:
        """Write the file; a disk that is full must not stop what this only counts."""
        self.now.seconds, self.now.ended = round(time.monotonic() - self.since, 1), ended
        told = [asdict(session) for session in (*self.earlier, self.now)]
        with contextlib.suppress(OSError):
            write(self.file, json.dumps(told, indent=2) + "\n")

    def seconds(self) -> float:
        """Of all sessions, this one up to now."""
        return round(sum(session.seconds for session in self.earlier) + time.monotonic() - self.since, 1)

    def number(self) -> int:
        """How many there were."""
        return len(self.earlier) + 1

    def killed(self) -> int:
        """Of how many the seconds after their last checkpoint are not known."""
        return sum(not session.ended for session in self.earlier)

    def first_planned(self) -> int | None:
        """The epochs that were planned when it began; with more, the learning rate would have fallen more slowly."""
        return (*self.earlier, self.now)[0].epochs

    def about_checkpoints(self) -> dict[str, Any]:
        """How many were written and could not be, and how long one held training up at most."""
        every = [*self.earlier, self.now]
        return {
            "saved": sum(session.checkpoints for session in every),
            "failed": sum(session.failed for session in every),
            "longest_blocked_s": max((s.longest_blocked_s for s in every if s.longest_blocked_s), default=None),
        }


def _earlier(run: Run, resumed: bool) -> list[Session]:
    """What a run folder tells; one session at least, if the run was begun before and its file is gone."""
    if not resumed:
        return []
    known = {field.name for field in fields(Session)}
    try:
        return [Session(**{name: entry[name] for name in known & entry.keys()}) for entry in run.sessions()]
    except (OSError, ValueError, TypeError, AttributeError, RecursionError):
        return [Session()]
