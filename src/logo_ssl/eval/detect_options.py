"""Which numbers of a detection recipe can be changed in a shell? Every one; what is not given is the protocol's."""

from dataclasses import dataclass, fields, replace
from typing import Annotated, Any

import tyro

from ..detection.recipe import COCO_RECIPE, VOC_RECIPE, DetectionRecipe, DetectorConfig, Head, Norm, scaled

BY_SIZE = ("iterations", "batch_size", "lr", "steps", "warm_up")
"""What sets of other sizes have less of."""
OF_DETECTOR = {field.name for field in fields(DetectorConfig)}


def _default(name: str) -> Any:
    """What the help says in place of None: the numbers of the protocol."""
    voc, coco = (_written(getattr(r.detector if name in OF_DETECTOR else r, name)) for r in (VOC_RECIPE, COCO_RECIPE))
    of_coco = "" if voc == coco else f", for coco {coco}"
    others = ", for other sets by their size" if name in BY_SIZE else ""
    return tyro.conf.arg(help_behavior_hint=f"(default: {voc}{of_coco}{others})")


def _written(value: Any) -> str:
    return " ".join(map(str, value)) if isinstance(value, tuple) else str(value)


@dataclass(frozen=True)
class RecipeOptions:
    """Changes to a recipe; None keeps its number."""

    iterations: Annotated[int | None, _default("iterations")] = None
    """Batches to learn from; `steps` and `warm-up` are scaled with it unless given."""
    batch_size: Annotated[int | None, _default("batch_size")] = None
    """Images in a batch; `lr` is scaled with it unless given, `iterations` stay."""
    lr: Annotated[float | None, _default("lr")] = None
    """Learning rate after the warm-up, for this batch size."""
    steps: Annotated[tuple[int, ...] | None, _default("steps")] = None
    """Iterations at which the learning rate falls to a tenth."""
    warm_up: Annotated[int | None, _default("warm_up")] = None
    """Iterations in which the learning rate rises."""
    momentum: Annotated[float | None, _default("momentum")] = None
    """Momentum of SGD."""
    weight_decay: Annotated[float | None, _default("weight_decay")] = None
    """Weight decay, except for batch norms."""
    flip: Annotated[bool | None, _default("flip")] = None
    """Mirror half of the training images."""
    learn_from_empty: Annotated[bool | None, _default("learn_from_empty")] = None
    """Also train on images without objects."""
    norm_batches: Annotated[int | None, _default("norm_batches")] = None
    """Training batches for new batch-norm statistics before the test; 0: keep the running ones."""
    seed: Annotated[int | None, _default("seed")] = None
    """Decides the start of the head, order, scales and flips."""
    head: Annotated[Head | None, _default("head")] = None
    """c4: conv4 for proposals and conv5 for the head; fpn: a feature pyramid."""
    norm: Annotated[Norm | None, _default("norm")] = None
    """Whether the encoder's batch norms are trained with the rest, or stay as they are."""
    short_sides: Annotated[tuple[int, ...] | None, _default("short_sides")] = None
    """Short sides of training images in pixels; each image draws one."""
    test_side: Annotated[int | None, _default("test_side")] = None
    """Short side of test images in pixels."""
    longest: Annotated[int | None, _default("longest")] = None
    """Limit of the longer side in pixels."""
    anchors: Annotated[tuple[int, ...] | None, _default("anchors")] = None
    """Sides of the anchors in pixels."""
    candidates: Annotated[tuple[int, int] | None, _default("candidates")] = None
    """Proposals before non-maximum suppression, in training and in testing."""
    proposals: Annotated[tuple[int, int] | None, _default("proposals")] = None
    """Proposals after non-maximum suppression, in training and in testing."""
    regions: Annotated[int | None, _default("regions")] = None
    """Proposals of an image that the head learns from."""
    lowest_score: Annotated[float | None, _default("lowest_score")] = None
    """Detections with a lower score are left out."""
    most_detections: Annotated[int | None, _default("most_detections")] = None
    """Detections of one image, at most."""

    def applied_to(self, recipe: DetectionRecipe) -> DetectionRecipe:
        """The recipe with these changes."""
        given: dict[str, Any] = {
            field.name: value for field in fields(RecipeOptions) if (value := getattr(self, field.name)) is not None
        }
        if self.iterations is not None and self.iterations > 0:
            recipe = scaled(recipe, self.iterations)
        if self.batch_size is not None and self.lr is None:
            given["lr"] = recipe.lr * max(1, self.batch_size) / recipe.batch_size
        detector = replace(recipe.detector, **{name: value for name, value in given.items() if name in OF_DETECTOR})
        others = {name: value for name, value in given.items() if name not in OF_DETECTOR}
        return replace(recipe, detector=detector, **others)

    def says(self, recipe: DetectionRecipe) -> list[str]:
        """What follows from these changes to a recipe, where it was not asked for."""
        changed = self.applied_to(recipe)
        if changed.batch_size == recipe.batch_size or self.lr is not None:
            return []
        return [
            f"Batches of {changed.batch_size} in place of {recipe.batch_size}: the learning rate follows, "
            f"{changed.lr:g} in place of {recipe.lr:g} (--lr sets another); {changed.iterations:,} iterations show "
            f"{changed.iterations * changed.batch_size:,} pictures (--iterations sets others)."
        ]
