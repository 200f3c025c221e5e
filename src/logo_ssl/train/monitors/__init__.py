"""Is it learning? What is watched while training: losses and speed, signs of collapse, kNN on frozen features."""

from .collapse import CollapseGauge, effective_rank, feature_std
from .online_knn import OnlineKNN, knn_fall
from .steps import Steps

__all__ = ["CollapseGauge", "OnlineKNN", "Steps", "effective_rank", "feature_std", "knn_fall"]
