"""How do many small pictures fit into a page? As WebP inside addresses, each picture once."""

import base64
import io
from collections.abc import Sequence

import numpy as np
from jaxtyping import UInt8
from PIL import Image, ImageDraw

Pixels = UInt8[np.ndarray, "_ _ 3"]
QUALITY = 82


class Thumbnails:
    """The small pictures of a page; runs that saw the same images share them."""

    def __init__(self) -> None:
        self.addresses: dict[str, int] = {}

    def add(self, pixels: Pixels, side: int, box: Sequence[float] | None = None) -> int:
        """The number under which the page's script finds the picture."""
        return self.addresses.setdefault(thumbnail(pixels, side, box), len(self.addresses))


def thumbnail(pixels: Pixels, side: int, box: Sequence[float] | None = None) -> str:
    """An image of at most so many pixels as an address; one with a box (top, left, height, width) on it has as many."""
    image = Image.fromarray(pixels)
    scale = side / max(image.size) if box is not None else min(1.0, side / max(image.size))
    size = (max(1, round(image.width * scale)), max(1, round(image.height * scale)))
    image = image.resize(size, Image.Resampling.NEAREST if scale > 1 else Image.Resampling.LANCZOS)
    if box is not None:
        top, left, tall, wide = (edge * scale for edge in box)
        pen = ImageDraw.Draw(image)
        pen.rectangle((left - 1, top - 1, left + wide, top + tall), outline="white", width=3)
        pen.rectangle((left, top, left + wide - 1, top + tall - 1), outline="black", width=1)
    content = io.BytesIO()
    image.save(content, "WEBP", quality=QUALITY)
    return "data:image/webp;base64," + base64.b64encode(content.getvalue()).decode()
