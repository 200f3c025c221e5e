"""Do whole steps agree with MoCo, SimSiam, distillation and LoGo as anybody would write them?

In float64, weight by weight. The oracles know neither stacks of crops nor groups: torch's batch norm, one
forward pass for each crop, torch's SGD.
"""

import math
from copy import deepcopy

import pytest
import torch
import torch.nn.functional as F
import torchvision
from torch import nn

from logo_ssl.frameworks import DistilConfig
from logo_ssl.models import Teacher, build_backbone
from logo_ssl.recipes import find_recipe
from logo_ssl.strategies import own_roles
from logo_ssl.train.optim import encoder_optimiser, learning_rate, set_learning_rate
from logo_ssl.types import Crops, StepRandomness

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
    strategy = recipe.strategy.build(2, recipe.crops.n_local, recipe.framework.dim).double()
    return recipe, framework, strategy


class Ours:
    """Training by a recipe: what it learns with, and a step by Algorithm 1."""

    def __init__(self, *made):
        self.recipe, self.framework, self.strategy = made
        self.optimiser = encoder_optimiser(self.recipe.optimiser, self.framework)
        theta_d = list(self.strategy.parameters())
        self.inner = self.strategy.inner_optimiser(theta_d) if theta_d else None

    def step(self, crops, randomness, step):
        p = self.framework.project(crops, self.strategy.roles)
        if self.inner is not None:
            self.inner.zero_grad()
            self.strategy.inner(p, randomness).loss.backward()
            self.inner.step()
        loss = self.strategy.outer(self.framework.similarity, p, randomness).loss
        self.optimiser.zero_grad()
        loss.backward()
        config = self.recipe.optimiser
        set_learning_rate(self.optimiser, learning_rate(config, step, STEPS, 0), config.lr)
        self.optimiser.step()
        self.framework.after_step(p, step / STEPS)
        return loss.item()


def batches(generator, local_side=None):
    for _ in range(STEPS):
        x_g, x_l = (
            torch.randn(2, IMAGES, 3, side, side, generator=generator, dtype=torch.float64)
            for side in (SIDE, local_side or SIDE)
        )
        yield Crops(x_g, x_l if local_side else x_l[:0])


def cosine(peak, step):
    return peak * 0.5 * (1 + math.cos(math.pi * step / STEPS))


def assert_moved_alike(pairs):
    for name, before, plain, ours in pairs:
        off = (plain - ours).norm() / (plain - before).norm().clamp_min(1e-15)
        assert off < 1e-9, f"{name} is off by {off:.1e} of the way that it went"


def plain_simsiam(ours):
    encoder = PlainResNet(
        nn.Sequential(*linear_norm(512, 2048), nn.ReLU(), *linear_norm(2048, 2048, affine=False))
    ).double()
    h = nn.Sequential(*linear_norm(2048, 512), nn.ReLU(), nn.Linear(512, 2048)).double()
    pairs = copied(encoder, ours.framework.encoder) + copied(h, ours.framework.h)
    sgd = torch.optim.SGD(
        [{"params": encoder.parameters()}, {"params": h.parameters()}], lr=0.06, momentum=0.9, weight_decay=1e-4
    )
    return encoder, h, pairs, sgd


def plain_moco(ours):
    asking = PlainResNet(nn.Sequential(nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 128))).double()
    pairs = copied(asking, ours.framework.encoder)
    sgd = torch.optim.SGD(asking.parameters(), lr=0.06, momentum=0.9, weight_decay=1e-4)
    return asking, deepcopy(asking), pairs, sgd


def info_nce(q, k, queue):
    q, k = F.normalize(q), F.normalize(k)
    logits = torch.cat([(q * k).sum(dim=1, keepdim=True), q @ queue.T], dim=1) / 0.1
    return F.cross_entropy(logits, torch.zeros(IMAGES, dtype=torch.long))


@torch.no_grad()
def follow(answering, asking):
    for key, query in zip(answering.parameters(), asking.parameters(), strict=True):
        key.mul_(0.99).add_(query, alpha=0.01)


class PlainLoGo:
    """Eqs. 5 to 9 for two local crops of each image."""

    def __init__(self, strategy, dim):
        self.lam = strategy.config.lam
        blocks = [layer for n in (2 * dim, *4 * [256]) for layer in (*linear_norm(n, 256), nn.ReLU())]
        self.f_d = nn.Sequential(*blocks, nn.Linear(256, 1)).double()
        self.pairs = copied(self.f_d, strategy.regressor)
        self.sgd = torch.optim.SGD(self.f_d.parameters(), lr=0.03, momentum=0.9, weight_decay=1e-4)

    def scores(self, z_1, z_2, other):
        """Of same-image pairs and of others; batch norm sees all of them, and both orders of each, at once."""
        one = torch.cat([F.normalize(z) for z in (z_1, other[0])])
        two = torch.cat([F.normalize(z) for z in (z_2, other[1])])
        both = self.f_d(torch.cat([torch.cat([one, two], dim=1), torch.cat([two, one], dim=1)])).squeeze(1)
        score = 0.5 * (both[: len(one)] + both[len(one) :])
        return score[: len(z_1)], score[len(z_1) :]

    def learn(self, z_1, z_2, partner):
        """theta_d tells same-image pairs from others, by the logistic bound of Omega."""
        z_1, z_2 = z_1.detach(), z_2.detach()
        same, other = self.scores(z_1, z_2, (z_1, z_2[partner]))
        omega = torch.log(torch.sigmoid(same)).mean() + torch.log(1 - torch.sigmoid(other)).mean()
        self.sgd.zero_grad()
        (-omega).backward()
        self.sgd.step()

    def loss(self, alike, z_1, z_2, partner):
        """The pull, and the push at lambda times the pull's gradient at the local latents."""
        same, _ = self.scores(z_1, z_2, (z_1.detach(), z_2.detach()[partner]))
        l_ll = torch.log(1 + torch.exp(same)).mean()
        pull, push = (
            math.sqrt(sum(g.square().sum().item() for g in torch.autograd.grad(loss, [z_1, z_2], retain_graph=True)))
            for loss in (alike, l_ll)
        )
        return alike + self.lam * pull / push * l_ll


def test_simsiams_steps_are_those_of_a_plain_simsiam(generator):
    ours = Ours(*built("cifar10-simsiam"))
    encoder, h, pairs, sgd = plain_simsiam(ours)
    for step, crops in enumerate(batches(generator)):
        z1, z2 = encoder(crops.x_g[0]), encoder(crops.x_g[1])
        p1, p2 = h(z1), h(z2)
        alike = F.cosine_similarity(p1, z2.detach()).mean() + F.cosine_similarity(p2, z1.detach()).mean()
        loss = -0.5 * alike
        sgd.zero_grad()
        loss.backward()
        sgd.param_groups[0]["lr"] = cosine(0.06, step)  # and that of h is constant
        sgd.step()
        assert ours.step(crops, StepRandomness(), step) == pytest.approx(loss.item(), abs=1e-12)
    assert_moved_alike(pairs)


def test_simsiam_logos_steps_are_algorithm_1_on_a_plain_simsiam(generator):
    ours = Ours(*built("cifar10-simsiam-logo", strategy__lam=0.3))
    encoder, h, pairs, sgd = plain_simsiam(ours)
    logo = PlainLoGo(ours.strategy, 2048)
    for step, crops in enumerate(batches(generator, SIDE)):
        randomness = ours.strategy.draw(IMAGES, generator)
        z_g, z_l = [encoder(x) for x in crops.x_g], [encoder(x) for x in crops.x_l]
        logo.learn(*z_l, randomness.inner_partner)
        l_gg = -F.cosine_similarity(h(z_g[0]), z_g[1].detach()).mean()  # Eq. 3: each pair once
        l_lg = -sum(F.cosine_similarity(h(z), anchor.detach()).mean() for z in z_l for anchor in z_g)  # Eq. 4
        loss = logo.loss(l_gg + l_lg, *z_l, randomness.outer_partner)
        sgd.zero_grad()
        loss.backward()
        sgd.param_groups[0]["lr"] = cosine(0.06, step)
        sgd.step()
        assert ours.step(crops, randomness, step) == pytest.approx(loss.item(), abs=1e-12)
    assert_moved_alike(pairs + logo.pairs)


def test_moco_logos_steps_are_algorithm_1_on_a_plain_moco(generator):
    """Local crops are smaller, and keys of both global crops wait in the queue."""
    settings = {"framework__splits": 1, "framework__queue": 3 * IMAGES, "strategy__lam": 0.3}
    ours = Ours(*built("cifar10-moco-logo", **settings))
    asking, answering, pairs, sgd = plain_moco(ours)
    logo, queue = PlainLoGo(ours.strategy, 128), torch.zeros(0, 128, dtype=torch.float64)
    for step, crops in enumerate(batches(generator, SIDE // 2)):
        randomness = ours.strategy.draw(IMAGES, generator)
        with torch.no_grad():
            keys = [answering(x) for x in crops.x_g]
        q_g, z_l = asking(crops.x_g[0]), [asking(x) for x in crops.x_l]
        logo.learn(*z_l, randomness.inner_partner)
        l_lg = sum(info_nce(z, key, queue) for z in z_l for key in keys)
        loss = logo.loss(info_nce(q_g, keys[1], queue) + l_lg, *z_l, randomness.outer_partner)
        sgd.zero_grad()
        loss.backward()
        sgd.param_groups[0]["lr"] = cosine(0.06, step)
        sgd.step()
        follow(answering, asking)
        queue = torch.cat([queue, *map(F.normalize, keys)])[-3 * IMAGES :]
        assert ours.step(crops, randomness, step) == pytest.approx(loss.item(), abs=1e-12)
    assert_moved_alike(pairs + logo.pairs)


def test_mocos_steps_are_those_of_a_plain_moco(generator):
    """One way, by the whole batch's statistics: MoCo's trick of dealing them out has tests of its own."""
    ours = Ours(*built("cifar10-moco", framework__splits=1, framework__queue=3 * IMAGES))
    asking, answering, pairs, sgd = plain_moco(ours)
    queue = torch.zeros(0, 128, dtype=torch.float64)
    for step, crops in enumerate(batches(generator)):
        with torch.no_grad():
            k = F.normalize(answering(crops.x_g[1]))
        loss = info_nce(asking(crops.x_g[0]), k, queue)
        sgd.zero_grad()
        loss.backward()
        sgd.param_groups[0]["lr"] = cosine(0.06, step)
        sgd.step()
        follow(answering, asking)
        queue = torch.cat([queue, k])[-3 * IMAGES :]
        assert ours.step(crops, StepRandomness(), step) == pytest.approx(loss.item(), abs=1e-12)
    assert_moved_alike(pairs)


def plain_distillation(q, answer, queue):
    """Cosine, and cross-entropy of similarities, seen from the mean of the queue; the settings' temperatures."""
    centre = queue.mean(dim=0) if len(queue) else torch.zeros(20, dtype=torch.float64)
    q, t, keys = F.normalize(q), F.normalize(F.normalize(answer) - centre), F.normalize(queue - centre)
    alike = F.cosine_similarity(q, t)
    asked = torch.cat([alike[:, None], q @ keys.T], dim=1) / 0.1
    answered = torch.cat([torch.ones(IMAGES, 1, dtype=torch.float64), t @ keys.T], dim=1) / 0.05
    return F.cross_entropy(asked, answered.softmax(dim=1)) - alike.mean()


def test_distilling_logos_steps_are_algorithm_1_with_a_teacher_of_the_same_global_crops(generator):
    teacher = nn.Sequential(nn.Conv2d(3, 20, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten()).double()
    recipe, framework, strategy = built(
        "cifar10-moco-logo", framework=DistilConfig("somewhere", 24, 32, queue=3 * IMAGES), strategy__lam=0.3
    )
    looks = ((0.0,) * 3, (1.0,) * 3)
    framework.take_teacher(Teacher("somewhere", deepcopy(teacher), 20, looks, looks, "00" * 32))
    strategy.assign(own_roles(2))
    ours = Ours(recipe, framework.double(), strategy)
    encoder = PlainResNet(nn.Sequential(*linear_norm(512, 32), nn.ReLU(), nn.Linear(32, 24))).double()
    h = nn.Linear(24, 20).double()
    pairs = copied(encoder, framework.encoder) + copied(h, framework.h)
    sgd = torch.optim.SGD([*encoder.parameters(), *h.parameters()], lr=0.06, momentum=0.9, weight_decay=1e-4)
    logo, queue = PlainLoGo(strategy, 24), torch.zeros(0, 20, dtype=torch.float64)
    for step, crops in enumerate(batches(generator, SIDE // 2)):
        randomness = strategy.draw(IMAGES, generator)
        with torch.no_grad():
            answers = [teacher(x) for x in crops.x_g]
        z_g, z_l = [encoder(x) for x in crops.x_g], [encoder(x) for x in crops.x_l]
        logo.learn(*z_l, randomness.inner_partner)
        l_gg = sum(plain_distillation(h(z), answer, queue) for z, answer in zip(z_g, answers, strict=True))
        l_lg = sum(plain_distillation(h(z), answer, queue) for z in z_l for answer in answers)
        loss = logo.loss(l_gg + l_lg, *z_l, randomness.outer_partner)
        sgd.zero_grad()
        loss.backward()
        sgd.param_groups[0]["lr"] = cosine(0.06, step)
        sgd.step()
        queue = torch.cat([queue, F.normalize(answers[0])])[-3 * IMAGES :]
        assert ours.step(crops, randomness, step) == pytest.approx(loss.item(), abs=1e-12)
    assert_moved_alike(pairs + logo.pairs)
