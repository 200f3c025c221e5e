"""Is it learning? What is watched while training: losses and speed, signs of collapse, kNN on frozen features."""

from .collapse import CollapseGauge, directions, effective_rank, feature_std
from .online_knn import OnlineKNN, knn_fall, knn_loss, rows_for_knn
from .pace import Pace
from .steps import Steps

__all__ = [
    "CollapseGauge",
    "OnlineKNN",
    "Pace",
    "Steps",
    "directions",
    "effective_rank",
    "feature_std",
    "knn_fall",
    "knn_loss",
    "rows_for_knn",
]
