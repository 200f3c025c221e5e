"""The report on runs: one HTML page, figures, and a page that is served while they train."""

from .figures import Curve, draw_knn_curves

__all__ = ["Curve", "draw_knn_curves"]
