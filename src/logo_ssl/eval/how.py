"""How are features to be computed? What a user may choose, and what cannot work."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from ..errors import UserError

MOST_NAMED = 3  # images in a sentence


@dataclass(frozen=True)
class Extraction:
    """How features are computed; it changes speed and memory, not the features (but for the last digits of a pixel)."""

    device: str = "auto"
    """Where the encoder runs: auto, cpu, cuda or mps."""
    batch_size: int = 256
    """Images at a time; between batch sizes features differ by float32's rounding (on a CPU, 1e-6 of the largest)."""
    workers: int = -1
    """Worker processes that decode photographs; -1: one per core, at most 16; 0: none."""
    max_bad: float = 0.3
    """Share of unreadable images that stops an evaluation; fewer are left out."""
    cache: bool = True
    """Keep features in $LOGO_CACHE, or ~/.cache/logo-ssl/features."""
    say: Callable[[str], None] = lambda sentence: None
    """Takes sentences for the user."""
    progress: Callable[[str, int, int], None] = lambda what, done, total: None
    """Takes what is being done, how much of it is done, and how much there is."""
    decoder: Literal["auto", "nvjpeg", "workers"] = "workers"
    """Who decodes photographs: workers see the same pixels everywhere; nvJPEG needs few cores, and rounds otherwise."""
    unreadable: list[str] = field(default_factory=list, compare=False)
    """Takes the names of images that turn out unreadable."""
    classified: list[int] = field(default_factory=list, compare=False)
    """Takes how many images an evaluation classified, which tells the standard error of its figures."""

    def counting(self, what: str, total: int) -> Callable[[int], None]:
        """Takes how much of one thing is done."""
        return lambda done: self.progress(what, done, total)

    def afresh(self) -> "Extraction":
        """The same, with nothing found unreadable yet."""
        return replace(self, unreadable=[])

    def leave_out(self, names: Sequence[str], n_images: int, what: str) -> None:
        """Note images that cannot be read, and say so."""
        self.unreadable.extend(names)
        more = len(names) - MOST_NAMED
        named = ", ".join(names[:MOST_NAMED]) + (f" and {more:,} more" if more > 0 else "")
        self.say(f"{len(names):,} of {n_images:,} {what} cannot be read and will be left out: {named}.")


def refuse_senseless(batch_size: int, workers: int, max_bad: float) -> None:
    """Raise a UserError for the first of these numbers that cannot work."""
    for holds, sentence in (
        (batch_size >= 1, f"batch_size={batch_size}: must be 1 or more."),
        (workers >= -1, f"workers={workers}: must be -1 (one per core) or more."),
        (0 <= max_bad <= 1, f"max_bad={max_bad}: a share lies in 0 to 1."),
    ):
        if not holds:
            raise UserError(sentence)
