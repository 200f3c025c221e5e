"""Which numbers of a detection recipe can be changed in a shell? Every one; what is not given is the protocol's."""

from dataclasses import dataclass, fields, replace
from typing import Any

from ..detection.recipe import DetectionRecipe, DetectorConfig, Head, Norm, scaled


@dataclass(frozen=True)
class RecipeOptions:
    """Changes to a recipe; None keeps its number."""

    iterations: int | None = None
    """Batches to learn from; `steps` and `warm-up` move along, unless given."""
    batch_size: int | None = None
    """Pictures in a batch."""
    lr: float | None = None
    """Learning rate after the warm-up (it is not scaled by the batch size)."""
    steps: tuple[int, ...] | None = None
    """Iterations at which the learning rate falls to a tenth."""
    warm_up: int | None = None
    """Iterations in which the learning rate rises."""
    momentum: float | None = None
    """Of SGD."""
    weight_decay: float | None = None
    """Not for batch norms."""
    flip: bool | None = None
    """Mirror every other training picture."""
    learn_from_empty: bool | None = None
    """Train on pictures without objects, too."""
    norm_batches: int | None = None
    """Training batches from which batch-norm statistics are computed anew before the test; 0: none."""
    seed: int | None = None
    """Decides the start of the head, order, scales and flips."""
    head: Head | None = None
    """c4: conv4 proposes and conv5 judges; fpn: a feature pyramid."""
    norm: Norm | None = None
    """Whether the encoder's batch norms are trained with the rest, or stay as they are."""
    short_sides: tuple[int, ...] | None = None
    """Of training pictures in pixels; each picture draws one."""
    test_side: int | None = None
    """Short side of test pictures."""
    longest: int | None = None
    """No longer side is longer."""
    anchors: tuple[int, ...] | None = None
    """Sides of the anchors in pixels."""
    candidates: tuple[int, int] | None = None
    """Proposals before their overlaps are thinned out, in training and in testing."""
    proposals: tuple[int, int] | None = None
    """Proposals after it."""
    regions: int | None = None
    """Proposals of a picture that the head learns from."""
    lowest_score: float | None = None
    """Detections below are left out."""
    most_detections: int | None = None
    """Of one picture."""

    def applied_to(self, recipe: DetectionRecipe) -> DetectionRecipe:
        """The recipe with these changes."""
        given: dict[str, Any] = {
            field.name: value for field in fields(RecipeOptions) if (value := getattr(self, field.name)) is not None
        }
        if self.iterations is not None and self.iterations > 0:
            recipe = scaled(recipe, self.iterations)
        of_detector = {field.name for field in fields(DetectorConfig)}
        detector = replace(recipe.detector, **{name: value for name, value in given.items() if name in of_detector})
        others = {name: value for name, value in given.items() if name not in of_detector}
        return replace(recipe, detector=detector, **others)
