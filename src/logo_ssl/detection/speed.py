"""How long does a training take? By iterations a second that were measured on one GPU, and on nothing else."""

from collections.abc import Iterator
from dataclasses import asdict
from typing import NamedTuple

from ..text import lasting
from .recipe import COCO_RECIPE, VOC_RECIPE, DetectionRecipe


class Measured(NamedTuple):
    """Speed of the protocol's detector (ResNet-50-C4, batches of 16, bfloat16), and where it was written down."""

    iterations_per_s: float
    hardware: str
    file: str
    """The page that has it, from the root of the repository."""


BATCH = 16
_FILE = "docs/results/detection.md"
MEASURED: dict[str, Measured] = {
    "box": Measured(2.351, "NVIDIA H200", _FILE),
    "mask": Measured(2.199, "NVIDIA H200", _FILE),
}
"""By what is learned."""
RECIPES: dict[str, DetectionRecipe] = {"box": VOC_RECIPE, "mask": COCO_RECIPE}
"""By which it was measured."""
OF_THE_TEST = ("test_side", "lowest_score", "most_detections")
"""On which no training time depends."""


def duration(recipe: DetectionRecipe, masks: bool) -> str:
    """How long a training takes on one GPU, by which measurement, and what is not known; or that nothing is."""
    what = "mask" if masks else "box"
    known = MEASURED.get(what)
    if known is None:
        return "not measured (benchmarks/detection.py would tell)"
    seconds = recipe.iterations * recipe.batch_size / BATCH / known.iterations_per_s
    caveats = "".join(f"{caveat}; " for caveat in _caveats(recipe, RECIPES[what]))
    return (
        f"about {_written(seconds)} with a ResNet-50 at {known.iterations_per_s:.2f} iterations/s of {BATCH} pictures "
        f"on one {known.hardware} ({known.file}; {caveats}other networks and devices are not measured, and a CPU takes "
        "many times as long)"
    )


def _caveats(asked: DetectionRecipe, measured: DetectionRecipe) -> Iterator[str]:
    """What the measurement does not tell of the training that is asked for."""
    there = asdict(measured.detector)
    here = {name: value for name, value in asdict(asked.detector).items() if name not in OF_THE_TEST}
    others = [name.replace("_", "-") for name, value in here.items() if value != there[name]]
    if others:
        sides = f"{min(measured.detector.short_sides)} to {max(measured.detector.short_sides)} px"
        yield f"measured at short sides of {sides}, and not with the {', '.join(others)} asked for"
    if asked.batch_size != BATCH:
        yield "scaled by the number of pictures alone"


def _written(seconds: float) -> str:
    """In the unit that tells most."""
    return f"{seconds:.2g} s" if seconds < 90 else lasting(seconds)
