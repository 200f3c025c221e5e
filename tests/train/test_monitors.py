import math
from dataclasses import replace

import pytest
import torch

from logo_ssl.data import ImageSet, Split
from logo_ssl.frameworks import MoCoConfig
from logo_ssl.recipes import OptimiserConfig, find_recipe
from logo_ssl.train import build
from logo_ssl.train.collapse import collapse_alarm, effective_rank, feature_std
from logo_ssl.train.monitors import CollapseGauge
from logo_ssl.train.optim import learning_rate

RECIPE = find_recipe("tiny")


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


@pytest.mark.parametrize("warmup_steps", [0.3, 1.0, 2.5, 7.8])
def test_warm_up_never_passes_the_peak(warmup_steps):
    config = OptimiserConfig(lr=0.06)
    assert max(learning_rate(config, step, 100, warmup_steps) for step in range(100)) <= 0.06


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


def test_a_queue_of_equal_keys_is_told_as_the_cause_once_it_is_full():
    images = torch.randint(0, 256, (16, 3, 16, 16), dtype=torch.uint8)
    module = build(replace(RECIPE, framework=MoCoConfig(dim=8, queue=4)), ImageSet("noise", Split(images)))
    gauge, queue = CollapseGauge(print, module.recipe), module.framework.queue
    queue.push(torch.ones(3, 8))
    assert "queue" not in gauge._cause(module)
    queue.push(torch.ones(1, 8))
    assert "nearly equal keys (mean cosine 1.000)" in gauge._cause(module)
    del module.framework.queue
    module.framework.queue = torch.ones(4, 8)  # somebody's own, which is no such queue
    assert "queue" not in gauge._cause(module)


def test_keys_that_a_collapse_made_equal_are_not_its_cause():
    images = torch.randint(0, 256, (16, 3, 16, 16), dtype=torch.uint8)
    module = build(replace(RECIPE, framework=MoCoConfig(dim=8, queue=4)), ImageSet("noise", Split(images)))
    gauge = CollapseGauge(print, module.recipe)
    module.framework.queue.push(torch.ones(4, 8))
    gauge.widest = 0.6
    assert "queue" not in gauge._cause(module)


def test_the_schedule_is_the_papers_cosine():
    config = OptimiserConfig(lr=0.06, eta_min=0.01)
    for t in range(0, 101, 10):
        expected = 0.01 + 0.5 * (0.06 - 0.01) * (1 + math.cos(t * math.pi / 100))
        assert learning_rate(config, t, 100, 0) == pytest.approx(expected)
