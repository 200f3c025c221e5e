"""What a kept detector finds in new images: boxes in COCO's results format, and drawn images."""

import io
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import UInt8
from torch import Tensor

from ..data import BadImages, Photos, Split
from ..data.bad_images import Bad
from ..data.decode import BadImage, decode, plain_reason
from ..data.workers import fitting_workers
from ..eval.features import Extraction
from ..files import write
from ..system.hardware import best_device
from .evaluate import RIGHT, drawn, find_in
from .formats import decoded
from .metrics import SURE, Detections, as_coco
from .saved import SavedDetector
from .train import BYTES, read

DRAWN_SIDE = 800  # pixels


Pixels = UInt8[Tensor, "3 H W"]


def find(
    saved: SavedDetector, split: Split, how: Extraction, bad: BadImages
) -> Iterator[tuple[int, Pixels, Detections]]:
    """Row, pixels and objects of each image of a split that can be read."""
    device, n = best_device(how.device), len(split)
    detector, one_by_one = saved.detector.to(device), [[row] for row in range(n)]
    for row, (pixels,) in enumerate(read(partial(_pixels, split), one_by_one, fitting_workers(how.workers, BYTES))):
        if isinstance(pixels, Bad):
            bad.note([pixels])
        else:
            yield row, pixels, find_in(detector, [pixels], device)[0]
        how.progress("images", row + 1, n)


def _pixels(split: Split, row: int) -> Pixels | Bad:
    if not isinstance(split.images, Photos):
        return split.images[row].expand(3, -1, -1)  # grey fills every channel
    try:
        return torch.from_numpy(decode(split.images.read(row))).permute(2, 0, 1)
    except (OSError, BadImage) as error:
        return Bad(split.images.name(row), plain_reason(error))


def coco_results(saved: SavedDetector, name: str, objects: Detections) -> list[dict[str, Any]]:
    """An image's objects as COCO's results, with boxes and masks in one; the image is called by its path."""
    found = as_coco([objects], [name], saved.numbers, "bbox")
    shapes = as_coco([objects], [name], saved.numbers, "segm") if saved.masks else [{}] * len(found)
    names = [{"category": saved.classes[label - 1]} for label in objects.labels]
    return [box | shape | named for box, shape, named in zip(found, shapes, names, strict=True)]


def draw(saved: SavedDetector, pixels: Pixels, objects: Detections, file: Path) -> None:
    """Draw an image with the objects that are sure."""
    sure = np.flatnonzero(objects.scores >= SURE)
    names = [f"{saved.classes[objects.labels[n] - 1]} {objects.scores[n]:.2f}" for n in sure]
    masks = [decoded(objects.masks[n], *pixels.shape[1:]) for n in sure if objects.masks]
    picture = drawn(pixels, objects.boxes[sure], names, [RIGHT] * len(names), masks, DRAWN_SIDE)
    picture.save(content := io.BytesIO(), "png")
    write(file, content.getvalue())
