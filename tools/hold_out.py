"""On what can settings be chosen where test images are all there is beside train? On a part of train, held out.

python tools/hold_out.py cifar10.npz cifar10-val.npz --per-class 500
"""

import argparse
import sys
from pathlib import Path

import numpy as np

from logo_ssl.data.npz import load_npz
from logo_ssl.errors import UserError


def main(arguments: list[str] | None = None) -> None:
    """Write a set whose test images are some of the training images, the same number of every class."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", type=Path, help="an .npz with train_images and train_labels")
    parser.add_argument(
        "out", type=Path, help="the .npz to write: a part of train as train, the rest as test, and no test image"
    )
    parser.add_argument("--per-class", type=int, default=500, help="images of each class to hold out (%(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="decides which (%(default)s)")
    options = parser.parse_args(arguments)
    if options.out.suffix != ".npz":
        parser.error(f"out is {options.out}; let it end in .npz")
    if options.out.exists():
        parser.error(f"{options.out} exists already; name another file")
    if options.per_class < 1:
        parser.error(f"--per-class is {options.per_class}; hold out 1 or more")
    try:
        if load_npz(options.file).train.labels is None:  # which refuses what is no set of images
            raise UserError(f"{options.file} has not one label for each training image; classes are needed here.")
        with np.load(options.file) as given:
            images, labels = given["train_images"], given["train_labels"]
        out = held_out(labels.reshape(len(labels)), options.per_class, options.seed)
    except UserError as error:
        parser.error(str(error))
    part = {"train": ~out, "test": out}
    parts = {f"{name}_images": images[chosen] for name, chosen in part.items()}
    partial = options.out.with_suffix(".partial.npz")
    np.savez(partial, **parts, **{f"{name}_labels": labels[chosen] for name, chosen in part.items()})
    partial.replace(options.out)
    each = f"{options.per_class} of each class"
    sys.stdout.write(f"{options.out}: {(~out).sum():,} images to train on, {out.sum():,} held out, {each}.\n")


def held_out(labels: np.ndarray, per_class: int, seed: int) -> np.ndarray:
    """Which are held out."""
    chance = np.random.default_rng(seed)
    out = np.zeros(len(labels), dtype=bool)
    for label in np.unique(labels[labels >= 0] if labels.dtype.kind in "if" else labels):  # below 0: no label
        members = np.flatnonzero(labels == label)
        if len(members) <= per_class:
            raise UserError(f"Class {label} has {len(members)} images; hold out fewer (--per-class).")
        out[chance.choice(members, per_class, replace=False)] = True
    return out


if __name__ == "__main__":
    main()
