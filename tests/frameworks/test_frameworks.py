"""What each framework promises beyond the contract."""

import math

import pytest
import torch
import torch.nn.functional as F
from small_frameworks import BOTH_WAYS, crops, shift, small

from crop_by_crop import crop_by_crop
from logo_ssl.frameworks import (
    BarlowTwinsConfig,
    BYOLConfig,
    DINOConfig,
    MoCoConfig,
    NNCLRConfig,
    SimCLRConfig,
    SwAVConfig,
    VICRegConfig,
)
from logo_ssl.frameworks.moco import _deal
from logo_ssl.frameworks.swav import sinkhorn
from logo_ssl.models import BatchNorm, build_backbone, scheduled_momentum
from logo_ssl.types import Projections


def moco(**settings):
    return small(MoCoConfig(dim=8, queue=32, **settings))


def test_simclr_both_ways_is_nt_xent(random):
    z = random(2, 6, 8)
    framework = SimCLRConfig(dim=8, tau=0.3).build(build_backbone("tiny"), 256)
    ours = (framework.similarity(z[0], z[1]).mean() + framework.similarity(z[1], z[0]).mean()) / 2
    unit = F.normalize(z.flatten(0, 1), dim=-1)  # [2B D]
    logits = (unit @ unit.T / 0.3).fill_diagonal_(-math.inf)
    positives = torch.arange(12).roll(6)
    torch.testing.assert_close(ours, F.cross_entropy(logits, positives))


def test_nnclr_is_cross_entropy_of_neighbours_over_the_predictions_of_the_batch(random):
    framework = small(NNCLRConfig(dim=8, hidden=16, queue=32, tau=0.3))
    q, t, earlier = 3 * random(5, 8), random(5, 8), 2 * random(7, 8)
    logits = F.normalize(t) @ F.normalize(q).T / 0.3
    naive = F.cross_entropy(logits, torch.arange(5), reduction="none")
    torch.testing.assert_close(framework.similarity(q, t), naive)
    torch.testing.assert_close(framework._neighbours(t[None]), t[None])  # nothing is enqueued yet
    framework.queue.push(earlier)
    nearest = [max(earlier, key=lambda key: F.cosine_similarity(z, key, dim=0)) for z in t]
    found = framework._neighbours(t[None])[0]
    torch.testing.assert_close(found, F.normalize(torch.stack(nearest)))


def test_swavs_assignments_use_every_prototype_equally(random):
    scores = 4 * random(12, 3)
    code = sinkhorn(scores, 200)
    torch.testing.assert_close(code.sum(dim=1), torch.ones(12).double())
    torch.testing.assert_close(code.sum(dim=0), torch.full((3,), 4.0).double())
    ratio = code / scores.exp()
    torch.testing.assert_close(ratio / ratio[:1], (ratio[:, :1] / ratio[:1, :1]).expand(12, 3))  # rows times columns
    present = torch.arange(12) < 9
    torch.testing.assert_close(sinkhorn(scores, 3, present)[:9], sinkhorn(scores[:9], 3))


def test_swav_is_cross_entropy_with_the_published_assignments(random):
    framework = small(SwAVConfig(dim=8, hidden=16, prototypes=5, epsilon=0.05, freeze_prototypes=0.0))
    p = framework.project(crops(random, 6), BOTH_WAYS)
    prototypes = F.normalize(framework.prototypes.weight, dim=-1)
    for z, target in zip(p.z_g, p.t_g, strict=True):  # as in SwAV's own code: K x B, in rounds
        code = ((F.normalize(z, dim=-1) @ prototypes.T) / 0.05).exp().T
        code = code / code.sum()
        for _ in range(3):
            code = code / code.sum(dim=1, keepdim=True) / 5
            code = code / code.sum(dim=0, keepdim=True) / 6
        torch.testing.assert_close(target, (6 * code).T)
    scores = F.normalize(p.z_l[0], dim=-1) @ prototypes.T
    naive = -(p.t_g[1] * torch.log(F.softmax(scores / 0.1, dim=-1))).sum(dim=-1)
    torch.testing.assert_close(framework.similarity(p.q_l[0], p.t_g[1]), naive)


def test_dino_is_cross_entropy_with_a_centred_and_sharpened_teacher(random):
    framework = small(DINOConfig(dim=8, hidden=16, out_dim=5))
    framework.centre.copy_(random(5))
    q, t = random(6, 5), random(6, 5)
    target = F.softmax((t - framework.centre) / 0.02, dim=-1)
    naive = -(target * torch.log(F.softmax(q / 0.1, dim=-1))).sum(dim=-1)
    torch.testing.assert_close(framework.similarity(q, t), naive)


@pytest.mark.parametrize(("progress", "expected"), [(0.0, 0.04), (0.05, 0.055), (0.1, 0.07), (1.0, 0.07)])
def test_dinos_teacher_warms_up_and_its_centre_follows_the_teachers_mean(random, progress, expected):
    framework = small(DINOConfig(dim=8, hidden=16, out_dim=5, tau_t=0.07, tau_t_start=0.04))
    p = framework.project(crops(random), BOTH_WAYS)
    framework.after_step(p, progress)
    assert framework.tau_t.item() == pytest.approx(expected)
    torch.testing.assert_close(framework.centre, 0.1 * p.t_g.mean(dim=(0, 1)))


@pytest.mark.parametrize(
    "config",
    [
        SwAVConfig(dim=8, hidden=16, prototypes=5, freeze_prototypes=0.2),
        DINOConfig(dim=8, hidden=16, out_dim=5, freeze_last_layer=0.2),
    ],
)
def test_prototypes_are_frozen_at_first(random, config):
    framework = small(config)
    for progress, learns in ((0.1, False), (0.2, True)):
        p = framework.project(crops(random), BOTH_WAYS)
        loss = framework.similarity(p.q_g[0], p.t_g[1]).mean()
        (gradient,) = torch.autograd.grad(loss, framework.prototypes.weight)
        framework.after_step(p, progress)
        assert framework.prototypes.frozen.item() == (not learns)
        assert not gradient.any()
    p = framework.project(crops(random), BOTH_WAYS)
    loss = framework.similarity(p.q_g[0], p.t_g[1]).mean()
    assert torch.autograd.grad(loss, framework.prototypes.weight)[0].any()


def test_vicreg_is_its_three_terms(random):
    x, y = 0.3 * random(6, 4), 0.3 * random(6, 4)
    framework = small(VICRegConfig(dim=4, layers=2, invariance=2.0, variance=3.0, covariance=5.0))
    total = 2 * F.mse_loss(x, y)
    for z in (x, y):
        total = total + 3 / 2 * sum(max(0, 1 - math.sqrt(z[:, d].var() + 1e-4)) for d in range(4)) / 4
        c = torch.cov(z.T)
        total = total + 5 * sum(c[i, j] ** 2 for i in range(4) for j in range(4) if i != j) / 4
    torch.testing.assert_close(framework.similarity(x, y).mean(), total)


def test_barlow_twins_is_the_distance_of_the_correlations_from_the_identity(random):
    x, y = 3 * random(6, 4) + 1, random(6, 4)
    framework = small(BarlowTwinsConfig(dim=4, layers=2, redundancy=0.1))
    c = torch.tensor([[torch.corrcoef(torch.stack([x[:, i], y[:, j]]))[0, 1] for j in range(4)] for i in range(4)])
    total = sum((1 - c[i, i]) ** 2 if i == j else 0.1 * c[i, j] ** 2 for i in range(4) for j in range(4))
    torch.testing.assert_close(framework.similarity(x, y).mean(), total.double(), rtol=1e-4, atol=1e-4)


def test_mocos_keys_come_back_in_the_order_of_their_images():
    framework = moco(splits=4)
    framework.momentum_encoder.eval()  # without batch statistics, company does not matter
    x_g = torch.randn(2, 12, 3, 16, 16).double()
    torch.testing.assert_close(framework._keys(x_g), framework.momentum_encoder(x_g))


def test_keys_and_queries_are_normalised_in_other_company():
    dealt, back = _deal(12, 3, torch.device("cpu"))
    assert dealt[back].tolist() == list(range(12))
    for key_split in dealt.view(3, 4):
        query_splits = key_split // 4
        assert len(set(query_splits.tolist())) == 3


def test_mocos_keys_are_normalised_by_the_statistics_of_their_hand(random):
    """Of eight keys in two splits, one gets the even cards and the other the odd ones; queries are cut in halves."""
    framework, batch = moco(splits=2), crops(random)
    p, net = framework.project(batch, BOTH_WAYS), framework.encoder.net  # of which the key encoder is a copy still
    dealt = torch.empty_like(p.t_g)
    dealt[:, 0::2], dealt[:, 1::2] = (crop_by_crop(net, batch.x_g[:, start::2]) for start in (0, 1))
    halves = torch.cat([crop_by_crop(net, half) for half in batch.x_g.chunk(2, dim=1)], dim=1)
    torch.testing.assert_close(p.t_g, dealt)
    torch.testing.assert_close(p.q_g, halves)
    assert not torch.allclose(p.t_g, p.q_g)


def test_mocos_keys_come_from_the_momentum_encoder_and_its_queries_from_the_encoder(random):
    framework, batch = moco(splits=2), crops(random)
    before = framework.project(batch, BOTH_WAYS)
    shift(framework.momentum_encoder, 0.1)
    keys = framework.project(batch, BOTH_WAYS)
    torch.testing.assert_close((keys.q_g, keys.q_l), (before.q_g, before.q_l))
    assert not torch.allclose(keys.t_g, before.t_g)
    shift(framework.encoder, 0.1)
    queries = framework.project(batch, BOTH_WAYS)
    torch.testing.assert_close(queries.t_g, keys.t_g)
    assert not torch.allclose(queries.q_g, keys.q_g)


@pytest.mark.parametrize("tau", [0.07, 0.2])
def test_mocos_loss_is_cross_entropy_over_cosines_whatever_the_lengths(random, tau):
    """The right answer is class 0, the keys of the queue are the others; empty places are no class."""
    framework = moco(tau=tau)
    q, t, earlier = 3 * random(5, 8), 0.5 * random(5, 8), 2 * random(7, 8)
    framework.queue.push(earlier)
    cosines = F.cosine_similarity(q[:, None], torch.cat([t[:, None], earlier.expand(5, 7, 8)], dim=1), dim=-1)
    naive = F.cross_entropy(cosines / tau, torch.zeros(5, dtype=torch.long), reduction="none")
    torch.testing.assert_close(framework.similarity(q, t), naive)


def test_mocos_splits_do_not_see_each_other():
    framework = moco(splits=2)
    x = torch.randn(1, 8, 3, 16, 16).double()
    changed = x.clone()
    changed[:, 4:] += 1.0
    before, after = framework.encoder(x), framework.encoder(changed)
    torch.testing.assert_close(before[:, :4], after[:, :4])
    assert not torch.allclose(before[:, 4:], after[:, 4:])


def test_mocos_norms_stay_on_their_device():
    assert not any(norm.synchronised for norm in moco().modules() if isinstance(norm, BatchNorm))


def test_a_query_never_meets_its_own_key_among_the_negatives():
    framework = moco()
    q, t = torch.randn(4, 8).double(), torch.randn(4, 8).double()
    torch.testing.assert_close(framework.similarity(q, t), torch.zeros(4).double())  # no negatives yet
    stacked = t[None]
    framework.after_step(Projections(stacked, stacked[:0], stacked, stacked[:0], stacked), 0.0)
    assert (framework.similarity(q, torch.randn(4, 8).double()) > 0).all()


@pytest.mark.parametrize("progress", [0.0, 0.5])
def test_mocos_momentum_encoder_moves_by_one_minus_m(random, progress):
    framework = moco(m=0.9)
    shift(framework.encoder, 1.0)
    before = [p.clone() for p in framework.momentum_encoder.parameters()]
    z = random(1, 4, 8)
    framework.after_step(Projections(z, z[:0], z, z[:0], z), progress)
    for old, new in zip(before, framework.momentum_encoder.parameters(), strict=True):
        torch.testing.assert_close(new - old, torch.full_like(old, 0.1))


@pytest.mark.parametrize(("progress", "expected"), [(0.0, 0.99), (0.5, 0.995), (1.0, 1.0)])
def test_byols_momentum_rises_along_a_cosine(progress, expected):
    assert scheduled_momentum(0.99, progress) == pytest.approx(expected)
    assert BYOLConfig().m == 0.996
