"""How fast are the probes? 45 logistic regressions beside scikit-learn's, 12 learning rates beside one; one JSON line.

scikit-learn's L-BFGS goes down the same path from its last solution, and stops at each weight when its gradient is as
small as ours was; the objectives say how equal that made them. It gets as many threads as make it fastest, and
`--limit` seconds: times are compared over the weights that it reached, and over the whole path as far as is known.
"""

import argparse
import json
import multiprocessing
import os
import queue
import statistics
import time
import warnings

import numpy as np
import torch
from sklearn.linear_model import LogisticRegression
from threadpoolctl import threadpool_limits

from logo_ssl.eval.features import LabelledFeatures
from logo_ssl.eval.lbfgs import LinearProbe, fit_path, objective
from logo_ssl.eval.linear import RATES, train_probes
from logo_ssl.system.hardware import best_device, hardware, provenance

SIZES = {"cuda": (3680, 2048, 37), "cpu": (800, 256, 37)}
"""Images, features, classes: Pets under a ResNet-50 where there is a GPU."""
ROUNDS = 3


def made_up(n_images, n_features, n_classes):
    """Like a ResNet's pooled features: not negative, correlated, and classes that overlap."""
    generator = torch.Generator().manual_seed(0)
    rank = n_features // 4
    labels = torch.randint(0, n_classes, (n_images,), generator=generator)
    causes = 0.5 * torch.randn(n_classes, rank, generator=generator)[labels]
    causes = (causes + torch.randn(n_images, rank, generator=generator)) * torch.logspace(0, -1.5, rank)
    features = causes @ torch.randn(rank, n_features, generator=generator) / rank**0.5
    return (features + 0.05 * torch.randn(n_images, n_features, generator=generator)).relu(), labels


def timed(work, device, rounds=ROUNDS):
    """The last result of some work, and its median seconds."""
    seconds = []
    for _ in range(rounds):
        began = time.perf_counter()
        result = work()
        if device.type == "cuda":
            torch.cuda.synchronize()
        seconds.append(time.perf_counter() - began)
    return result, statistics.median(seconds)


def steepest(probe, data, w):
    """The largest entry of the gradient as scikit-learn sees it: of the mean over images."""
    weight, bias = (part.clone().requires_grad_() for part in probe)
    loss = torch.nn.functional.cross_entropy(data.features @ weight + bias, data.labels, reduction="sum")
    gradients = torch.autograd.grad(loss + w * weight.square().sum(), [weight, bias])
    return max(gradient.abs().max().item() for gradient in gradients) / len(data.labels)


def fit(features, labels, threads, weights, tolerances, results, iterations=20_000):
    """scikit-learn's classifiers down the path, each handed over as soon as it is there; in a process of its own."""
    model = LogisticRegression(warm_start=True, max_iter=iterations)
    with threadpool_limits(threads), warnings.catch_warnings(action="ignore"):
        for w, tolerance in zip(weights, tolerances, strict=True):
            model.set_params(C=1 / (2 * w), tol=tolerance)
            began = time.perf_counter()
            model.fit(features, labels)
            seconds = time.perf_counter() - began
            results.put((model.coef_.T.copy(), model.intercept_.copy(), seconds, int(model.n_iter_[0])))


def best_threads(features, labels):
    """As many threads as make scikit-learn fastest: on some machines that is one."""
    cores, seconds = len(os.sched_getaffinity(0)), {}
    for threads in sorted({1, 4, cores} & set(range(1, cores + 1))):
        results = queue.Queue()
        for _ in range(2):  # the first wakes them
            fit(features, labels, threads, [1.0], [1e-12], results, iterations=5)
        seconds[threads] = min(results.get()[2] for _ in range(2))
    return min(seconds, key=seconds.get)


def scikit_learn(path, data, limit):
    """Its classifiers as far as it gets in `limit` seconds, with seconds and iterations of each, and its threads."""
    features, labels = data.features.cpu().numpy(), data.labels.cpu().numpy()
    threads, spawn = best_threads(features, labels), multiprocessing.get_context("spawn")
    weights, tolerances = [found.w for found in path], [steepest(found.probe, data, found.w) for found in path]
    results, reached, began = spawn.Queue(), [], time.perf_counter()
    process = spawn.Process(target=fit, args=(features, labels, threads, weights, tolerances, results), daemon=True)
    process.start()
    try:
        while len(reached) < len(path):
            reached.append(results.get(timeout=max(0.01, began + limit - time.perf_counter())))
    except queue.Empty:
        process.kill()
    process.join()
    probes = [LinearProbe(*(torch.tensor(part).to(data.features) for part in found[:2])) for found in reached]
    return probes, [found[2] for found in reached], [found[3] for found in reached], threads


def logistic(data, n_classes, device, limit):
    single = LabelledFeatures(data.features.float(), data.labels)
    fit_path(*single, n_classes, [1.0])  # CUDA's libraries load
    path, whole = timed(lambda: fit_path(*data, n_classes), device)
    reference, seconds_each, iterations_each, threads = scikit_learn(path, data, limit)
    theirs_whole = sum(seconds_each) if len(reference) == len(path) else max(limit, sum(seconds_each))
    result = {
        "weights": {"in_all": len(path), "compared": len(reference)},
        "threads of scikit-learn": threads,
        "seconds_whole_path": {
            "float64": round(whole, 3),
            "scikit-learn": round(theirs_whole, 1),
            "scikit-learn was stopped": len(reference) < len(path),
        },
        "times_faster_whole_path_at_least": round(theirs_whole / whole, 1),
    }
    return result | (compared(path, single, data, n_classes, device, reference, seconds_each, iterations_each))


def compared(path, single, data, n_classes, device, reference, seconds_each, iterations_each):
    """Times and objectives over the weights that scikit-learn reached."""
    if not reference:
        return {}
    reached = path[: len(reference)]
    weights = [found.w for found in reached]
    _, seconds = timed(lambda: fit_path(*data, n_classes, weights), device)
    path32, seconds32 = timed(lambda: fit_path(*single, n_classes, weights), device)
    their_seconds = sum(seconds_each)
    ours = [objective(found.probe, data, found.w) for found in reached]
    ours32 = [objective(LinearProbe(*(part.double() for part in found.probe)), data, found.w) for found in path32]
    theirs = [objective(probe, data, w) for probe, w in zip(reference, weights, strict=True)]
    lowest = [min(values) for values in zip(ours, ours32, theirs, strict=True)]
    named = {"float64": ours, "float32": ours32, "scikit-learn": theirs}
    return {
        "last_compared": weights[-1],
        "seconds": {
            "float64": round(seconds, 3),
            "float32": round(seconds32, 3),
            "scikit-learn": round(their_seconds, 3),
        },
        "times_faster": {"float64": round(their_seconds / seconds, 1), "float32": round(their_seconds / seconds32, 1)},
        "iterations": {
            "float64": sum(found.iterations for found in reached),
            "float32": sum(found.iterations for found in path32),
            "scikit-learn": sum(iterations_each),
        },
        "largest_relative_excess": {
            name: float(f"{max(v / low - 1 for v, low in zip(values, lowest, strict=True)):.2g}")
            for name, values in named.items()
        },
        "objectives": {name: [float(f"{value:.8g}") for value in values] for name, values in named.items()},
    }


def sweep(data, n_classes, device, epochs):
    data = LabelledFeatures(data.features.float(), data.labels)
    seconds = {}
    for rates in (RATES, RATES, (30.0,)):  # the first warms up
        generator = torch.Generator().manual_seed(0)
        _, seconds[len(rates)] = timed(lambda: train_probes(data, n_classes, generator, rates, epochs), device)  # noqa: B023
    return {
        "epochs": epochs,
        "seconds": {f"rates: {n}": round(s, 4) for n, s in seconds.items()},
        "times_slower": round(seconds[len(RATES)] / seconds[1], 2),
    }


def main():
    device = best_device("auto")
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("sizes", nargs="*", type=int, help="images, features, classes")
    parser.add_argument(
        "--features", help=".npz file of features and labels (benchmarks/features.py), not made-up ones"
    )
    parser.add_argument("--epochs", type=int, default=5, help="of SGD")
    parser.add_argument("--limit", type=float, default=60, help="seconds for scikit-learn")
    arguments = parser.parse_args()
    if arguments.features:
        arrays = np.load(arguments.features)
        features, labels = torch.tensor(arrays["features"]), torch.tensor(arrays["labels"]).long()
    else:
        features, labels = made_up(*(arguments.sizes or SIZES[device.type]))
    data = LabelledFeatures(features.double().to(device), labels.to(device))
    n_classes = int(labels.max()) + 1
    swept = sweep(data, n_classes, device, arguments.epochs)
    result = {
        "benchmark": "probes",
        "features": arguments.features or "made up",
        "images": len(labels),
        "width": features.shape[1],
        "classes": n_classes,
        "n": ROUNDS,
        "logistic_path": logistic(data, n_classes, device, arguments.limit),
        "sgd_sweep": swept,
    }
    print(json.dumps(result | provenance(hardware(device))))


if __name__ == "__main__":
    main()
