"""What is evaluated, and how are its figures told? What every protocol asks in a shell, and does before and after."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from rich.console import Console
from rich.table import Table

from ..hardware import best_device
from ..sampling import standard_error
from ..terminal import plain_console, progress_bars
from .encoders import FrozenEncoder
from .how import Extraction, refuse_senseless
from .record import check_result
from .source import Source


@dataclass(frozen=True)
class Subject(Source):
    """What every protocol asks: which encoder, on which images, computed how."""

    device: Literal["auto", "cpu", "cuda", "mps"] = "auto"
    """Where to compute."""
    workers: int = -1
    """Processes that decode photographs; -1: one per core."""
    max_bad: float = Extraction.max_bad
    """Share of unreadable images that stops an evaluation; fewer are left out."""
    out: Path | None = None
    """JSON file (default: into the run folder); `transfer` names one for each set after it."""
    overwrite: bool = False
    """Replace --out if it exists."""

    def evaluation(self) -> str:
        """What a result calls the protocol."""
        return type(self).__name__.lower()

    def files(self) -> list[Path]:
        """What is written, where that is not left to the run."""
        return [] if self.out is None else [self.out]


@dataclass(frozen=True)
class OnData:
    """What every protocol on one data set asks."""

    data: str | None = None
    """A name or a path, as for `pretrain` (default: what the run was trained on)."""


@dataclass(frozen=True)
class OnFeatures(Subject):
    """What every protocol on frozen features asks."""

    batch_size: int = Extraction.batch_size
    """Images that the encoder sees at a time; it changes memory and speed, not the figures."""
    cache: bool = True
    """Keep features for the next evaluation."""


def opened(subject: Subject) -> tuple[FrozenEncoder, Console]:
    """The encoder, once all is refused that would fail only after the work."""
    console = plain_console()
    best_device(subject.device)  # refused, if it is, before anything is read
    for file in subject.files():
        check_result(file, subject.overwrite)
    batch_size = subject.batch_size if isinstance(subject, OnFeatures) else Extraction.batch_size
    refuse_senseless(batch_size, subject.workers, subject.max_bad)
    encoder = subject.load()
    if not subject.files():
        check_result(None, subject.overwrite, encoder.run)
    for sentence in encoder.says:
        console.print(sentence)
    return encoder, console


@contextmanager
def extraction(subject: Subject, console: Console) -> Iterator[Extraction]:
    """How features are computed, with a bar while they are."""
    with progress_bars(console) as progress:
        batch, cache = Extraction.batch_size, False
        if isinstance(subject, OnFeatures):
            batch, cache = subject.batch_size, subject.cache
        yield Extraction(subject.device, batch, subject.workers, subject.max_bad, cache, console.print, progress)


def show(
    subject: Subject,
    encoder: FrozenEncoder,
    console: Console,
    title: str,
    figures: Iterable[tuple[str, float]],
    classified: Sequence[int] = (),
) -> None:
    """The figures as a table, with standard errors if it is known how many were classified; and if they are kept."""
    table = Table("metric", "%", title=title)
    for metric, value in figures:
        table.add_row(metric, f"{value:.2f}" + "".join(f" ± {standard_error(value, n):.2f}" for n in classified))
    console.print(table)
    for n in classified:
        console.print(
            f"±: the standard error by the number of images that were classified, {n:,}; another seed of training may "
            "move a figure further."
        )
    say_unless_saved(subject, encoder, console)


def say_unless_saved(subject: Subject, encoder: FrozenEncoder, console: Console) -> None:
    """Figures that are nowhere but on the screen are lost with it."""
    if subject.out is None and encoder.run is None:
        console.print("Not saved; `--out FILE` keeps the figures with their protocol.")
