"""Each equation against the double loop that the paper's notation says, in float64."""

import math
from itertools import combinations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from logo_ssl.equations import (
    draw_partners,
    global_to_global,
    gradient_ratio,
    local_to_global,
    local_to_local,
    omega,
    omega_logistic,
    other_image_pairs,
    same_image_pairs,
)


def l_s(q, t):
    """Any similarity loss: not symmetric, so that swapped arguments show."""
    return (q * t).sum(-1) + q.square().sum(-1)


def f_d(z_1, z_2):
    """Any affinity without batch norm: not symmetric either."""
    return torch.sigmoid((z_1 * z_2).sum(-1)) + z_1[:, 0]


def test_eq3_sums_over_the_pairs_it_is_given(random):
    q_g, t_g = random(3, 4, 5), random(3, 4, 5)
    naive = 0.0
    for i, j in ((0, 1), (2, 0)):
        naive += sum(float(l_s(q_g[i, b], t_g[j, b])) for b in range(4)) / 4
    assert global_to_global(l_s, q_g, t_g, [(0, 1), (2, 0)]).item() == pytest.approx(naive)


def test_eq4_sums_over_every_local_and_global_crop(random):
    q_l, t_g = random(2, 4, 5), random(2, 4, 5)
    naive = 0.0
    for i in range(2):
        naive += sum(float(l_s(q_l[i, b], t_g[0, b])) + float(l_s(q_l[i, b], t_g[1, b])) for b in range(4)) / 4
    assert local_to_global(l_s, q_l, t_g).item() == pytest.approx(naive)


def test_eq4_sends_no_gradient_through_sg(random):
    q_l, t_g = random(2, 4, 5).requires_grad_(), random(2, 4, 5).requires_grad_()
    local_to_global(l_s, q_l, t_g).backward()
    assert q_l.grad is not None
    assert t_g.grad is None


def test_eq3_leaves_the_gradient_of_targets_to_the_framework(random):
    q_g, t_g = random(2, 4, 5).requires_grad_(), random(2, 4, 5).requires_grad_()
    global_to_global(l_s, q_g, t_g, [(0, 1)]).backward()
    assert t_g.grad is not None


@pytest.mark.parametrize("n_local", [2, 3, 4])
def test_eq5_is_the_mean_over_same_image_pairs(random, generator, n_local):
    z_l = random(n_local, 4, 5)
    pairs = [(i, j, b) for i, j in combinations(range(n_local), 2) for b in range(4)]
    naive = sum(float(f_d(z_l[i, b][None], z_l[j, b][None])) for i, j, b in pairs) / len(pairs)
    partner = draw_partners(4, generator)
    assert local_to_local(f_d, z_l, partner).item() == pytest.approx(naive)


@pytest.mark.parametrize("n_local", [2, 3])
def test_eq6_equals_the_naive_double_loop(random, generator, n_local):
    z_l = random(n_local, 4, 5)
    partner = draw_partners(4, generator)
    pairs = [(i, j, b) for i, j in combinations(range(n_local), 2) for b in range(4)]
    same = sum(float(f_d(z_l[i, b][None], z_l[j, b][None])) for i, j, b in pairs) / len(pairs)
    other = sum(float(f_d(z_l[i, b][None], z_l[j, partner[b]][None])) for i, j, b in pairs) / len(pairs)
    gap = omega(f_d, same_image_pairs(z_l), other_image_pairs(z_l, partner))
    assert gap.item() == pytest.approx(same - other)


def test_logistic_omega_is_the_log_likelihood_of_telling_pairs_apart(random, generator):
    z_l = random(2, 4, 5)
    partner = draw_partners(4, generator)
    naive = 0.0
    for b in range(4):
        s_same = float(f_d(z_l[0, b][None], z_l[1, b][None]))
        s_other = float(f_d(z_l[0, b][None], z_l[1, partner[b]][None]))
        naive += math.log(1 / (1 + math.exp(-s_same))) + math.log(1 - 1 / (1 + math.exp(-s_other)))
    gap = omega_logistic(f_d, same_image_pairs(z_l), other_image_pairs(z_l, partner))
    assert gap.item() == pytest.approx(naive / 4)
    assert gap.item() < 0


@given(n_images=st.integers(2, 65), seed=st.integers(0, 2**31))
def test_eq6_never_pairs_an_image_with_itself(n_images, seed):
    partner = draw_partners(n_images, torch.Generator().manual_seed(seed))
    assert (partner != torch.arange(n_images)).all()
    assert sorted(partner.tolist()) == list(range(n_images))


def test_every_offset_between_partners_is_drawn(generator):
    offsets = {int(draw_partners(6, generator)[0]) for _ in range(200)}
    assert offsets == {1, 2, 3, 4, 5}


def test_both_kinds_of_pairs_meet_in_one_batch(random, generator):
    seen = []

    def spy(z_1, z_2):
        seen.append(len(z_1))
        return f_d(z_1, z_2)

    z_l = random(2, 4, 5)
    partner = draw_partners(4, generator)
    omega(spy, same_image_pairs(z_l), other_image_pairs(z_l, partner))
    local_to_local(spy, z_l, partner)
    assert seen == [8, 8]


def test_gradient_ratio_scales_the_push_to_the_pull(random):
    z = random(2, 4, 5).requires_grad_()
    pull, push = (z**2).sum(), 7 * (z**3).sum()
    ratio = gradient_ratio(pull, push, [z])
    scaled = torch.autograd.grad(ratio * push, z)[0]
    assert scaled.norm().item() == pytest.approx((2 * z).norm().item())
    assert not ratio.requires_grad


def test_gradient_ratio_survives_a_push_of_zero(random):
    z = random(2, 4, 5).requires_grad_()
    ratio = gradient_ratio((z**2).sum(), 0 * z.sum(), [z])
    assert torch.isfinite(ratio * 0)
