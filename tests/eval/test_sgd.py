"""All learning rates at once train as each alone, and as torch's SGD."""

import pytest
import torch
import torch.nn.functional as F

from logo_ssl.errors import UserError
from logo_ssl.eval.features import LabelledFeatures
from logo_ssl.eval.linear import INITIAL_SPREAD, RATES, decay, train_probes

SHORT = {"epochs": 6, "batch_size": 32}


@pytest.fixture
def data(generator):
    labels = torch.arange(150) % 5
    centres = torch.randn(5, 12, generator=generator, dtype=torch.float64)
    return LabelledFeatures(centres[labels] + torch.randn(150, 12, generator=generator, dtype=torch.float64), labels)


def seeded():
    return torch.Generator().manual_seed(7)


def test_all_rates_at_once_train_as_each_alone(data):
    together = train_probes(data, 5, seeded(), RATES, **SHORT).probes()
    for rate, probe in zip(RATES, together, strict=True):
        (alone,) = train_probes(data, 5, seeded(), [rate], **SHORT).probes()
        torch.testing.assert_close(probe.weight, alone.weight, rtol=1e-6, atol=1e-9)
        torch.testing.assert_close(probe.bias, alone.bias, rtol=1e-6, atol=1e-9)


def test_a_rate_trains_as_torchs_own_sgd(data):
    (probe,) = train_probes(data, 5, seeded(), [0.3], **SHORT).probes()
    generator = seeded()
    first = INITIAL_SPREAD * torch.randn(12, 5, generator=generator)
    weight, bias = first.double().requires_grad_(), torch.zeros(5, dtype=torch.float64, requires_grad=True)
    optimiser = torch.optim.SGD([weight, bias], lr=0.3, momentum=0.9)
    schedule = torch.optim.lr_scheduler.MultiStepLR(optimiser, [4, 5], 0.1)
    for _ in range(6):
        for rows in torch.randperm(150, generator=generator).split(32):
            optimiser.zero_grad()
            F.cross_entropy(data.features[rows] @ weight + bias, data.labels[rows]).backward()
            optimiser.step()
        schedule.step()
    torch.testing.assert_close(probe.weight, weight.detach())
    torch.testing.assert_close(probe.bias, bias.detach())


@pytest.mark.parametrize(
    ("epochs", "full", "tenth"), [(1, 1, 0), (2, 2, 0), (3, 2, 1), (5, 3, 1), (10, 6, 2), (100, 60, 20)]
)
def test_a_shorter_schedule_decays_at_the_same_shares(epochs, full, tenth):
    decays = [decay(epoch, epochs) for epoch in range(epochs)]
    assert decays == pytest.approx([1.0] * full + [0.1] * tenth + [0.01] * (epochs - full - tenth))


def test_a_diverged_rate_disturbs_no_other_and_is_never_chosen(data):
    calm, wild = [0.1, 1.0], [0.1, 1e308, 1.0]
    alone, beside = (train_probes(data, 5, seeded(), rates, **SHORT) for rates in (calm, wild))
    assert not beside.probes()[1].weight.isfinite().all()
    for i, j in ((0, 0), (1, 2)):
        torch.testing.assert_close(alone.probes()[i].weight, beside.probes()[j].weight)
    chosen = beside.select(data)
    assert chosen.validation[1e308] == -1
    assert chosen.value in calm
    assert chosen.value == alone.select(data).value
    with pytest.raises(UserError, match="rates="):
        train_probes(data, 5, seeded(), [1e308], **SHORT).select(data)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_gpu_trains_the_same_probes(data):
    there = train_probes(
        LabelledFeatures(data.features.cuda(), data.labels.cuda()), 5, seeded(), RATES[:8], **SHORT
    ).probes()
    for ours, reference in zip(there, train_probes(data, 5, seeded(), RATES[:8], **SHORT).probes(), strict=True):
        torch.testing.assert_close(ours.weight.cpu(), reference.weight, rtol=1e-6, atol=1e-9)
