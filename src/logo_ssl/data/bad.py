"""Which images could not be read? They are replaced, counted and listed; too many of them stop a run."""

import csv
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from ..errors import UserError
from ..lock import in_turn
from ..text import counted

HEADER = ["image", "reason"]


class Bad(NamedTuple):
    """An image that could not be read."""

    name: str
    reason: str


class BadImages:
    """The bad images of a data set so far, each counted once; `file` lists them, also from before an interruption.

    What lies below `root` is called as seen from there. Several processes may share the list: each adds what it found,
    and learns what the others did. `say` is told of the first that is found, so that nobody learns it after days.
    """

    def __init__(
        self,
        n_images: int,
        max_share: float,
        file: Path | None = None,
        root: str | None = None,
        say: Callable[[str], None] | None = None,
    ) -> None:
        self.n_images, self.max_share, self.file = n_images, max_share, file
        self.above = "" if root is None else os.path.join(root, "")
        self.names = self._in_file()
        self.listed, self.listed_bytes = set(self.names), -1
        self.say = say

    def __len__(self) -> int:
        return len(self.names)

    def __contains__(self, name: str) -> bool:
        return self._called(name) in self.names

    def look_again(self) -> None:
        """Learn what other processes have listed since."""
        learned = self._in_file() - self.names
        self.names |= learned
        if learned:
            self._tell(Bad(min(learned), "as another process found"))

    def note(self, found: list[Bad]) -> None:
        """Take in what was found; UserError when it is too large a share of all images."""
        called = {name: bad._replace(name=name) for bad in found if (name := self._called(bad.name)) not in self.names}
        if called:
            self.names |= called.keys()
            self._list(list(called.values()))
            self._tell(next(iter(called.values())))
        if found and len(self) > self.max_share * self.n_images:
            last, many = found[-1], f"{len(self):,} of {counted(self.n_images, 'image')}"
            raise UserError(
                f"{many} cannot be read (the last: {last.name}, {last.reason}), "
                f"more than max_bad={self.max_share:g} allows; look at the files, or allow more."
            )

    def _tell(self, first: Bad) -> None:
        """Say once that there are bad images, unless they are so many that they stop the run, which says more."""
        if self.say is not None and len(self) <= self.max_share * self.n_images:
            listed = "" if self.file is None else f", and listed in {self.file}"
            self.say(f"{first.name} cannot be read ({first.reason}): such images are replaced by others{listed}.")
            self.say = None

    def _list(self, new: list[Bad]) -> None:
        if self.file is None:
            return
        try:
            self.file.parent.mkdir(parents=True, exist_ok=True)
            # Names may be any bytes; they are written as they are.
            with self.file.open("a", newline="", encoding="utf-8", errors="surrogateescape") as file, in_turn(file):
                begun = self.file.stat().st_size > 0
                if begun and self.file.stat().st_size != self.listed_bytes:  # others have written
                    self.listed = self._in_file()
                    self.names |= self.listed
                new = [bad for bad in new if bad.name not in self.listed]
                self.listed |= {bad.name for bad in new}
                csv.writer(file).writerows(([] if begun else [HEADER]) + new)
                file.flush()
                self.listed_bytes = self.file.stat().st_size
        except OSError:
            pass  # a list that cannot be written must not stop what it only watches

    def _in_file(self) -> set[str]:
        """What the list holds."""
        if self.file is None or not self.file.exists():
            return set()
        with self.file.open(newline="", encoding="utf-8", errors="surrogateescape") as rows:
            return {row[0] for row in csv.reader(rows) if row and row != HEADER}

    def _called(self, name: str) -> str:
        return name.removeprefix(self.above)


def plain_reason(error: Exception) -> str:
    """Why an image could not be read, in words that are the same each time."""
    words = error.strerror if isinstance(error, OSError) and error.strerror else str(error) or type(error).__name__
    plain = " ".join(words.split())
    for pattern, meaning in (
        ("cannot identify image file .*", "not an image"),
        ("image file is truncated.*", "truncated"),
    ):
        plain = re.sub(pattern, meaning, plain)
    return plain
