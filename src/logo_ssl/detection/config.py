"""MoCo's protocol for VOC 07+12 and COCO, field by field, and the options that change it."""

from dataclasses import dataclass, fields, replace
from itertools import pairwise
from math import inf
from typing import Annotated, Any, Literal

import tyro

from ..errors import UserError

VOC, COCO = "voc07+12", "coco"
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
    """Whether the encoder's batch norms are trained or frozen."""
    short_sides: tuple[int, ...] = tuple(range(480, 801, 32))
    """Short sides of training images in pixels; each image draws one."""
    test_side: int = 800
    """Short side of test images in pixels."""
    longest: int = 1333
    """Limit of the longer side in pixels."""
    anchors: tuple[int, ...] = (32, 64, 128, 256, 512)
    """Sides of the anchors in pixels, at ratios 1:2, 1:1 and 2:1."""
    candidates: tuple[int, int] = (12_000, 6_000)
    """RegionProposals before non-maximum suppression, in training and in testing."""
    proposals: tuple[int, int] = (2_000, 1_000)
    """RegionProposals after non-maximum suppression, in training and in testing."""
    regions: int = 512
    """RegionProposals of an image that the head learns from, up to a quarter of them objects."""
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
"""Passes over VOC 07+12 (16,551 images) in its 24,000 iterations."""
FEWEST_ITERATIONS = 300
"""Of small sets: a head that starts from nothing needs some."""


def scaled(recipe: DetectionRecipe, iterations: int) -> DetectionRecipe:
    """The recipe for so many iterations: steps move along, and the warm-up is a fifth at most."""
    share = iterations / recipe.iterations
    steps = tuple(round(step * share) for step in recipe.steps)
    return replace(recipe, iterations=iterations, steps=steps, warm_up=min(recipe.warm_up, iterations // 5))


def for_custom(n_images: int) -> DetectionRecipe:
    """VOC's recipe for a set of another size: as many passes, in batches that it can fill, at their rate."""
    batch_size = min(VOC_RECIPE.batch_size, n_images)
    recipe = replace(VOC_RECIPE, batch_size=batch_size, lr=VOC_RECIPE.lr * batch_size / VOC_RECIPE.batch_size)
    iterations = round(EPOCHS * n_images / recipe.batch_size)
    return scaled(recipe, min(max(iterations, FEWEST_ITERATIONS), VOC_RECIPE.iterations))


def check_recipe(recipe: DetectionRecipe) -> None:
    """Raise a UserError for numbers that cannot work."""
    detector = recipe.detector
    positive = "must be more than 0"
    share = "must be 0 or more, and less than 1"
    side = f"must be {SMALLEST} px or more, and at most longest={detector.longest}"
    for name, value, holds, rule in (
        ("iterations", recipe.iterations, recipe.iterations > 0, positive),
        ("batch_size", recipe.batch_size, recipe.batch_size > 0, positive),
        ("lr", recipe.lr, 0 < recipe.lr < inf, positive),
        ("regions", detector.regions, detector.regions > 0, positive),
        ("anchors", detector.anchors, min(detector.anchors, default=0) > 0, positive),
        ("candidates", detector.candidates, min(detector.candidates) > 0, positive),
        ("proposals", detector.proposals, min(detector.proposals) > 0, positive),
        ("most_detections", detector.most_detections, detector.most_detections > 0, positive),
        ("longest", detector.longest, detector.longest >= SMALLEST, f"must be {SMALLEST} px or more"),
        ("test_side", detector.test_side, SMALLEST <= detector.test_side <= detector.longest, side),
        ("short_sides", detector.short_sides, min(detector.short_sides, default=0) >= SMALLEST, side),
        ("short_sides", detector.short_sides, max(detector.short_sides, default=0) <= detector.longest, side),
        ("lowest_score", detector.lowest_score, 0 <= detector.lowest_score < 1, share),
        ("momentum", recipe.momentum, 0 <= recipe.momentum < 1, share),
        ("weight_decay", recipe.weight_decay, 0 <= recipe.weight_decay < inf, "must be 0 or more"),
        ("warm_up", recipe.warm_up, recipe.warm_up >= 0, "must be 0 or more"),
        ("norm_batches", recipe.norm_batches, recipe.norm_batches >= 0, "must be 0 or more"),
        ("steps", recipe.steps, [*recipe.steps] == sorted(recipe.steps), "must be in order"),
        ("steps", recipe.steps, min(recipe.steps, default=0) >= 0, "must be 0 or more"),
        ("anchors", detector.anchors, detector.head != "fpn" or len(detector.anchors) == LEVELS, f"fpn takes {LEVELS}"),
    ):
        if not holds:
            raise UserError(f"{name}={value}: {rule}.")


def learning_rate(recipe: DetectionRecipe, iteration: int) -> float:
    """The learning rate of an iteration, counted from 0."""
    rate = recipe.lr * 0.1 ** sum(iteration >= step for step in recipe.steps)
    risen = min(iteration / recipe.warm_up, 1.0) if recipe.warm_up else 1.0
    return rate * (0.001 * (1 - risen) + risen)


def recipe_for(name: str, n_images: int, official: bool) -> DetectionRecipe:
    """The protocol of a set of Table 6; VOC's, scaled by the number of images, for any other."""
    if not official:
        return for_custom(n_images)
    return VOC_RECIPE if name == VOC else COCO_RECIPE


def schedule(data: str, recipe: DetectionRecipe, n_images: int) -> list[tuple[str, str]]:
    """What a training would do, as (what, how much)."""
    detector = recipe.detector
    sides = " to ".join(str(side) for side in sorted({min(detector.short_sides), max(detector.short_sides)}))
    passes = recipe.iterations * recipe.batch_size / n_images
    return [
        ("data", f"{data}: {n_images:,} training images"),
        ("iterations", f"{recipe.iterations:,} of {recipe.batch_size} images ({passes:.1f} passes)"),
        ("learning rate", f"{_rates(recipe)}; warm-up of {recipe.warm_up:,}"),
        ("SGD", f"momentum {recipe.momentum:g}, weight decay {recipe.weight_decay:g} (0 for batch norms)"),
        ("short side", f"{sides} px in training, {detector.test_side} px in the test"),
        ("longer side", f"{detector.longest} px at most"),
        ("detector", f"{detector.head}, batch norms {detector.norm}, {recipe.norm_batches} batches to refresh them"),
    ]


def _rates(recipe: DetectionRecipe) -> str:
    """The learning rate of each stage, and where that ends; a short training may step over some."""
    edges = [0, *(min(step, recipe.iterations) for step in recipe.steps), recipe.iterations]
    stages = [(n, end) for n, (start, end) in enumerate(pairwise(edges)) if start < end]
    return ", ".join(f"{recipe.lr * 0.1**n:g} up to {end:,}" for n, end in stages)


BY_SIZE = ("iterations", "batch_size", "lr", "steps", "warm_up")
"""Numbers that follow the size of other sets."""
OF_DETECTOR = {field.name for field in fields(DetectorConfig)}


def _default(name: str) -> Any:
    """The protocol's numbers, which the help shows in place of None."""
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
    """Whether the encoder's batch norms are trained or frozen."""
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
