"""Where do encoded images lie? In files of their own or inside tar shards; read one at a time, decoded elsewhere."""

import errno
import os
import stat
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Int, Int64, UInt8

from .texts import Texts

AT_A_TIME, THREADS = 1024, 16  # files that a disk is asked about: a network's answers many at once


class Stamp(NamedTuple):
    """What a disk knows of a file."""

    size: int
    """Bytes."""
    written: int
    """When, in nanoseconds."""
    number: int
    """The disk's own, which a file keeps for as long as it lives."""

    @classmethod
    def of(cls, path: str | Path) -> "Stamp":
        """The stamp of the file at a path."""
        status = os.stat(path)
        return cls(status.st_size, status.st_mtime_ns, status.st_ino)


GONE = Stamp(-1, -1, -1)


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
    def stamp(self, i: int) -> Stamp:
        """What tells, without reading it, that number i was written anew; OSError when it is gone."""


def stamps_of(files: Files, rows: Int[np.ndarray, " N"]) -> Int64[np.ndarray, "N 3"]:
    """The stamps of some files; -1 in place of what is gone."""

    def some(first: int) -> list[Stamp]:
        return [_stamp_or_gone(files, row) for row in rows[first : first + AT_A_TIME].tolist()]

    stamps = np.empty((len(rows), 3), np.int64)
    with ThreadPoolExecutor(THREADS) as pool:
        firsts = range(0, len(rows), AT_A_TIME)
        for first, found in zip(firsts, pool.map(some, firsts), strict=True):
            stamps[first : first + len(found)] = found
    return stamps


def _stamp_or_gone(files: Files, row: int) -> Stamp:
    try:
        size, *others = files.stamp(row)
    except OSError:
        return GONE
    return Stamp(size, *((number + 2**63) % 2**64 - 2**63 for number in others))  # some disks number beyond int64


class Paths(Files):
    """Each image in a file of its own."""

    def __init__(self, paths: Iterable[str | Path]) -> None:
        self.paths = Texts(map(str, paths))

    def __len__(self) -> int:
        return len(self.paths)

    def name(self, i: int) -> str:
        """The path."""
        return self.paths[i]

    def read(self, i: int) -> bytes:
        """The file, if it is one: a pipe would be waited for."""
        try:
            handle = os.open(self.paths[i], os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
        except ValueError as error:  # a name that no file can have
            raise OSError(errno.EINVAL, str(error)) from error
        with open(handle, "rb") as file:
            if not stat.S_ISREG(os.fstat(handle).st_mode):
                raise OSError(errno.EINVAL, "not a regular file")
            return file.read()

    def stamp(self, i: int) -> Stamp:
        """The file's."""
        return Stamp.of(self.paths[i])


class Member(NamedTuple):
    """An image inside a tar file, which is not compressed: a span of its bytes."""

    shard: Path
    name: str
    offset: int
    size: int


class Members(Files):
    """Images inside tar shards."""

    def __init__(self, members: Sequence[Member]) -> None:
        self.shards = list(dict.fromkeys(member.shard for member in members))
        self.names = Texts(member.name for member in members)
        place = {shard: i for i, shard in enumerate(self.shards)}
        spans = ((place[member.shard], member.offset, member.size) for member in members)
        self.spans = np.fromiter(spans, np.dtype((np.int64, 3)), len(members))

    def __len__(self) -> int:
        return len(self.spans)

    def __getitem__(self, i: int) -> Member:
        shard, offset, size = self.spans[i].tolist()
        return Member(self.shards[shard], self.names[i], offset, size)

    def name(self, i: int) -> str:
        """The shard and the name inside."""
        member = self[i]
        return f"{member.shard}:{member.name}"

    def read(self, i: int) -> bytes:
        """The span."""
        member = self[i]
        with member.shard.open("rb") as shard:
            shard.seek(member.offset)
            data = shard.read(member.size)
        if len(data) < member.size:
            raise OSError(f"the shard ends after {len(data)} of {member.size} bytes")
        return data

    def stamp(self, i: int) -> Stamp:
        """The shard's, with the size of the span."""
        member = self[i]
        return Stamp.of(member.shard)._replace(size=member.size)


@dataclass(frozen=True)
class InMemory(Files):
    """Other files, read once into one array."""

    files: Files
    contents: UInt8[np.ndarray, " bytes"]
    ends: Int64[np.ndarray, " _"]
    """Where each file's bytes begin, and the end of the last; nothing lies between where reading failed."""

    def __len__(self) -> int:
        return len(self.ends) - 1

    def name(self, i: int) -> str:
        """As before."""
        return self.files.name(i)

    def read(self, i: int) -> bytes:
        """From memory; from its file again where reading failed, for its reason."""
        return self.contents[self.ends[i] : self.ends[i + 1]].tobytes() or self.files.read(i)

    def stamp(self, i: int) -> Stamp:
        """As before."""
        return self.files.stamp(i)


@dataclass(frozen=True)
class Chained(Files):
    """Some files, and behind them others."""

    first: Files
    second: Files

    def __len__(self) -> int:
        return len(self.first) + len(self.second)

    def name(self, i: int) -> str:
        """As before."""
        files, i = self._at(i)
        return files.name(i)

    def read(self, i: int) -> bytes:
        """As before."""
        files, i = self._at(i)
        return files.read(i)

    def stamp(self, i: int) -> Stamp:
        """As before."""
        files, i = self._at(i)
        return files.stamp(i)

    def _at(self, i: int) -> tuple[Files, int]:
        return (self.first, i) if i < len(self.first) else (self.second, i - len(self.first))
