import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from sklearn.neighbors import KNeighborsClassifier
from torch import nn

from logo_ssl.knn import extract, nearest_neighbours, top_accuracies, votes


@pytest.mark.parametrize(("k", "tau"), [(1, 0.07), (20, 0.07), (50, 0.1)])
def test_weighted_knn_predicts_as_scikit_learn(k, tau):
    torch.manual_seed(0)
    labels = torch.arange(300) % 5
    centres = torch.randn(5, 16)
    bank, queries = centres[labels] + 1.5 * torch.randn(300, 16), centres[labels[:80]] + 1.5 * torch.randn(80, 16)
    reference = KNeighborsClassifier(k, metric="cosine", weights=lambda distance: np.exp((1 - distance) / tau))
    reference.fit(bank.double().numpy(), labels.numpy())
    near = nearest_neighbours(queries, bank, k, chunk=17)
    scores = votes(near, labels, 5, k, tau)
    assert scores.argmax(1).tolist() == reference.predict(queries.double().numpy()).tolist()
    expected = 100 * np.mean(reference.predict(queries.double().numpy()) == labels[:80].numpy())
    assert top_accuracies(near, labels[:80], labels, k, tau, tops=(1,)) == pytest.approx((expected,))


def test_a_cold_temperature_does_not_overflow():
    bank = F.normalize(torch.randn(6, 4), dim=-1)
    assert votes(nearest_neighbours(bank, bank, 3), torch.arange(6), 6, k=3, tau=1e-3).isfinite().all()


def features(n: int) -> tuple[torch.Tensor, torch.Tensor]:
    torch.manual_seed(1)
    labels = torch.arange(n) % 8
    return torch.randn(8, 16)[labels] + 1.5 * torch.randn(n, 16), labels


@pytest.mark.parametrize("leave_one_out", [False, True])
def test_blocks_of_any_size_find_the_same_neighbours(leave_one_out):
    bank = features(150)[0].double()
    queries = bank if leave_one_out else features(40)[0].double()
    whole = nearest_neighbours(queries, bank, 30, leave_one_out=leave_one_out)
    for chunk, block_bytes in ((7, 7 * 8 * 13), (64, 64 * 8 * 150), (1000, 1), (3, 3 * 8 * 149)):
        parts = nearest_neighbours(queries, bank, 30, leave_one_out=leave_one_out, chunk=chunk, block_bytes=block_bytes)
        assert parts.row.equal(whole.row)
        torch.testing.assert_close(parts.cosine, whole.cosine)


def test_leaving_one_out_never_finds_itself_and_cuts_k():
    bank, _ = features(20)
    near = nearest_neighbours(bank, bank, 50, leave_one_out=True, chunk=6, block_bytes=6 * 4 * 5)
    assert near.row.shape == (20, 19)
    assert not (near.row == torch.arange(20)[:, None]).any()
    assert near.cosine.isfinite().all()


@pytest.mark.parametrize(("k", "tau"), [(3, 0.07), (40, 0.1)])
def test_top_5_counts_the_classes_with_most_votes(k, tau):
    bank, labels = features(150)
    queries, truth = features(60)
    queries = queries + 2 * torch.randn_like(queries)
    near = nearest_neighbours(queries, bank, k)
    expected = []
    for cosine, rows, label in zip(near.cosine.double(), near.row, truth, strict=True):
        votes: dict[int, float] = {}
        for c, row in zip(cosine.tolist(), rows.tolist(), strict=True):
            votes[int(labels[row])] = votes.get(int(labels[row]), 0.0) + math.exp(c / tau)
        expected.append(int(label) in sorted(votes, key=lambda name: -votes[name])[:5])
    _, top5 = top_accuracies(near, truth, labels, k, tau, chunk=11)
    assert top5 == pytest.approx(100 * np.mean(expected))


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_a_bank_on_the_cpu_is_searched_on_the_gpu():
    bank, _ = features(150)
    on_cpu, on_gpu = (nearest_neighbours(bank, bank, 9, device=torch.device(name)) for name in ("cpu", "cuda"))
    assert on_gpu.row.equal(on_cpu.row)


SETTINGS = ((0.5,) * 3, (0.25,) * 3, 16)


def test_a_backbone_in_training_is_looked_at_in_eval_mode_and_left_as_it_was(generator):
    images = torch.randint(0, 256, (6, 3, 16, 16), generator=generator, dtype=torch.uint8)
    backbone = nn.Sequential(nn.BatchNorm2d(3), nn.Dropout(0.5), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    before = {name: value.clone() for name, value in backbone.state_dict().items()}
    frozen = extract(backbone.eval(), images, *SETTINGS)
    assert extract(backbone.train(), images, *SETTINGS).equal(frozen)
    assert backbone.training
    assert all(value.equal(before[name]) for name, value in backbone.state_dict().items())


def test_images_that_are_no_squares_are_cut_and_not_squashed(generator):
    middle = torch.randint(0, 256, (2, 3, 16, 16), generator=generator, dtype=torch.uint8)
    margin = torch.zeros(2, 3, 16, 24, dtype=torch.uint8)
    wide = torch.cat([margin, middle, margin], dim=3)
    backbone = nn.Sequential(nn.Conv2d(3, 1, 1), nn.Flatten())
    assert extract(backbone, wide, *SETTINGS).equal(extract(backbone, middle, *SETTINGS))
    assert extract(backbone, wide.transpose(2, 3), *SETTINGS).equal(extract(backbone, middle.mT, *SETTINGS))
