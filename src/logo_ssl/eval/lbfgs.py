"""Multinomial logistic regression with an L2 penalty, by torch's L-BFGS for a path of penalties, chosen on validation.

The objective is AugSelf's: cross-entropy summed over images + w |weight and bias|^2. scikit-learn's C is 1 / (2 w),
and 1 / w for two classes, with a column of ones for the bias. If images have several classes, the cross-entropy is that
of a logistic regression for each, and C is 1 / (2 w).
"""

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from ..system.randomness import stream
from .features import LabelledFeatures
from .protocol import Metric, top1
from .splits import FeatureSplits, rank_in_class

WEIGHTS = tuple(float(f"{10 ** (5 - 11 * i / 44):.10g}") for i in range(45))
"""Kornblith et al.'s 45, log-spaced from 1e5 to 1e-6."""
TOLERANCE, FALL, MAX_ITERATIONS = 1e-2, 1e-6, 1000
"""On 1,000 to 2,000 images of Pets, Imagenette and CIFAR-10 accuracies are those of exact minima, but for one image."""
CHECK_EVERY = 10  # iterations
FEW, FOLDS = 5_000, 5
"""Below so many images, a fifth of them is too few to choose by: its standard error is 1.6 points at 50 %."""
NEGLIGIBLE = 1e-14
"""Variance along an axis, as a share of the largest, below which rounding decides what is there."""


class LinearProbe(NamedTuple):
    """A linear classifier of features."""

    weight: Float[Tensor, "F C"]
    bias: Float[Tensor, " C"]

    def scores(self, features: Float[Tensor, "N F"]) -> Float[Tensor, "N C"]:
        """The score of each class, the larger the likelier."""
        return torch.addmm(self.bias, features, self.weight)

    def layer(self) -> nn.Linear:
        """The same as a module on the CPU."""
        layer: Any = nn.utils.skip_init(nn.Linear, *self.weight.shape)
        layer.load_state_dict({"weight": self.weight.T, "bias": self.bias})
        return layer.requires_grad_(False)

    @property
    def finite(self) -> bool:
        """Whether training has not diverged."""
        return bool(self.weight.isfinite().all() and self.bias.isfinite().all())


class Solution(NamedTuple):
    """The classifier of one weight w."""

    w: float
    probe: LinearProbe


def fit_path(
    features: Float[Tensor, "N F"],
    labels: Int[Tensor, "N *classes"],
    n_classes: int,
    weights: Sequence[float] = WEIGHTS,
    tolerance: float = TOLERANCE,
    fall: float = FALL,
) -> Iterator[Solution]:
    """The solution of each weight, from the strongest to the weakest, each begun where the path leads.

    A search ends when |gradient| <= tolerance x |gradient of the penalty| (then the minimum's weights differ by no more
    than that share, and its objective by its square), or when ten iterations lower the objective by less than `fall`.
    """
    rows = torch.cat([features, features.new_ones(len(features), 1)], dim=1).double()
    # A rotation leaves scores and penalty as they are. Along the principal axes the curvature is nearly diagonal.
    span = torch.linalg.qr(rows.T).Q if len(rows) < rows.shape[1] else None  # a few images span few axes
    rows = rows if span is None else rows @ span
    variance, axes = torch.linalg.eigh(rows.T @ rows)
    axes = axes[:, variance > NEGLIGIBLE * variance[-1]]
    design, axes = rows @ axes, axes if span is None else span @ axes
    del rows, span  # as large
    before = theta = design.new_zeros(design.shape[1], n_classes)
    for w in sorted(set(weights), reverse=True):
        start = 2 * theta - before  # straight on over log w
        before, theta = theta, _minimise(design, labels, w, start, tolerance, fall)
        weight = (axes @ theta).to(features)
        yield Solution(w, LinearProbe(weight[:-1], weight[-1]))


def _minimise(
    design: Float[Tensor, "N K"],
    labels: Int[Tensor, "N *classes"],
    w: float,
    start: Float[Tensor, "K C"],
    tolerance: float,
    fall: float,
) -> Float[Tensor, "K C"]:
    several = labels.dim() == 2
    uncertain = (p := (design @ start).sigmoid() if several else (design @ start).softmax(dim=1)) * (1 - p)
    # The curvature at the start, as if it were diagonal: L-BFGS begins as if it were 1.
    scale = (design.square().sum(dim=0)[:, None] * uncertain.mean(dim=0) + 2 * w).rsqrt()
    scaled = (start / scale).requires_grad_()
    lbfgs = torch.optim.LBFGS(
        [scaled], max_iter=CHECK_EVERY, tolerance_grad=0, tolerance_change=0, history_size=10,
        line_search_fn="strong_wolfe",
    )  # fmt: skip

    def objective() -> Tensor:
        lbfgs.zero_grad()
        theta = scale * scaled
        if several:
            value = F.binary_cross_entropy_with_logits(design @ theta, labels.to(design), reduction="sum")
        else:
            value = F.cross_entropy(design @ theta, labels, reduction="sum")
        value = value + w * theta.square().sum()
        value.backward()
        return value.detach()

    theta, last = start, math.inf
    for _ in range(MAX_ITERATIONS // CHECK_EVERY):
        value, theta = objective().item(), scale * scaled.detach()
        assert scaled.grad is not None
        gradient = scaled.grad / scale
        if gradient.norm() <= tolerance * (2 * w * theta).norm() or last - value <= fall * value:
            break
        last = value
        lbfgs.step(objective)
    return theta


class Chosen(NamedTuple):
    """The chosen L2 weight or learning rate, its classifier, and what each reached on validation, in percent."""

    value: float
    probe: LinearProbe
    validation: dict[float, float]


def select_weight(
    known: LabelledFeatures,
    n_classes: int,
    val: Bool[Tensor, " N"] | None,
    weights: Sequence[float] = WEIGHTS,
    metric: Metric = top1,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Chosen:
    """Choose a weight on the rows `val`, of equals the strongest, and fit it on all; without `val`, by folds of all."""
    if val is None:
        classes = (known.labels if known.labels.dim() == 1 else torch.zeros(len(known.labels), dtype=torch.int64)).cpu()
        place = rank_in_class(classes, stream(0, "folds")) + classes
        rounds = [(place % FOLDS == k).to(known.labels.device) for k in range(FOLDS)]
    else:
        rounds = [val]
    scores, labels = dict[float, list[Tensor]](), torch.cat([known.labels[rows] for rows in rounds])
    validation = dict[float, float]()
    for number, rows in enumerate(rounds, 1):
        for done, (w, probe) in enumerate(fit_path(*known.rows(~rows), n_classes, weights), 1):
            scores.setdefault(w, []).append(probe.scores(known.features[rows]))
            if number == len(rounds):
                validation[w] = metric(torch.cat(scores.pop(w)), labels)
            progress((number - 1) * len(weights) + done, len(rounds) * len(weights))
    best = max(validation, key=lambda w: (validation[w], w))
    ((_, probe),) = fit_path(*known, n_classes, [best])
    return Chosen(best, probe, validation)


def logistic(splits: FeatureSplits, metric: Metric, progress: Callable[[int, int], None]) -> Chosen:
    """The rule of `linear --protocol lbfgs` and `transfer`: validation images choose; if train is small, all of it."""
    known, n_fitted = splits.train.joined(splits.val), len(splits.train.labels)
    val = torch.arange(len(known.labels), device=known.labels.device) >= n_fitted
    return select_weight(known, splits.n_classes, None if in_folds(splits) else val, metric=metric, progress=progress)


def in_folds(splits: FeatureSplits) -> bool:
    """Whether images are so few that each has to validate once."""
    return not splits.official_val and len(splits.train.labels) + len(splits.val.labels) < FEW


def how_chosen(splits: FeatureSplits, *, folds: bool = True) -> str:
    """What a record says of the images to choose by, and to train on in the end."""
    if splits.official_val:
        return "chosen on the validation split, then trained on train and validation"
    chosen_by = f"by {FOLDS}-fold cross-validation" if folds and in_folds(splits) else "on a fifth of train"
    return f"chosen {chosen_by}, then trained on all of train"
