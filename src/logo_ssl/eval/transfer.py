"""Transfer of frozen features to other data sets: `eval transfer`, the protocol of the paper's Table 5."""

import hashlib
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import torch
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ..data import NAMES, ImageSet, load_data, locate
from ..errors import UserError, nearest
from ..hardware import best_device
from ..paper_tables import TRANSFER
from ..randomness import refuse_unusable_seed, stream
from .encoder import FrozenEncoder
from .lbfgs import WEIGHTS
from .linear import select_weight
from .options import Extraction, FeatureOptions, check_result
from .results import save, say_unless_saved
from .sgd_probe import Metric, mean_per_class, top1
from .splits import labels_of, split_features

PROTOCOL = (
    "frozen backbone features of central squares (short side resized, bicubic); multinomial logistic regression by "
    "L-BFGS, summed cross-entropy + w |{penalised}|^2; w one of 45 from 1e-6 to 1e5, chosen on {val}, then refitted on "
    "train and validation"
)
OFFICIAL, DRAWN = "the official validation split", "a random fifth of the training images"


class TransferSet(NamedTuple):
    """A data set of Table 5: where its images come from, and the figure that the literature reports."""

    title: str
    data: str
    per_class: bool = False
    per_class_train: int | None = None
    """Training images of each class, if there is no official split (Kornblith et al.); the others test."""


SETS = {
    "cifar10": TransferSet("CIFAR10", "cifar10"),
    "cifar100": TransferSet("CIFAR100", "cifar100"),
    "food101": TransferSet("Food", "food101"),
    "mit67": TransferSet("MIT67", "mit67"),
    "pets": TransferSet("Pets", "oxfordiiitpet", per_class=True),
    "flowers": TransferSet("Flowers", "flowers102", per_class=True),
    "caltech101": TransferSet("Caltech", "caltech101", per_class=True, per_class_train=30),
    "cars": TransferSet("Cars", "stanfordcars"),
    "aircraft": TransferSet("Aircraft", "fgvcaircraft", per_class=True),
    "dtd": TransferSet("DTD", "dtd"),
}
NAMED_ELSEWHERE = {found.data: name for name, found in SETS.items()}
"""Names of the ten by those that `pretrain` knows: a set is measured by its own figure, whatever it is called."""


class SetFigure(NamedTuple):
    """What was measured, and on which set, by the name that was asked for."""

    set: str
    figure: str

    def __str__(self) -> str:
        return f"{self.set} {self.figure}"


def transfer(
    encoder: FrozenEncoder,
    sets: Sequence[str] = tuple(SETS),
    how: Extraction | None = None,
    *,
    seed: int = 0,
    penalise_bias: bool = True,
    out: Path | None = None,
    overwrite: bool = False,
) -> Iterator[tuple[SetFigure, float]]:
    """Yield (("pets", "mean per class"), percent) for each set; one that cannot be measured stops no other.

    Each set has a file of its own: in the run, or named after `out`.
    """
    how = how or Extraction()
    refuse_unusable_seed(seed)
    best_device(how.device)  # refused, if it is, before anything is read
    refuse_unknown(sets)
    places = files_for(sets, out)
    for place in places.values():
        check_result(place, overwrite, encoder.run)
    for name, place in places.items():
        found = SETS.get(name) or TransferSet(short_name(name), name)
        try:
            data = load_data(locate(found.data), encoder.size)
            for sentence in data.says:
                how.say(sentence)
            yield _measure_set(encoder, name, found, data, how.afresh(), seed, penalise_bias, place)
        except UserError as error:
            how.say(f"{found.title} is not measured: {error}")


def _measure_set(
    encoder: FrozenEncoder,
    name: str,
    found: TransferSet,
    data: ImageSet,
    how: Extraction,
    seed: int,
    penalise_bias: bool,
    place: Path | None,
) -> tuple[SetFigure, float]:
    began = time.time()
    if found.per_class_train is not None:
        data = some_per_class(data, found.per_class_train)
    names = [f"{found.title}, {split}" for split in ("train", "val", "test")]
    splits = split_features(encoder, data, how, seed, names).to(best_device(how.device))
    about = splits.about(per_class=found.per_class)
    how.say(f"{found.title}: {len(splits.test.labels):,} test images, chance {about['chance']:.2f} %.")
    score: Metric = mean_per_class if found.per_class else top1
    metric = SetFigure(name, "mean per class" if found.per_class else "top-1")
    chosen = select_weight(
        splits.train,
        splits.val,
        splits.n_classes,
        metric=score,
        penalise_bias=penalise_bias,
        progress=how.counting(f"{found.title}, L2 weights", len(WEIGHTS)),
    )
    value = score(chosen.probe.scores(splits.test.features), splits.test.labels)
    penalised = "weight and bias" if penalise_bias else "weight"
    record = {
        "protocol": PROTOCOL.format(penalised=penalised, val=OFFICIAL if splits.official_val else DRAWN),
        "metric": str(metric),
        "value": round(value, 2),
        "l2_weight": chosen.w,
        "penalise_bias": penalise_bias,
        "validation": chosen.validation,
        **about,
        "seed_of_split": seed,
        "seconds": round(time.time() - began, 1),
    }
    settings = {"seed": seed, "penalise_bias": penalise_bias, "figure": metric.figure}
    save("transfer", record, encoder, data, how, place, settings)
    return metric, value


def some_per_class(data: ImageSet, n: int) -> ImageSet:
    """A set without an official split, as Caltech-101: n images of each class, by chance, train, the rest tests."""
    labels = labels_of(data.train)
    order = torch.randperm(len(labels), generator=stream(0, "caltech101"))
    chosen = torch.cat([order[labels[order] == label][:n] for label in labels.unique()])
    rest = torch.ones(len(labels), dtype=torch.bool)
    rest[chosen] = False
    return replace(data, train=data.train[chosen.sort().values], test=data.train[rest], val=None, val_in_train=None)


def refuse_unknown(sets: Sequence[str]) -> None:
    """UserError for a name that no set has, nor a path."""
    for name in sets:
        if name not in SETS and name not in NAMES and not Path(name).expanduser().exists():
            raise UserError(
                f"sets={name}: must be one or more of {', '.join(SETS)}, another name of a set, or a path."
                f"{nearest(name, [*SETS, *NAMES])}"
            )


def files_for(sets: Sequence[str], out: Path | None) -> Mapping[str, Path | None]:
    """A file for each set beside `out`, named after the set; those of one name are told apart by a hash of theirs."""
    names = dict.fromkeys(NAMED_ELSEWHERE.get(name, name) for name in sets)
    if out is None:
        return names
    short = {name: short_name(name) for name in names}
    last = list(short.values())
    for name in short:
        if last.count(short[name]) > 1:
            short[name] += f"-{hashlib.sha256(locate(name).encode()).hexdigest()[:8]}"
    return {name: out.with_name(f"{out.stem}-{end}{out.suffix or '.json'}") for name, end in short.items()}


def short_name(name: str) -> str:
    """A name as it is, of a path the last part: of `.` that of the folder where we are."""
    return os.path.basename(os.path.abspath(Path(name).expanduser()))


@dataclass(frozen=True)
class Transfer(FeatureOptions):
    """Logistic regression on frozen features of other data sets: the ten of Table 5, or any class folder.

    Exit code 2 if a set that --sets names could not be measured; without --sets, if none could.

    example: logo-ssl eval transfer runs/first --sets pets flowers photos/
    """

    sets: tuple[str, ...] = tuple(SETS)
    """Names of these ten, or names and paths as for `pretrain`."""
    seed: int = 0
    """Decides the validation split, if the set has no official one."""
    penalise_bias: bool = True
    """Penalise the bias as well as the weights, as in the code behind the paper's table."""

    def run(self) -> None:
        """Evaluate, and show the figures compared with the paper's."""
        encoder, console = self.open()
        with self.extraction(console) as how:
            settings = {"seed": self.seed, "penalise_bias": self.penalise_bias, "out": self.out}
            figures = list(transfer(encoder, self.sets, how, overwrite=self.overwrite, **settings))
        if figures:
            show_transfer(console, figures)
            say_unless_saved(self, encoder, console)
        measured = {metric.set for metric, _ in figures}
        lacking = [name for name in files_for(self.sets, None) if name not in measured]
        if lacking and (self.sets != tuple(SETS) or not figures):
            raise UserError(f"{', '.join(lacking)} could not be measured; see above.")


def show_transfer(console: Console, figures: Sequence[tuple[SetFigure, float]]) -> None:
    """A line for each set that could be measured: our figure, and the paper's next to it."""
    known = {
        name: dict(zip(TRANSFER, column, strict=True)) for name, *column in zip(SETS, *TRANSFER.values(), strict=True)
    }
    rows = TRANSFER if known.keys() & {metric.set for metric, _ in figures} else ()
    table = Table(title="Transfer (%)" + (", and the paper's Table 5" if rows else ""))
    table.add_column("set", overflow="fold")
    for head in ("this encoder", *rows):
        table.add_column(head, justify="right", min_width=len("100.00"), overflow="fold")
    for metric, value in figures:
        paper = known.get(metric.set, {})
        theirs = (f"{paper[row]:.2f}" if row in paper else "" for row in rows)
        table.add_row(str(metric), Text(f"{value:.2f}", "bold"), *theirs)
    console.print(table)
