"""Options of evaluations: how features are computed, which encoder, where the result goes."""

import shlex
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Literal

import tyro
from rich.console import Console

from ..errors import UserError
from ..files import check_folder, check_output
from ..run import Run
from ..terminal import plain_console, progress_bars
from .encoder import EncoderStem, FrozenEncoder, command_options, load_encoder

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
    """What decodes photographs: workers give the same pixels everywhere; nvJPEG needs few cores, rounds otherwise."""
    unreadable: list[str] = field(default_factory=list, compare=False)
    """Takes the names of images that turn out unreadable."""
    classified: list[int] = field(default_factory=list, compare=False)
    """Takes how many images an evaluation classified, which tells the standard error of its figures."""

    def __post_init__(self) -> None:
        if self.batch_size < 1:
            raise UserError(f"batch_size={self.batch_size}: must be 1 or more.")
        if self.workers < -1:
            raise UserError(f"workers={self.workers}: must be -1 (one per core) or more.")
        if not 0 <= self.max_bad <= 1:
            raise UserError(f"max_bad={self.max_bad}: must be 0 to 1.")

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
        self.say(f"{len(names):,} of {n_images:,} {what} cannot be read and are left out: {named}.")


@dataclass(frozen=True)
class EncoderOptions:
    """Which encoder."""

    encoder: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="ENCODER")]
    """A run folder, torchvision/NAME, timm/NAME, random/NAME, a checkpoint file, or an exported encoder."""
    backbone: str | None = None
    """The network in a checkpoint, if its shapes do not show it."""
    stem: EncoderStem | None = None
    """First layers of random/NAME, or of a checkpoint if its shapes do not show them."""
    size: int | None = None
    """Side of the images in pixels (default: as in training; else 32 for a CIFAR stem and 224 for others)."""
    mean: tuple[float, ...] | None = None
    """Mean of each channel, on a scale from 0 to 1 (default: as in training, or that of ImageNet)."""
    std: tuple[float, ...] | None = None
    """Standard deviation of each channel, on the same scale."""

    def typed(self) -> str:
        """What names the same encoder in another command, as a shell takes it."""
        options = {name: getattr(self, name) for name in ("backbone", "stem", "size", "mean", "std")}
        return shlex.join([self.encoder, *command_options(options)])

    def load(self) -> FrozenEncoder:
        """The encoder that these options name."""
        looks = {"size": self.size, "mean": self.mean, "std": self.std}
        return load_encoder(self.encoder, backbone=self.backbone, stem=self.stem, **looks)

    def open(self) -> tuple[FrozenEncoder, Console]:
        """Load the encoder, and print what there is to say of it."""
        encoder, console = self.load(), plain_console()
        for sentence in encoder.says:
            console.print(sentence)
        return encoder, console


@dataclass(frozen=True)
class EvalOptions(EncoderOptions):
    """Options of every protocol."""

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

    def open(self) -> tuple[FrozenEncoder, Console]:
        """The same, if the other options are possible."""
        Extraction(workers=self.workers, max_bad=self.max_bad)
        return super().open()

    @contextmanager
    def extraction(self, console: Console) -> Iterator[Extraction]:
        """How features are computed, with a bar while they are."""
        with progress_bars(console) as progress:
            batch_size, cache = Extraction.batch_size, False
            if isinstance(self, FeatureOptions):
                batch_size, cache = self.batch_size, self.cache
            yield Extraction(self.device, batch_size, self.workers, self.max_bad, cache, console.print, progress)


@dataclass(frozen=True)
class DataOption:
    """The option of every protocol on one data set."""

    data: str | None = None
    """A name or a path, as for `pretrain` (default: what the run was trained on)."""


@dataclass(frozen=True)
class FeatureOptions(EvalOptions):
    """Options of every protocol on frozen features."""

    batch_size: int = Extraction.batch_size
    """Images that the encoder sees at a time; it changes memory and speed, not the figures."""
    cache: bool = True
    """Keep features for the next evaluation."""


def check_result(out: Path | None, overwrite: bool, run: Run | None = None) -> None:
    """UserError, before the work, if a result cannot be written to `out` or, without it, in the encoder's run."""
    if out is None:
        if run is not None:
            folder = run.evaluation_file("x").parent
            check_folder(folder if folder.exists() else run.path)
        return
    if out.suffix.lower() != ".json":
        raise UserError(f"out={out}: must be a .json file.")
    check_output(out, overwrite)
