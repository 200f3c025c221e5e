"""Hold out some training images of every class, so that settings can be chosen without test images.

python tools/hold_out.py cifar10.npz cifar10-val.npz --per-class 500
"""

import argparse
import sys
from pathlib import Path

import numpy as np


def main(arguments: list[str] | None = None) -> None:
    """Write an .npz whose test images are some of the training images, the same number of every class."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", type=Path, help="an .npz with train_images and train_labels")
    parser.add_argument("out", type=Path, help="the .npz to write: the rest as train, what is held out as test")
    parser.add_argument("--per-class", type=int, default=500, help="images of each class to hold out (%(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="decides which (%(default)s)")
    options = parser.parse_args(arguments)
    if options.out.exists():
        parser.error(f"{options.out} exists already")
    with np.load(options.file) as given:
        images, labels = given["train_images"], given["train_labels"]
    out = held_out(labels.ravel(), options.per_class, options.seed)
    parts = {f"{part}_{what}": array[which] for part, which in (("train", ~out), ("test", out))
             for what, array in (("images", images), ("labels", labels))}  # fmt: skip
    np.savez(options.out, **parts)
    sys.stdout.write(f"{options.out}: {sum(~out):,} images to train on, {sum(out):,} held out.\n")


def held_out(labels: np.ndarray, per_class: int, seed: int) -> np.ndarray:
    """Which images are held out; those without a label (below 0) never are."""
    chance = np.random.default_rng(seed)
    out = np.zeros(len(labels), dtype=bool)
    for label in np.unique(labels[labels >= 0] if labels.dtype.kind in "if" else labels):
        out[chance.choice(np.flatnonzero(labels == label), per_class, replace=False)] = True
    return out


if __name__ == "__main__":
    main()
