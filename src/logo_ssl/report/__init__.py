"""What does a run look like? Reads run folders only, and never imports torch."""

from .curves import draw_curves
from .knn_curves import Curve, draw_knn_curves

__all__ = ["Curve", "draw_curves", "draw_knn_curves"]
