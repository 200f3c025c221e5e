"""The arm `region` of benchmarks/l2l_arms.py: its geometry, its loss, and that the arms train."""

import sys
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest
import torch
from small_runs import SMALL, train

from logo_ssl.augment import CropPlan, make_crops
from logo_ssl.strategies import STRATEGIES

ROOT = Path(__file__).parents[2]
SIDE = 128


@pytest.fixture
def arms(monkeypatch):
    monkeypatch.setattr(sys, "path", [*sys.path, str(ROOT / "benchmarks")])
    with patch.dict(STRATEGIES), patch.dict(sys.modules):
        import l2l_arms

        yield l2l_arms


def test_the_region_of_a_box_shows_the_places_of_its_local_crop(arms):
    places = torch.stack(torch.meshgrid(torch.arange(SIDE), torch.arange(SIDE), indexing="ij")).to(torch.uint8)
    plan = CropPlan(n_local=4, global_size=64, local_size=32, jitter_p=0, grey_p=0, global_scale=(0.2, 1))
    crops = make_crops(
        places.repeat(40, 1, 1, 1), plan, torch.Generator().manual_seed(0), (0, 0), (1, 1), described=True
    )
    expected, found, n_mirrored = crops.x_l.mean(dim=(3, 4)), 0, 0
    for x_g, window in zip(crops.x_g, crops.parameters_g, strict=True):
        boxes, share = arms.boxes_within(window, crops.parameters_l)
        inside = share > 0.999
        differences = (arms.regions(x_g, boxes) - expected)[inside].abs() * 255 / SIDE
        assert differences.max() < 0.01
        assert (share >= 0).all()
        assert (share < 0.5).any()
        found, n_mirrored = found + inside.sum(), n_mirrored + (inside & (window[:, 8] > 0.5)).sum()
    assert found > n_mirrored > 20


def test_the_contrast_is_that_of_the_siblings_that_are_seen(arms):
    generator = torch.Generator().manual_seed(0)
    z_l, z_r = torch.randn(2, 3, 5, 8, dtype=torch.float64, generator=generator).requires_grad_()
    share = torch.rand(3, 5, generator=generator)
    share[:, 0] = torch.tensor([0.1, 0.9, 0.2])  # one alone has nothing to be told from
    share[:, 1] = 0.0
    config, total = arms.RegionConfig(tau=0.3), 0.0
    for i, b in np.ndindex(3, 5):
        cosines = torch.cosine_similarity(z_l[i, b], z_r[:, b], dim=-1) / 0.3
        if share[i, b] >= 0.5:
            total -= cosines[i] - cosines[share[:, b] >= 0.5].logsumexp(0)
    loss = arms.region_contrast(z_l, z_r, share, config)
    torch.testing.assert_close(loss, total / 15)
    assert all(gradient.isfinite().all() for gradient in torch.autograd.grad(loss, (z_l, z_r)))


@pytest.mark.parametrize("arm", ["measured-logo", "feature-logo", "geometry", "region"])
def test_an_arm_trains(arms, data, tmp_path, arm):
    run, _ = train(
        SMALL.with_part("strategy", arm),
        data,
        tmp_path / "run",
        epochs=1,
        backbone="resnet18",
        stem="cifar",
        knn_every=0,
    )
    terms = [line["l_ll"] for line in run.metrics() if "l_ll" in line]
    assert terms
    assert np.isfinite(terms).all()
