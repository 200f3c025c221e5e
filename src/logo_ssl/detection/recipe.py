"""How long and on what scales does a detector learn? MoCo's protocol for VOC 07+12 and COCO, field by field."""

from dataclasses import dataclass, replace
from math import inf
from typing import Literal

from ..errors import UserError

Head = Literal["c4", "fpn"]
Norm = Literal["trained", "frozen"]
SMALLEST = 8
"""Pixels of a side: what every encoder asks for."""
LEVELS = 5
"""Of a feature pyramid."""


@dataclass(frozen=True)
class DetectorConfig:
    """What the detector is; defaults are those of ResNet-C4 in the protocol."""

    head: Head = "c4"
    """c4: conv4 for proposals and conv5 for the head; fpn: a feature pyramid."""
    norm: Norm = "trained"
    """Whether the encoder's batch norms are trained with the rest, or stay as they are."""
    short_sides: tuple[int, ...] = tuple(range(480, 801, 32))
    """Short sides of training images in pixels; each image draws one."""
    test_side: int = 800
    """Short side of test images in pixels."""
    longest: int = 1333
    """Limit of the longer side in pixels."""
    anchors: tuple[int, ...] = (32, 64, 128, 256, 512)
    """Sides of the anchors in pixels, at ratios 1:2, 1:1 and 2:1."""
    candidates: tuple[int, int] = (12_000, 6_000)
    """Proposals before non-maximum suppression, in training and in testing."""
    proposals: tuple[int, int] = (2_000, 1_000)
    """Proposals after non-maximum suppression, in training and in testing."""
    regions: int = 512
    """Proposals of a picture that the head learns from, up to a quarter of them objects."""
    lowest_score: float = 0.05
    """Detections with a lower score are left out."""
    most_detections: int = 100
    """Detections of one image, at most."""


@dataclass(frozen=True)
class DetectionRecipe:
    """What is trained for how long, and by which numbers."""

    detector: DetectorConfig = DetectorConfig()
    iterations: int = 24_000
    batch_size: int = 16
    lr: float = 0.02
    steps: tuple[int, ...] = (18_000, 22_000)
    """Iterations at which the learning rate falls to a tenth (they move with `iterations`, unless given)."""
    warm_up: int = 100
    """Iterations in which the learning rate rises from a thousandth."""
    momentum: float = 0.9
    weight_decay: float = 1e-4
    """Weight decay, except for batch norms."""
    flip: bool = True
    """Mirror half of the training images."""
    learn_from_empty: bool = False
    """Also train on images without objects."""
    norm_batches: int = 200
    """Training batches from which the statistics of batch norms are computed anew before the test; 0: none."""
    seed: int = 0
    """Decides the start of the head, order, scales and flips."""


VOC_RECIPE = DetectionRecipe()
COCO_RECIPE = DetectionRecipe(
    DetectorConfig(short_sides=tuple(range(640, 801, 32))), iterations=180_000, steps=(120_000, 160_000), warm_up=1_000
)
EPOCHS = 23.2
"""Passes over VOC 07+12 (16,551 pictures) in its 24,000 iterations."""
FEWEST_ITERATIONS = 300
"""Of small sets: a head that starts from nothing needs some."""


def scaled(recipe: DetectionRecipe, iterations: int) -> DetectionRecipe:
    """The recipe for so many iterations: steps move along, and the warm-up is a fifth at most."""
    share = iterations / recipe.iterations
    steps = tuple(round(step * share) for step in recipe.steps)
    return replace(recipe, iterations=iterations, steps=steps, warm_up=min(recipe.warm_up, iterations // 5))


def for_custom(n_pictures: int) -> DetectionRecipe:
    """VOC's recipe for a set of another size: as many passes, in batches that it can fill, at their rate."""
    batch_size = min(VOC_RECIPE.batch_size, n_pictures)
    recipe = replace(VOC_RECIPE, batch_size=batch_size, lr=VOC_RECIPE.lr * batch_size / VOC_RECIPE.batch_size)
    iterations = round(EPOCHS * n_pictures / recipe.batch_size)
    return scaled(recipe, min(max(iterations, FEWEST_ITERATIONS), VOC_RECIPE.iterations))


def check_recipe(recipe: DetectionRecipe) -> None:
    """Raise a UserError for numbers that cannot work."""
    detector = recipe.detector
    positive = {"iterations": recipe.iterations, "batch_size": recipe.batch_size, "lr": recipe.lr}
    positive |= {"regions": detector.regions, "anchors": min(detector.anchors, default=0)}
    positive |= {"candidates": min(detector.candidates), "proposals": min(detector.proposals)}
    positive |= {"most_detections": detector.most_detections}
    for name, value in positive.items():
        if not 0 < value < inf:
            raise UserError(f"{name}={value}: must be more than 0.")
    sides = {"test_side": detector.test_side, "short_sides": min(detector.short_sides, default=0)}
    for name, side in (sides | {"longest": detector.longest}).items():
        if side < SMALLEST:
            raise UserError(f"{name}={side}: must be {SMALLEST} px or more.")
    for name, side in (("test_side", detector.test_side), ("short_sides", max(detector.short_sides))):
        if side > detector.longest:
            raise UserError(f"{name}={side}: must be at most longest={detector.longest}.")
    if not 0 <= detector.lowest_score < 1:
        raise UserError(f"lowest_score={detector.lowest_score}: must be 0 or more, and less than 1.")
    if not 0 <= recipe.momentum < 1:
        raise UserError(f"momentum={recipe.momentum}: must be 0 or more, and less than 1.")
    if not 0 <= recipe.weight_decay < inf:
        raise UserError(f"weight_decay={recipe.weight_decay}: must be 0 or more.")
    if min(recipe.warm_up, recipe.norm_batches, *recipe.steps, 0) < 0:
        raise UserError(
            f"warm_up={recipe.warm_up}, norm_batches={recipe.norm_batches}, steps={recipe.steps}: must be 0 or more."
        )
    if detector.head == "fpn" and len(detector.anchors) != LEVELS:
        raise UserError(f"anchors={detector.anchors}: a pyramid takes {LEVELS}, one for each level.")
    if list(recipe.steps) != sorted(recipe.steps):
        raise UserError(f"steps={recipe.steps}: give them in order.")


def learning_rate(recipe: DetectionRecipe, iteration: int) -> float:
    """The learning rate of an iteration, counted from 0."""
    rate = recipe.lr * 0.1 ** sum(iteration >= step for step in recipe.steps)
    risen = min(iteration / recipe.warm_up, 1.0) if recipe.warm_up else 1.0
    return rate * (0.001 * (1 - risen) + risen)
