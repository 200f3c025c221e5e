"""Is the cause that fits named, with its cure?"""

import re
from dataclasses import replace

import pytest

from logo_ssl.frameworks import SimSiamConfig
from logo_ssl.recipes import OptimiserConfig, find_recipe
from logo_ssl.strategies import LoGoConfig, TwoViewConfig
from logo_ssl.train.collapse import FEW_STEPS, diagnose, diagnose_loss

HEALTHY = find_recipe("cifar10-simsiam-logo")
WEAK = replace(HEALTHY.crops, jitter_p=0.0, global_scale=(0.9, 1.0))


@pytest.mark.parametrize(
    ("recipe", "seen", "cause"),
    [
        (replace(HEALTHY, strategy=LoGoConfig(lam=2.0)), {"ratio": 3.0}, r"\(2.00 times\): lower strategy.lam"),
        (replace(HEALTHY, strategy=LoGoConfig(lam=1.0, balance="weight")), {"ratio": 0.5}, r"\(2.00 times\): lower"),
        (HEALTHY, {"queue_alike": 0.999}, "nearly equal keys .* remove duplicates"),
        (replace(HEALTHY, batch_size=8), {}, "a batch of 8 is small for batch norm: use batch_size=32 or more"),
        (replace(HEALTHY, optimiser=OptimiserConfig(lr=5.0)), {}, r"learning rate is high \(5 for a batch of 512\)"),
        (replace(HEALTHY, optimiser=OptimiserConfig(lr=5.0)), {"queue_alike": 0.999}, "the learning rate is high"),
        (replace(HEALTHY, crops=WEAK), {}, "augmentation is weak"),
        (replace(HEALTHY, framework=SimSiamConfig(constant_lr=False)), {}, "predictor's learning rate"),
        (replace(HEALTHY, strategy=LoGoConfig(affinity="cosine")), {}, "affinity is a cosine"),
        (HEALTHY, {"ratio": 3.0, "queue_alike": 0.2}, r"^A lower optimiser.lr or a smaller strategy.lam"),
        (replace(HEALTHY, strategy=TwoViewConfig()), {}, r"^A lower optimiser.lr usually helps"),
    ],
    ids=[
        "lambda",
        "plain lambda",
        "queue",
        "batch",
        "rate",
        "rate before queue",
        "augmentation",
        "predictor",
        "cosine",
        "unknown",
        "two-view",
    ],
)
def test_the_cause_that_fits_is_named_with_its_cure(recipe, seen, cause):
    sentence = diagnose(recipe, **seen)
    assert re.search(cause, sentence), sentence


def test_a_run_of_few_steps_is_to_be_longer_before_its_rate_is_lowered():
    recipe = HEALTHY.changed(epochs=6)
    short = diagnose_loss(recipe, 12, 3)
    assert short == f"A run of 24 steps is short: first use more epochs. {diagnose(recipe)}"
    assert diagnose_loss(recipe, FEW_STEPS // 2, 3) == diagnose(recipe)
    assert diagnose_loss(recipe, 0, 3) == diagnose(recipe)  # an older log does not tell
