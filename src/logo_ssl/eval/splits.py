"""Splits of labelled data: which images train, choose and test, which are in two of them, and what guessing reaches."""

import hashlib
from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from ..data import ImageSet, Photos, Split
from ..data.images import CALLED
from ..encoders import FrozenEncoder
from ..errors import UserError
from ..system.hardware import exact_device
from ..system.randomness import stream
from .features import Extraction, LabelledFeatures, labelled_features

TEST_SHARE, VAL_SHARE = 0.2, 0.2
NAMES = tuple(CALLED.values())


def labelled_splits(data: ImageSet) -> tuple[Split, Split | None]:
    """The labelled images of train and test, classes numbered from 0 in their order; no test if none has a label."""
    train = _with_labels(data.train)
    if train is None and len(data.classes) != 1:
        raise UserError(f"{data.name} has no labels; give class folders, an .npz with train_labels, or a named set.")
    if train is None or len(values := labels_of(train).unique()) == 1 or len(data.classes) == 1:
        raise UserError(f"{data.name} has labelled images of one class only; give two classes or more.")
    return Split(train.images, torch.searchsorted(values, labels_of(train))), _held_out(data, data.test, values, "test")


def labels_of(split: Split) -> Int[Tensor, " N"]:
    """The labels of a split that has them."""
    if split.labels is None:
        raise TypeError("this split has no labels; use `labelled_splits` first")
    return split.labels


def class_names(data: ImageSet) -> tuple[str, ...]:
    """What the classes are called that `labelled_splits` numbers: as the data name them, else by their numbers."""
    names = dict(enumerate(data.classes))
    return tuple(names.get(label, str(label)) for label in labels_of(data.train).unique().tolist() if label >= 0)


def _held_out(data: ImageSet, split: Split | None, values: Int[Tensor, " classes"], part: str) -> Split | None:
    """The labelled images of a split, numbered; a class that train lacks is refused."""
    if split is None or split.labels is None:
        return None
    # -1 marks an array's images without a label, and a folder's images of a class that train lacks
    strange = ~torch.isin(split.labels, values)
    strange = strange if isinstance(split.images, Photos) else strange & (split.labels >= 0)
    if strange.any():
        row = int(strange.nonzero()[0])
        first = split.images.name(row) if isinstance(split.images, Photos) else f"of class {int(split.labels[row])}"
        raise UserError(
            f"{data.name} has {int(strange.sum()):,} {part} images of classes without training images (the first: "
            f"{first}); add training images, or remove these."
        )
    known = _with_labels(split)
    return None if known is None else Split(known.images, torch.searchsorted(values, labels_of(known)))


def _with_labels(split: Split) -> Split | None:
    """Without the images that -1 marks as unlabelled."""
    if split.labels is None or not split.has_labels:
        return None
    return split if (split.labels >= 0).all() else split[split.labels >= 0]


# -- Leakage: are test images among those that train or choose? A look at some, cheap enough to take each time.

LOOKED_AT = 1_000  # images that are looked for, evenly spread
MOST_KNOWN = 200_000
"""Images to look among: to ask a disk for the sizes of more would take longer than some evaluations."""
UNSAID = Extraction()
MOST_READ = 20_000
"""Images of a size that is looked for which are read, evenly spread."""


def count_copies(
    train: Split, test: Split | None, val: Split | None = None, *, how: Extraction = UNSAID
) -> dict[str, int]:
    """How many of the test images that were looked at are training images, byte by byte; a warning if any is.

    Validation images choose and train as well: if given, these are looked among and looked for.
    """
    if test is None or not how.look_for_copies:
        return {}
    pairs = [("test", test, "train", train)]
    if val is not None:
        pairs += [("val", val, "train", train), ("test", test, "val", val)]
    counts = dict[str, int]()
    for name, split, known_as, known in pairs:
        if len(known) > MOST_KNOWN or isinstance(split.images, Photos) != isinstance(known.images, Photos):
            continue
        some = split.thinned(LOOKED_AT)
        wanted, offered = _sizes(some.images), _sizes(known.images)
        alike = torch.isin(offered, wanted).nonzero()[:, 0]
        alike = alike[:: 1 + len(alike) // MOST_READ]
        digests = {_digest(known.images, row) for row in alike.tolist()} - {None}
        found = sum(_digest(some.images, row) in digests for row in range(len(some)))
        if found:
            how.say(
                f"Warning: {found:,} of {len(some):,} {CALLED[name]} are also among the {CALLED[known_as]}, so "
                f"figures are too good; remove them from {known_as} or {name}."
            )
        counts |= {f"{name}_images_compared": len(some), f"{name}_images_in_{known_as}": found}
    return counts


def _sizes(images: Tensor | Photos) -> Int[Tensor, " N"]:
    """What copies share, and few others: the bytes of a file, the sum of an array's pixels."""
    return torch.tensor(images.stats[:, 0]) if isinstance(images, Photos) else images.flatten(1).sum(dim=1)


def _digest(images: Tensor | Photos, row: int) -> bytes | None:
    """None for an empty or missing file, which is not an image."""
    try:
        content = images.read(row) if isinstance(images, Photos) else images[row].contiguous().numpy().data
    except OSError:
        return None
    return hashlib.blake2b(content, digest_size=16).digest() if len(content) else None


# -- Features of splits


class FeatureSplits(NamedTuple):
    """Features to learn from, to choose by, and to test on."""

    train: LabelledFeatures
    val: LabelledFeatures
    test: LabelledFeatures
    official_test: bool
    official_val: bool
    rows: tuple[Int[Tensor, " train"], Int[Tensor, " val"]]
    """Which of the readable images are to learn from, and which to choose by."""
    images: tuple[Split, ...] = ()
    """The readable images to learn from and, after them, to choose by, if these have a split of their own."""
    copies: dict[str, int] = {}  # noqa: RUF012 (never changed)
    """How many images were compared between the splits, and found in two of them."""

    @property
    def n_classes(self) -> int:
        """How many classes there are to learn."""
        if self.train.labels.dim() == 2:
            return self.train.labels.shape[1]
        return int(max(self.train.labels.max(), self.val.labels.max())) + 1

    def about(self, *, per_class: bool = False) -> dict[str, int | float | bool]:
        """What a record holds of them: how many images, which splits are official, chance, copies."""
        known = torch.cat([self.train.labels, self.val.labels])
        return {
            "official_test": self.official_test,
            "official_val": self.official_val,
            "val_images": len(self.val.labels),
            "train_images": len(known),
            "test_images": len(self.test.labels),
            "classes": self.n_classes,
            **guessing(self.test.labels, known, per_class=per_class),
            **self.copies,
        }

    def to(self, device: torch.device) -> "FeatureSplits":
        """All of it on a device, or on the CPU if the device has no float64, which probes and metrics need."""
        device = exact_device(device)
        train, val, test = (LabelledFeatures(part.features.to(device), part.labels.to(device)) for part in self[:3])
        return self._replace(train=train, val=val, test=test)


def split_features(
    encoder: FrozenEncoder, data: ImageSet, how: Extraction, seed: int, names: Sequence[str] = NAMES
) -> FeatureSplits:
    """The features of all readable images; validation images choose, if there are any as well as a test."""
    train, test = labelled_splits(data)
    labels = labels_of(data.train)
    val = None if test is None else _held_out(data, data.val, labels[labels >= 0].unique(), "validation")
    copies = count_copies(train, test, val, how=how)
    seen, rows, known = _readable_features(encoder, train, how, names[0])
    images, chosen_by = (seen,), None
    if data.val_in_train is not None:
        chosen_by = data.val_in_train[labels >= 0][rows]
    if val is not None:
        others, _, more = _readable_features(encoder, val, how, names[1])
        images, known = (seen, others), known.joined(more)
        chosen_by = torch.arange(len(known.labels)) >= len(rows)
    held_out = None if test is None else labelled_features(encoder, test, how, names[2])
    splits = split_rows_of(known, held_out, seed, data.name, chosen_by)
    return splits._replace(images=images, copies=copies)


def _readable_features(
    encoder: FrozenEncoder, split: Split, how: Extraction, what: str
) -> tuple[Split, Int[Tensor, " n"], LabelledFeatures]:
    """The images that can be read, their rows, by which they are labelled meanwhile, and their features."""
    features, rows = labelled_features(encoder, Split(split.images, torch.arange(len(split))), how, what)
    seen = split if len(rows) == len(split) else split[rows]
    return seen, rows, LabelledFeatures(features, labels_of(seen))


def split_rows_of(
    train: LabelledFeatures,
    test: LabelledFeatures | None,
    seed: int,
    name: str = "this data set",
    val: Bool[Tensor, " N"] | None = None,
) -> FeatureSplits:
    """Split features; the seed decides what is random. Given a test, `val` marks the official rows to choose by."""
    official_test, known = test is not None, torch.arange(len(train.labels))
    if test is None:
        known, held_out = split_test(train.labels, seed, name)
        test = train.rows(held_out)
    official_val = official_test and val is not None and bool(val.any() and not val.all())
    if official_val:
        assert val is not None
        fitted, chosen_by = (~val).nonzero()[:, 0], val.nonzero()[:, 0]
    else:
        parts = stratified_split(train.labels[known], VAL_SHARE, stream(seed, "validation split"))
        fitted, chosen_by = (known[rows] for rows in parts)
        if len(chosen_by) == 0:
            raise UserError(f"{name} has too few images of each class to hold some out for validation; give more.")
    rows = (fitted, chosen_by)
    return FeatureSplits(train.rows(fitted), train.rows(chosen_by), test, official_test, official_val, rows)


def split_test(labels: Int[Tensor, " N"], seed: int, name: str) -> tuple[Int[Tensor, " known"], Int[Tensor, " test"]]:
    """Rows to know and rows to test on, of a data set without a test split."""
    known, test = stratified_split(labels, TEST_SHARE, stream(seed, "test split"))
    if len(test) == 0:
        raise UserError(f"{name} has too few images of each class to hold some out for a test; give more.")
    return known, test


def stratified_split(
    labels: Int[Tensor, " N"], fraction: float, generator: torch.Generator
) -> tuple[Int[Tensor, " train"], Int[Tensor, " val"]]:
    """Hold out the fraction of each class, rounded: at least one image, but never a class's only one; rows ascend."""
    images = torch.bincount(labels)
    quota = (images * fraction).round().long().clamp(min=1)
    quota = torch.minimum(quota, (images - 1).clamp(min=0))
    chosen = rank_in_class(labels, generator) < quota[labels]
    return (~chosen).nonzero()[:, 0], chosen.nonzero()[:, 0]


def balanced_share(labels: Int[Tensor, " N"], fraction: float, generator: torch.Generator) -> Int[Tensor, " share"]:
    """The fraction of each class, rounded, at least one image; a larger share from the same state holds the smaller."""
    quota = (torch.bincount(labels) * fraction).round().long().clamp(min=1)
    return (rank_in_class(labels, generator) < quota[labels]).nonzero()[:, 0]


def rank_in_class(labels: Int[Tensor, " N"], generator: torch.Generator) -> Int[Tensor, " N"]:
    """Each image's place in a random order of its class; the same state and order of images give the same."""
    shuffled = torch.randperm(len(labels), generator=generator, device=generator.device).to(labels.device)
    by_class = shuffled[labels[shuffled].argsort(stable=True)]
    images = torch.bincount(labels)
    first = images.cumsum(0) - images  # where each class begins
    place = torch.arange(len(labels), device=labels.device) - first[labels[by_class]]
    return torch.empty_like(place).scatter_(0, by_class, place)


def guessing(test: Int[Tensor, " Q"], train: Int[Tensor, " N"], *, per_class: bool = False) -> dict[str, float]:
    """Percent that needs no features: by the class of any training image, and by the commonest class among them.

    `per_class`: if the figure is a mean over the classes of the test.
    """
    n = int(max(test.max(), train.max())) + 1
    tested, known = (labels.bincount(minlength=n).double() for labels in (test, train))
    tested = (tested > 0).double() if per_class else tested
    tested, known = tested / tested.sum(), known / known.sum()
    return {
        "chance": round(100 * float(tested @ known), 2),
        "commonest": round(100 * float(tested[known.argmax()]), 2),
    }
