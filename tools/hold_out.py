"""On what can settings be chosen where test images are all there is beside train? On a part of train, held out.

python tools/hold_out.py cifar10.npz cifar10-val.npz --per-class 500
"""

import argparse
from pathlib import Path

import numpy as np


def main(arguments: list[str] | None = None) -> None:
    """Write a set whose test images are some of the training images, the same number of every class."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", type=Path, help="an .npz with train_images and train_labels")
    parser.add_argument("out", type=Path, help="the .npz to write; it has no image of the other's test")
    parser.add_argument("--per-class", type=int, default=500, help="images of each class that are held out")
    parser.add_argument("--seed", type=int, default=0, help="of the choice")
    options = parser.parse_args(arguments)
    if options.out.exists():
        raise SystemExit(f"{options.out} exists already; name another file.")
    with np.load(options.file) as given:
        images, labels = given["train_images"], given["train_labels"]
    out = held_out(labels.reshape(len(labels)), options.per_class, options.seed)
    part = {"train": ~out, "test": out}
    parts = {f"{name}_images": images[chosen] for name, chosen in part.items()}
    partial = options.out.with_suffix(".partial.npz")
    np.savez(partial, **parts, **{f"{name}_labels": labels[chosen] for name, chosen in part.items()})
    partial.replace(options.out)


def held_out(labels: np.ndarray, per_class: int, seed: int) -> np.ndarray:
    """Which are held out."""
    chance = np.random.default_rng(seed)
    out = np.zeros(len(labels), dtype=bool)
    for label in np.unique(labels):
        members = np.flatnonzero(labels == label)
        if len(members) <= per_class:
            raise SystemExit(f"Class {label} has {len(members)} images; hold out fewer (--per-class).")
        out[chance.choice(members, per_class, replace=False)] = True
    return out


if __name__ == "__main__":
    main()
