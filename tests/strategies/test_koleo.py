"""KoLeo against the double loop that its formula says, in float64."""

import math

import pytest
import torch

from logo_ssl.strategies.koleo import koleo


def test_koleo_is_the_mean_log_distance_to_the_nearest_other_latent_wherever_it_is(random):
    z = random(2, 5, 4).requires_grad_()
    unit = [x / x.norm() for x in z.flatten(0, 1)]
    naive = 0.0
    for i, one in enumerate(unit):
        naive -= torch.stack([(one - other).norm() for j, other in enumerate(unit) if j != i]).min().log() / len(unit)
    torch.testing.assert_close(koleo(z), naive)
    torch.testing.assert_close(*(torch.autograd.grad(loss, z)[0] for loss in (koleo(z), naive)))


def test_equal_latents_give_a_finite_gradient():
    z = torch.ones(2, 3, 4, requires_grad=True)
    loss = koleo(z)
    assert loss.item() == pytest.approx(-math.log(1e-4))
    assert torch.autograd.grad(loss, z)[0].isfinite().all()
