"""Transfer of frozen features to other data sets: `eval transfer`, the protocol of the paper's Table 5."""

import os
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

import torch

from ..data import NAMES, ImageSet
from ..encoders import FrozenEncoder
from ..errors import UserError, nearest
from ..ranges import Seed
from ..run import standard_error
from ..system.hardware import best_device
from ..system.randomness import stream
from .features import Extraction
from .lbfgs import how_chosen, logistic
from .protocol import (
    Comparison,
    FeatureOptions,
    Measurement,
    Metric,
    check_result,
    data_for,
    error_per_class,
    evaluate,
    mean_per_class,
    show,
    top1,
)
from .splits import labels_of, split_features

PROTOCOL = (
    "frozen backbone features of central squares (short side resized, bicubic); multinomial logistic regression by "
    "L-BFGS, summed cross-entropy + w |weight and bias|^2; w one of 45 from 1e-6 to 1e5,"
)


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
    seed: Seed = 0
    """Decides the validation split, if the set has no official one."""
    baselines: bool = True
    """Also measure the untrained network and pixels with colours, and compare."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in self.sets:
            if name not in SETS and name not in NAMES and not Path(name).expanduser().exists():
                raise UserError(
                    f"sets={name}: must be one or more of {', '.join(SETS)}, another name of a set, or a path."
                    f"{nearest(name, [*SETS, *NAMES])}"
                )

    def run(self) -> None:
        """Evaluate, and show the figures."""
        encoder, console = self.open()
        with self.extraction(console) as how:
            compared = self.evaluate(encoder, how)
        if compared:
            show(console, "Transfer", list(compared.values()))
        lacking = [name for name in self._files() if name not in compared]
        if lacking and (self.sets != tuple(SETS) or not compared):
            raise UserError(f"{', '.join(lacking)} could not be measured; see above.")

    def evaluate(self, encoder: FrozenEncoder, how: Extraction) -> dict[str, Comparison]:
        """What was found on each set; one that cannot be measured stops no other. Each has a file."""
        files, compared = self._files(), dict[str, Comparison]()
        for file in files.values():
            check_result(file, self.overwrite, encoder.run)
        for name, file in files.items():
            known = SETS.get(name) or TransferSet(_short_name(name), name)
            try:
                data = data_for(encoder, known.data, how.say)
                if known.per_class_train is not None:
                    data = some_per_class(data, known.per_class_train)
                measure, own = partial(self._measure, name, known), replace(how, unreadable=[])
                compared[name] = evaluate(measure, encoder, data, own, file, self.baselines)
            except UserError as error:
                how.say(f"{known.title} is not measured: {error}")
        return compared

    def _files(self) -> dict[str, Path | None]:
        """A file for each set next to --out, named after the set; of several of one name, the others have a number."""
        names = list(dict.fromkeys(NAMED_ELSEWHERE.get(name, name) for name in self.sets))
        if self.out is None:
            return dict.fromkeys(names)
        files, short = dict[str, Path | None](), [_short_name(name) for name in names]
        for i, name in enumerate(names):
            number = f"-{n}" if (n := short[: i + 1].count(short[i])) > 1 else ""
            files[name] = self.out.with_name(f"{self.out.stem}-{short[i]}{number}{self.out.suffix}")
        return files

    def _measure(
        self, name: str, known: TransferSet, encoder: FrozenEncoder, data: ImageSet, how: Extraction
    ) -> Measurement:
        names = [f"{known.title}, {split}" for split in ("train", "val", "test")]
        splits = split_features(encoder, data, how, self.seed, names).to(best_device(how.device))
        about, labels = splits.about(per_class=known.per_class), splits.test.labels
        how.say(f"{known.title}: {len(labels):,} test images, chance {about['chance']:.2f} %.")
        score: Metric = mean_per_class if known.per_class else top1
        figure = "mean per class" if known.per_class else "top-1"
        chosen = logistic(splits, score, partial(how.progress, f"{known.title}, L2 weights"))
        scores = chosen.probe.scores(splits.test.features)
        value = score(scores, labels)
        error = error_per_class(scores, labels) if known.per_class else standard_error(value, len(labels))
        figures, errors = ({f"{name} {figure}": number} for number in (value, round(error, 2)))
        record = {
            "protocol": f"{PROTOCOL} {how_chosen(splits)}",
            "metric": f"{name} {figure}",
            "value": round(value, 2),
            "standard_errors": errors,
            "l2_weight": chosen.value,
            "validation": chosen.validation,
            **about,
            "seed_of_split": self.seed,
        }
        return Measurement("transfer", figures, record, {"seed": self.seed, "figure": figure})


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
