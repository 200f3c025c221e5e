"""Which L2 weight? The one whose classifier is best on validation images; then both parts train the last one."""

from collections.abc import Sequence
from typing import NamedTuple

from .linear import Labelled, Linear, Metric, Progress, unwatched
from .logistic import MAX_ITERATIONS, TOLERANCE, WEIGHTS, fit, fit_path
from .metrics import top1


class Chosen(NamedTuple):
    """The chosen weight, the classifier refitted with it, and what each weight reached on validation, in percent."""

    w: float
    probe: Linear
    validation: dict[float, float]


def select(
    train: Labelled,
    val: Labelled,
    n_classes: int,
    weights: Sequence[float] = WEIGHTS,
    metric: Metric = top1,
    penalise_bias: bool = False,
    tolerance: float = TOLERANCE,
    max_iterations: int = MAX_ITERATIONS,
    progress: Progress = unwatched,
) -> Chosen:
    """Fit every weight on train, choose on val (of equals the strongest), refit on both from the chosen classifier."""
    path = fit_path(*train, n_classes, weights, None, penalise_bias, tolerance, max_iterations, progress)
    validation = {solution.w: metric(solution.probe.scores(val.features), val.labels) for solution in path}
    best = max(path, key=lambda solution: (validation[solution.w], solution.w))
    refit = fit(*train.joined(val), n_classes, best.w, best.probe, penalise_bias, tolerance, max_iterations)
    return Chosen(best.w, refit.probe, validation)
