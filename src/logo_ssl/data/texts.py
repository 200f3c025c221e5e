"""How are a million names kept? As bytes of one object, which worker processes share."""

from array import array
from collections.abc import Iterable

CODE = ("utf-8", "surrogatepass")
"""Any text comes back as it was, also names of files that are none."""


class Texts:
    """Texts by number, decoded when they are asked for.

    A `str` counts who holds it, so a forked process that looks at one copies its page: with a million, all of them.
    """

    def __init__(self, texts: Iterable[str]) -> None:
        content, self.ends = bytearray(), array("q", [0])
        for text in texts:
            content += text.encode(*CODE)
            self.ends.append(len(content))
        self.content = bytes(content)

    def __len__(self) -> int:
        return len(self.ends) - 1

    def __getitem__(self, i: int) -> str:
        return self.content[self.ends[i] : self.ends[i + 1]].decode(*CODE)
