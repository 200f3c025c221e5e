"""Transfer of frozen features to other data sets: `eval transfer`, the protocol of the paper's Table 5."""

import hashlib
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import torch
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ..data import NAMES, ImageSet, locate
from ..errors import UserError, nearest
from ..recipes.paper import TRANSFER
from ..system.hardware import best_device
from ..system.randomness import refuse_unusable_seed, stream
from .encoder import FrozenEncoder
from .features import Extraction
from .lbfgs import WEIGHTS, select_weight
from .protocol import (
    FeatureOptions,
    Measured,
    Metric,
    check_result,
    data_for,
    mean_per_class,
    save,
    say_unless_saved,
    top1,
)
from .splits import labels_of, split_features

PROTOCOL = (
    "frozen backbone features of central squares (short side resized, bicubic); multinomial logistic regression by "
    "L-BFGS, summed cross-entropy + w |weight and bias|^2; w one of 45 from 1e-6 to 1e5, chosen on {val}, then "
    "refitted on train and validation"
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

    def __post_init__(self) -> None:
        refuse_unusable_seed(self.seed)
        for name in self.sets:
            if name not in SETS and name not in NAMES and not Path(name).expanduser().exists():
                raise UserError(
                    f"sets={name}: must be one or more of {', '.join(SETS)}, another name of a set, or a path."
                    f"{nearest(name, [*SETS, *NAMES])}"
                )

    def run(self) -> None:
        """Evaluate, and show the figures compared with the paper's."""
        encoder, console = self.open()
        with self.extraction(console) as how:
            figures = self.evaluate(encoder, how)
        if figures:
            show_transfer(console, figures)
            say_unless_saved(self, encoder, console)
        lacking = [name for name in self._files() if name not in figures]
        if lacking and (self.sets != tuple(SETS) or not figures):
            raise UserError(f"{', '.join(lacking)} could not be measured; see above.")

    def evaluate(self, encoder: FrozenEncoder, how: Extraction) -> dict[str, tuple[str, float]]:
        """The figure of each set and its value; one that cannot be measured stops no other. Each has a file."""
        files, figures = self._files(), dict[str, tuple[str, float]]()
        for file in files.values():
            check_result(file, self.overwrite, encoder.run)
        for name, file in files.items():
            known = SETS.get(name) or TransferSet(_short_name(name), name)
            begun, own = time.time(), replace(how, unreadable=[])
            try:
                data = data_for(encoder, known.data, how.say)
                if known.per_class_train is not None:
                    data = some_per_class(data, known.per_class_train)
                found = self._measure(encoder, name, known, data, own)
            except UserError as error:
                how.say(f"{known.title} is not measured: {error}")
                continue
            (figures[name],) = found.figures.items()
            record = found.record | {"seconds": round(time.time() - begun, 1)}
            save(found.name, record, encoder, data, own, file, found.settings)
        return figures

    def _files(self) -> dict[str, Path | None]:
        """A file for each set beside --out, named after the set; those of one name are told apart by a hash."""
        names = dict.fromkeys(NAMED_ELSEWHERE.get(name, name) for name in self.sets)
        if self.out is None:
            return names
        files, short = dict[str, Path | None](), [_short_name(name) for name in names]
        for name, end in zip(names, short, strict=True):
            own = f"-{hashlib.sha256(locate(name).encode()).hexdigest()[:8]}" if short.count(end) > 1 else ""
            files[name] = self.out.with_name(f"{self.out.stem}-{end}{own}{self.out.suffix}")
        return files

    def _measure(
        self, encoder: FrozenEncoder, name: str, known: TransferSet, data: ImageSet, how: Extraction
    ) -> Measured:
        names = [f"{known.title}, {split}" for split in ("train", "val", "test")]
        splits = split_features(encoder, data, how, self.seed, names).to(best_device(how.device))
        about = splits.about(per_class=known.per_class)
        how.say(f"{known.title}: {len(splits.test.labels):,} test images, chance {about['chance']:.2f} %.")
        score: Metric = mean_per_class if known.per_class else top1
        figure = "mean per class" if known.per_class else "top-1"
        watched = how.counting(f"{known.title}, L2 weights", len(WEIGHTS))
        chosen = select_weight(splits.train, splits.val, splits.n_classes, metric=score, progress=watched)
        value = score(chosen.probe.scores(splits.test.features), splits.test.labels)
        record = {
            "protocol": PROTOCOL.format(val=OFFICIAL if splits.official_val else DRAWN),
            "metric": f"{name} {figure}",
            "value": round(value, 2),
            "l2_weight": chosen.value,
            "validation": chosen.validation,
            **about,
            "seed_of_split": self.seed,
        }
        settings = {"seed": self.seed, "figure": figure}
        return Measured("transfer", {figure: value}, record, settings)


def _short_name(name: str) -> str:
    """A name as it is, of a path the last part: of `.` that of the folder where we are."""
    return os.path.basename(os.path.abspath(Path(name).expanduser()))


def some_per_class(data: ImageSet, n: int) -> ImageSet:
    """A set without an official split, as Caltech-101: n images of each class, by chance, train, the rest tests."""
    labels = labels_of(data.train)
    order = torch.randperm(len(labels), generator=stream(0, "caltech101"))
    chosen = torch.cat([order[labels[order] == label][:n] for label in labels.unique()])
    rest = torch.ones(len(labels), dtype=torch.bool)
    rest[chosen] = False
    return replace(data, train=data.train[chosen.sort().values], test=data.train[rest], val=None, val_in_train=None)


def show_transfer(console: Console, figures: Mapping[str, tuple[str, float]]) -> None:
    """A line for each set that could be measured: our figure, and the paper's next to it."""
    published = {
        name: dict(zip(TRANSFER, column, strict=True)) for name, *column in zip(SETS, *TRANSFER.values(), strict=True)
    }
    rows = TRANSFER if published.keys() & figures.keys() else ()
    table = Table(title="Transfer (%)" + (", and the paper's Table 5" if rows else ""))
    table.add_column("set", overflow="fold")
    for head in ("this encoder", *rows):
        table.add_column(head, justify="right", min_width=len("100.00"), overflow="fold")
    for name, (figure, value) in figures.items():
        theirs = (f"{published[name][row]:.2f}" if name in published else "" for row in rows)
        table.add_row(f"{name} {figure}", Text(f"{value:.2f}", "bold"), *theirs)
    console.print(table)
