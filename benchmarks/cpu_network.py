"""Which network should a laptop train? A few hundred images of each set, by every candidate; kNN and linear on the set.

python benchmarks/cpu_network.py pets80 imagenette128 cifar10.npz --seeds 0 1 2 --jobs 8 --device cuda
python benchmarks/cpu_network.py pets80 --minutes        # what such a training takes on this machine

The settings are those that `auto` chooses on a CPU, in float32, whatever the device, so that a GPU may do the training.
"""

import argparse
import json
import random
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from statistics import mean, stdev

import numpy as np
from l2l import LINEAR, figures

from logo_ssl.data import load_data
from logo_ssl.recipes import Machine, Recipe, choose
from logo_ssl.recipes.auto import SMALL
from logo_ssl.reproduce.run import Runner
from logo_ssl.reproduce.tables import KNN, RowRun
from logo_ssl.system.terminal import plain_console
from logo_ssl.train.build import dataset_info

IMAGES = 832
CANDIDATES = {
    "tiny-64": ("tiny", 64),
    "tiny-96": ("tiny", 96),
    "test_resnet-64": ("timm/test_resnet", 64),
    "resnet10t-48": ("timm/resnet10t", 48),
    "resnet10t-64": ("timm/resnet10t", 64),
    "resnet18-48": ("resnet18", 48),
}
"""Backbone and side of the global crops; local ones have half of it, and images as small as CIFAR's half of both."""


def few_images(place: Path, out: Path, n: int = IMAGES) -> Path:
    """A part of a set's training images, the same for every run: a list of paths, or an .npz."""
    out.mkdir(parents=True, exist_ok=True)
    chosen = random.Random(0)
    if place.suffix == ".npz":
        part = out / place.name
        with np.load(place) as arrays:
            rows = chosen.sample(range(len(arrays["train_images"])), n)
            np.savez(part, train_images=arrays["train_images"][rows])
        return part
    part = out / f"{place.name}.txt"
    files = sorted(str(file.absolute()) for file in (place / "train").rglob("*") if file.is_file())
    part.write_text("\n".join(chosen.sample(files, n)))
    return part


def recipe_of(part: Path, network: str, seed: int, device: str) -> Recipe:
    """What `auto` chooses on a CPU, with another network."""
    backbone, side = CANDIDATES[network]
    facts = dataset_info(load_data(str(part), side))
    side = side if facts.side > SMALL else side // 2
    wishes = {"backbone": backbone, "crops__global_size": side, "crops__local_size": side // 2}
    recipe = choose(facts, Machine("cpu", "CPU", 2**34), wishes)
    recipe = replace(recipe, name="tiny")  # whose options say all that differs
    return replace(recipe, data=str(part), seed=seed, device=device, knn_every=0, precision="fp32", compile="off")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sets", type=Path, nargs="+", help="folders with train/ and test/ or val/, or .npz files")
    parser.add_argument("--networks", nargs="+", choices=CANDIDATES, default=list(CANDIDATES))
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--epochs", type=int, help="default: auto's")
    parser.add_argument("--minutes", action="store_true", help="train nothing, but time three steps of each network")
    parser.add_argument("--out", type=Path, default=Path("runs/cpu-network"))
    options = parser.parse_args()
    rows = []
    for place in options.sets:
        part = few_images(place, options.out.absolute() / "parts")
        whole = ("--data", str(place.absolute()))
        evaluations = tuple(each._replace(arguments=(*each.arguments, *whole)) for each in (KNN, LINEAR))
        for seed in options.seeds:
            for network in options.networks:
                recipe = recipe_of(part, network, seed, options.device)
                recipe = recipe if options.epochs is None else replace(recipe, epochs=options.epochs)
                folder = options.out.absolute() / f"{place.stem}-{network}" / f"seed{seed}"
                rows.append(RowRun(recipe, folder, evaluations))
    if options.minutes:
        for row in rows:
            print(row.folder.parent.name, flush=True)
            subprocess.run([sys.executable, "-m", "logo_ssl", *next(row.commands()), "--dry-run"], check=True)
        return
    Runner(options.jobs, plain_console().print).run_all(rows, lambda outcomes: None)
    for place in options.sets:
        for network in options.networks:
            runs = [figures(run) for run in sorted((options.out / f"{place.stem}-{network}").glob("seed*"))]
            known = {
                measure: [run[measure] for run in runs if measure in run] for measure in ("knn-20", "knn-200", "linear")
            }
            spread = {
                measure: [round(mean(values), 2), round(stdev(values), 2) if len(values) > 1 else None]
                for measure, values in known.items()
                if values
            }
            print(json.dumps({"benchmark": "cpu_network", "set": place.stem, "network": network} | spread))


if __name__ == "__main__":
    main()
