"""How long does a training take? By iterations a second that were measured on one GPU, and on nothing else."""

from typing import NamedTuple

from .recipe import DetectionRecipe


class Measured(NamedTuple):
    """Speed of the protocol's detector (ResNet-50-C4, batches of 16, bfloat16), and where it was written down."""

    iterations_per_s: float
    hardware: str
    file: str
    """Output of benchmarks/detection.py, from the root of the repository."""


BATCH = 16
_FILE = "docs/results/raw/2026-11-15-detection.jsonl"
MEASURED: dict[str, Measured] = {
    "box": Measured(2.351, "NVIDIA H200", _FILE),
    "mask": Measured(2.199, "NVIDIA H200", _FILE),
}
"""By what is learned: box (pictures as in VOC's recipe) or mask (as in COCO's)."""


def duration(recipe: DetectionRecipe, masks: bool) -> str:
    """Hours of a training on one GPU, and by which measurement; or that there is none."""
    known = MEASURED.get("mask" if masks else "box")
    if known is None:
        return "not measured (benchmarks/detection.py would tell)"
    hours = recipe.iterations * recipe.batch_size / BATCH / known.iterations_per_s / 3600
    protocol = recipe.detector.head == "c4" and recipe.batch_size == BATCH
    about = "" if protocol else ", scaled by the number of pictures"
    return (
        f"about {hours:.1f} h with a ResNet-50 at {known.iterations_per_s:.2f} iterations/s on one {known.hardware} "
        f"({known.file}{about})"
    )
