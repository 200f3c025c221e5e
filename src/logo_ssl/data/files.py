"""Where do encoded images lie? In files of their own or inside tar shards; read one at a time, decoded elsewhere."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

SUFFIXES = {".jpg", ".jpeg", ".png", ".webp", ".bmp", ".tif", ".tiff", ".ppm", ".pgm", ".gif"}


class Files(ABC):
    """Encoded images by number; small enough to be sent to worker processes."""

    @abstractmethod
    def __len__(self) -> int:
        """How many there are."""

    @abstractmethod
    def name(self, i: int) -> str:
        """What to call number i in a message."""

    @abstractmethod
    def read(self, i: int) -> bytes:
        """The bytes of number i; OSError when they cannot be read."""

    @abstractmethod
    def size(self, i: int) -> int:
        """How many bytes number i has; OSError when it is gone."""


@dataclass(frozen=True)
class Paths(Files):
    """Each image in a file of its own."""

    paths: Sequence[str | Path]
    """Text where there are many: a million `Path`s are slow to make and to send."""

    def __len__(self) -> int:
        return len(self.paths)

    def name(self, i: int) -> str:
        """The path."""
        return str(self.paths[i])

    def read(self, i: int) -> bytes:
        """The file."""
        return Path(self.paths[i]).read_bytes()

    def size(self, i: int) -> int:
        """The file's."""
        return Path(self.paths[i]).stat().st_size


class Member(NamedTuple):
    """An image inside a tar file, which is not compressed: a span of its bytes."""

    shard: Path
    name: str
    offset: int
    size: int


@dataclass(frozen=True)
class Members(Files):
    """Images inside tar shards."""

    members: Sequence[Member]

    def __len__(self) -> int:
        return len(self.members)

    def name(self, i: int) -> str:
        """The shard and the name inside."""
        return f"{self.members[i].shard}:{self.members[i].name}"

    def read(self, i: int) -> bytes:
        """The span."""
        member = self.members[i]
        with member.shard.open("rb") as shard:
            shard.seek(member.offset)
            data = shard.read(member.size)
        if len(data) < member.size:
            raise OSError(f"the shard ends after {len(data)} of {member.size} bytes")
        return data

    def size(self, i: int) -> int:
        """As the shard's index says."""
        return self.members[i].size


@dataclass(frozen=True)
class InMemory(Files):
    """Other files, read once."""

    files: Files
    contents: Sequence[bytes]
    """Empty where reading failed."""

    def __len__(self) -> int:
        return len(self.contents)

    def name(self, i: int) -> str:
        """As before."""
        return self.files.name(i)

    def read(self, i: int) -> bytes:
        """From memory; from its file again where reading failed, for its reason."""
        return self.contents[i] or self.files.read(i)

    def size(self, i: int) -> int:
        """Of the bytes."""
        return len(self.contents[i])
