"""How well do frozen features transfer? Logistic regression on other data sets: the protocol of the paper's Table 5."""

import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import torch

from ..data import ImageSet, load_data, locate
from ..errors import UserError
from ..hardware import best_device
from ..probes import WEIGHTS, Labelled, Metric, mean_per_class, select, top1
from ..randomness import stream
from .cache import labelled_features
from .encoders import FrozenEncoder
from .extraction import Extraction
from .held_out import part
from .labelled import labelled, labels_of
from .record import save


class TransferSet(NamedTuple):
    """A data set of Table 5: where its images come from, and the figure that the literature reports."""

    title: str
    data: str
    per_class: bool = False


SETS = {
    "cifar10": TransferSet("CIFAR10", "cifar10"),
    "cifar100": TransferSet("CIFAR100", "cifar100"),
    "food101": TransferSet("Food", "food101"),
    "mit67": TransferSet("MIT67", "mit67"),
    "pets": TransferSet("Pets", "oxfordiiitpet", per_class=True),
    "flowers": TransferSet("Flowers", "flowers102", per_class=True),
    "caltech101": TransferSet("Caltech", "caltech101", per_class=True),
    "cars": TransferSet("Cars", "stanfordcars"),
    "aircraft": TransferSet("Aircraft", "fgvcaircraft", per_class=True),
    "dtd": TransferSet("DTD", "dtd"),
}
PAPER: dict[str, tuple[float, ...]] = {  # Table 5, in the order of SETS
    "Super(IN-100)": (86.16, 62.7, 53.89, 52.91, 73.50, 76.09, 77.53, 30.61, 36.78, 62.07),
    "MoCo": (83.71, 60.59, 58.21, 57.54, 64.30, 85.56, 74.12, 32.63, 46.23, 60.64),
    "MoCo+Aug*": (85.26, 63.90, 60.78, 63.36, 73.46, 85.70, 78.93, 37.35, 39.47, 66.22),
    "MoCo-LoGo w/o L2L": (85.19, 61.47, 63.66, 65.45, 71.74, 90.2, 77.91, 37.22, 48.21, 65.74),
    "MoCo-LoGo": (86.09, 63.43, 65.67, 67.54, 76.17, 92.13, 82.09, 40.77, 50.07, 67.87),
}
PER_CLASS_TRAIN = 30  # of Caltech-101, which has no official split (Kornblith et al.)
PROTOCOL = (
    "frozen backbone features of central squares (short side resized, bicubic); multinomial logistic regression by "
    "L-BFGS, summed cross-entropy + w |weight|^2; w one of 45 from 1e-6 to 1e5, chosen on a fifth of train+val, then "
    "refitted on all"
)


def transfer(
    encoder: FrozenEncoder,
    sets: Sequence[str] = tuple(SETS),
    how: Extraction | None = None,
    *,
    seed: int = 0,
    out: Path | None = None,
) -> Iterator[tuple[str, float]]:
    """Yield ("pets mean per class", percent) for each set; one that is not on disk is said, and the others go on."""
    how = how or Extraction()
    for name in sets:
        found = SETS.get(name, TransferSet(Path(name).name, name))
        try:
            data = load_data(locate(found.data), encoder.size)
        except UserError as error:
            how.say(f"{found.title} is missing: {error}")
            continue
        yield _one(encoder, name, found, data, how, seed, out)


def _one(
    encoder: FrozenEncoder, name: str, found: TransferSet, data: ImageSet, how: Extraction, seed: int, out: Path | None
) -> tuple[str, float]:
    began = time.time()
    train, test = labelled(data if name != "caltech101" else _thirty_per_class(data))
    known = Labelled(*labelled_features(encoder, train, how, f"{found.title}, train"))
    held_out = None if test is None else Labelled(*labelled_features(encoder, test, how, f"{found.title}, test"))
    parts = part(known, held_out, seed, data.name).to(best_device(how.device))
    if not parts.official_test:
        how.say(f"{found.title} has no test split; a fifth of it is held out.")
    figure: Metric = mean_per_class if found.per_class else top1

    def progress(done: int) -> None:
        how.progress(f"{found.title}, L2 weights", done, len(WEIGHTS))

    chosen = select(parts.train, parts.val, int(known.labels.max()) + 1, metric=figure, progress=progress)
    value = figure(chosen.probe.scores(parts.test.features), parts.test.labels)
    metric = f"{name} {'mean per class' if found.per_class else 'top-1'}"
    record = {
        "protocol": PROTOCOL,
        "metric": metric,
        "value": round(value, 2),
        "l2_weight": chosen.w,
        "validation": chosen.validation,
        "official_test": parts.official_test,
        "train_images": len(parts.train.labels) + len(parts.val.labels),
        "test_images": len(parts.test.labels),
        "classes": int(known.labels.max()) + 1,
        "seed_of_split": seed,
        "seconds": round(time.time() - began, 1),
    }
    place = None if out is None else out.with_name(f"{out.stem}-{Path(name).name}{out.suffix or '.json'}")
    save("transfer", record, encoder, data, how.device, place)
    return metric, value


def _thirty_per_class(data: ImageSet) -> ImageSet:
    """Caltech-101 as it is used: the first images of each class in a random order train, the rest tests."""
    labels = labels_of(data.train)
    order = torch.randperm(len(labels), generator=stream(0, "caltech101"))
    chosen = torch.cat([order[labels[order] == label][:PER_CLASS_TRAIN] for label in labels.unique()])
    rest = torch.ones(len(labels), dtype=torch.bool)
    rest[chosen] = False
    return ImageSet(data.name, data.train[chosen.sort().values], data.train[rest], data.classes)
