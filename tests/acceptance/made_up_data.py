"""Images that the acceptance tests make themselves: an .npz, folders, a list, tar shards, objects to detect."""

import io
import json
import tarfile
from collections.abc import Iterable
from pathlib import Path

import numpy as np
from PIL import Image

CLASSES = ("ash", "birch", "cedar", "elm")
Labelled = tuple[np.ndarray, str]
"""Pixels [H W 3], and the name of their class."""


def pictures(n: int, size: int = 32, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Stripes of a class's direction and width under noise, uint8 [N H W 3], and labels: hard, and not hopeless."""
    rng = np.random.default_rng(seed)
    labels = np.arange(n) % len(CLASSES)
    y, x = np.mgrid[:size, :size]
    phase, level = rng.uniform(0, 2 * np.pi, (n, 1, 1)), rng.uniform(60, 190, (n, 1, 1, 3))
    across = np.where((labels % 2)[:, None, None] == 0, x, y)
    waves = np.sin(across / np.where(labels < 2, 1.5, 3.0)[:, None, None] + phase)
    noise = rng.normal(0, 40, (n, size, size, 3))
    return np.clip(level + 30 * waves[..., None] + noise, 0, 255).astype(np.uint8), labels


def save_npz(file: Path, n_train: int = 64, n_test: int = 32, size: int = 32, channels: int = 3) -> Path:
    """An .npz as `--data` takes it."""
    images, labels = pictures(n_train + n_test, size)
    images = images[..., :channels]
    train = {"train_images": images[:n_train], "train_labels": labels[:n_train]}
    np.savez(file, **train, test_images=images[n_train:], test_labels=labels[n_train:])
    return file


def labelled(n: int, size: int = 32) -> list[Labelled]:
    """The same images with the names of their classes."""
    images, labels = pictures(n, size)
    return [(pixels, CLASSES[label]) for pixels, label in zip(images, labels, strict=True)]


def as_png(pixels: np.ndarray) -> bytes:
    """A file of an image, without loss."""
    Image.fromarray(pixels).save(file := io.BytesIO(), "PNG")
    return file.getvalue()


def save_folder(folder: Path, images: Iterable[Labelled], classes: bool = True) -> Path:
    """One file for each image, in a folder for each class or flat."""
    for i, (pixels, name) in enumerate(images):
        file = folder / name / f"{i:03}.png" if classes else folder / f"{i:03}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(as_png(pixels))
    return folder


def save_list(file: Path, images: list[Labelled]) -> Path:
    """A text file of paths, with labels behind tabs."""
    save_folder(file.with_suffix(""), images, classes=False)
    lines = [f"{file.stem}/{i:03}.png\t{name}\n" for i, (_, name) in enumerate(images)]
    file.write_text("".join(lines))
    return file


def save_shards(folder: Path, images: list[Labelled], n: int = 2) -> Path:
    """Tar files in WebDataset's layout: NAME.png beside NAME.cls."""
    folder.mkdir(parents=True)
    part = -(-len(images) // n)
    for k in range(n):
        with tarfile.open(folder / f"{k}.tar", "w") as tar:
            for i in range(part * k, min(part * (k + 1), len(images))):
                pixels, name = images[i]
                for ending, content in (("png", as_png(pixels)), ("cls", str(CLASSES.index(name)).encode())):
                    header = tarfile.TarInfo(f"{i:03}.{ending}")
                    header.size = len(content)
                    tar.addfile(header, io.BytesIO(content))
    return folder


def save_coco(folder: Path, counts: dict[str, int], size: int = 64, seed: int = 0) -> Path:
    """Pictures of one bright square or one dark bar in COCO's layout, with polygons as masks."""
    rng = np.random.default_rng(seed)
    (folder / "annotations").mkdir(parents=True)
    for split, n in counts.items():
        (folder / split).mkdir()
        images, annotations = [], []
        for i in range(n):
            pixels = rng.integers(90, 130, (size, size, 3), dtype=np.uint8)
            kind = i % 2
            width, height = (size // 3, size // 3) if kind == 0 else (size // 2, size // 4)
            left, top = (int(rng.integers(0, size - side)) for side in (width, height))
            pixels[top : top + height, left : left + width] = (240, 60, 40) if kind == 0 else (20, 30, 90)
            (folder / split / f"{i}.png").write_bytes(as_png(pixels))
            images.append({"id": i, "file_name": f"{i}.png", "height": size, "width": size})
            right, bottom = left + width, top + height
            outline = [left, top, right, top, right, bottom, left, bottom]
            where = {"bbox": [left, top, width, height], "area": width * height, "segmentation": [outline]}
            annotations.append({"id": i + 1, "image_id": i, "category_id": 5 + kind, "iscrowd": 0} | where)
        categories = [{"id": 5, "name": "square"}, {"id": 6, "name": "bar"}]
        content = {"images": images, "annotations": annotations, "categories": categories}
        (folder / "annotations" / f"instances_{split}.json").write_text(json.dumps(content))
    return folder
