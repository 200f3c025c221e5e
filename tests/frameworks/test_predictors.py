"""SimSiam and BYOL: h asks for every crop, and what answers is not what learns."""

import pytest
import torch
from small_frameworks import BOTH_WAYS, crops, shift, small

from crop_by_crop import crop_by_crop
from logo_ssl.frameworks import BYOLConfig, SimSiamConfig

SIMSIAM, BYOL = SimSiamConfig(dim=8, hidden=4), BYOLConfig(dim=8, hidden=16, m=0.99)
both = pytest.mark.parametrize("config", [SIMSIAM, BYOL], ids=["simsiam", "byol"])


@both
def test_h_predicts_from_global_and_local_crops_alike(config, random):
    framework = small(config)
    p = framework.project(crops(random), BOTH_WAYS)
    for q, z in ((p.q_g, p.z_g), (p.q_l, p.z_l)):
        torch.testing.assert_close(q, crop_by_crop(framework.h, z))
        assert not torch.allclose(q, z)


@both
def test_the_loss_is_the_cosine_of_the_paper(config, random):
    q, t = random(5, 8), random(5, 8)
    naive = -(q * t).sum(1) / (q.norm(dim=1) * t.norm(dim=1))
    torch.testing.assert_close(small(config).similarity(q, t), naive)


def test_simsiams_latents_answer_for_themselves(random):
    p = small(SIMSIAM).project(crops(random), BOTH_WAYS)
    assert p.z_g.requires_grad
    assert not p.t_g.requires_grad
    torch.testing.assert_close(p.t_g, p.z_g.detach(), rtol=0, atol=0)


def test_simsiams_latents_are_normalised_within_each_crop(random):
    p = small(SIMSIAM).project(crops(random), BOTH_WAYS)
    for z in (*p.z_g, *p.z_l):
        torch.testing.assert_close(z.mean(0), torch.zeros(8).double(), rtol=0, atol=1e-6)
        torch.testing.assert_close(z.var(0, correction=0), torch.ones(8).double(), rtol=0.02, atol=0)  # eps takes some


def test_byols_momentum_encoder_answers_and_its_encoder_asks(random):
    framework, batch = small(BYOL), crops(random)
    before = framework.project(batch, BOTH_WAYS)
    shift(framework.momentum_encoder, 0.1)
    answers = framework.project(batch, BOTH_WAYS)
    torch.testing.assert_close(answers.q_g, before.q_g)
    torch.testing.assert_close(answers.q_l, before.q_l)
    assert not torch.allclose(answers.t_g, before.t_g)
    shift(framework.encoder, 0.1)
    questions = framework.project(batch, BOTH_WAYS)
    torch.testing.assert_close(questions.t_g, answers.t_g)
    assert not torch.allclose(questions.q_g, answers.q_g)


def test_byols_answers_are_latents_by_batch_statistics(random):
    framework, batch = small(BYOL), crops(random)
    p = framework.project(batch, BOTH_WAYS)
    torch.testing.assert_close(p.t_g, crop_by_crop(framework.encoder.net, batch.x_g))  # a copy still, at the start


@pytest.mark.parametrize(("progress", "moved"), [(0.0, 0.01), (0.5, 0.005), (1.0, 0.0)])
def test_byols_momentum_encoder_follows_ever_more_slowly(random, progress, moved):
    framework = small(BYOL)
    p = framework.project(crops(random), BOTH_WAYS)
    shift(framework.encoder, 1.0)
    before = [parameter.clone() for parameter in framework.momentum_encoder.parameters()]
    framework.after_step(p, progress)
    for old, new in zip(before, framework.momentum_encoder.parameters(), strict=True):
        torch.testing.assert_close(new - old, torch.full_like(old, moved))
