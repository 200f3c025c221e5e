import numpy as np
import pytest
import torch
import torch.nn.functional as F
from sklearn.neighbors import KNeighborsClassifier

from logo_ssl.knn import knn_accuracy, knn_scores


@pytest.mark.parametrize(("k", "tau"), [(1, 0.07), (20, 0.07), (50, 0.1)])
def test_weighted_knn_predicts_as_scikit_learn(k, tau):
    torch.manual_seed(0)
    labels = torch.arange(300) % 5
    centres = torch.randn(5, 16)
    bank, queries = centres[labels] + 1.5 * torch.randn(300, 16), centres[labels[:80]] + 1.5 * torch.randn(80, 16)
    reference = KNeighborsClassifier(k, metric="cosine", weights=lambda distance: np.exp((1 - distance) / tau))
    reference.fit(bank.double().numpy(), labels.numpy())
    scores = knn_scores(queries, bank, labels, 5, k, tau, chunk=17)
    assert scores.argmax(1).tolist() == reference.predict(queries.double().numpy()).tolist()
    expected = 100 * np.mean(reference.predict(queries.double().numpy()) == labels[:80].numpy())
    assert knn_accuracy(queries, labels[:80], bank, labels, k, tau) == pytest.approx(expected)


def test_more_neighbours_than_features_are_all_of_them():
    bank = F.normalize(torch.randn(6, 4), dim=-1)
    scores = knn_scores(bank[:2], bank, torch.arange(6), 6, k=200, tau=0.1)
    assert (scores > 0).all()


def test_a_cold_temperature_does_not_overflow():
    bank = F.normalize(torch.randn(6, 4), dim=-1)
    assert torch.isfinite(knn_scores(bank, bank, torch.arange(6), 6, k=3, tau=1e-3)).all()
