"""Made-up images of squares and discs, in COCO's and in VOC's layout."""

import json
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

SIZE = 64
COLOURS = {"square": (230, 40, 40), "disc": (40, 60, 230)}


def draw(
    rng: np.random.Generator, size: int = SIZE
) -> tuple[np.ndarray, list[tuple[str, tuple[int, ...], np.ndarray]]]:
    """An image with one object in each of two quarters: pixels, and (category, box, mask) of each."""
    pixels = rng.integers(90, 130, (size, size, 3), dtype=np.uint8)
    objects = []
    y, x = np.mgrid[:size, :size]
    for quarter in rng.choice(4, 2, replace=False):
        side = int(rng.integers(size // 4, size // 2 - 2))
        left = int(quarter % 2) * size // 2 + int(rng.integers(0, size // 2 - side))
        top = int(quarter // 2) * size // 2 + int(rng.integers(0, size // 2 - side))
        category = str(rng.choice(list(COLOURS)))
        mask = (x >= left) & (x < left + side) & (y >= top) & (y < top + side)
        if category == "disc":
            centre = np.array([left, top]) + (side - 1) / 2
            mask &= (x - centre[0]) ** 2 + (y - centre[1]) ** 2 <= (side / 2) ** 2
        pixels[mask] = COLOURS[category]
        objects.append((category, (left, top, left + side, top + side), mask))
    return pixels, objects


def run_lengths(mask: np.ndarray) -> dict[str, Any]:
    """COCO's uncompressed run lengths: columns first, zeros first."""
    flat = mask.flatten(order="F").astype(int)
    changes = np.flatnonzero(np.diff(flat)) + 1
    runs = np.diff([0, *changes, flat.size]).tolist()
    return {"size": list(mask.shape), "counts": [0, *runs] if flat[0] else runs}


def save_coco(root: Path, counts: dict[str, int], seed: int = 0, size: int = SIZE) -> Path:
    """Write images for each split, with run lengths as masks."""
    rng = np.random.default_rng(seed)
    (root / "annotations").mkdir(parents=True)
    numbers = {name: 7 + 3 * i for i, name in enumerate(COLOURS)}
    for split, n in counts.items():
        (root / split).mkdir()
        images, annotations = [], []
        for i in range(n):
            pixels, objects = draw(rng, size)
            Image.fromarray(pixels).save(root / split / f"{i}.png")
            images.append({"id": i, "file_name": f"{i}.png", "height": size, "width": size})
            for category, (left, top, right, bottom), mask in objects:
                annotation = {"id": len(annotations) + 1, "image_id": i, "category_id": numbers[category]}
                annotation |= {"bbox": [left, top, right - left, bottom - top], "iscrowd": 0, "area": int(mask.sum())}
                annotations.append(annotation | {"segmentation": run_lengths(mask)})
        categories = [{"id": number, "name": name} for name, number in numbers.items()]
        content = {"images": images, "annotations": annotations, "categories": categories}
        (root / "annotations" / f"instances_{split}.json").write_text(json.dumps(content))
    return root


def save_voc(folder: Path, lists: dict[str, int], seed: int = 0, size: int = SIZE) -> Path:
    """Write images and XML, with a list for each split."""
    rng = np.random.default_rng(seed)
    for name in ("Annotations", "JPEGImages", "ImageSets/Main"):
        (folder / name).mkdir(parents=True)
    for split, n in lists.items():
        for i in range(n):
            pixels, objects = draw(rng, size)
            Image.fromarray(pixels).save(folder / "JPEGImages" / f"{split}{i}.png")
            found = "".join(
                voc_object(name, (left + 1, top + 1, right, bottom)) for name, (left, top, right, bottom), _ in objects
            )
            write_xml(folder, f"{split}{i}", found, size)
        (folder / "ImageSets" / "Main" / f"{split}.txt").write_text("".join(f"{split}{i}\n" for i in range(n)))
    return folder


def voc_object(name: str, box: tuple[float, ...], difficult: int = 0) -> str:
    edges = "".join(f"<{k}>{v}</{k}>" for k, v in zip(("xmin", "ymin", "xmax", "ymax"), box, strict=True))
    return f"<object><name>{name}</name><difficult>{difficult}</difficult><bndbox>{edges}</bndbox></object>"


def write_xml(folder: Path, name: str, objects: str, size: int = SIZE) -> None:
    xml = f"<annotation><size><width>{size}</width><height>{size}</height></size>{objects}</annotation>"
    (folder / "Annotations" / f"{name}.xml").write_text(xml)
