"""The bi-level step of LoGo: who gets gradients, what lambda means, and in which order things happen."""

import pytest
import torch
import torch.nn.functional as F

from logo_ssl.equations import draw_partners, local_to_local
from logo_ssl.regressor import frozen
from logo_ssl.similarity_losses import negative_cosine
from logo_ssl.strategies import LoGoConfig, MultiCropConfig, TwoViewConfig
from logo_ssl.strategies.base import assign_roles
from logo_ssl.types import Projections, StepRandomness


def projections(random, n_local=2, n_images=6, dim=5):
    z_g, z_l = random(2, n_images, dim).requires_grad_(), random(n_local, n_images, dim).requires_grad_()
    return Projections(z_g, z_l, q_g=z_g * 2, q_l=z_l * 2, t_g=z_g.detach())


def logo(**settings):
    torch.manual_seed(0)
    return LoGoConfig(depth=2, width=16, **settings).build(2, 2, 5).double()


def chance(generator, n_images=6):
    return logo().draw(n_images, generator)


def multi_crop_loss(p):
    return MultiCropConfig().build(2, 2, 5).outer(negative_cosine, p, StepRandomness()).loss


def l_ll_gradient(strategy, p, generator, **options):
    """What the push alone adds to the gradient at z^l."""
    state = generator.get_state()
    full = strategy.outer(negative_cosine, p, chance(generator), **options)
    generator.set_state(state)
    (with_push,) = torch.autograd.grad(full.loss, p.z_l, retain_graph=True)
    (pull,) = torch.autograd.grad(multi_crop_loss(p), p.z_l, retain_graph=True)
    return with_push - pull, pull


def test_lambda_is_the_ratio_of_gradient_norms_at_the_latents(random, generator):
    p = projections(random)
    push, pull = l_ll_gradient(logo(lam=0.3), p, generator)
    assert push.norm().item() == pytest.approx(0.3 * pull.norm().item())


def test_lambda_is_the_ratio_of_gradient_norms_at_the_parameters(random, generator):
    theta_e = random(5, 5).requires_grad_()
    x_g, x_l = random(2, 6, 5), random(2, 6, 5)
    z_g, z_l = x_g @ theta_e, x_l @ theta_e
    p = Projections(z_g, z_l, z_g, z_l, z_g.detach())
    outer = logo(lam=0.3, balance="parameters").outer(negative_cosine, p, chance(generator), [theta_e])
    (full,) = torch.autograd.grad(outer.loss, theta_e, retain_graph=True)
    (pull,) = torch.autograd.grad(multi_crop_loss(p), theta_e)
    assert (full - pull).norm().item() == pytest.approx(0.3 * pull.norm().item())


def test_a_plain_weight_logs_the_ratio_that_it_does_not_use(random, generator):
    p, state = projections(random), generator.get_state()
    push, pull = l_ll_gradient(logo(lam=0.3, balance="weight"), p, generator)
    generator.set_state(state)
    ratio = logo(lam=0.3, balance="weight").outer(negative_cosine, p, chance(generator)).terms["ratio"]
    assert ratio.item() == pytest.approx(pull.norm().item() / (push.norm().item() / 0.3))


def test_lambda_as_a_plain_weight_multiplies_the_loss(random, generator):
    p = projections(random)
    outer = logo(lam=0.3, balance="weight").outer(negative_cosine, p, chance(generator))
    assert outer.loss.item() == pytest.approx((multi_crop_loss(p) + 0.3 * outer.terms["l_ll"]).item())


def test_lambda_of_zero_is_multi_crop(random, generator):
    p = projections(random)
    push, _ = l_ll_gradient(logo(lam=0.0), p, generator)
    assert push.abs().max().item() == 0
    assert logo(lam=0.0).outer(negative_cosine, p, chance(generator)).loss.item() == pytest.approx(
        multi_crop_loss(p).item()
    )


@pytest.mark.parametrize("bound", ["mean-difference", "logistic"])
def test_omega_gives_no_gradient_to_the_encoder_and_the_outer_loss_none_to_the_regressor(random, generator, bound):
    strategy, p = logo(bound=bound), projections(random)
    inner = strategy.inner(p, chance(generator))
    assert all(g is not None for g in torch.autograd.grad(inner.loss, list(strategy.parameters())))
    outer = strategy.outer(negative_cosine, p, chance(generator))
    gradients = torch.autograd.grad(outer.loss, list(strategy.parameters()), allow_unused=True)
    assert all(g is None for g in gradients)


def test_the_encoder_objective_sees_the_updated_regressor(random, generator):
    strategy, p = logo(), projections(random)
    state = generator.get_state()
    stale = strategy.outer(negative_cosine, p, chance(generator)).terms["l_ll"]
    optimiser = torch.optim.SGD(strategy.parameters(), lr=1.0)
    strategy.inner(p, chance(generator)).loss.backward()
    optimiser.step()
    generator.set_state(state)
    fresh = strategy.outer(negative_cosine, p, chance(generator)).terms["l_ll"]
    assert abs(fresh.item() - stale.item()) > 1e-3


@pytest.mark.parametrize("bound", ["mean-difference", "logistic"])
def test_inner_steps_widen_the_gap_between_same_and_other_images(generator, bound):
    torch.manual_seed(0)
    image = torch.randn(1, 64, 5).double()
    z_l = image + 0.1 * torch.randn(2, 64, 5).double()  # local crops that tell their image
    strategy = logo(bound=bound)
    optimiser = torch.optim.SGD(strategy.parameters(), lr=0.1, momentum=0.9)
    gaps = []
    for _ in range(60):
        optimiser.zero_grad()
        inner = strategy.inner(Projections(z_l, z_l, z_l, z_l, z_l), chance(generator, 64))
        inner.loss.backward()
        optimiser.step()
        gaps.append(inner.terms["omega"].item())
    assert sum(gaps[-10:]) / 10 > sum(gaps[:5]) / 5 + 0.3


def test_the_regressors_buffers_move_once_a_step(random, generator):
    strategy, p = logo(), projections(random)
    strategy.inner(p, chance(generator))
    moved = {name: buffer.clone() for name, buffer in strategy.named_buffers()}
    strategy.outer(negative_cosine, p, chance(generator))
    assert all(torch.equal(buffer, moved[name]) for name, buffer in strategy.named_buffers())
    assert strategy.regressor.blocks[1].num_batches_tracked == 1


def test_cosine_affinity_learns_nothing_and_pushes_angles_apart(random, generator):
    strategy, p = logo(affinity="cosine", lam=1.0), projections(random)
    assert strategy.inner(p, chance(generator)) is None
    assert list(strategy.parameters()) == []
    push, _ = l_ll_gradient(strategy, p, generator)
    with torch.no_grad():
        apart = F.cosine_similarity(p.z_l[0] - push[0], p.z_l[1] - push[1], dim=-1)
        assert apart.mean() < F.cosine_similarity(p.z_l[0], p.z_l[1], dim=-1).mean()


def test_noise_moves_same_image_latents_by_its_norm(generator):
    torch.manual_seed(0)
    strategy = LoGoConfig(noise=0.3).build(2, 2, 64)
    z_l = torch.randn(2, 500, 64).double()
    noisy = strategy._noisy(z_l, strategy.draw(500, generator).noise)
    norms = (noisy - F.normalize(z_l, dim=-1)).norm(dim=-1)
    assert norms.mean().item() == pytest.approx(0.3, rel=0.02)


def test_other_image_pairs_keep_batch_norm_company_but_are_constants(random, generator):
    strategy, p = logo(), projections(random)
    partner = draw_partners(6, generator)
    (got,) = torch.autograd.grad(local_to_local(frozen(strategy.regressor), p.z_l, partner), p.z_l)
    constant = p.z_l.detach()
    first = torch.cat([p.z_l[0], constant[0]])
    second = torch.cat([p.z_l[1], constant[1][partner]])
    (wanted,) = torch.autograd.grad(frozen(strategy.regressor)(first, second)[:6].mean(), p.z_l)
    torch.testing.assert_close(got, wanted)


def test_logged_terms_are_means_over_pairs_whatever_the_weights(random, generator):
    p = projections(random)
    terms = [
        LoGoConfig(depth=1, width=4, pairs=w).build(2, 2, 5).double().outer(negative_cosine, p, chance(generator)).terms
        for w in ("symmetric", "mean")
    ]
    assert terms[0]["l_gg"].item() == pytest.approx(terms[1]["l_gg"].item())
    naive = sum(negative_cosine(p.q_l[i], p.t_g[j]).mean().item() for i in range(2) for j in range(2)) / 4
    assert terms[0]["l_lg"].item() == terms[1]["l_lg"].item() == pytest.approx(naive)


@pytest.mark.parametrize(
    ("pairs", "n_local", "queries", "targets", "gg", "weight"),
    [
        ("paper", 0, (0,), (1,), 1, 1.0),
        ("paper", 2, (0,), (0, 1), 1, 1.0),
        ("symmetric", 2, (0, 1), (0, 1), 2, 1.0),
        ("mean", 2, (0, 1), (0, 1), 2, 1 / 6),
        ("mean", 0, (0, 1), (0, 1), 2, 1 / 2),
    ],
)
def test_pair_weights_by_name(pairs, n_local, queries, targets, gg, weight):
    roles = assign_roles(pairs, 2, n_local)
    assert (roles.queries, roles.targets, len(roles.pairs)) == (queries, targets, gg)
    config = TwoViewConfig(pairs) if n_local == 0 else MultiCropConfig(pairs)
    assert config.build(2, n_local, 5).weight == pytest.approx(weight)


@pytest.mark.parametrize("pairs", ["paper", "symmetric", "mean"])
@pytest.mark.parametrize("n_global", [2, 3, 4])
def test_no_crop_is_asked_about_itself_and_every_pair_is(pairs, n_global):
    roles = assign_roles(pairs, n_global, 0)
    crops = {(roles.queries[i], roles.targets[j]) for i, j in roles.pairs}
    assert all(i != j for i, j in crops)
    assert {frozenset(pair) for pair in crops} == {frozenset((i, j)) for i in range(n_global) for j in range(i)}
    assert len(crops) == n_global * (n_global - 1) // (2 if pairs == "paper" else 1)
