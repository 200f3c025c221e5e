"""Every setting that was run with L2L and without it, and by how much L2L changed top-1."""

from collections.abc import Sequence
from math import sqrt
from statistics import mean, stdev
from typing import NamedTuple

from records import MEASURES, figure, runs

SEVERAL = 3  # seeds, which then give a standard error of their own


class Trial(NamedTuple):
    """A setting, and the records of its runs with L2L and without it, as FAMILY/NAME or FAMILY/NAME:SEED."""

    epochs: int
    framework: str
    images: str
    local: str
    lam: float
    with_l2l: str
    without: str
    test_images: int = 10_000
    remark: str = ""
    paper: float | None = None

    def cells(self) -> tuple[str, ...]:
        """What the trial is, column by column."""
        return (str(self.epochs), self.framework, self.images, self.local, f"{self.lam:g}", self.remark)


class Change(NamedTuple):
    """Top-1 with L2L and without it, by seed, in percent."""

    with_l2l: list[float]
    without: list[float]
    test_images: int

    @property
    def points(self) -> float:
        """By how much L2L changed the mean over seeds."""
        return mean(self.with_l2l) - mean(self.without)

    @property
    def over_seeds(self) -> bool:
        """Whether there are enough seeds for a standard error of their differences."""
        return len(self.with_l2l) == len(self.without) >= SEVERAL

    @property
    def by_seed(self) -> list[float]:
        """Points of each pair of runs."""
        return [one - other for one, other in zip(self.with_l2l, self.without, strict=True)]

    @property
    def error(self) -> float:
        """Standard error: of the differences by seed or, with few seeds, of drawing the test images."""
        if self.over_seeds:
            return standard_error(self.by_seed)
        shares = [mean(side) / 100 for side in (self.with_l2l, self.without)]
        return 100 * sqrt(sum(share * (1 - share) for share in shares) / self.test_images)


PAPER, TUNED, VARIANTS, SHORT = "cifar10-paper", "cifar10-tuned", "cifar10-variants", "cifar10-short"
AREAS, LARGER = "5-40", "global 40-100 %"
HELD_OUT = (40, "SimSiam", "CIFAR-10, held out", "20-80", 0.05)
HELD_OUT_WITHOUT = "cifar10-held-out/simsiam-multicrop"
SMALL, LARGE, SIMSIAM = ((20, framework, "CIFAR-10", areas) for framework, areas in
                         (("MoCo", AREAS), ("MoCo", "20-80"), ("SimSiam", "20-80")))  # fmt: skip
SMALL_WITHOUT = f"{SHORT}/moco-logo-16px-lambda-0"
LARGER_WITHOUT = f"{SHORT}/moco-logo-5-40-lambda-0"
LARGE_WITHOUT = f"{SHORT}/moco-logo-lambda-0:0"
SIMSIAM_WITHOUT = f"{SHORT}/simsiam-logo-lambda-0"
TRIALS = (
    Trial(200, "MoCo", "CIFAR-10", AREAS, 5e-4, f"{PAPER}/moco-logo:0", f"{PAPER}/moco-multicrop:0",
          remark="paper's settings", paper=2.13),
    Trial(200, "SimSiam", "CIFAR-10", AREAS, 1e-4, f"{PAPER}/simsiam-logo:0", f"{PAPER}/simsiam-multicrop:0",
          remark="paper's settings", paper=4.34),
    Trial(200, "MoCo", "CIFAR-10", AREAS, 0.05, f"{TUNED}/moco-logo:0", f"{TUNED}/moco-multicrop:0",
          remark="16 px, decay 1e-3"),
    Trial(200, "MoCo", "CIFAR-10", AREAS, 0.05, f"{VARIANTS}/moco-logo-decay-5e-4",
          f"{VARIANTS}/moco-multicrop-decay-5e-4", remark="16 px"),
    Trial(200, "MoCo", "CIFAR-10", "20-80", 0.05, f"{VARIANTS}/moco-logo-enlarged:0",
          f"{VARIANTS}/moco-multicrop-enlarged:0"),
    Trial(200, "SimSiam", "CIFAR-10", "20-80", 0.05, f"{TUNED}/simsiam-logo:0", f"{TUNED}/simsiam-multicrop:0"),
    Trial(200, "MoCo", "Imagenette", AREAS, 0.05, "imagenette/moco-logo", "imagenette/moco-multicrop", 3_925),
    Trial(200, "MoCo", "Imagenette", AREAS, 0.05, "imagenette/moco-logo-outside", "imagenette/moco-multicrop-outside",
          3_925, "run elsewhere"),
    Trial(*HELD_OUT, "cifar10-held-out/simsiam-logo", HELD_OUT_WITHOUT, 5_000),
    Trial(*HELD_OUT, "cifar10-held-out/simsiam-logo-slow-regressor", HELD_OUT_WITHOUT, 5_000, "slower regressor"),
    Trial(*HELD_OUT, "cifar10-held-out/simsiam-logo-at-parameters", HELD_OUT_WITHOUT, 5_000, "at parameters"),
    Trial(*HELD_OUT, "cifar10-held-out/simsiam-logo-noise", HELD_OUT_WITHOUT, 5_000, "noise"),
    Trial(25, "MoCo", "photographs, tiny", AREAS, 0.05, "photographs-cpu/logo", "photographs-cpu/multicrop", 800),
    Trial(20, "MoCo", "scenes, tiny", AREAS, 0.05, "scenes/logo-lambda-0.05", "scenes/multicrop", 1_000),
    Trial(20, "MoCo", "scenes, tiny", AREAS, 0.5, "scenes/logo-lambda-0.5", "scenes/multicrop", 1_000),
    Trial(*SMALL, 0.05, f"{SHORT}/moco-logo-16px-lambda-0.05", SMALL_WITHOUT, remark="16 px"),
    Trial(*SMALL, 0.005, f"{SHORT}/moco-logo-16px-lambda-0.005", SMALL_WITHOUT, remark="16 px"),
    Trial(*SMALL, 0.5, f"{SHORT}/moco-logo-16px-lambda-0.5", SMALL_WITHOUT, remark="16 px"),
    Trial(*SMALL, 0.05, f"{SHORT}/moco-logo-5-40-lambda-0.05", LARGER_WITHOUT, remark=LARGER),
    Trial(*SMALL, 0.2, f"{SHORT}/moco-logo-5-40-lambda-0.2", LARGER_WITHOUT, remark=LARGER),
    Trial(20, "SimSiam", "CIFAR-10", "8-50", 0.05, f"{SHORT}/first-simsiam-logo-wide",
          f"{SHORT}/first-simsiam-multicrop-wide"),
    Trial(*LARGE, 0.005, f"{SHORT}/moco-logo-lambda-0.005", LARGE_WITHOUT),
    Trial(*LARGE, 0.05, f"{SHORT}/moco-logo-lambda-0.05", f"{SHORT}/moco-logo-lambda-0"),
    Trial(*LARGE, 0.5, f"{SHORT}/moco-logo-lambda-0.5", LARGE_WITHOUT),
    Trial(*LARGE, 0.5, f"{SHORT}/moco-logo-cosine-0.5", LARGE_WITHOUT, remark="cosine"),
    Trial(*SIMSIAM, 0.05, f"{SHORT}/simsiam-logo-lambda-0.05", SIMSIAM_WITHOUT),
    Trial(*SIMSIAM, 0.05, f"{SHORT}/simsiam-logo-cosine-0.05", SIMSIAM_WITHOUT, remark="cosine"),
    Trial(*SIMSIAM, 0.5, f"{SHORT}/simsiam-logo-lambda-0.5", SIMSIAM_WITHOUT),
    Trial(*SIMSIAM, 0.5, f"{SHORT}/simsiam-logo-cosine-0.5", SIMSIAM_WITHOUT, remark="cosine"),
    Trial(*SIMSIAM, 1, f"{SHORT}/simsiam-logo-cosine-weight-1", SIMSIAM_WITHOUT, remark="cosine, weight"),
)  # fmt: skip


def change(trial: Trial, measure: str) -> Change | None:
    """What L2L changed, by the first kind of measurement that all runs of the trial have."""
    for kind in MEASURES[measure]:
        sides = [[figure(run, kind) for run in runs(place)] for place in (trial.with_l2l, trial.without)]
        with_l2l, without = ([value for value in side if value is not None] for side in sides)
        if [with_l2l, without] == sides:
            return Change(with_l2l, without, trial.test_images)
    return None


def standard_error(values: Sequence[float]) -> float:
    """Of their mean."""
    return stdev(values) / sqrt(len(values))
