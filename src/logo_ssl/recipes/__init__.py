"""Recipes: their fields and validation, the paper's and our own, and the one chosen for data and machine."""

from .auto import AUTO, BASES, WEIGHTY, Machine, choose, summary
from .config import PARTS, OptimiserConfig, PaperRow, Recipe, as_python, check
from .paper import RECIPES, find_recipe, literal, purpose, tuned
from .saved import (
    HARMLESS,
    Differences,
    differences,
    flat,
    is_harmless,
    read_recipe,
    recipe_as_written,
    refuse_harmful,
    unused,
    with_harmless,
)

__all__ = [
    "AUTO",
    "BASES",
    "HARMLESS",
    "PARTS",
    "RECIPES",
    "WEIGHTY",
    "Differences",
    "Machine",
    "OptimiserConfig",
    "PaperRow",
    "Recipe",
    "as_python",
    "check",
    "choose",
    "differences",
    "find_recipe",
    "flat",
    "is_harmless",
    "literal",
    "purpose",
    "read_recipe",
    "recipe_as_written",
    "refuse_harmful",
    "summary",
    "tuned",
    "unused",
    "with_harmless",
]
