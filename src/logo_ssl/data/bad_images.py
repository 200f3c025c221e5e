"""Images that cannot be read: replaced by others, counted, and listed in a file; too many of them stop a run."""

import csv
import io
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from ..errors import UserError
from ..system.terminal import counted

HEADER = ("image", "reason")


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
        say: Callable[[str], None] = lambda sentence: None,
    ) -> None:
        self.n_images, self.max_share, self.file, self.say = n_images, max_share, file, say
        self.above = "" if root is None else os.path.join(root, "")
        self.names, self.said = set[str](), False
        self.look_again()

    def __len__(self) -> int:
        return len(self.names)

    def __contains__(self, name: str) -> bool:
        return name.removeprefix(self.above) in self.names

    def look_again(self) -> None:
        """Learn what the file lists, also from other processes."""
        if self.file is not None and self.file.exists():
            with self.file.open(newline="", encoding="utf-8", errors="surrogateescape") as rows:
                self.names |= {row[0] for row in csv.reader(rows) if row and tuple(row) != HEADER}

    def note(self, found: list[Bad]) -> None:
        """Take in what was found; UserError if it is too large a share of all images."""
        if not found:
            return
        found = [bad._replace(name=bad.name.removeprefix(self.above)) for bad in found]
        if not self.names.issuperset(bad.name for bad in found):
            self.look_again()  # others may have written
        new = {bad.name: bad for bad in found if bad.name not in self.names}
        self.names |= new.keys()
        if self.file is not None and new:
            with suppress(OSError):  # a list that cannot be written must not stop what it only watches
                self.file.parent.mkdir(parents=True, exist_ok=True)
                with self.file.open("ab", buffering=0) as file:  # one write, which other processes do not tear
                    header = [] if file.tell() else [HEADER]
                    csv.writer(rows := io.StringIO()).writerows([*header, *new.values()])
                    file.write(rows.getvalue().encode(errors="surrogateescape"))  # names may be any bytes
        last = found[-1]
        if len(self) > self.max_share * self.n_images:
            raise UserError(
                f"{len(self):,} of {counted(self.n_images, 'image')} cannot be read (the last: {last.name}, "
                f"{last.reason}), more than max_bad={self.max_share:g} allows; look at the files, or allow more."
            )
        if not self.said:
            listed = "" if self.file is None else f", and listed in {self.file}"
            self.say(f"{found[0].name} cannot be read ({found[0].reason}): such images are replaced by others{listed}.")
            self.said = True
