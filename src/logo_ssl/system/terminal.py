"""Consoles that print sentences and names as they are, and progress; numbers, lists, times and names as text."""

import os
import re
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import PurePath
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.segment import Segment

from .launch import is_first, name

LINE_EVERY_S = 30
"""Seconds between two lines of progress where there is no terminal."""
CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
"""All but tab and newline: letters that a terminal obeys."""
ESCAPED = {ord(letter): repr(letter)[1:-1] for letter in "\t\n\v\f\r\x85\u2028\u2029"}
"""What moves the text behind it, as Python writes it."""


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


def counted(n: int, noun: str) -> str:
    """1 step, 2 steps, 1,000 steps."""
    return f"{n:,} {noun}{'' if n == 1 else 's'}"


def listed(names: Iterable[str]) -> str:
    """a; a and b; a, b and c: each once."""
    *others, last = dict.fromkeys(names) or [""]
    return f"{', '.join(others)} and {last}" if others else last


def lasting(seconds: float) -> str:
    """In the unit that tells most: 280 s, 45 min, 3.2 h."""
    if seconds < 10 * 60:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 90 * 60 else f"{seconds / 3600:.1f} h"


def printable(name: str) -> str:
    """The name as it is, but for bytes that are not text, which are written as escapes."""
    try:
        return name.encode(errors="surrogateescape").decode(errors="backslashreplace")
    except UnicodeEncodeError:  # half a character, as JSON may hold
        return name.encode(errors="backslashreplace").decode()


def on_one_line(name: str) -> str:
    """The name as a list shows it: tabs and ends of lines are also written as escapes."""
    return printable(name).translate(ESCAPED)


def distinct_names(paths: Iterable[str]) -> dict[str, str]:
    """The last part of each path, with as many folders before it as tell it from the others, on one line."""
    parts = {path: PurePath(path).parts for path in paths}
    ends = Counter(part[-n:] for part in parts.values() for n in range(1, len(part) + 1))
    names = dict[str, str]()
    for path, part in parts.items():
        n = next((n for n in range(1, len(part)) if ends[part[-n:]] == 1), len(part))
        names[path] = on_one_line(str(PurePath(*part[-n:])))
    return names


def harmless(text: str, encoding: str = "utf-8") -> str:
    """The text as a terminal of that encoding shows it; what is not text, or a command to it, is written as escapes."""
    plain = CONTROLS.sub(lambda control: f"\\x{ord(control[0]):02x}", printable(text))
    return plain.encode(encoding, "backslashreplace").decode(encoding)
