"""Photographs for the tests of data, and the images of a batch."""

import io
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from logo_ssl.data import Photos
from logo_ssl.data.decode import ORIENTATION
from logo_ssl.types import ImageBatch


def flat(value: int, height: int = 20, width: int = 30) -> Image.Image:
    """One grey everywhere."""
    return Image.fromarray(np.full((height, width, 3), value, np.uint8))


def smooth(height: int = 24, width: int = 40) -> Image.Image:
    """So smooth that decoders agree, and without any symmetry."""
    y, x = np.mgrid[:height, :width]
    return Image.fromarray(np.stack([4 * x, 8 * y, 2 * (x + y)], axis=2).clip(0, 255).astype(np.uint8))


def encode(image: Image.Image, kind: str = "PNG", orientation: int | None = None, **options) -> bytes:
    """The bytes of a file."""
    if orientation is not None:
        options["exif"] = Image.Exif()
        options["exif"][ORIENTATION] = orientation
    image.save(file := io.BytesIO(), kind, **options)
    return file.getvalue()


def jpeg(image: Image.Image, orientation: int | None = None, **options) -> bytes:
    """The bytes of a fine JPEG."""
    return encode(image, "JPEG", orientation, quality=95, **options)


def folder(path: Path, contents: list[bytes]) -> Photos:
    """Photographs of these contents, all called .jpg."""
    path.mkdir(exist_ok=True)
    for i, content in enumerate(contents):
        (path / f"{i:03}.jpg").write_bytes(content)
    return Photos.from_paths(path / f"{i:03}.jpg" for i in range(len(contents)))


def images_of(batch: ImageBatch) -> list[torch.Tensor]:
    """The images of a batch, cut from their canvases."""
    sizes = [batch.pixels.shape[2:]] * len(batch.pixels) if batch.sizes is None else batch.sizes.tolist()
    return [image[:, :height, :width] for image, (height, width) in zip(batch.pixels, sizes, strict=True)]
