"""How well do frozen features transfer? Logistic regression on other data sets: the protocol of the paper's Table 5."""

import hashlib
import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import torch

from ..data import NAMES, ImageSet, load_data, locate
from ..errors import UserError, nearest
from ..hardware import best_device
from ..probes import WEIGHTS, Metric, mean_per_class, select, top1
from ..randomness import refuse_unusable_seed, stream
from .encoders import FrozenEncoder
from .held_out import Parts
from .how import Extraction
from .labelled import labels_of
from .parting import parted
from .record import check_result, save
from .table5 import NAMED_ELSEWHERE, SETS, TransferSet

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
    refuse_unusable_seed(seed)
    best_device(how.device)  # refused, if it is, before anything is read
    if not sets:
        raise UserError(f"sets=(): give one or more of {', '.join(SETS)}, or a folder of classes.")
    places = files_for(sets, out)
    for place in places.values():
        check_result(place, overwrite, encoder.run)
    for name, place in places.items():
        found = SETS.get(name) or TransferSet(short_name(name), name)
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
    began, how = time.time(), how.afresh()
    if found.per_class_train is not None:
        data = some_per_class(data, found.per_class_train)
    names = [f"{found.title}, {split}" for split in ("train", "val", "test")]
    _, parts, copied = parted(encoder, data, how, seed, names)
    if not parts.official_test:
        how.say(f"{found.title} has no test split; a fifth of it is held out.")
    parts, chance = parts.to(best_device(how.device)), parts.chance(per_class=found.per_class)
    how.say(f"{found.title}: {chance}")
    figure: Metric = mean_per_class if found.per_class else top1
    metric = SetFigure(name, "mean per class" if found.per_class else "top-1")
    watched = how.counting(f"{found.title}, L2 weights", len(WEIGHTS))
    options = {"metric": figure, "penalise_bias": penalise_bias, "progress": watched}
    chosen = select(parts.train, parts.val, parts.n_classes, **options)
    value = figure(chosen.probe.scores(parts.test.features), parts.test.labels)
    record = {
        "protocol": _protocol(parts, penalise_bias),
        "metric": str(metric),
        "value": round(value, 2),
        "l2_weight": chosen.w,
        "penalise_bias": penalise_bias,
        "validation": chosen.validation,
        **parts.counts,
        **chance.recorded,
        **copied,
        "seed_of_split": seed,
        "seconds": round(time.time() - began, 1),
    }
    settings = {"seed": seed, "penalise_bias": penalise_bias, "figure": metric.figure}
    save("transfer", record, encoder, data, how, place, settings)
    return metric, value


def _protocol(parts: Parts, penalise_bias: bool) -> str:
    """What was done, in words."""
    penalised = "weight and bias" if penalise_bias else "weight"
    return PROTOCOL.format(penalised=penalised, val=OFFICIAL if parts.official_val else DRAWN)


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
                f"There is no set {name!r}; give one or more of {', '.join(SETS)}, another name or a path."
                f"{'' if '/' in name else nearest(name, [*SETS, *NAMES])}"
            )


def files_for(sets: Sequence[str], out: Path | None) -> dict[str, Path | None]:
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
