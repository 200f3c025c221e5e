"""L-BFGS finds scikit-learn's minima for a path of penalties; the penalty is chosen on validation images."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn import datasets
from sklearn.linear_model import LogisticRegression

from logo_ssl.eval.features import LabelledFeatures
from logo_ssl.eval.lbfgs import WEIGHTS, LinearProbe, fit_path, select_weight
from logo_ssl.eval.protocol import mean_per_class, top1

REAL = {"digits": datasets.load_digits, "wine": datasets.load_wine, "breast_cancer": datasets.load_breast_cancer}
EXACT = {"tolerance": 1e-5, "fall": 0.0}


def fit(data, n_classes, w, **options):
    ((_, probe),) = fit_path(*data, n_classes, [w], **options)
    return probe


def objective(probe, data, w):
    loss = torch.nn.functional.cross_entropy(probe.scores(data.features), data.labels, reduction="sum")
    return (loss + w * sum(part.square().sum() for part in probe)).item()


def scikit_learn(data, n_classes, w):
    """Its classifier in our shape: two classes are one vector there, whose halves are ours."""
    features = torch.cat([data.features, torch.ones(len(data.labels), 1)], 1)
    c = 1 / w if n_classes == 2 else 1 / (2 * w)
    model = LogisticRegression(C=c, solver="newton-cholesky", tol=1e-9, fit_intercept=False, max_iter=1000)
    weight = torch.tensor(model.fit(features.numpy(), data.labels.numpy()).coef_.T)
    weight = torch.cat([-weight, weight], 1) / 2 if n_classes == 2 else weight
    return LinearProbe(weight[:-1], weight[-1])


@pytest.mark.parametrize("name", REAL)
def test_the_minimum_is_scikit_learns_on_real_sets(name):
    features, labels = REAL[name](return_X_y=True)
    data = LabelledFeatures(torch.tensor(features, dtype=torch.float64), torch.tensor(labels))
    n_classes = int(data.labels.max()) + 1
    train, test = (data.rows(torch.arange(first, len(labels), 2)) for first in (0, 1))
    weights = [100.0, 1.0, 0.01]
    for exact, quick in zip(
        fit_path(*train, n_classes, weights, **EXACT), fit_path(*train, n_classes, weights), strict=True
    ):
        reference = scikit_learn(train, n_classes, exact.w)
        lowest = objective(reference, train, exact.w)
        assert objective(exact.probe, train, exact.w) == pytest.approx(lowest, rel=1e-6)
        assert objective(quick.probe, train, exact.w) == pytest.approx(lowest, rel=1e-3)
        for probe in (exact.probe, quick.probe):
            ours, theirs = (top1(each.scores(test.features), test.labels) for each in (probe, reference))
            assert ours == pytest.approx(theirs, abs=100 / len(test.labels) + 1e-6)


def test_images_of_several_classes_have_scikit_learns_regression_for_each():
    known = blobs(n_classes=3)
    several = torch.stack([known.labels == 0, known.labels != 1, known.features[:, 0] > 1], 1).long()
    probe = fit(LabelledFeatures(known.features, several), 3, 0.5, **EXACT)
    for c in range(3):
        model = LogisticRegression(C=1.0, solver="newton-cholesky", tol=1e-9, fit_intercept=False)
        rows = torch.cat([known.features, torch.ones(len(several), 1)], 1)
        theta = torch.tensor(model.fit(rows.numpy(), several[:, c].numpy()).coef_[0])
        torch.testing.assert_close(torch.cat([probe.weight[:, c], probe.bias[c : c + 1]]), theta, rtol=1e-3, atol=1e-4)


def blobs(n_images=120, n_features=20, n_classes=5, dtype=torch.float64, noise=1.0):
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(n_images) % n_classes
    centres = torch.randn(n_classes, n_features, generator=generator)
    features = centres[labels] + noise * torch.randn(n_images, n_features, generator=generator)
    return LabelledFeatures(features.relu().to(dtype), labels)


@pytest.mark.parametrize("n_images", [8, 21, 300])
def test_a_path_ends_where_each_weight_alone_does_with_fewer_images_than_features_as_well(n_images):
    data = blobs(n_images)
    weights = [1e-4, 1e5, 10.0, 0.1, 0.1]  # in no order, one twice
    path = list(fit_path(*data, 5, weights, **EXACT))
    assert [solution.w for solution in path] == sorted(set(weights), reverse=True)
    for w, probe in path:
        alone = fit(data, 5, w, **EXACT)
        assert objective(probe, data, w) == pytest.approx(objective(alone, data, w), rel=1e-6)
        torch.testing.assert_close(
            fit(LabelledFeatures(data.features.float(), data.labels), 5, w, **EXACT).weight.double(),
            alone.weight,
            rtol=1e-3,
            atol=1e-3,
        )


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 12), st.integers(1, 6), st.integers(1, 4), st.integers(0, 99), st.floats(-6, 5), st.floats(-4, 4))
def test_no_features_give_anything_but_numbers(n_images, n_features, n_classes, seed, log_w, log_scale):
    generator = torch.Generator().manual_seed(seed)
    features = 10**log_scale * torch.randn(n_images, n_features, generator=generator).relu()
    labels = torch.randint(0, n_classes, (n_images,), generator=generator)  # often without some class
    found = fit((features, labels), n_classes, 10**log_w)
    assert all(part.isfinite().all() for part in found)
    nothing = LinearProbe(torch.zeros(n_features, n_classes), torch.zeros(n_classes))
    data = LabelledFeatures(features, labels)
    assert objective(found, data, 10**log_w) <= objective(nothing, data, 10**log_w) * (1 + 1e-4) + 1e-5


@pytest.mark.parametrize("official", [True, False])
def test_the_weight_is_the_best_on_validation_or_over_folds_and_trains_on_all(official):
    known, weights = blobs(200, 10, 4, noise=1.5), [1e3, 10.0, 1.0, 0.1]
    val = torch.arange(200) >= 120 if official else None
    for metric in (top1, mean_per_class):
        done: dict[int, int] = {}
        chosen = select_weight(known, 4, val, weights, metric, done.__setitem__)
        if official:
            assert chosen.validation == {
                w: metric(probe.scores(known.features[val]), known.labels[val])
                for w, probe in fit_path(*known.rows(~val), 4, weights)
            }
        assert chosen.validation[chosen.value] == max(chosen.validation.values())
        n = 4 if official else 20
        assert done == dict.fromkeys(range(1, n + 1), n)
        both = fit(known, 4, chosen.value, **EXACT)
        assert (chosen.probe.weight - both.weight).abs().max() < 2e-2 * both.weight.abs().max()
    equal = select_weight(known, 4, val, weights, metric=lambda scores, labels: 50.0)
    assert equal.value == 1e3  # the strongest


def test_over_folds_every_image_is_classified_once_by_the_others():
    seen: list[torch.Tensor] = []
    known = LabelledFeatures(torch.eye(23, dtype=torch.float64), torch.arange(23) % 3)

    def metric(scores, labels):
        seen.append(labels)
        return top1(scores, labels)

    chosen = select_weight(known, 3, None, [1.0], metric)
    assert seen[0].bincount().tolist() == [8, 8, 7]
    assert chosen.validation[1.0] < 50  # where each image has a feature of its own, nothing tells of another


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_gpu_finds_the_same_minima():
    data = blobs()
    there = fit_path(data.features.cuda(), data.labels.cuda(), 5, WEIGHTS[:20:5], **EXACT)
    for ours, (w, reference) in zip(there, fit_path(*data, 5, WEIGHTS[:20:5], **EXACT), strict=True):
        assert ours.probe.weight.is_cuda
        found = LinearProbe(*(part.cpu() for part in ours.probe))
        assert objective(found, data, w) == pytest.approx(objective(reference, data, w), rel=1e-6)
