"""How well do frozen features transfer? Logistic regression on other data sets: the protocol of the paper's Table 5."""

import hashlib
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import torch
from jaxtyping import Bool
from torch import Tensor

from ..data import ImageSet, Split, load_data, locate
from ..errors import UserError
from ..hardware import best_device
from ..probes import WEIGHTS, Labelled, Metric, mean_per_class, select, top1
from ..randomness import stream
from .cache import labelled_features
from .encoders import FrozenEncoder
from .extraction import Extraction
from .held_out import part
from .labelled import labelled, labels_of
from .record import claim_result, save
from .table5 import SETS, TransferSet

PER_CLASS_TRAIN = 30  # of Caltech-101, which has no official split (Kornblith et al.)
PROTOCOL = (
    "frozen backbone features of central squares (short side resized, bicubic); multinomial logistic regression by "
    "L-BFGS, summed cross-entropy + w |{penalised}|^2; w one of 45 from 1e-6 to 1e5, chosen on {val}, then refitted on "
    "train and validation"
)
OFFICIAL, DRAWN = "the official validation split", "a random fifth of the training images"


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
    """Yield (("pets", "mean per class"), percent) for each set; one that cannot be measured is said, the others go on.

    Each set has a file of its own: in the run, or named after `out`.
    """
    how = how or Extraction()
    places = files_for(sets, out)
    for place in places.values():
        claim_result(place, overwrite)
    for name, place in places.items():
        found = SETS.get(name, TransferSet(Path(name).name, name))
        try:
            data = load_data(locate(found.data), encoder.size)
        except UserError as error:
            how.say(f"{found.title} is missing: {error}")
            continue
        for sentence in data.says:
            how.say(sentence)
        try:
            figure = _one(encoder, name, found, data, how, seed, penalise_bias, place)
        except UserError as error:
            how.say(f"{found.title} is not measured: {error}")
            continue
        yield figure


def _one(
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
    data = data if name != "caltech101" else thirty_per_class(data)
    train, test = labelled(data)
    features, readable = labelled_features(encoder, _with_rows(train), how, f"{found.title}, train")
    known = Labelled(features, labels_of(train)[readable])
    held_out = None if test is None else Labelled(*labelled_features(encoder, test, how, f"{found.title}, test"))
    parts = part(known, held_out, seed, data.name)
    if not parts.official_test:
        how.say(f"{found.title} has no test split; a fifth of it is held out.")
    elif data.val is not None:
        val = data.val[labels_of(data.train) >= 0][readable]
        parts = parts._replace(train=_rows(known, ~val), val=_rows(known, val))
    official_val = parts.official_test and data.val is not None
    parts = parts.to(best_device(how.device))
    figure: Metric = mean_per_class if found.per_class else top1
    n_classes = int(known.labels.max()) + 1

    def progress(done: int) -> None:
        how.progress(f"{found.title}, L2 weights", done, len(WEIGHTS))

    options = {"metric": figure, "penalise_bias": penalise_bias, "progress": progress}
    chosen = select(parts.train, parts.val, n_classes, **options)
    value = figure(chosen.probe.scores(parts.test.features), parts.test.labels)
    metric = SetFigure(name, "mean per class" if found.per_class else "top-1")
    penalised = "weight and bias" if penalise_bias else "weight"
    record = {
        "protocol": PROTOCOL.format(penalised=penalised, val=OFFICIAL if official_val else DRAWN),
        "metric": str(metric),
        "value": round(value, 2),
        "l2_weight": chosen.w,
        "penalise_bias": penalise_bias,
        "validation": chosen.validation,
        "official_val": official_val,
        "official_test": parts.official_test,
        "train_images": len(parts.train.labels) + len(parts.val.labels),
        "val_images": len(parts.val.labels),
        "test_images": len(parts.test.labels),
        "classes": n_classes,
        "seed_of_split": seed,
        "seconds": round(time.time() - began, 1),
    }
    settings = {"seed": seed, "penalise_bias": penalise_bias, "figure": metric.figure}
    save("transfer", record, encoder, data, how, place, settings)
    return metric, value


def thirty_per_class(data: ImageSet) -> ImageSet:
    """Caltech-101 as it is used: the first images of each class in a random order train, the rest tests."""
    labels = labels_of(data.train)
    order = torch.randperm(len(labels), generator=stream(0, "caltech101"))
    chosen = torch.cat([order[labels[order] == label][:PER_CLASS_TRAIN] for label in labels.unique()])
    rest = torch.ones(len(labels), dtype=torch.bool)
    rest[chosen] = False
    return replace(data, train=data.train[chosen.sort().values], test=data.train[rest], val=None)


def files_for(sets: Sequence[str], out: Path | None) -> dict[str, Path | None]:
    """A file for each set beside `out`, named after the set; those of one name are told apart by a hash of theirs."""
    if out is None:
        return dict.fromkeys(sets)
    short = {name: Path(name).name for name in sets}
    for name in short:
        if sum(Path(other).name == Path(name).name for other in short) > 1:
            short[name] += f"-{hashlib.sha256(locate(name).encode()).hexdigest()[:8]}"
    return {name: out.with_name(f"{out.stem}-{last}{out.suffix or '.json'}") for name, last in short.items()}


def _with_rows(split: Split) -> Split:
    """The images labelled by their rows, which tell which of them could be read."""
    return Split(split.images, torch.arange(len(split)))


def _rows(data: Labelled, rows: Bool[Tensor, " N"]) -> Labelled:
    return Labelled(data.features[rows], data.labels[rows])
