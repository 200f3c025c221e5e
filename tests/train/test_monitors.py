import math

import pytest
import torch

from logo_ssl.recipes import OptimiserConfig
from logo_ssl.train.monitors import effective_rank, feature_std
from logo_ssl.train.optimisers import learning_rate


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


def test_the_schedule_is_the_papers_cosine():
    config = OptimiserConfig(lr=0.06, eta_min=0.01)
    for t in range(0, 101, 10):
        expected = 0.01 + 0.5 * (0.06 - 0.01) * (1 + math.cos(t * math.pi / 100))
        assert learning_rate(config, t, 100, 0) == pytest.approx(expected)
