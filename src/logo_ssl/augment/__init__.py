"""Batches of images become global and local crops."""

from .plan import CropPlan, cut, make_crops, plan_draws
from .sample import Draws, describe, draw, draw_boxes

__all__ = ["CropPlan", "Draws", "cut", "describe", "draw", "draw_boxes", "make_crops", "plan_draws"]
