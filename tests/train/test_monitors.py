"""Are collapse and its likeliest cause seen, and does the learning rate follow the paper's cosine?"""

import math
import re
from dataclasses import replace

import pytest
import torch
from small_runs import SMALL, train

from logo_ssl.data import ImageSet, Split
from logo_ssl.frameworks import DINOConfig, MoCoConfig, SimSiamConfig, SwAVConfig
from logo_ssl.recipes import OptimiserConfig, find_recipe
from logo_ssl.strategies import LoGoConfig, TwoViewConfig
from logo_ssl.train import build
from logo_ssl.train.monitors import (
    CollapseGauge,
    collapse_alarm,
    diagnose,
    effective_rank,
    feature_std,
)
from logo_ssl.train.optim import learning_rate

RECIPE, HEALTHY = find_recipe("tiny"), find_recipe("cifar10-simsiam-logo")
WEAK = replace(HEALTHY.crops, jitter_p=0.0, global_scale=(0.9, 1.0))
FAST = OptimiserConfig(lr=5.0)


def test_std_is_one_for_spread_latents_and_zero_for_collapsed_ones():
    torch.manual_seed(0)
    assert feature_std(torch.randn(4000, 32)).item() == pytest.approx(1, abs=0.02)
    assert feature_std(torch.ones(100, 32) + 1e-5 * torch.randn(100, 32)).item() < 1e-3


@pytest.mark.parametrize("rank", [1, 3, 8])
def test_effective_rank_counts_equal_directions(rank):
    z = torch.cat([torch.eye(16)[:rank], -torch.eye(16)[:rank]]).repeat(5, 1)
    assert effective_rank(z).item() == pytest.approx(rank, rel=1e-2)


def test_effective_rank_is_the_same_by_rows_or_columns():
    torch.manual_seed(0)
    z = torch.randn(12, 40)
    wide = torch.nn.functional.normalize(z, dim=-1)
    singular = torch.linalg.svdvals(wide - wide.mean(0))
    share = singular / singular.sum()
    assert effective_rank(z).item() == pytest.approx(math.exp(-(share * share.log()).nan_to_num().sum()), rel=1e-3)


@pytest.mark.parametrize(
    ("z", "alarms"),
    [
        (torch.randn(64, 16), False),
        (1 + 1e-4 * torch.randn(64, 16), True),
        (torch.randn(64, 1) * torch.ones(1, 16), True),
        (torch.randn(2, 16), False),
    ],
    ids=["spread", "one point", "one line", "too few to tell"],
)
def test_a_collapse_is_said_in_a_sentence(z, alarms):
    sentence = collapse_alarm(feature_std(z).item(), effective_rank(z).item(), 0.0, *z.shape)
    assert bool(sentence) == alarms
    assert sentence is None or "collapsing" in sentence


def test_a_fall_from_a_wider_spread_is_a_collapse():
    assert collapse_alarm(std=0.9, rank=20.0, widest=0.9, n_latents=64, width=32) is None
    assert "spread 0.100 of 1" in collapse_alarm(std=0.1, rank=20.0, widest=0.9, n_latents=64, width=32)


@pytest.fixture
def gauge():
    """A gauge, and a module with a queue of four keys."""
    images = torch.randint(0, 256, (16, 3, 16, 16), dtype=torch.uint8)
    module = build(replace(RECIPE, framework=MoCoConfig(dim=8, queue=4)), ImageSet("noise", Split(images)))
    return CollapseGauge(print, module.recipe), module


def test_a_queue_of_equal_keys_is_told_as_the_cause_once_it_is_full(gauge):
    gauge, module = gauge
    module.framework.queue.push(torch.ones(3, 8))
    assert "queue" not in gauge._cause(module)
    module.framework.queue.push(torch.ones(1, 8))
    assert "nearly equal (mean cosine 1.000)" in gauge._cause(module)
    gauge.widest = 0.6  # then the collapse made them equal
    assert "queue" not in gauge._cause(module)


@pytest.mark.parametrize(
    ("changes", "seen", "cause"),
    [
        ({"strategy": LoGoConfig(lam=2.0)}, {"ratio": 3.0}, r"2\.00 times .* lower strategy\.lam"),
        ({"strategy": LoGoConfig(lam=1.0, balance="weight")}, {"ratio": 0.5}, r"2\.00 times .* lower strategy\.lam"),
        ({}, {"queue_alike": 0.999}, "duplicate images"),
        ({"batch_size": 8}, {}, "batch_size=32"),
        ({"optimiser": FAST}, {}, r"optimiser\.lr=5 is high for a batch of 512"),
        ({"optimiser": FAST}, {"queue_alike": 0.999}, r"optimiser\.lr"),
        ({"crops": WEAK}, {}, r"crops\.jitter"),
        ({"framework": SimSiamConfig(constant_lr=False)}, {}, r"framework\.constant_lr"),
        ({"strategy": LoGoConfig(affinity="cosine")}, {}, r"strategy\.affinity"),
        ({"framework": SwAVConfig()}, {}, r"framework\.epsilon"),
        ({"framework": DINOConfig()}, {}, r"framework\.tau_t"),
        ({}, {"ratio": 3.0, "queue_alike": 0.2}, r"^A lower optimiser\.lr or a smaller strategy\.lam"),
        ({"strategy": TwoViewConfig()}, {}, r"^A lower optimiser\.lr usually"),
    ],
)
def test_the_cause_that_fits_is_named_with_its_cure(changes, seen, cause):
    sentence = diagnose(replace(HEALTHY, **changes), **seen)
    assert re.search(cause, sentence), sentence


def test_the_schedule_is_the_papers_cosine():
    config = OptimiserConfig(lr=0.06, eta_min=0.01)
    for t in range(0, 101, 10):
        expected = 0.01 + 0.5 * (0.06 - 0.01) * (1 + math.cos(t * math.pi / 100))
        assert learning_rate(config, t, 100, 0) == pytest.approx(expected)


def test_a_regressor_that_died_is_named_once(data, tmp_path):
    _, said = train(SMALL, data, tmp_path / "dead", strategy=LoGoConfig(bound="mean-difference", lr=3.0), epochs=6)
    assert said.count("affinity is flat") == 1
    assert "strategy.lr" in said
    _, said = train(SMALL, data, tmp_path / "alive")
    assert "affinity is flat" not in said
