"""How is an evaluation asked for in a shell? One class for each protocol, with what the user may choose."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import tyro
from rich.console import Console
from rich.table import Table

from ..detection.body import refuse_other_networks
from ..detection.recipe import check_recipe
from ..detection.sources import OFFICIAL, VOC, load_detection
from ..errors import DataMissing, UserError
from ..outputs import claim
from ..terminal import plain_console, progress_bars
from .detect import Found, refuse_without_masks, without_masks
from .detect import detect as evaluate_detect
from .detect_options import RecipeOptions
from .detect_schedule import recipe_for, schedule
from .encoders import FrozenEncoder
from .extraction import Extraction
from .finetune import EPOCHS, RATE
from .finetune import finetune as evaluate_finetune
from .knn import PROTOCOLS as PROTOCOLS_OF_KNN
from .knn import knn as evaluate_knn
from .linear import Protocol
from .linear import linear as evaluate_linear
from .record import data_for
from .source import Source
from .table5 import PAPER, SETS
from .table6 import COLUMNS
from .table6 import PAPER as PAPER_OF_DETECTION
from .transfer import SetFigure, files_for
from .transfer import transfer as evaluate_transfer


@dataclass(frozen=True)
class Subject(Source):
    """What every protocol asks: which encoder, on which images, computed how."""

    device: Literal["auto", "cpu", "cuda", "mps"] = "auto"
    """Where to compute."""
    workers: int = -1
    """Processes that decode photographs; -1: one per core."""
    max_bad: float = Extraction.max_bad
    """Share of unreadable images that stops an evaluation; up to it they are left out."""
    out: Path | None = None
    """JSON file (default: into the run folder); `transfer` names one for each set after it."""
    overwrite: bool = False
    """Replace what lies at --out even if logo-ssl did not write it."""

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


@dataclass(frozen=True)
class KNN(OnData, OnFeatures):
    """Weighted nearest neighbours on frozen features: k=20, tau=0.07 and k=200, tau=0.1, top-1 and top-5."""

    protocols: tuple[tuple[int, float], ...] = PROTOCOLS_OF_KNN
    """k and tau, one pair after the other; small data sets need a smaller k."""

    def run(self) -> None:
        """Evaluate, and show the figures."""
        frozen, console = _load(self)
        with _extraction(self, console) as how:
            data = data_for(frozen, self.data, console.print)
            figures = list(evaluate_knn(frozen, data, how, protocols=self.protocols, out=self.out))
        _show(self, frozen, console, "Weighted kNN", figures)


@dataclass(frozen=True)
class Linear(OnData, OnFeatures):
    """A linear classifier on frozen features: MoCo's SGD with a sweep of learning rates, or L-BFGS."""

    protocol: Protocol = "sgd"
    """SGD on cached features, SGD on features of random crops (slow), or logistic regression by L-BFGS."""
    epochs: int = 100
    """Of SGD."""
    seed: int = 0
    """Decides the validation split, the start and the order."""

    def run(self) -> None:
        """Evaluate, and show the figures."""
        frozen, console = _load(self)
        with _extraction(self, console) as how:
            data, settings = (
                data_for(frozen, self.data, console.print),
                {"epochs": self.epochs, "seed": self.seed, "out": self.out},
            )
            figures = list(evaluate_linear(frozen, data, how, protocol=self.protocol, **settings))
        _show(self, frozen, console, "Linear classifier", figures)


@dataclass(frozen=True)
class Transfer(OnFeatures):
    """Logistic regression on frozen features of other data sets: the ten of Table 5, or any class folder."""

    sets: tuple[str, ...] = tuple(SETS)
    """Names of the ten, or names and paths as for `pretrain`."""
    seed: int = 0
    """Decides the validation split where there is no official one."""
    penalise_bias: bool = True
    """The L2 weight holds for the bias, too, as in the code behind the paper's table."""

    def files(self) -> list[Path]:
        """One for each set."""
        return [file for file in files_for(self.sets, self.out).values() if file is not None]

    def run(self) -> None:
        """Evaluate, and show the figures beside the paper's."""
        frozen, console = _load(self)
        with _extraction(self, console) as how:
            settings = {"seed": self.seed, "penalise_bias": self.penalise_bias, "out": self.out}
            figures = list(evaluate_transfer(frozen, self.sets, how, **settings))
        if not figures:
            raise UserError(f"None of {', '.join(self.sets)} could be measured; the sentences above say why.")
        _show_transfer(console, figures)
        _say_unless_saved(self, frozen, console)


@dataclass(frozen=True)
class FineTune(OnData, Subject):
    """All weights trained end to end with all labels."""

    epochs: int = EPOCHS
    """Passes over the labelled images."""
    lr: float = RATE
    """Peak learning rate, for batches of 256."""
    seed: int = 0
    """Decides the shares, the classifier's start, order and augmentation."""

    fractions: tyro.conf.Suppress[tuple[float, ...]] = (1.0,)

    def run(self) -> None:
        """Train, evaluate, and show the figures."""
        frozen, console = _load(self)
        how = Extraction(device=self.device, workers=self.workers, max_bad=self.max_bad, say=console.print)
        settings = {
            "fractions": self.fractions,
            "epochs": self.epochs,
            "lr": self.lr,
            "seed": self.seed,
            "out": self.out,
        }
        figures = list(
            evaluate_finetune(
                frozen,
                data_for(frozen, self.data, console.print),
                how,
                console=console if console.is_terminal else None,
                **settings,
            )
        )
        _show(self, frozen, console, "Fine-tuned", figures)


@dataclass(frozen=True)
class Semi(FineTune):
    """All weights trained end to end with class-balanced shares of the labels."""

    fractions: tuple[float, ...] = (0.01, 0.1)
    """Shares of each class's labels, at least one image of each."""


@dataclass(frozen=True)
class Detect(RecipeOptions, Subject):
    """Faster R-CNN on the encoder, fine-tuned: AP of boxes on voc07+12, coco, or any folder in either layout."""

    data: str = ""
    """voc07+12, coco, or a folder in VOC's or COCO's layout."""
    agnostic: bool = False
    """Make one class of all categories."""
    devices: int | Literal["auto"] = 1
    """Processes that share each batch, one on each GPU; auto: as many as there are (docs/scaling.md)."""
    dry_run: bool = False
    """Show the schedule and how long it takes, and stop."""

    size: tyro.conf.Suppress[int | None] = None
    max_bad: tyro.conf.Suppress[float] = Extraction.max_bad
    masks: tyro.conf.Suppress[bool] = False

    def run(self) -> None:
        """Train a detector, test it, and show the figures beside the paper's."""
        if not self.data:
            raise UserError("Say what to detect with --data: voc07+12, coco, or a folder in VOC's or COCO's layout.")
        if self.dry_run:
            self._show_schedule()
            return
        data = load_detection(self.data, self.agnostic)
        recipe = self.applied_to(recipe_for(data.name, len(data.train), data.official))
        frozen, console = _load(replace(self, size=recipe.detector.test_side))
        for sentence in data.about():
            console.print(sentence, markup=False, highlight=False)
        with _extraction(self, console) as how:
            settings = {"masks": self.masks, "out": self.out, "devices": self.devices}
            figures = list(evaluate_detect(frozen, data, recipe, how, **settings))
        _show_detection(console, figures, data.name if data.beside_paper else None)
        _say_unless_saved(self, frozen, console)

    def _show_schedule(self) -> None:
        """What would be done, once all is refused that could not be."""
        name, n_pictures, official = self._found()
        recipe = self.applied_to(recipe_for(name, n_pictures, official))
        check_recipe(recipe)
        frozen, console = _load(replace(self, size=recipe.detector.test_side))
        refuse_other_networks(frozen.backbone)
        table = Table("what", "how much", title="Schedule")
        for row in schedule(name, recipe, n_pictures, self.masks):
            table.add_row(*row)
        console.print(table)

    def _found(self) -> tuple[str, int, bool]:
        """Name and training pictures of the data, and whether they are official; those need not be there."""
        if self.masks and self.data == VOC:
            raise without_masks(f"{VOC} has no masks")
        try:
            data = load_detection(self.data, self.agnostic)
        except DataMissing:
            if self.data not in OFFICIAL:
                raise
            return self.data, OFFICIAL[self.data].train, True
        if self.masks:
            refuse_without_masks(data)
        return data.name, len(data.train), data.official


@dataclass(frozen=True)
class Segment(Detect):
    """Mask R-CNN on the encoder, fine-tuned: AP of boxes and of instance masks, on coco or any folder in its layout."""

    masks: tyro.conf.Suppress[bool] = True


PROTOCOLS = {
    "knn": KNN,
    "linear": Linear,
    "transfer": Transfer,
    "finetune": FineTune,
    "semi": Semi,
    "detect": Detect,
    "segment": Segment,
}


def _load(subject: Subject) -> tuple[FrozenEncoder, Console]:
    """The encoder, once all is refused that would fail only after the work."""
    console = plain_console()
    for file in subject.files():
        claim(file, subject.overwrite)
    if not 0 <= subject.max_bad <= 1 or subject.workers < -1:
        raise UserError(
            f"max-bad is {subject.max_bad} and workers {subject.workers}; a share lies in 0 to 1, and workers are -1 "
            "(one per core), 0 or more."
        )
    if isinstance(subject, OnFeatures) and subject.batch_size < 1:
        raise UserError(f"batch-size is {subject.batch_size}; use 1 or more.")
    encoder = subject.load()
    for sentence in encoder.says:
        console.print(sentence)
    return encoder, console


@contextmanager
def _extraction(subject: Subject, console: Console) -> Iterator[Extraction]:
    """How features are computed, with a bar while they are."""
    with progress_bars(console) as progress:
        batch, cache = Extraction.batch_size, False
        if isinstance(subject, OnFeatures):
            batch, cache = subject.batch_size, subject.cache
        yield Extraction(subject.device, batch, subject.workers, subject.max_bad, cache, console.print, progress)


def _say_unless_saved(subject: Subject, encoder: FrozenEncoder, console: Console) -> None:
    if subject.out is None and encoder.run is None:
        console.print("Not saved; `--out FILE` keeps the figures with their protocol.")


def _show(
    subject: Subject, encoder: FrozenEncoder, console: Console, title: str, figures: Iterable[tuple[str, float]]
) -> None:
    table = Table("metric", "%", title=title)
    for metric, value in figures:
        table.add_row(metric, f"{value:.2f}")
    console.print(table)
    _say_unless_saved(subject, encoder, console)


def _show_transfer(console: Console, figures: Sequence[tuple[SetFigure, float]]) -> None:
    """Our row above the paper's, for the sets that could be measured."""
    sets = [metric.set for metric, _ in figures]
    table = Table("encoder", *(str(metric) for metric, _ in figures), title="Transfer (%)")
    table.add_row("this encoder", *(f"{value:.2f}" for _, value in figures), style="bold")
    for row, numbers in PAPER.items() if SETS.keys() & set(sets) else ():
        known = dict(zip(SETS, numbers, strict=True))
        table.add_row(f"paper, Table 5: {row}", *(f"{known[name]:.2f}" if name in known else "" for name in sets))
    console.print(table)


def _show_detection(console: Console, figures: Sequence[tuple[Found, float]], official: str | None) -> None:
    """Our rows above the paper's, in its order of columns; sizes are in what is saved."""
    by_row: dict[tuple[str, str], dict[str, float]] = {}
    for found, value in figures:
        by_row.setdefault((found.what, found.measure), {})[found.figure] = value
    table = Table("encoder", "of", "measure", *COLUMNS, title="Detection (%)")
    for (what, measure), told in by_row.items():
        shown = (f"{told[name]:.2f}" if name in told else "" for name in COLUMNS)
        table.add_row("this encoder", what, measure, *shown, style="bold")
    for (data, what), rows in PAPER_OF_DETECTION.items():
        for row, numbers in rows.items() if data == official and any(what == of for of, _ in by_row) else ():
            measure = "VOC07" if data == "voc07+12" else "COCO"
            table.add_row(f"paper, Table 6: {row}", what, measure, *(f"{number:.2f}" for number in numbers))
    console.print(table)
