"""Recipes: their fields and validation, the paper's and our own, and the one chosen for data and machine."""

from .auto import AUTO, BASES, WEIGHTY, Machine, choose, summary
from .config import (
    HARMLESS,
    PARTS,
    Differences,
    OptimiserConfig,
    PaperRow,
    Recipe,
    as_python,
    check,
    differences,
    flat,
    is_harmless,
    read_recipe,
    recipe_as_written,
    refuse_harmful,
    unused,
)
from .registry import RECIPES, find_recipe, literal, tuned

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
    "read_recipe",
    "recipe_as_written",
    "refuse_harmful",
    "summary",
    "tuned",
    "unused",
]
