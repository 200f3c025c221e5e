"""What would a detector's training do, and for how long? The protocol of a set of Table 6, or one in proportion."""

from itertools import pairwise

from ..detection.recipe import COCO_RECIPE, VOC_RECIPE, DetectionRecipe, for_custom
from ..detection.sources import VOC
from ..detection.speed import duration


def recipe_for(name: str, n_pictures: int, official: bool) -> DetectionRecipe:
    """The protocol of a set of Table 6; VOC's, scaled by the number of pictures, for any other."""
    if not official:
        return for_custom(n_pictures)
    return VOC_RECIPE if name == VOC else COCO_RECIPE


def schedule(data: str, recipe: DetectionRecipe, n_pictures: int, masks: bool = False) -> list[tuple[str, str]]:
    """What a training would do, as (what, how much)."""
    detector = recipe.detector
    sides = " to ".join(str(side) for side in sorted({min(detector.short_sides), max(detector.short_sides)}))
    passes = recipe.iterations * recipe.batch_size / n_pictures
    return [
        ("data", f"{data}: {n_pictures:,} training pictures"),
        ("iterations", f"{recipe.iterations:,} of {recipe.batch_size} pictures ({passes:.1f} passes)"),
        ("learning rate", f"{_rates(recipe)}; warm-up of {recipe.warm_up:,}"),
        ("SGD", f"momentum {recipe.momentum:g}, weight decay {recipe.weight_decay:g} (0 for batch norms)"),
        ("short side", f"{sides} px in training, {detector.test_side} px in the test"),
        ("longer side", f"{detector.longest} px at most"),
        ("detector", f"{detector.head}, batch norms {detector.norm}, {recipe.norm_batches} batches to refresh them"),
        ("training time", duration(recipe, masks)),
    ]


def _rates(recipe: DetectionRecipe) -> str:
    """The learning rate of each stage, and where that ends; a short training may step over some."""
    edges = [0, *(min(step, recipe.iterations) for step in recipe.steps), recipe.iterations]
    stages = [(n, end) for n, (start, end) in enumerate(pairwise(edges)) if start < end]
    return ", ".join(f"{recipe.lr * 0.1**n:g} up to {end:,}" for n, end in stages)
