"""How much do frozen features say about the class? Linear probes on them, where the tensors are: CUDA or the CPU."""

from .choose import Chosen, select
from .linear import Labelled, Linear, Metric
from .logistic import WEIGHTS, Solution, fit, fit_path, objective
from .metrics import mean_per_class, top1, top_k
from .sgd import RATES, Rated, SGDConfig, SGDProbes, train_probes
from .splits import SplitRows, balanced_share, check_fraction, stratified_split

__all__ = [
    "RATES",
    "WEIGHTS",
    "Chosen",
    "Labelled",
    "Linear",
    "Metric",
    "Rated",
    "SGDConfig",
    "SGDProbes",
    "Solution",
    "SplitRows",
    "balanced_share",
    "check_fraction",
    "fit",
    "fit_path",
    "mean_per_class",
    "objective",
    "select",
    "stratified_split",
    "top1",
    "top_k",
    "train_probes",
]
