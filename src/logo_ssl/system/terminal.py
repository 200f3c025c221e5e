"""Consoles that print sentences and names as they are, and progress."""

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.segment import Segment

from .launch import is_first, name
from .text import harmless, lasting

LINE_EVERY_S = 30
"""Seconds between two lines of progress where there is no terminal."""


class Plain(Console):
    """A console that shows names that are no text, and commands to the terminal in them, as escapes."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterator[Segment]:
        """What rich would write, sentences and tables alike."""
        encoding = getattr(self.file, "encoding", None) or "utf-8"
        for text, style, control in super().render(renderable, options):
            yield Segment(text if control else harmless(text, encoding), style, control)

    def on_broken_pipe(self) -> None:
        """Let the work go on where `| head` has seen enough: rich would end it, and what it found would be lost."""
        self.quiet = True
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def plain_console(stderr: bool = False) -> Console:
    """A console that prints sentences as they are, one line each; of several processes, the first one speaks."""
    return Plain(soft_wrap=True, markup=False, highlight=False, stderr=stderr, quiet=not is_first())


def put(text: str) -> None:
    """Write a text to standard output as it is."""
    sys.stdout.write(text)


def complain(sentence: str) -> None:
    """Say on the error stream what went wrong, and who says so."""
    sys.stderr.write(f"{signature()}: {harmless(sentence, sys.stderr.encoding or 'utf-8')}\n")


def signature() -> str:
    """Who speaks on the error stream, where every process may."""
    return "logo-ssl" if is_first() else f"logo-ssl ({name()})"


@contextmanager
def progress_bars(console: Console) -> Iterator[Callable[[str, int, int], None]]:
    """A function that takes what is being done, how much is done and how much there is.

    On a terminal it shows bars, while anything is under way; elsewhere a line now and then.
    """
    if not console.is_terminal:
        yield _lines(console)
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.completed:,}/{task.total:,}"),
        TimeRemainingColumn(),
    )
    bar, tasks = Progress(*columns, console=console, transient=True), dict[str, Any]()

    def progress(what: str, done: int, total: int) -> None:
        if not tasks:
            bar.start()
        if what not in tasks:
            tasks[what] = bar.add_task(what, total=total)
        bar.update(tasks[what], completed=done)
        if done >= total:
            bar.remove_task(tasks.pop(what))
        if not tasks:
            bar.stop()  # a terminal has one live display at a time, and what follows may have its own

    try:
        yield progress
    finally:
        bar.stop()


def _lines(console: Console) -> Callable[[str, int, int], None]:
    """Progress where nothing can be drawn: a line when the last one is long ago."""
    last, begun = time.monotonic(), dict[str, tuple[float, int]]()

    def progress(what: str, done: int, total: int) -> None:
        nonlocal last
        now = time.monotonic()
        since, first = begun.setdefault(what, (now, done))
        if now - last >= LINE_EVERY_S:
            last = now
            left = f", ETA {lasting((total - done) * (now - since) / (done - first))}" if done > first else ""
            console.print(f"{what}: {done:,} of {total:,}{left}")

    return progress
