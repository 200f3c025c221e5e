"""Classification of images that have several classes: `eval multilabel`."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from ..data import ImageSet, Split
from ..data.images import CALLED
from ..data.npz import load_npz
from ..encoders import FrozenEncoder
from ..errors import UserError
from ..eval.features import Extraction, LabelledFeatures, labelled_features
from ..eval.lbfgs import how_chosen, logistic
from ..eval.protocol import DataProtocol, FeatureOptions, Measurement, data_for
from ..eval.splits import count_copies, split_rows_of
from ..ranges import Seed
from ..system.hardware import best_device
from ..system.randomness import stream
from .data import load_detection

PROTOCOL = (
    "frozen backbone features of central squares; for each class a logistic regression by L-BFGS, summed "
    "cross-entropy + w |weight and bias|^2, one w of 45 for all classes,"
)
METRIC = "mean average precision"
RESAMPLES = 200
"""Of the test images, for the standard error: it is then known to 5 %."""


@dataclass(frozen=True)
class MultilabelSet(ImageSet):
    """Images of which each may have several classes."""

    multilabels: Mapping[str, Int[Tensor, "N C"]] = field(default_factory=dict)
    """By split, 1 where an image has a class, else 0."""


def load_multilabel(source: str, size: int) -> MultilabelSet:
    """An .npz file with labels N x C, or a folder with boxes; classes that train or test lacks are left out."""
    path = Path(source).expanduser()
    data = _of_npz(path) if path.suffix.lower() == ".npz" else _of_boxes(source)
    has = [data.multilabels[part].any(dim=0) for part in ("train", "test")]
    kept = has[0] & has[1]
    if not kept.any():
        raise UserError(f"{source} has no class that both training and test images have.")
    lacking = int((~kept).sum())
    return replace(
        data,
        classes=tuple(name for name, is_kept in zip(data.classes, kept.tolist(), strict=True) if is_kept),
        multilabels={part: labels[:, kept] for part, labels in data.multilabels.items()},
        source=source,
        root=str((path if path.is_dir() else path.parent).absolute()),
        says=(f"{lacking} of {len(kept)} classes are left out: train or test lacks them.",) if lacking else (),
    )


def _of_npz(path: Path) -> MultilabelSet:
    data = load_npz(path)
    with np.load(path) as file:
        part_of_test = "test" if "test_images" in file else "val"
        names = {part: f"{part_of_test if part == 'test' else part}_labels" for part in data.splits}
        found: dict[str, np.ndarray] = {
            part: file[names[part]] if names[part] in file else np.empty(0) for part in names
        }
    for part, labels in found.items():
        if labels.ndim != 2 or len(labels) != len(data.splits[part]) or not np.isin(labels, (0, 1)).all():
            raise UserError(f"{path}: {names[part]} must be 0 or 1 for each image and class (N x C).")
    if data.test is None or len(widths := {labels.shape[1] for labels in found.values()}) > 1:
        raise UserError(f"{path}: must have training and test images, with labels for as many classes.")
    multilabels = {part: torch.from_numpy(labels.astype(np.int64)) for part, labels in found.items()}
    return MultilabelSet(
        path.stem, data.train, data.test, tuple(map(str, range(*widths))), data.val, multilabels=multilabels
    )


def _of_boxes(source: str) -> MultilabelSet:
    data = load_detection(source)
    splits, multilabels = dict[str, Split](), dict[str, Tensor]()
    for part, annotated in (("train", data.train), ("test", data.test)):
        splits[part] = Split.from_paths(str(image.path) for image in annotated.images)
        multilabels[part] = torch.zeros(len(annotated), len(annotated.classes), dtype=torch.int64)
        for row, image in zip(multilabels[part], annotated.images, strict=True):
            row[torch.from_numpy(image.labels) - 1] = 1
    return MultilabelSet(data.name, splits["train"], splits["test"], data.train.classes, multilabels=multilabels)


def average_precision(
    scores: Float[Tensor, "N C"], labels: Int[Tensor, "N C"], times: Int[Tensor, "R N"] | None = None
) -> Float[Tensor, "R C"]:
    """Of each class, as scikit-learn's: the precision down to each of its images, averaged; equal scores are one rank.

    In each row, an image counts as often as `times` says (default: one row, once). NaN for a class without images.
    """
    times = torch.ones(1, len(scores), dtype=torch.int64, device=scores.device) if times is None else times
    found = []
    for score, label in zip(scores.T, labels.T, strict=True):
        falling, order = (-score).sort()
        last = torch.searchsorted(falling, falling, right=True) - 1  # of equal scores
        images = times[:, order]
        hits = images * label[order]
        precision = hits.cumsum(dim=1)[:, last].double() / images.cumsum(dim=1)[:, last].clamp(min=1)
        found.append((hits * precision).sum(dim=1) / hits.sum(dim=1))
    return torch.stack(found, dim=1)


def mean_average_precision(scores: Float[Tensor, "N C"], labels: Int[Tensor, "N C"]) -> float:
    """Percent, over the classes that any image has; 0 if there are none."""
    return 100 * average_precision(scores, labels).nanmean().nan_to_num().item()


def bootstrap_error(scores: Float[Tensor, "N C"], labels: Int[Tensor, "N C"]) -> float:
    """The standard error of `mean_average_precision` by the choice of test images: its spread over resamples."""
    n = len(scores)
    drawn = torch.randint(n, (RESAMPLES, n), generator=stream(0, "resampled test images"))
    times = torch.zeros_like(drawn).scatter_add_(1, drawn, torch.ones_like(drawn)).to(scores.device)
    return 100 * average_precision(scores, labels, times).nanmean(dim=1).std().item()


@dataclass(frozen=True)
class Multilabel(DataProtocol, FeatureOptions):
    """Logistic regression for each class on frozen features of images that have several: mean average precision.

    --data is a folder with boxes as for `eval detect`, where an image has the classes of its objects, or an .npz file
    whose labels are 0 or 1 for each image and class (N x C).

    example: logo-ssl eval multilabel runs/first --data coco/
    """

    seed: Seed = 0
    """Decides the validation split, if the set has no official one."""

    title = "Multi-label linear probe"

    def images(self, encoder: FrozenEncoder, say: Callable[[str], None]) -> ImageSet:
        """Those that may have several classes."""
        return data_for(encoder, self.data, say, load_multilabel)

    def measure(self, encoder: FrozenEncoder, data: ImageSet, how: Extraction) -> Measurement:
        """Choose and train the classifiers, and test them."""
        assert isinstance(data, MultilabelSet)
        copies, found = count_copies(data.train, data.test, data.val, how=how), dict[str, LabelledFeatures]()
        for part, split in data.splits.items():
            numbered = Split(split.images, torch.arange(len(split)))
            features, rows = labelled_features(encoder, numbered, how, CALLED[part])
            found[part] = LabelledFeatures(features, data.multilabels[part][rows])
        known = found["train"].joined(found["val"]) if "val" in found else found["train"]
        chosen_by = torch.arange(len(known.labels)) >= len(found["train"].labels)
        unsorted = LabelledFeatures(known.features, torch.zeros(len(known.labels), dtype=torch.int64))
        splits = split_rows_of(unsorted, found["test"], self.seed, data.name, chosen_by)
        train, val = map(known.rows, splits.rows)
        splits = splits._replace(train=train, val=val).to(best_device(how.device))
        labels, chance = splits.test.labels, 100 * splits.test.labels.double().mean().item()
        how.say(f"{len(labels):,} test images, {len(data.classes)} classes, chance {chance:.2f} %.")

        chosen = logistic(splits, mean_average_precision, partial(how.progress, "L2 weights"))
        scores = chosen.probe.scores(splits.test.features)
        value, error = mean_average_precision(scores, labels), bootstrap_error(scores, labels)
        per_class = (100 * average_precision(scores, labels)[0]).tolist()
        record = {
            "protocol": f"{PROTOCOL} {how_chosen(splits)}",
            "metric": METRIC,
            "value": round(value, 2),
            "standard_errors": {METRIC: round(error, 2)},
            "per_class": {name: round(each, 2) for name, each in zip(data.classes, per_class, strict=True)},
            "l2_weight": chosen.value,
            "validation": chosen.validation,
            "official_val": splits.official_val,
            "train_images": len(known.labels),
            "test_images": len(labels),
            "classes": len(data.classes),
            "chance": round(chance, 2),
            "seed_of_split": self.seed,
            **copies,
        }
        return Measurement("multilabel", {METRIC: value}, record, {"seed": self.seed})
