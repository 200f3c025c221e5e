"""What does a run look like? Reads run folders only, and never imports torch."""

from .curves import draw_curves

__all__ = ["draw_curves"]
