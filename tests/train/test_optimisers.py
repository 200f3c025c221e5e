"""Which weights decay, and what keeps its momentum? Seen from what a step does to them."""

import pytest
import torch
from torch import nn

from logo_ssl.frameworks import DINOConfig, SimSiamConfig
from logo_ssl.models import build_backbone
from logo_ssl.recipes import OptimiserConfig, Recipe
from logo_ssl.strategies import LoGoConfig
from logo_ssl.train.optim import StartingWeights, encoder_optimiser, is_fused, set_learning_rate, weight_decay_at


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


def transformer(**config):
    """DINO on a small vision transformer, and its optimiser by AdamW."""
    backbone = build_backbone("timm/test_vit", size=32)
    framework = DINOConfig(dim=8, hidden=16, out_dim=5, batch_norm=False).build(backbone, 64)
    return framework, encoder_optimiser(OptimiserConfig("adamw", lr=0.1, weight_decay=0.01, **config), framework)


def group_of(optimiser, parameter):
    """The group in which a parameter learns."""
    (found,) = [group for group in optimiser.param_groups if any(each is parameter for each in group["params"])]
    return found


def test_the_schedule_of_weight_decay_leaves_alone_biases_norms_positions_and_class_token():
    framework, optimiser = transformer()
    set_learning_rate(optimiser, 0.05, weight_decay=0.2)
    spared = {"backbone.pos_embed", "backbone.cls_token"}
    for name, parameter in framework.encoder.net.named_parameters():
        expected = 0.0 if name in spared or parameter.dim() == 1 else 0.2
        assert (group_of(optimiser, parameter)["weight_decay"], name) == (expected, name)


def test_weight_decay_follows_a_cosine_from_the_first_step_to_the_last():
    recipe = Recipe("decaying", epochs=10, optimiser=OptimiserConfig(weight_decay=0.04, weight_decay_end=0.4))
    assert [weight_decay_at(recipe, step, 4) for step in (0, 20, 40)] == pytest.approx([0.04, 0.22, 0.4])
    assert weight_decay_at(Recipe("constant"), 0, 4) is None


def test_the_rate_falls_from_layer_to_layer_below_the_last_and_heads_learn_at_all_of_it():
    framework, optimiser = transformer(layer_decay=0.5)
    set_learning_rate(optimiser, 0.08)
    backbone = framework.encoder.backbone
    rates = [group_of(optimiser, block.mlp.fc1.weight)["lr"] for block in backbone.blocks]
    assert rates[-1] == 2 * rates[-2] == 2 ** (len(rates) - 1) * rates[0]
    assert group_of(optimiser, backbone.patch_embed.proj.weight)["lr"] == rates[0] / 2
    assert group_of(optimiser, framework.encoder.projector[0].weight)["lr"] == 0.08


@pytest.mark.parametrize("kind", ["sgd", "adamw"])
def test_the_backbone_learns_slowly_and_is_led_back_to_its_start_where_heads_decay_to_zero(kind, random):
    """Three steps, in the first of which the backbone stands still, by the formulas of SGD and AdamW."""
    framework, lr, factor, pull, decay = framework_of_ones(), 0.05, 0.2, 0.7, 0.3
    backbone = framework.encoder.backbone
    config = OptimiserConfig(
        kind, lr=0.1, momentum=0.8, weight_decay=decay, frozen_epochs=1, backbone_lr=factor, pull=pull
    )
    optimiser, start = encoder_optimiser(config, framework), StartingWeights(backbone)
    slopes, w, v, s = [1.0, -0.5, 2.0], {"backbone": 1.0, "head": 1.0}, dict.fromkeys(("backbone", "head"), 0.0), {}
    s |= v
    for t, g in enumerate(slopes, 1):
        set_learning_rate(optimiser, lr, frozen=t == 1)
        step(optimiser, framework, g)
        if t > 1:
            start.pull(backbone, lr * factor * pull)
        for part in w:
            rate = lr if part == "head" else lr * factor * (t > 1)
            wd = decay if part == "head" else 0.0
            if kind == "sgd":
                v[part] = 0.8 * v[part] + g + wd * w[part]
                w[part] -= rate * v[part]
            else:
                v[part], s[part] = 0.9 * v[part] + 0.1 * g, 0.999 * s[part] + 0.001 * g * g
                scale = (s[part] / (1 - 0.999**t)) ** 0.5 + 1e-8
                w[part] -= rate * (wd * w[part] + v[part] / (1 - 0.9**t) / scale)
            w[part] += rate * pull * (1.0 - w[part]) * (part == "backbone")
        torch.testing.assert_close(backbone[0].weight.data, torch.full_like(backbone[0].weight, w["backbone"]))
        head = framework.encoder.projector[0].weight
        torch.testing.assert_close(head.data, torch.full_like(head, w["head"]))


def test_a_checkpoint_of_a_cpu_makes_the_optimiser_of_a_gpu_plain():
    config, framework = OptimiserConfig(kind="sgd"), framework_of_ones()
    plain, fused = encoder_optimiser(config, framework), encoder_optimiser(config, framework)
    for group in fused.param_groups:
        group["fused"] = True
    assert is_fused(fused)
    fused.load_state_dict(plain.state_dict())
    assert not is_fused(fused)
