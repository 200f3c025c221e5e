"""Which weights decay, and what keeps its momentum? Seen from what a step does to them."""

import pytest
import torch
from torch import nn

from logo_ssl.frameworks import SimSiamConfig
from logo_ssl.models import build_backbone
from logo_ssl.recipes import OptimiserConfig
from logo_ssl.strategies import LoGoConfig
from logo_ssl.train.optim import encoder_optimiser


def framework_of_ones():
    """SimSiam, every parameter of which is 1."""
    framework = SimSiamConfig(dim=8, hidden=4).build(build_backbone("tiny"), 256).double()
    for parameter in framework.parameters():
        parameter.data.fill_(1.0)
    return framework


def step(optimiser, framework, gradient: float) -> None:
    """One step by the same gradient everywhere."""
    for parameter in framework.parameters():
        parameter.grad = torch.full_like(parameter, gradient)
    optimiser.step()


def is_spared(framework, name: str) -> bool:
    """Biases, and whatever belongs to a norm."""
    owner, kind = name.rsplit(".", 1)
    return kind == "bias" or not isinstance(framework.get_submodule(owner), nn.Linear | nn.Conv2d)


@pytest.mark.parametrize("kind", ["sgd", "lars", "adamw"])
def test_without_a_gradient_weights_decay_and_only_sgd_decays_norms_and_biases(kind):
    framework = framework_of_ones()
    optimiser = encoder_optimiser(OptimiserConfig(kind=kind, lr=0.1, weight_decay=0.01), framework)
    step(optimiser, framework, gradient=0.0)
    spared = [name for name, _ in framework.named_parameters() if is_spared(framework, name)]
    assert len(spared) > 4
    for name, parameter in framework.named_parameters():
        expected = 1.0 if kind != "sgd" and name in spared else 1 - 0.1 * 0.01
        torch.testing.assert_close(parameter.data, torch.full_like(parameter, expected), msg=name)


@pytest.mark.parametrize("kind", ["sgd", "lars"])
def test_a_part_of_a_step_is_taken_again_in_the_next(kind):
    framework = framework_of_ones()
    config = OptimiserConfig(kind=kind, lr=0.1, momentum=0.8, weight_decay=0.0)
    optimiser = encoder_optimiser(config, framework)
    step(optimiser, framework, gradient=1.0)
    step(optimiser, framework, gradient=0.0)
    for parameter in framework.parameters():
        torch.testing.assert_close(parameter.data, torch.full_like(parameter, 1 - 0.1 - 0.8 * 0.1))


def test_the_regressor_has_the_papers_momentum_and_weight_decay(random):
    theta = nn.Parameter(random(3, 4))
    gradients, expected, velocity = random(4, 3, 4), theta.detach().clone(), 0.0
    optimiser = LoGoConfig(lr=0.03).build(2, 2, 8).inner_optimiser([theta])
    for gradient in gradients:
        theta.grad = gradient.clone()
        optimiser.step()
        velocity = 0.9 * velocity + gradient + 0.0001 * expected
        expected = expected - 0.03 * velocity
    torch.testing.assert_close(theta.data, expected, rtol=1e-12, atol=0)
