"""MoCo's protocol for VOC 07+12 and COCO, field by field, and the options that change it."""

from dataclasses import dataclass, fields, make_dataclass, replace
from typing import Annotated, Any, Literal, get_type_hints

import numpy as np
import tyro

from ..errors import UserError
from ..ranges import Allowed, Count, NotNegative, Positive, Seed, Side, at_least, check_range

VOC, COCO = "voc07+12", "coco"
Head = Literal["c4", "fpn"]
Norm = Literal["trained", "frozen"]
Pair = Annotated[tuple[int, int], Allowed(lambda pair: min(pair) > 0, "positive")]
Sizes = Annotated[tuple[int, ...], Allowed(lambda sizes: min(sizes, default=0) > 0, "positive")]
Sides = Annotated[tuple[int, ...], Allowed(lambda sides: min(sides, default=0) >= 8, "8 or more")]
Steps = Annotated[tuple[int, ...], Allowed(lambda steps: [0, *steps] == sorted([0, *steps]), "0 or more, in order")]
BelowOne = Annotated[float, Allowed(lambda number: 0 <= number < 1, "0 or more, and less than 1")]
LEVELS = 5
"""Of a feature pyramid."""


@dataclass(frozen=True)
class DetectorConfig:
    """What the detector is; defaults are those of ResNet-C4 in the protocol."""

    head: Head = "c4"
    """c4: conv4 for proposals and conv5 for the head; fpn: a feature pyramid."""
    norm: Norm = "trained"
    """Whether the encoder's batch norms are trained or frozen."""
    short_sides: Sides = tuple(range(480, 801, 32))
    """Short sides of training images in pixels; each image draws one."""
    test_side: Side = 800
    """Short side of test images in pixels."""
    longest: Side = 1333
    """Limit of the longer side in pixels."""
    anchors: Sizes = (32, 64, 128, 256, 512)
    """Sides of the anchors in pixels, at ratios 1:2, 1:1 and 2:1."""
    candidates: Pair = (12_000, 6_000)
    """Proposals before non-maximum suppression, in training and in testing."""
    proposals: Pair = (2_000, 1_000)
    """Proposals after non-maximum suppression, in training and in testing."""
    regions: Count = 512
    """Proposals of an image that the head learns from, up to a quarter of them objects."""
    lowest_score: BelowOne = 0.05
    """Detections with a lower score are left out."""
    most_detections: Count = 100
    """Detections of one image, at most."""


@dataclass(frozen=True)
class DetectionRecipe:
    """What is trained for how long, and by which numbers."""

    detector: DetectorConfig = DetectorConfig()
    iterations: Count = 24_000
    """Batches to learn from; `steps` and `warm-up` are scaled with it unless given."""
    batch_size: Count = 16
    """Images in a batch; `lr` is scaled with it unless given, `iterations` stay."""
    lr: Positive = 0.02
    """Learning rate after the warm-up, for this batch size."""
    steps: Steps = (18_000, 22_000)
    """Iterations at which the learning rate falls to a tenth."""
    warm_up: Annotated[int, at_least(0)] = 100
    """Iterations in which the learning rate rises from a thousandth."""
    momentum: BelowOne = 0.9
    """Momentum of SGD."""
    weight_decay: NotNegative = 1e-4
    """Weight decay, except for batch norms."""
    flip: bool = True
    """Mirror half of the training images."""
    learn_from_empty: bool = False
    """Also train on images without objects."""
    norm_batches: Annotated[int, at_least(0)] = 200
    """Training batches for new batch-norm statistics before the test; 0: keep the running ones."""
    seed: Seed = 0
    """Decides the start of the head, order, scales and flips."""


VOC_RECIPE = DetectionRecipe()
COCO_RECIPE = DetectionRecipe(
    DetectorConfig(short_sides=tuple(range(640, 801, 32))), iterations=180_000, steps=(120_000, 160_000), warm_up=1_000
)
SMALL = DetectionRecipe(
    DetectorConfig(
        short_sides=(224, 256, 288, 320), test_side=320, longest=533, anchors=(16, 32, 64, 128, 256),
        candidates=(2_000, 1_000), proposals=(300, 200), regions=32,
    ),
    iterations=600, batch_size=4, lr=0.005, steps=(450, 550), warm_up=100, norm_batches=50,
)  # fmt: skip
"""What two cores learn in about a quarter of an hour."""
EPOCHS = 23.2
"""Passes over VOC 07+12 (16,551 images) in its 24,000 iterations."""
FEWEST_ITERATIONS = 300
"""Of small sets: a head that starts from nothing needs some."""
Schedule = Literal["auto", "protocol", "small"]


def scaled(recipe: DetectionRecipe, iterations: int) -> DetectionRecipe:
    """The recipe for so many iterations: steps move along, and the warm-up is a fifth at most."""
    share = iterations / recipe.iterations
    steps = tuple(round(step * share) for step in recipe.steps)
    return replace(recipe, iterations=iterations, steps=steps, warm_up=min(recipe.warm_up, iterations // 5))


def recipe_for(name: str, n_images: int, official: bool, small: bool = False) -> DetectionRecipe:
    """The protocol of a set of Table 6; for any other VOC's, or a small one: as many passes, in batches it can fill."""
    if official and not small:
        return VOC_RECIPE if name == VOC else COCO_RECIPE
    most = SMALL if small else VOC_RECIPE
    batch_size = min(most.batch_size, n_images)
    recipe = replace(most, batch_size=batch_size, lr=most.lr * batch_size / most.batch_size)
    iterations = round(EPOCHS * n_images / recipe.batch_size)
    return scaled(recipe, min(max(iterations, FEWEST_ITERATIONS), most.iterations))


def check_recipe(recipe: DetectionRecipe) -> None:
    """Raise a UserError for numbers that cannot work."""
    detector = recipe.detector
    for part in (recipe, detector):
        for name, hint in get_type_hints(type(part), include_extras=True).items():
            check_range(name, getattr(part, name), hint)
    for name in ("test_side", "short_sides"):
        if np.max(getattr(detector, name)) > detector.longest:
            raise UserError(f"{name}={getattr(detector, name)}: must be at most longest={detector.longest}.")
    if detector.head == "fpn" and len(detector.anchors) != LEVELS:
        raise UserError(f"anchors={detector.anchors}: must be {LEVELS} sizes for fpn.")


def learning_rate(recipe: DetectionRecipe, iteration: int) -> float:
    """The learning rate of an iteration, counted from 0."""
    rate = recipe.lr * 0.1 ** sum(iteration >= step for step in recipe.steps)
    risen = min(iteration / recipe.warm_up, 1.0) if recipe.warm_up else 1.0
    return rate * (0.001 * (1 - risen) + risen)


NUMBERS = {
    name: kind
    for part in (DetectionRecipe, DetectorConfig)
    for name, kind in get_type_hints(part).items()
    if kind is not DetectorConfig
}
"""Numbers of a recipe, and their types."""


OWN = tyro.conf.arg(help_behavior_hint="(default: the protocol's)")
RecipeOptions: Any = make_dataclass(
    "RecipeOptions",
    [
        *((name, Annotated[kind | None, OWN], None) for name, kind in NUMBERS.items()),
        ("detector", tyro.conf.Suppress[Any], None),
    ],
    bases=(DetectorConfig, DetectionRecipe),
    frozen=True,
)
"""Every number of a recipe as an option; None keeps the protocol's."""


def changed(recipe: DetectionRecipe, **changes: Any) -> DetectionRecipe:
    """The recipe with other numbers, checked; what follows from `iterations` and `batch_size` is scaled with them."""
    if changes.get("iterations", 0) > 0:
        recipe = scaled(recipe, changes["iterations"])
    if "batch_size" in changes:
        changes = {"lr": recipe.lr * max(1, changes["batch_size"]) / recipe.batch_size} | changes
    of_detector = {field.name: changes.pop(field.name) for field in fields(DetectorConfig) if field.name in changes}
    recipe = replace(recipe, detector=replace(recipe.detector, **of_detector), **changes)
    check_recipe(recipe)
    return recipe
