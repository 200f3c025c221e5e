"""Which images could not be read? They are replaced, counted and listed; too many of them stop a run."""

import csv
from pathlib import Path
from typing import NamedTuple

from ..errors import UserError

FEW = 50  # images to have seen before a share of them means anything


class Bad(NamedTuple):
    """An image that could not be read."""

    name: str
    reason: str


class BadImages:
    """The bad images of a data set so far, each counted once; `file` lists them as CSV."""

    def __init__(self, n_images: int, max_share: float, file: Path | None = None) -> None:
        self.n_images, self.max_share, self.file = n_images, max_share, file
        self.seen = 0
        self.names: set[str] = set()

    def __len__(self) -> int:
        return len(self.names)

    def note(self, n_seen: int, found: list[Bad]) -> None:
        """Take in what was found among so many more images; UserError when the share is too large."""
        self.seen += n_seen
        new = list({bad.name: bad for bad in found if bad.name not in self.names}.values())
        if not new:
            return
        self.names |= {bad.name for bad in new}
        self._list(new)
        if len(self) > self.max_share * min(self.n_images, max(self.seen, FEW)):
            raise UserError(
                f"{len(self)} of the first {min(self.seen, self.n_images):,} images cannot be read (the last: "
                f"{new[-1].name}, {new[-1].reason}), more than loading.max-bad {self.max_share:g} allows; "
                "look at the files, or allow more."
            )

    def _list(self, new: list[Bad]) -> None:
        if self.file is None:
            return
        self.file.parent.mkdir(parents=True, exist_ok=True)
        listed = self.file.exists() and self.file.stat().st_size > 0
        known = {row[0] for row in csv.reader(self.file.read_text().splitlines()) if row} if listed else set()
        with self.file.open("a", newline="") as file:
            writer = csv.writer(file)
            if not listed:
                writer.writerow(("image", "reason"))
            writer.writerows(bad for bad in new if bad.name not in known)
