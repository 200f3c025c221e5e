"""How do rows run beside each other? Each in a process of its own, so that a crash is one row's alone."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import count
from typing import IO, Literal, NamedTuple

from ..errors import AGAIN, Interrupted
from ..lock import Held, locked
from ..signals import Stopped
from .plan import Task
from .settings import name_of
from .worker import DONE, FAILED, MISSING, STOPPED, UNHEARD

PATIENCE_S = 60.0  # for rows that were told to stop
STOPPING = "Stopping: what is under way finishes its step and saves it; Ctrl-C stops at once."


LEFT = "left to another command"


class Outcome(NamedTuple):
    """How a task ended, and why."""

    state: Literal["done", "waiting", "left to another command", "missing", "failed"]
    sentence: str = ""

    @property
    def is_well(self) -> bool:
        """Whether nothing failed, nor is left to do for this command."""
        return self.state in ("done", LEFT)


WAITING = Outcome("waiting", "the same command runs it, or goes on with it.")


def carry_out(
    tasks: Sequence[Task], jobs: int, say: Callable[[str], None], keep: Callable[[Sequence[Outcome]], None]
) -> list[Outcome]:
    """Do all that is left, `jobs` tasks at a time; one that fails is told, and the others go on.

    A task that another command is at is left to it, and looked at again in the end: that command may have been ended.
    `keep` is told how all of them stand, each time that one has ended and others have not; and at first, where some
    had ended before.
    """
    work = Work(tasks, jobs, say, keep)
    with ThreadPoolExecutor(jobs) as pool:
        try:
            for places in (work.all, work.left):
                for future in [pool.submit(work.do, place) for place in places()]:
                    future.result()
            return work.outcomes_now()
        except BaseException as error:
            pool.shutdown(wait=False, cancel_futures=True)
            work.workers.stop(say)
            if isinstance(error, KeyboardInterrupt | Interrupted):
                raise Interrupted("Interrupted; the same command goes on where it stopped.") from None
            if isinstance(error, Stopped):
                raise error.interrupted("the same command goes on where it stopped") from None
            raise


class Work:
    """Tasks, each at its place, and how they stand; several threads may do some of them at once."""

    def __init__(
        self, tasks: Sequence[Task], jobs: int, say: Callable[[str], None], keep: Callable[[Sequence[Outcome]], None]
    ) -> None:
        self.tasks, self.jobs, self.say, self.keep = tasks, jobs, say, keep
        self.outcomes = [WAITING] * len(tasks)
        self.outcomes = self.outcomes_now()
        self.at_once = min(jobs, sum(not task.place.finished for task in tasks) or 1)
        self.workers, self.keeping, self.speaking = Workers(alone=jobs == 1), threading.Lock(), threading.Lock()
        self.number, self.of = count(1), self.outcomes.count(WAITING)
        self.lacking = dict[str, str]()  # the first row that found each set missing
        if 0 < self.of < len(tasks):
            keep(self.outcomes)

    def all(self) -> Iterable[int]:
        """The places of all tasks."""
        return range(len(self.tasks))

    def left(self) -> Iterable[int]:
        """The places of those that were left to another command."""
        return [place for place, outcome in enumerate(self.outcomes) if outcome.state == LEFT]

    def do(self, place: int) -> None:
        """Do a task, unless it is done; say how it ended, unless that was said, and keep it."""
        task = self.tasks[place]
        if task.done:
            self.outcomes[place] = Outcome("done")
            self.say(f"{task.name}: finished already")
            return
        known = not task.place.finished and task.recipe.data in self.lacking
        outcome = Outcome("missing") if known else self._done_or_left(task)
        if outcome.state == "missing" and not task.place.finished:
            outcome = self._told_once(task, outcome)
        if self.workers.stopped and outcome.state != "done":
            raise Interrupted("Interrupted.")  # and has not failed
        if outcome == self.outcomes[place]:  # left to the same command as before
            return
        self.say(f"{task.name}: {'done' if outcome.state == 'done' else f'{outcome.state}: {outcome.sentence}'}")
        with self.keeping:
            self.outcomes[place] = outcome
            if WAITING in self.outcomes:
                self.keep(self.outcomes)

    def _told_once(self, task: Task, outcome: Outcome) -> Outcome:
        """What is said of a row whose images are missing: where to place them, of the first row on that set alone."""
        with self.speaking:
            first = self.lacking.setdefault(task.recipe.data, task.name)
        short = Outcome("missing", f"{name_of(task.recipe.data)} is not here, as for {first}.")
        return outcome if task.name == first else short

    def outcomes_now(self) -> list[Outcome]:
        """How the tasks stand; those that were left may have been done by now."""
        return [Outcome("done") if task.done else o for task, o in zip(self.tasks, self.outcomes, strict=True)]

    def _done_or_left(self, task: Task) -> Outcome:
        try:
            with locked(task.place.lock, f"{task.name} is being run"):
                if task.done:  # by another command, meanwhile
                    return Outcome("done")
                task.place.start(task.recipe, self.at_once)
                self._say_that_it_begins(task)
                return _outcome(task, *self.workers.run(task))
        except Held as error:
            return Outcome(LEFT, f"{error.owner} runs it, and the command that ends last writes all rows.")

    def _say_that_it_begins(self, task: Task) -> None:
        more = "" if self.jobs == 1 else f"; its progress: {task.place.log}"
        with self.speaking:  # or the second might be told before the first
            begins = "goes on" if task.place.begun else "begins"
            self.say(f"{task.name}: {begins} ({next(self.number)} of {self.of}){more}")


class Workers:
    """Processes that can all be stopped."""

    def __init__(self, alone: bool) -> None:
        self.alone = alone
        self.running: set[subprocess.Popen[bytes]] = set()
        self.stopped = False
        self.lock = threading.Lock()

    def run(self, task: Task) -> tuple[int, str]:
        """Run a task to its end; gives back the exit code and the last line of its log."""
        with task.place.log.open("ab+") as log:  # what it told before an interruption stays
            before = log.seek(0, os.SEEK_END)
            with self._start(task, log) as process:
                code = process.wait()
            self.running.discard(process)
            log.seek(before)
            lines = log.read().decode("utf-8", errors="replace").split("\n")
        return code, next((line.strip() for line in reversed(lines) if line.strip()), "")

    def _start(self, task: Task, log: IO[bytes]) -> subprocess.Popen[bytes]:
        with self.lock:
            if self.stopped:
                raise Interrupted("Interrupted.")
            process = subprocess.Popen(
                [sys.executable, "-P", "-m", "logo_ssl.reproduce.worker", str(task.place.run.path), *task.measurements],
                stdin=subprocess.PIPE,  # closed when this process ends, however it ends
                stdout=None if self.alone else log,
                stderr=log,
                start_new_session=True,  # Ctrl-C is for this process, which then tells the others once
            )
            self.running.add(process)
        return process

    def stop(self, say: Callable[[str], None]) -> None:
        """Ask all to stop, which is said, since it takes a while; those that will not, or not at once, are killed."""
        with self.lock:
            self.stopped = True
        for process in list(self.running):
            if process.stdin is not None:
                process.stdin.close()
        with suppress(OSError, KeyboardInterrupt):
            if self.running:
                say(STOPPING)
        until = time.monotonic() + PATIENCE_S  # for all together: they were told at the same time
        with suppress(KeyboardInterrupt):
            for process in list(self.running):
                with suppress(subprocess.TimeoutExpired):
                    process.wait(max(0.0, until - time.monotonic()))
        for process in list(self.running):
            process.kill()


def _outcome(task: Task, code: int, sentence: str) -> Outcome:
    if code == DONE:
        return Outcome("done")
    if code == STOPPED:
        raise Interrupted(sentence)
    if code == UNHEARD:
        return Outcome("failed", f"Why could not be written to {task.place.log}; free some space, then {AGAIN}.")
    if code in (MISSING, FAILED):
        return Outcome("missing" if code == MISSING else "failed", sentence)
    what = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"crashed ({sentence})"
    more = f"; {task.place.log} may tell more" if sentence else ""
    cure = " The same command goes on with it." if code < 0 else ""
    return Outcome("failed", f"It {what}{more}.{cure}")
