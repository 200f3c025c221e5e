"""How does a batch of images become global and local crops?"""

from .apply import apply
from .describe import describe
from .draw import Draws, draw, draw_boxes
from .plan import CropPlan, cut, make_crops, plan_draws

__all__ = ["CropPlan", "Draws", "apply", "cut", "describe", "draw", "draw_boxes", "make_crops", "plan_draws"]
