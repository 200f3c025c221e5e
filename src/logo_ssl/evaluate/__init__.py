"""How good is an encoder? Each evaluation yields (metric, value) and writes what the report shows."""

from .knn import evaluate_knn

__all__ = ["evaluate_knn"]
