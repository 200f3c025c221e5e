"""L-BFGS finds scikit-learn's minima, for a path of penalties, in either precision."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn import datasets
from sklearn.linear_model import LogisticRegression

from logo_ssl.eval.features import LabelledFeatures
from logo_ssl.eval.lbfgs import WEIGHTS, LinearProbe, fit_path, objective
from logo_ssl.eval.linear import select_weight
from logo_ssl.eval.protocol import mean_per_class, top1

REAL = {"digits": datasets.load_digits, "wine": datasets.load_wine, "breast_cancer": datasets.load_breast_cancer}


def fit(features, labels, n_classes, w, start=None, **options):
    (found,) = fit_path(features, labels, n_classes, [w], start, **options)
    return found


def real(name):
    features, labels = REAL[name](return_X_y=True)
    return LabelledFeatures(torch.tensor(features, dtype=torch.float64), torch.tensor(labels))


def blobs(n_images=120, n_features=20, n_classes=5, dtype=torch.float64, noise=1.0):
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(n_images) % n_classes
    centres = torch.randn(n_classes, n_features, generator=generator)
    features = centres[labels] + noise * torch.randn(n_images, n_features, generator=generator)
    return LabelledFeatures(features.relu().to(dtype), labels)


def scikit_learn(data, n_classes, w, penalise_bias):
    """Its classifier in our shape: two classes are one vector there, whose halves are ours."""
    c = 1 / w if n_classes == 2 else 1 / (2 * w)
    features = torch.cat([data.features, torch.ones(len(data.labels), 1)], 1) if penalise_bias else data.features
    model = LogisticRegression(C=c, solver="newton-cholesky", tol=1e-9, fit_intercept=not penalise_bias, max_iter=1000)
    model.fit(features.numpy(), data.labels.numpy())
    weight, bias = torch.tensor(model.coef_.T), torch.as_tensor(model.intercept_)
    if n_classes == 2:
        weight, bias = torch.cat([-weight, weight], 1) / 2, torch.cat([-bias, bias]) / 2
    return LinearProbe(weight[:-1], weight[-1]) if penalise_bias else LinearProbe(weight, bias)


@pytest.mark.parametrize("penalise_bias", [False, True])
@pytest.mark.parametrize("name", REAL)
def test_the_minimum_is_scikit_learns_on_real_sets(name, penalise_bias):
    data = real(name)
    n_classes = int(data.labels.max()) + 1
    train, test = (
        LabelledFeatures(data.features[rows], data.labels[rows]) for rows in (slice(0, None, 2), slice(1, None, 2))
    )
    for found in fit_path(*train, n_classes, [100.0, 1.0, 0.01], penalise_bias=penalise_bias, tolerance=1e-5):
        reference = scikit_learn(train, n_classes, found.w, penalise_bias)
        assert found.objective == pytest.approx(objective(reference, train, found.w, penalise_bias), rel=1e-6)
        assert found.objective == pytest.approx(objective(found.probe, train, found.w, penalise_bias), rel=1e-10)
        ours, theirs = (top1(probe.scores(test.features), test.labels) for probe in (found.probe, reference))
        assert ours == pytest.approx(theirs, abs=0.1)


@pytest.mark.parametrize("name", REAL)
def test_the_gradient_at_each_solution_is_as_small_as_promised(name):
    data, tolerance = real(name), 1e-3
    for found in fit_path(*data, int(data.labels.max()) + 1, WEIGHTS[::11], tolerance=tolerance):
        centre = data.features.mean(dim=0)
        weight = found.probe.weight.clone().requires_grad_()
        scores = (data.features - centre) @ weight + found.probe.bias + centre @ found.probe.weight
        loss = torch.nn.functional.cross_entropy(scores, data.labels, reduction="sum") + found.w * weight.square().sum()
        (gradient,) = torch.autograd.grad(loss, weight)
        assert gradient.norm() <= 1.01 * tolerance * 2 * found.w * weight.norm()


def test_a_path_ends_where_each_weight_alone_does():
    data = blobs()
    weights = [1e-6, 1e5, 10.0, 0.1, 1e-3, 0.1]  # in no order, one twice
    path = fit_path(*data, 5, weights)
    assert [solution.w for solution in path] == sorted(set(weights), reverse=True)
    for solution in path:
        assert solution.objective == pytest.approx(fit(*data, 5, solution.w).objective, rel=2e-6)


def test_a_path_saves_iterations():
    data, weights = blobs(), WEIGHTS[15:30]
    alone = sum(fit(*data, 5, w).iterations for w in weights)
    assert sum(solution.iterations for solution in fit_path(*data, 5, weights)) < alone / 2


def test_starting_at_the_solution_needs_no_iteration():
    for penalise_bias in (False, True):
        data = blobs()
        found = fit(*data, 5, 0.1, penalise_bias=penalise_bias)
        assert fit(*data, 5, 0.1, found.probe, penalise_bias=penalise_bias, tolerance=1.1e-3).iterations == 0


@pytest.mark.parametrize("n_images", [8, 20, 21, 22, 300])
def test_fewer_images_than_features_have_the_same_minimum_as_autograd_finds(n_images):
    data = blobs(n_images)
    found = fit(*data, 5, 0.3, tolerance=1e-6)
    assert found.error <= 1e-6
    weight, bias = (torch.zeros(shape, dtype=torch.float64, requires_grad=True) for shape in ((20, 5), (5,)))
    optimiser = torch.optim.LBFGS(
        [weight, bias], max_iter=500, tolerance_grad=1e-9, tolerance_change=0, line_search_fn="strong_wolfe"
    )

    def closure():
        optimiser.zero_grad()
        scores = data.features @ weight + bias
        loss = torch.nn.functional.cross_entropy(scores, data.labels, reduction="sum") + 0.3 * weight.square().sum()
        loss.backward()
        return loss

    optimiser.step(closure)
    assert (found.probe.weight - weight.detach()).abs().max() < 1e-4
    assert (found.probe.bias - (bias - bias.mean()).detach()).abs().max() < 1e-4


def test_float32_reaches_the_objective_of_float64():
    data = blobs(noise=0.5)
    single = LabelledFeatures(data.features.float(), data.labels)
    for ours, reference in zip(
        fit_path(*single, 5, WEIGHTS[::4]), fit_path(*data, 5, WEIGHTS[::4], tolerance=1e-5), strict=True
    ):
        double = LinearProbe(ours.probe.weight.double(), ours.probe.bias.double())
        assert objective(double, data, ours.w) == pytest.approx(reference.objective, rel=3e-6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_separable_classes_under_next_to_no_penalty_end_finite(dtype):
    data = blobs(40, 60, dtype=dtype, noise=0.01)
    for max_iterations in (0, 3, 1000):
        for solution in fit_path(*data, 5, [1e-3, 1e-12, 1e-30], max_iterations=max_iterations):
            assert solution.iterations <= max_iterations
            assert all(part.isfinite().all() for part in solution.probe)


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 12), st.integers(1, 6), st.integers(1, 4), st.integers(0, 99), st.floats(-6, 5), st.floats(-4, 4))
def test_no_features_give_anything_but_numbers(n_images, n_features, n_classes, seed, log_w, log_scale):
    generator = torch.Generator().manual_seed(seed)
    features = 10**log_scale * torch.randn(n_images, n_features, generator=generator).relu()
    labels = torch.randint(0, n_classes, (n_images,), generator=generator)  # often without some class
    found = fit(features, labels, n_classes, 10**log_w, max_iterations=100)
    assert all(part.isfinite().all() for part in found.probe)
    nothing = LinearProbe(torch.zeros(n_features, n_classes), torch.zeros(n_classes))
    assert found.objective <= objective(nothing, LabelledFeatures(features, labels), 10**log_w) * (1 + 1e-5)


def halves(generator, dtype=torch.float64):
    labels = torch.arange(200) % 4
    centres = torch.randn(4, 10, generator=generator, dtype=dtype)
    features = centres[labels] + 1.5 * torch.randn(200, 10, generator=generator, dtype=dtype)
    return LabelledFeatures(features[:120], labels[:120]), LabelledFeatures(features[120:], labels[120:])


def test_the_weight_is_the_best_on_validation_and_trains_on_both_halves(generator):
    train, val = halves(generator)
    weights = [1e3, 10.0, 1.0, 0.1]
    for metric in (top1, mean_per_class):
        chosen = select_weight(train, val, 4, weights, metric)
        alone = {w: metric(fit(*train, 4, w).probe.scores(val.features), val.labels) for w in weights}
        assert chosen.validation == alone
        assert alone[chosen.value] == max(alone.values())
        both = fit(*train.joined(val), 4, chosen.value, tolerance=1e-4).probe
        assert (chosen.probe.weight - both.weight).abs().max() < 1e-2 * both.weight.abs().max()


def test_of_equals_the_strongest_penalty_is_chosen_and_progress_follows_each(generator):
    train, val = halves(generator)
    done: list[int] = []
    chosen = select_weight(train, val, 4, [0.1, 1.0, 10.0], metric=lambda scores, labels: 50.0, progress=done.append)
    assert chosen.value == 10.0
    assert done == [1, 2, 3]


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_gpu_finds_the_same_minima(dtype):
    data = blobs(dtype=dtype)
    there = fit_path(data.features.cuda(), data.labels.cuda(), 5)
    for ours, reference in zip(there, fit_path(*data, 5), strict=True):
        assert ours.probe.weight.is_cuda
        assert ours.objective == pytest.approx(reference.objective, rel=3e-6)
