"""What does a person see in an image file? RGB pixels, upright and opaque, whatever the file says it is."""

import io
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from math import gcd
from pathlib import Path

import numpy as np
from jaxtyping import UInt8
from PIL import Image

from .formats import opened, what_reads
from .resizing import resized, square

MOST_PIXELS = 2**28  # a larger claim is a decompression bomb, or no photograph; Pillow's own limit may be switched off
ENOUGH = 4  # times the side of a square: a JPEG may be decoded at a fraction of its size that leaves so much
ON_WHITE = (255, 255, 255)  # what viewers show behind transparent pixels
ORIENTATION = 0x0112  # EXIF's tag
TURNS = {  # what makes each orientation upright
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
SIDEWAYS = range(5, 9)  # orientations whose height is the width that is seen
TOLD_AT_ONCE = ("JPEG", "MPO", "PNG")  # formats of which the size and the orientation need no pixels


class BadImage(Exception):  # noqa: N818  # one bad image is an event, not an error of the run
    """Bytes that do not make an image; says why."""


def decode(data: bytes, max_side: int = 0) -> UInt8[np.ndarray, "H W 3"]:
    """The image in a file's bytes, its longer side shrunk to `max_side` (0: never) with antialiasing.

    A JPEG skips detail as long as both its sides stay that large, and is decoded faster.
    """
    with _image(data) as image:
        if max_side:
            image.draft("RGB", (max_side, max_side))  # a half, a quarter or an eighth
        return seen(image, max_side)


def decode_square(data: bytes, size: int) -> UInt8[np.ndarray, "{size} {size} 3"]:
    """The central square of the image in a file's bytes, as evaluation sees it.

    A large JPEG is decoded at a half, a quarter or an eighth, if that divides both its sides: a last column that
    stood for fewer pixels than the others would shift all of them.
    """
    with _image(data) as image:
        divisor = gcd(8, *image.size)
        width, height = (max(ENOUGH * size, side // divisor) for side in image.size)
        image.draft("RGB", (width, height))
        return square(seen(image), size)


@contextmanager
def _image(data: bytes) -> Iterator[Image.Image]:
    """The image in a file's bytes, not yet decoded; BadImage for whatever fails while it is."""
    if not data:
        raise BadImage("empty file")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of Pillow: odd metadata, large images, palettes with transparency
            with Image.open(io.BytesIO(data), formats=opened()) as image:
                _refuse_bomb(image)
                yield image
    except Exception as error:  # decoders raise whatever broken bytes lead them to
        raise BadImage(what_reads(data) or str(error) or type(error).__name__) from error


def seen_size(path: Path) -> tuple[int, int]:
    """Height and width as a person sees the image in a file; of the usual kinds its first bytes tell."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with Image.open(path, formats=opened()) as image:
                _refuse_bomb(image)
                if image.format not in TOLD_AT_ONCE:
                    image = _upright(image)
                elif _told(image) and _orientation(image) in SIDEWAYS:
                    return image.width, image.height
                return image.height, image.width
    except OSError as error:
        if error.errno is not None:  # the file is gone, or not ours
            raise
        raise BadImage(str(error)) from error
    except Exception as error:
        raise BadImage(str(error) or type(error).__name__) from error


def seen(image: Image.Image, max_side: int = 0) -> UInt8[np.ndarray, "H W 3"]:
    """An image as a person sees it, its longer side shrunk to `max_side` (0: never); the image itself stays."""
    _refuse_bomb(image)
    pixels = np.array(_rgb(_upright(image)))
    scale = max_side / max(pixels.shape[:2])
    if not 0 < scale < 1:
        return pixels
    height, width = (max(1, round(side * scale)) for side in pixels.shape[:2])
    return resized(pixels, (height, width), "bilinear")


def _refuse_bomb(image: Image.Image) -> None:
    if image.width * image.height > MOST_PIXELS:
        raise BadImage(f"{image.width} x {image.height} pixels are more than {MOST_PIXELS:,}")


def _upright(image: Image.Image) -> Image.Image:
    image.load()  # Pillow turns TIFF here, and takes its tag away
    turn = TURNS.get(_orientation(image))
    # Not `ImageOps.exif_transpose`: it writes the other tags anew, and fails where a camera wrote them wrongly.
    return image if turn is None else image.transpose(turn)


def _told(image: Image.Image) -> bool:
    """Whether the first bytes tell the orientation; Pillow would look behind a PNG's pixels for it."""
    return image.format != "PNG" or "exif" in image.info


def _orientation(image: Image.Image) -> int:
    try:
        told = image.getexif().get(ORIENTATION, 1)
    except Exception:  # broken metadata make no broken image
        return 1
    return told if isinstance(told, int) else 1


def _rgb(image: Image.Image) -> Image.Image:
    if image.mode.startswith("I") or image.mode == "F":
        return _from_deep(np.asarray(image)).convert("RGB")
    if image.mode in ("RGBA", "LA", "PA", "La", "RGBa") or "transparency" in image.info:
        layer = image.convert("RGBA")
        return Image.alpha_composite(Image.new("RGBA", layer.size, (*ON_WHITE, 255)), layer).convert("RGB")
    return image if image.mode == "RGB" else image.convert("RGB")


def _from_deep(values: np.ndarray) -> Image.Image:
    """Grey of up to 8 bits as it is, of up to 16 bits by its upper byte; any wider range stretched to 8 bits."""
    if not np.isfinite(values).all():
        raise BadImage("pixels that are not finite")
    low, high = float(values.min()), float(values.max())
    if values.dtype == np.int32 and low >= 0 and high < 2**8:  # 32-bit files of 8-bit pictures
        return Image.fromarray(values.astype(np.uint8))
    if values.dtype != np.float32 and low >= 0 and high < 2**16:
        return Image.fromarray((values.astype(np.uint32) >> 8).astype(np.uint8))
    return Image.fromarray((255 * (values - low) / max(high - low, 1e-12)).astype(np.uint8))
