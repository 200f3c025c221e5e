"""How fast is weighted kNN, both customs of k and tau together? Beside scikit-learn on all cores; one JSON line.

For example: knn.py 50000 10000 512, the size of CIFAR-10 under a ResNet-18.
"""

import argparse
import json
import statistics
import time

import torch
from sklearn.neighbors import KNeighborsClassifier

from logo_ssl.eval.knn import PROTOCOLS
from logo_ssl.knn import nearest_neighbours, top_accuracies
from logo_ssl.system.hardware import best_device, hardware, provenance

SIZES = {"cuda": (50_000, 10_000, 512), "cpu": (5_000, 1_000, 128)}
CLASSES = 10
ROUNDS = 3


def made_up(n_images, width, centres, generator):
    labels = torch.randint(0, CLASSES, (n_images,), generator=generator)
    features = centres[labels] + 2 * torch.randn(n_images, width, generator=generator)
    return torch.nn.functional.normalize(features, dim=1), labels


def ours(bank, bank_labels, queries, labels):
    """From features on the device to top-1 of every protocol."""
    near = nearest_neighbours(queries, bank, max(k for k, _ in PROTOCOLS))
    return [top_accuracies(near, labels, bank_labels, k, tau, tops=(1,))[0] for k, tau in PROTOCOLS]


def scikit_learn(bank, bank_labels, queries, labels):
    """The same from features in memory; unit vectors are ranked alike by distance and cosine."""
    accuracies = []
    for k, tau in PROTOCOLS:
        weigh = lambda distance, tau=tau: torch.exp(-torch.from_numpy(distance).square() / (2 * tau)).numpy()  # noqa: E731
        model = KNeighborsClassifier(k, weights=weigh, algorithm="brute", n_jobs=-1).fit(bank.numpy(), bank_labels)
        accuracies.append(100 * model.score(queries.numpy(), labels))
    return accuracies


def timed(work, *data):
    began = time.perf_counter()
    return work(*data), time.perf_counter() - began


def main():
    device = best_device("auto")
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sizes", nargs="*", type=int, help="training images, test images, features")
    n_bank, n_queries, width = parser.parse_args().sizes or SIZES[device.type]
    generator = torch.Generator().manual_seed(0)
    centres = torch.randn(CLASSES, width, generator=generator) * 2 / width**0.25
    data = *made_up(n_bank, width, centres, generator), *made_up(n_queries, width, centres, generator)
    there = [part.to(device) for part in data]
    ours(*there)  # CUDA's libraries load
    measured = [timed(ours, *there) for _ in range(ROUNDS)]
    seconds = statistics.median(took for _, took in measured)
    theirs, their_seconds = timed(scikit_learn, *data)
    result = {
        "benchmark": "knn",
        "sizes": [n_bank, n_queries, width],
        "n": ROUNDS,
        "seconds": {"ours": round(seconds, 4), "scikit-learn": round(their_seconds, 3)},
        "times_faster": round(their_seconds / seconds, 1),
        "top1": {"ours": measured[0][0], "scikit-learn": [round(value, 3) for value in theirs]},
    }
    print(json.dumps(result | provenance(hardware(device))))


if __name__ == "__main__":
    main()
