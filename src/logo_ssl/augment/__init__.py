"""Batches of images become global and local crops."""

from .crops import cut, make_crops
from .draws import CropPlan, Draws, describe, draw, draw_boxes, plan_draws

__all__ = ["CropPlan", "Draws", "cut", "describe", "draw", "draw_boxes", "make_crops", "plan_draws"]
