"""What does a training step do to the weights, and what does it ask of the parts that it is made of?"""

import math
from dataclasses import replace

import pytest
import torch
from small_runs import SMALL, train
from torch import nn

from logo_ssl.frameworks import BYOL, BYOLConfig, MoCo, SimSiamConfig
from logo_ssl.recipes import OptimiserConfig
from logo_ssl.similarity_losses import negative_cosine
from logo_ssl.strategies import LoGo, TwoViewConfig
from logo_ssl.train import Pretraining
from logo_ssl.types import Projections

SMALL_BYOL = SMALL.changed(framework=BYOLConfig(dim=8, hidden=16))
STEPS = 6  # 48 images in batches of 16, twice


def weights(module):
    return {name: p.detach().double() for name, p in module.framework.named_parameters() if p.requires_grad}


def gradients(module):
    return {name: p.grad.double() for name, p in module.framework.named_parameters() if p.requires_grad}


@pytest.fixture
def watched(monkeypatch):
    """Of each step: the weights before it, the gradients as backward left them, the weights after it."""
    seen = []
    algorithm_1, learn_from = Pretraining.algorithm_1, Pretraining.learn_from

    def backward(self, *given):
        measured = algorithm_1(self, *given)
        seen[-1].append(gradients(self))
        return measured

    def step(self, crops, randomness):
        seen.append([weights(self)])
        learn_from(self, crops, randomness)
        seen[-1].append(weights(self))

    monkeypatch.setattr(Pretraining, "algorithm_1", backward)
    monkeypatch.setattr(Pretraining, "learn_from", step)
    return seen


@pytest.mark.parametrize("clip", [1.0, 0.0], ids=["clipped", "not clipped"])
def test_every_step_is_sgd_with_momentum_decay_and_a_cosine(data, tmp_path, watched, clip):
    lr, least, momentum, decay = 0.1, 0.01, 0.8, 0.05
    train(
        SMALL, data, tmp_path / "run", knn_every=0, framework=SimSiamConfig(dim=8, hidden=4), strategy=TwoViewConfig(),
        crops=replace(SMALL.crops, n_local=0),
        optimiser=OptimiserConfig(lr=lr, eta_min=least, momentum=momentum, weight_decay=decay, clip=clip),
    )  # fmt: skip
    assert len(watched) == STEPS
    velocity = {name: torch.zeros_like(theta) for name, theta in watched[0][0].items()}
    for t, (before, gradient, after) in enumerate(watched):
        eta = least + 0.5 * (lr - least) * (1 + math.cos(math.pi * t / STEPS))
        norm = math.sqrt(sum(g.square().sum().item() for g in gradient.values()))
        assert norm > 2 * clip
        kept = clip / norm if clip else 1.0
        for name, theta in before.items():
            velocity[name] = momentum * velocity[name] + kept * gradient[name] + decay * theta
            rate = lr if name.startswith("h.") else eta  # the predictor's stays
            expected = theta - rate * velocity[name]
            torch.testing.assert_close(after[name], expected, rtol=1e-5, atol=1e-6, msg=f"{name} at step {t}")


def test_a_framework_hears_how_far_training_has_come(data, tmp_path, monkeypatch):
    heard, original = [], MoCo.after_step

    def after_step(self, p, progress):
        heard.append(progress)
        original(self, p, progress)

    monkeypatch.setattr(MoCo, "after_step", after_step)
    train(SMALL, data, tmp_path / "run", knn_every=0)
    assert heard == pytest.approx([t / STEPS for t in range(STEPS)])


def test_a_strategy_may_have_weights_that_its_inner_step_does_not_use_or_may_not_move(data, tmp_path, monkeypatch):
    original = LoGo.__init__

    def with_more(self, *arguments):
        original(self, *arguments)
        self.spare, self.fixed = nn.Linear(2, 2), nn.Linear(2, 2).requires_grad_(False)

    monkeypatch.setattr(LoGo, "__init__", with_more)
    run, _ = train(SMALL, data, tmp_path / "run", epochs=1)
    assert run.is_finished


def test_the_step_detaches_for_the_regressor_and_shows_the_encoder_the_updated_one(data, tmp_path, monkeypatch):
    seen = []
    original = Pretraining.training_step

    def spied(self, images, batch_idx):
        inner, outer = self.strategy.inner, self.strategy.outer
        before = [p.detach().clone() for p in self.strategy.parameters()]

        def inner_spy(p, randomness):
            seen.append(p.z_l.requires_grad)
            return inner(p, randomness)

        def outer_spy(*arguments):
            seen.append([torch.equal(p, q) for p, q in zip(self.strategy.parameters(), before, strict=True)])
            return outer(*arguments)

        monkeypatch.setattr(self.strategy, "inner", inner_spy)
        monkeypatch.setattr(self.strategy, "outer", outer_spy)
        original(self, images, batch_idx)
        monkeypatch.setattr(self.strategy, "inner", inner)
        monkeypatch.setattr(self.strategy, "outer", outer)

    monkeypatch.setattr(Pretraining, "training_step", spied)
    train(SMALL, data, tmp_path / "run", epochs=1)
    assert seen[::2] == [False] * 3
    assert not any(all(unmoved) for unmoved in seen[1::2])


def test_a_similarity_gives_one_loss_for_each_image(data, tmp_path, monkeypatch):
    monkeypatch.setattr(BYOL, "similarity", lambda self, q, t: negative_cosine(q, t).mean())
    with pytest.raises(ValueError, match="similarity gives shape"):
        train(SMALL_BYOL, data, tmp_path / "run")


def test_projections_have_a_row_for_each_crop(data, tmp_path, monkeypatch):
    project = BYOL.project

    def turned(self, crops, roles):
        return Projections(*(x.transpose(0, 1) for x in project(self, crops, roles)[:5]))

    monkeypatch.setattr(BYOL, "project", turned)
    with pytest.raises(ValueError, match="project gives"):
        train(SMALL_BYOL, data, tmp_path / "run")


def test_the_loss_has_a_gradient(data, tmp_path, monkeypatch):
    outer = LoGo.outer
    monkeypatch.setattr(
        LoGo, "outer", lambda self, *given: outer(self, *given)._replace(loss=outer(self, *given).loss.detach())
    )
    with pytest.raises(ValueError, match="outer gives a loss"):
        train(SMALL_BYOL, data, tmp_path / "run")


def test_every_network_is_in_training_mode_while_it_trains(data, tmp_path, monkeypatch):
    modes, original = [], MoCo.project

    def project(self, crops, roles):
        modes.extend(module.training for module in self.modules())
        return original(self, crops, roles)

    monkeypatch.setattr(MoCo, "project", project)
    train(SMALL, data, tmp_path / "run")  # the kNN between the epochs puts the backbone into eval mode
    assert modes
    assert all(modes)
