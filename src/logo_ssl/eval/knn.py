"""How good are frozen features for nearest neighbours?"""

import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from ..data import ImageSet, Photos
from ..errors import UserError
from ..hardware import best_device
from ..knn import PROTOCOLS, nearest_neighbours, top_accuracies
from ..probes import Labelled
from ..sampling import standard_error
from ..text import counted
from .cache import labelled_features
from .chance import TOP, chance_of, say_chance
from .copies import copies
from .encoders import FrozenEncoder
from .how import Extraction
from .labelled import labelled, labels_of, refuse_lost_classes
from .record import check_result, save

PROTOCOL = "weighted kNN, cosine, frozen backbone features of whole images in eval mode"


def knn(
    encoder: FrozenEncoder,
    data: ImageSet,
    how: Extraction | None = None,
    *,
    protocols: Sequence[tuple[int, float]] | None = PROTOCOLS,
    out: Path | None = None,
    overwrite: bool = False,
) -> Iterator[tuple[str, float]]:
    """Yield ("knn top-1, k=20, tau=0.07", percent) and so on for a frozen encoder; save them in its run, or at `out`.

    Without a labelled test split each image is classified by all the others. Where there are no more than k images, all
    would vote: such a k is refused or, where `protocols` is None, left out of the customary ones, and that is said.
    """
    began = time.time()
    how = (how or Extraction()).afresh()
    check_result(out, overwrite, encoder.run)
    needed = min(k for k, _ in PROTOCOLS) if protocols is None else _largest(protocols)
    asked, bank, leave_one_out, copied = _compared(encoder, data, how, needed)
    protocols = _fitting(len(bank.labels) - leave_one_out, data, how) if protocols is None else protocols
    chance = chance_of(asked.labels, bank.labels)
    say_chance(chance._replace(known=chance.known - leave_one_out), how)
    if few := [f"k={k}" for k, _ in protocols if k < max(chance.tops)]:
        how.say(f"Top-{TOP} is left out for {', '.join(few)}: so few neighbours name no {TOP} classes.")
    watched = how.counting("nearest neighbours", len(asked.labels))
    options = {"leave_one_out": leave_one_out, "device": best_device(how.device), "progress": watched}
    near = nearest_neighbours(asked.features, bank.features, _largest(protocols), **options)
    how.classified.append(len(asked.labels))
    results, errors = [], {}
    for k, tau in protocols:
        tops = [top for top in chance.tops if top <= k]
        figures = dict(zip(tops, top_accuracies(near, asked.labels, bank.labels, k, tau, tops), strict=True))
        results.append({"k": k, "tau": tau, **{f"top{top}": round(value, 2) for top, value in figures.items()}})
        for top, value in figures.items():
            metric = f"knn top-{top}, k={k}, tau={tau}"
            errors[metric] = round(standard_error(value, len(asked.labels)), 2)
            yield metric, value
    record = {
        "protocol": PROTOCOL + (", leave-one-out on the training images" if leave_one_out else ""),
        "results": results,
        "standard_errors": errors,
        "train_images": len(bank.labels),
        "test_images": len(asked.labels),
        "classes": chance.n_classes,
        **chance.recorded,
        **copied,
        "features": bank.features.shape[1],
        "seconds": round(time.time() - began, 1),
    }
    save("knn", record, encoder, data, how, out, {"protocols": list(protocols)})


class Compared(NamedTuple):
    """Images whose class is asked for, and those that tell it; leaving one out, they are the same."""

    asked: Labelled
    bank: Labelled
    leave_one_out: bool
    copied: dict[str, int]
    """How many of the first were looked for among the second, and found."""


def _compared(encoder: FrozenEncoder, data: ImageSet, how: Extraction, k: int) -> Compared:
    train, test = labelled(data)
    leave_one_out = test is None
    _refuse_too_few(len(train) - leave_one_out, k, data, unread=isinstance(train.images, Photos))
    copied = copies(train, test, how)
    bank = Labelled(*labelled_features(encoder, train, how, "training images"))
    refuse_lost_classes(data, labels_of(train), bank.labels)
    asked = bank if test is None else Labelled(*labelled_features(encoder, test, how, "test images"))
    if leave_one_out:
        how.say(f"{data.name} has no labelled test images; each training image is classified by all the others.")
    elif data.val is not None:
        how.say(
            f"These are the test images of {data.name}; its validation images, which training watches, are left out."
        )
    _refuse_too_few(len(bank.labels) - leave_one_out, k, data)  # now that some may have turned out unreadable
    if len(asked.labels) == 0:
        raise UserError(f"None of the test images of {data.name} can be read; look at the files.")
    return Compared(asked, bank, leave_one_out, copied)


def _largest(protocols: Sequence[tuple[int, float]]) -> int:
    """How many neighbours are asked for at most; UserError where nothing is, or what makes no sense."""
    if not protocols:
        raise UserError("protocols=(): give one or more pairs of k and tau, such as 20 0.07.")
    for k, tau in protocols:
        if k < 1 or not tau > 0:  # nor not a number
            raise UserError(f"protocols={k} {tau}: k must be 1 or more, and tau above 0.")
    return max(k for k, _ in protocols)


def _fitting(n_images: int, data: ImageSet, how: Extraction) -> list[tuple[int, float]]:
    """The customary protocols for so many images; which asks too much is said."""
    if large := [f"k={k}" for k, _ in PROTOCOLS if k >= n_images]:
        few = f"{counted(n_images, 'training image')} of {data.name} to compare with"
        how.say(f"{', '.join(large)} is left out: with only {few}, all would vote.")
    return [(k, tau) for k, tau in PROTOCOLS if k < n_images]


def _refuse_too_few(n_images: int, k: int, data: ImageSet, unread: bool = False) -> None:
    if k >= n_images:
        readable = ", if all can be read" if unread else ""
        raise UserError(
            f"k={k} needs more than {counted(k, 'image')} to compare with, or all would vote, and {data.name} has "
            f"{counted(n_images, 'training image')} for it{readable}; give more, or a smaller k (--protocols 5 0.07)."
        )
