"""Bed B of the trials of L2L: images of several classes, with the labels that `eval multilabel` reads.

python benchmarks/mosaics.py imagenette128 --out beds    # mosaics.npz, labelled.npz, quadrants.npz
python benchmarks/mosaics.py scenes --out beds           # scenes.npz

A mosaic is four photographs in a 2 x 2 grid, drawn without replacement within a split.
- mosaics.npz is to pretrain on: each training photograph is in --times of them.
- labelled.npz is for `eval multilabel`: the first of these, and those of the test. Each photograph is in one, so that
  images which choose or test share nothing with others.
- quadrants.npz has the same photographs alone, for `eval knn`.
A scene has the classes of all its objects of which enough is seen; one is large, one to four are small.
"""

import argparse
from pathlib import Path

import numpy as np
import torch

from logo_ssl.data import BadImages, load_data, squared
from logo_ssl.data.scenes import CLASSES, paint_chunks
from logo_ssl.system.randomness import stream

SCENES = {"train": 5_000, "test": 1_000}
SEEN = 0.005
"""Share of a scene's pixels that an object needs to be there; a whole small one has 2 % or more."""
MOST_BAD = 0.01


def grids(n, times, draws):
    """Rows of four photographs [times M 4], each in one row of a time, but for up to three left over."""
    return torch.stack([torch.randperm(n, generator=draws)[: n - n % 4].view(-1, 4) for _ in range(times)])


def mosaic(images, labels, n_classes, rows):
    """Images [M C 2S 2S] and labels [M classes] of the photographs in each row."""
    upper, lower = (torch.cat([images[rows[:, k]], images[rows[:, k + 1]]], dim=3) for k in (0, 2))
    return torch.cat([upper, lower], dim=2), torch.zeros(len(rows), n_classes).scatter_(1, labels[rows], 1)


def scenes(n, size, seed):
    """Scenes and labels [N classes]: whatever `eval knn --data scenes` shows, with all objects that are seen."""
    found = []
    for chunk in paint_chunks(n, size, seed):
        seen = (chunk.visible.mean(dim=(2, 3)) >= SEEN).float()
        found.append((chunk.images, torch.zeros(len(seen), len(CLASSES)).scatter_(1, chunk.kinds, seen)))
    return tuple(torch.cat(part)[:n] for part in zip(*found, strict=True))


def save(file, splits):
    """By the convention of `--data`."""
    arrays = {}
    for part, (images, labels) in splits.items():
        arrays[f"{part}_images"], arrays[f"{part}_labels"] = images.permute(0, 2, 3, 1).numpy(), labels.byte().numpy()
        print(
            f"{file}, {part}: {len(images)} images"
            + f", {labels.sum() / len(images):.2f} labels each" * (labels.dim() > 1)
        )
    np.savez(file, **arrays)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", help="scenes, or photographs with train and test as for `pretrain`")
    parser.add_argument("--out", type=Path, default=Path("beds"))
    parser.add_argument("--size", type=int, default=128, help="side of a mosaic or a scene in pixels")
    parser.add_argument("--times", type=int, default=4, help="mosaics that show each training photograph")
    parser.add_argument("--most", type=int, default=None, help="images of each split, for a trial")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    if options.data == "scenes":
        sizes = [min(n, options.most or n) for n in SCENES.values()]
        painted = (scenes(n, options.size, seed) for seed, n in enumerate(sizes))
        return save(options.out / "scenes.npz", dict(zip(SCENES, painted, strict=True)))
    data, labelled, quadrants = load_data(options.data, options.size), {}, {}
    for part in ("train", "test"):
        photographs = data.splits[part]
        split = squared(photographs, options.size // 2, BadImages(len(photographs), MOST_BAD))
        rows = grids(len(split), options.times, stream(options.seed, f"mosaics, {part}"))[:, : options.most]
        shown = rows[0].unique()
        quadrants[part] = (split.array[shown], split.labels[shown])
        labelled[part] = mosaic(split.array, split.labels, len(data.classes), rows[0])
        if part == "train":
            mosaics = mosaic(split.array, split.labels, len(data.classes), rows.flatten(0, 1))
            save(options.out / "mosaics.npz", {part: mosaics})
    save(options.out / "labelled.npz", labelled)
    save(options.out / "quadrants.npz", quadrants)


if __name__ == "__main__":
    main()
