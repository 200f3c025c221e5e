"""Which settings make a run, can they work, and which row of the paper do they stand for?"""

from .checks import check
from .paper import RECIPES, find_recipe
from .recipe import OptimiserConfig, PaperRow, Recipe

__all__ = ["RECIPES", "OptimiserConfig", "PaperRow", "Recipe", "check", "find_recipe"]
