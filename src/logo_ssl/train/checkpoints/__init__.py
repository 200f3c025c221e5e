"""What survives an interruption? The whole state of training, written beside the step, whole or not at all."""

from .agreement import Agreement
from .files import UNFINISHED, clear, digest, is_whole, load, newest_whole, with_room
from .saving import Checkpoints, Rhythm, awaited
from .writer import Writer

__all__ = [
    "UNFINISHED",
    "Agreement",
    "Checkpoints",
    "Rhythm",
    "Writer",
    "awaited",
    "clear",
    "digest",
    "is_whole",
    "load",
    "newest_whole",
    "with_room",
]
