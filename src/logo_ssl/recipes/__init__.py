"""Which settings make a run, can they work, and which row of the paper do they stand for?"""

from .automatic import (
    AUTO,
    BASES,
    FEW_STEPS,
    LEAST_BATCH,
    STEPS,
    WEIGHTY,
    Machine,
    advised_batch,
    choose,
    examples,
    summary,
)
from .checks import check
from .describe import described
from .fields import as_python
from .paper import RECIPES, find_recipe, literal, tuned
from .parts import PARTS, kinds_with
from .recipe import OptimiserConfig, PaperRow, Recipe
from .saved import (
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
    "FEW_STEPS",
    "LEAST_BATCH",
    "PARTS",
    "RECIPES",
    "STEPS",
    "WEIGHTY",
    "Differences",
    "Machine",
    "OptimiserConfig",
    "PaperRow",
    "Recipe",
    "advised_batch",
    "as_python",
    "check",
    "choose",
    "described",
    "differences",
    "examples",
    "find_recipe",
    "flat",
    "is_harmless",
    "kinds_with",
    "literal",
    "read_recipe",
    "recipe_as_written",
    "refuse_harmful",
    "summary",
    "tuned",
    "unused",
    "with_harmless",
]
