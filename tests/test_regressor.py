import torch
from torch import nn

from logo_ssl.models.batch_norm import BatchNorm
from logo_ssl.regressor import Regressor, cosine_affinity, frozen


def test_it_has_the_papers_blocks_by_default():
    regressor = Regressor(dim=8)
    assert [type(layer) for layer in regressor.blocks] == [nn.Linear, BatchNorm, nn.ReLU] * 5
    assert regressor.head.out_features == 1
    assert regressor.head.in_features == 256


def test_affinity_is_positive_and_symmetric(random):
    regressor = Regressor(8, depth=2, width=16).double()
    z_1, z_2 = random(6, 8), random(6, 8)
    affinity = regressor(z_1, z_2)
    assert (affinity > 0).all()
    torch.testing.assert_close(affinity, regressor(z_2, z_1))


def test_affinity_sees_directions_only(random):
    regressor = Regressor(8, depth=2, width=16).double()
    z_1, z_2 = random(6, 8), random(6, 8)
    torch.testing.assert_close(regressor(z_1, z_2), regressor(3 * z_1, 0.5 * z_2))


def test_eq8_frozen_regressor_gives_no_gradient_to_theta_d_and_keeps_its_buffers(random):
    regressor = Regressor(8, depth=2, width=16).double()
    before = {name: buffer.clone() for name, buffer in regressor.named_buffers()}
    z_1, z_2 = random(6, 8).requires_grad_(), random(6, 8)
    l_a = frozen(regressor)
    torch.testing.assert_close(l_a(z_1, z_2), Regressor.forward(regressor, z_1, z_2))
    for name, buffer in regressor.named_buffers():  # the direct call above moved them; set them back
        buffer.copy_(before[name])
    l_a(z_1, z_2).sum().backward()
    assert z_1.grad is not None
    assert z_1.grad.abs().sum() > 0
    assert all(p.grad is None for p in regressor.parameters())
    assert all(torch.equal(buffer, before[name]) for name, buffer in regressor.named_buffers())


def test_cosine_is_one_for_parallel_latents(random):
    z = random(6, 8)
    torch.testing.assert_close(cosine_affinity(z, 2 * z), torch.ones(6, dtype=torch.float64))
