"""Do whole steps agree with MoCo and SimSiam as anybody would write them? In float64, weight by weight.

The oracles know neither stacks of crops nor groups: torch's batch norm, one forward pass for each crop, torch's SGD.
"""

import math
from copy import deepcopy

import pytest
import torch
import torch.nn.functional as F
import torchvision
from torch import nn

from logo_ssl.models import build_backbone
from logo_ssl.recipes import find_recipe
from logo_ssl.train.optimisers import encoder_optimiser, learning_rate, set_learning_rate
from logo_ssl.types import Chance, Crops

STEPS, IMAGES, SIDE = 4, 8, 16


class PlainResNet(nn.Sequential):
    """ResNet-18 with the stem of CIFAR and a head."""

    def __init__(self, head):
        backbone = torchvision.models.resnet18()
        backbone.conv1, backbone.maxpool = nn.Conv2d(3, 64, 3, 1, 1, bias=False), nn.Identity()
        backbone.fc = nn.Identity()
        super().__init__(backbone, head)


def linear_norm(inputs, outputs, **norm):
    return nn.Linear(inputs, outputs, bias=False), nn.BatchNorm1d(outputs, **norm)


def copied(plain, ours):
    """The same weights in the same order; gives back pairs of parameters."""
    theirs, own = [dict(each.named_parameters()) for each in (plain, ours)]
    assert [p.shape for p in theirs.values()] == [p.shape for p in own.values()]
    with torch.no_grad():
        for one, other in zip(theirs.values(), own.values(), strict=True):
            one.copy_(other)
    return [(name, deepcopy(one), one, own[k]) for (name, one), k in zip(theirs.items(), own, strict=True)]


def built(recipe, **changes):
    """The framework and the strategy of a recipe, in float64 and training."""
    torch.manual_seed(0)
    recipe = find_recipe(recipe).changed(**changes)
    framework = recipe.framework.build(build_backbone("resnet18", "cifar", 3, SIDE), 512).double().train()
    return recipe, framework, recipe.strategy.build(2, 0, recipe.framework.dim)


def our_step(recipe, framework, strategy, optimiser, crops, step):
    p = framework.project(crops, strategy.roles)
    loss = strategy.outer(framework.similarity, p, Chance()).loss
    optimiser.zero_grad()
    loss.backward()
    set_learning_rate(optimiser, learning_rate(recipe.optimiser, step, STEPS, 0), recipe.optimiser.lr)
    optimiser.step()
    framework.after_step(p, step / STEPS)
    return loss.item()


def batches(generator):
    for _ in range(STEPS):
        x_g = torch.randn(2, IMAGES, 3, SIDE, SIDE, generator=generator, dtype=torch.float64)
        yield Crops(x_g, x_g[:0])


def cosine(peak, step):
    return peak * 0.5 * (1 + math.cos(math.pi * step / STEPS))


def assert_moved_alike(pairs):
    for name, before, plain, ours in pairs:
        off = (plain - ours).norm() / (plain - before).norm().clamp_min(1e-15)
        assert off < 1e-9, f"{name} is off by {off:.1e} of the way that it went"


def test_simsiams_steps_are_those_of_a_plain_simsiam(generator):
    recipe, framework, strategy = built("cifar10-simsiam")
    optimiser = encoder_optimiser(recipe.optimiser, framework)
    encoder = PlainResNet(
        nn.Sequential(*linear_norm(512, 2048), nn.ReLU(), *linear_norm(2048, 2048, affine=False))
    ).double()
    h = nn.Sequential(*linear_norm(2048, 512), nn.ReLU(), nn.Linear(512, 2048)).double()
    pairs = copied(encoder, framework.encoder) + copied(h, framework.h)
    sgd = torch.optim.SGD(
        [{"params": encoder.parameters()}, {"params": h.parameters()}], lr=0.06, momentum=0.9, weight_decay=1e-4
    )
    for step, crops in enumerate(batches(generator)):
        z1, z2 = encoder(crops.x_g[0]), encoder(crops.x_g[1])
        p1, p2 = h(z1), h(z2)
        alike = F.cosine_similarity(p1, z2.detach()).mean() + F.cosine_similarity(p2, z1.detach()).mean()
        loss = -0.5 * alike
        sgd.zero_grad()
        loss.backward()
        sgd.param_groups[0]["lr"] = cosine(0.06, step)  # and that of h is constant
        sgd.step()
        assert our_step(recipe, framework, strategy, optimiser, crops, step) == pytest.approx(loss.item(), abs=1e-12)
    assert_moved_alike(pairs)


def test_mocos_steps_are_those_of_a_plain_moco(generator):
    """One way, by the whole batch's statistics: MoCo's trick of dealing them out has tests of its own."""
    recipe, framework, strategy = built("cifar10-moco", framework__splits=1, framework__queue=3 * IMAGES)
    optimiser = encoder_optimiser(recipe.optimiser, framework)
    asking = PlainResNet(nn.Sequential(nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 128))).double()
    pairs = copied(asking, framework.encoder)
    answering, queue = deepcopy(asking), torch.zeros(0, 128, dtype=torch.float64)
    sgd = torch.optim.SGD(asking.parameters(), lr=0.06, momentum=0.9, weight_decay=1e-4)
    for step, crops in enumerate(batches(generator)):
        with torch.no_grad():
            for key, query in zip(answering.parameters(), asking.parameters(), strict=True):
                key.mul_(0.99).add_(query, alpha=0.01)
            k = F.normalize(answering(crops.x_g[1]))
        q = F.normalize(asking(crops.x_g[0]))
        logits = torch.cat([(q * k).sum(dim=1, keepdim=True), q @ queue.T], dim=1) / 0.1
        loss = F.cross_entropy(logits, torch.zeros(IMAGES, dtype=torch.long))
        sgd.zero_grad()
        loss.backward()
        sgd.param_groups[0]["lr"] = cosine(0.06, step)
        sgd.step()
        queue = torch.cat([queue, k])[-3 * IMAGES :]
        assert our_step(recipe, framework, strategy, optimiser, crops, step) == pytest.approx(loss.item(), abs=1e-12)
    assert_moved_alike(pairs)
