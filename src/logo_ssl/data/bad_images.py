"""Images that cannot be read: replaced by others, counted, and listed in a file; too many of them stop a run."""

import csv
import io
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from ..errors import UserError
from ..system.text import counted

HEADER = ["image", "reason"]


class Bad(NamedTuple):
    """An image that could not be read."""

    name: str
    reason: str


class BadImages:
    """The bad images of a data set so far, each counted once; `file` lists them, also from before an interruption.

    What is below `root` is called as seen from there. Several processes may share the file: each adds what it found,
    and learns what the others did. `say` is told of the first, so that nobody learns of it after days.
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
        self.names = self._listed()
        self.say, self.said = say, False

    def __len__(self) -> int:
        return len(self.names)

    def __contains__(self, name: str) -> bool:
        return name.removeprefix(self.above) in self.names

    def look_again(self) -> None:
        """Learn what other processes have listed since."""
        learned = self._listed() - self.names
        self.names |= learned
        if learned:
            self._say_first(Bad(min(learned), "as another process found"))

    def note(self, found: list[Bad]) -> None:
        """Take in what was found; UserError if it is too large a share of all images."""
        if not found:
            return
        new = {(name := bad.name.removeprefix(self.above)): bad._replace(name=name) for bad in found}
        new = {name: bad for name, bad in new.items() if name not in self.names}
        if new:
            self.names |= self._listed()  # others may have written
            self._list([bad for name, bad in new.items() if name not in self.names])
            self.names |= new.keys()
            self._say_first(next(iter(new.values())))
        if len(self) > self.max_share * self.n_images:
            last, many = found[-1], f"{len(self):,} of {counted(self.n_images, 'image')}"
            raise UserError(
                f"{many} cannot be read (the last: {last.name}, {last.reason}), "
                f"more than max_bad={self.max_share:g} allows; look at the files, or allow more."
            )

    def _say_first(self, first: Bad) -> None:
        """Say once that there are bad images, unless they are so many that they stop the run, which says more."""
        if self.say is not None and not self.said and len(self) <= self.max_share * self.n_images:
            listed = "" if self.file is None else f", and listed in {self.file}"
            self.say(f"{first.name} cannot be read ({first.reason}): such images are replaced by others{listed}.")
            self.said = True

    def _listed(self) -> set[str]:
        """The names in the file."""
        if self.file is None or not self.file.exists():
            return set()
        with self.file.open(newline="", encoding="utf-8", errors="surrogateescape") as rows:
            return {row[0] for row in csv.reader(rows) if row and row != HEADER}

    def _list(self, new: list[Bad]) -> None:
        """Add to the file by one write, which other processes do not tear."""
        if self.file is None or not new:
            return
        with suppress(OSError):  # a list that cannot be written must not stop what it only watches
            self.file.parent.mkdir(parents=True, exist_ok=True)
            with self.file.open("ab", buffering=0) as file:  # names may be any bytes
                csv.writer(rows := io.StringIO()).writerows(([] if file.tell() else [HEADER]) + new)
                file.write(rows.getvalue().encode(errors="surrogateescape"))
