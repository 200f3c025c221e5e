"""How does a batch of images become global and local crops?"""

from .apply import apply
from .draw import Draws, draw, draw_boxes
from .plan import CropPlan, make_crops

__all__ = ["CropPlan", "Draws", "apply", "draw", "draw_boxes", "make_crops"]
