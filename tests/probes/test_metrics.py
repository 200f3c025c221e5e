import warnings

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import accuracy_score, balanced_accuracy_score, top_k_accuracy_score

from logo_ssl.probes import mean_per_class, top1, top_k


@given(st.integers(0, 2**32), st.integers(2, 8), st.integers(1, 40), st.integers(1, 8))
def test_accuracies_are_those_of_scikit_learn(seed, n_classes, n_images, k):
    generator = torch.Generator().manual_seed(seed)
    scores = torch.randn(n_images, n_classes, generator=generator)
    labels = torch.randint(0, n_classes, (n_images,), generator=generator)
    guess = scores.argmax(1)
    assert top1(scores, labels) == pytest.approx(100 * accuracy_score(labels, guess))
    with warnings.catch_warnings(action="ignore"):  # scikit-learn warns of guesses that no label bears
        expected = balanced_accuracy_score(labels, guess)
    assert mean_per_class(scores, labels) == pytest.approx(100 * expected)
    if n_classes > 2 and k < n_classes:
        expected = top_k_accuracy_score(labels, scores, k=k, labels=range(n_classes))
        assert top_k(scores, labels, k) == pytest.approx(100 * expected)


def test_a_class_without_images_does_not_count():
    scores = torch.eye(4)[[0, 1, 1]]
    assert mean_per_class(scores, torch.tensor([0, 1, 0])) == pytest.approx(75)


def test_top_k_of_fewer_classes_is_always_right():
    assert top_k(torch.randn(5, 3), torch.tensor([0, 1, 2, 0, 1]), k=5) == 100
