"""What does the paper's Table 5 report? Ten data sets, and five rows of figures on them."""

from typing import NamedTuple


class TransferSet(NamedTuple):
    """A data set of Table 5: where its images come from, and the figure that the literature reports."""

    title: str
    data: str
    per_class: bool = False
    per_class_train: int | None = None
    """Training images of each class, where there is no official split (Kornblith et al.); the others test."""


SETS = {
    "cifar10": TransferSet("CIFAR10", "cifar10"),
    "cifar100": TransferSet("CIFAR100", "cifar100"),
    "food101": TransferSet("Food", "food101"),
    "mit67": TransferSet("MIT67", "mit67"),
    "pets": TransferSet("Pets", "oxfordiiitpet", per_class=True),
    "flowers": TransferSet("Flowers", "flowers102", per_class=True),
    "caltech101": TransferSet("Caltech", "caltech101", per_class=True, per_class_train=30),
    "cars": TransferSet("Cars", "stanfordcars"),
    "aircraft": TransferSet("Aircraft", "fgvcaircraft", per_class=True),
    "dtd": TransferSet("DTD", "dtd"),
}
NAMED_ELSEWHERE = {found.data: name for name, found in SETS.items()}
"""Names of the ten by those that `pretrain` knows: a set is measured by its own figure, whatever it is called."""
PAPER: dict[str, tuple[float, ...]] = {  # Table 5, in the order of SETS
    "Super(IN-100)": (86.16, 62.7, 53.89, 52.91, 73.50, 76.09, 77.53, 30.61, 36.78, 62.07),
    "MoCo": (83.71, 60.59, 58.21, 57.54, 64.30, 85.56, 74.12, 32.63, 46.23, 60.64),
    "MoCo+Aug*": (85.26, 63.90, 60.78, 63.36, 73.46, 85.70, 78.93, 37.35, 39.47, 66.22),
    "MoCo-LoGo w/o L2L": (85.19, 61.47, 63.66, 65.45, 71.74, 90.2, 77.91, 37.22, 48.21, 65.74),
    "MoCo-LoGo": (86.09, 63.43, 65.67, 67.54, 76.17, 92.13, 82.09, 40.77, 50.07, 67.87),
}
