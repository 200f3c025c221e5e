"""Image files become pixels: RGB, upright and opaque, as a person sees them; shrunk, or cut to a central square."""

import io
import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from math import gcd
from os.path import splitext
from pathlib import Path
from statistics import median
from typing import Literal, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import UInt8
from PIL import Image, UnidentifiedImageError, features
from torch import Tensor

from ..errors import UserError
from ..system.terminal import counted
from .images import ImageSet, Photos, Split, evenly

PLAIN = {
    "JPEG": (".jpg", ".jpeg"),
    "PNG": (".png",),
    "WEBP": (".webp",),
    "BMP": (".bmp",),
    "TIFF": (".tif", ".tiff"),
    "PPM": (".ppm", ".pgm"),
    "GIF": (".gif",),
}
"""Formats that every Pillow reads, and how such files' names end; no others, since some run programs."""
HEIC, AVIF = (".heic", ".heif", ".hif"), (".avif",)
CURES = dict.fromkeys(HEIC, "pip install 'logo-ssl[heic]'") | dict.fromkeys(AVIF, "pip install 'pillow>=11.3'")
MOST_KINDS = 6  # of files that are named
MOST_PIXELS = 2**28  # a larger claim is a decompression bomb, not a photograph; Pillow's own limit may be switched off
ENOUGH = 4  # times the side of a square: a JPEG may be decoded at a fraction of its size that leaves so much
LONGEST = 100  # times the short side; a square of 1 x 65,535 pixels would be cut from 224 x 14,679,840
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
START_OF_JPEG, END_OF_JPEG = b"\xff\xd8", b"\xff\xd9"
RGB_AS_IT_IS = 0  # what Adobe's segment of a JPEG says if its colours are red, green and blue
SIDEWAYS = range(5, 9)  # orientations whose height is the width that is seen
STATISTICS_FROM, STATISTICS_FROM_PHOTOS, STATISTICS_SIDE = 10_000, 256, 128  # enough for two to three digits
LOOKED_AT = 64  # files whose headers stand for all


class BadImage(Exception):  # noqa: N818  # one bad image is an event, not an error of the run
    """Bytes that do not make an image; says why."""


@cache
def formats() -> dict[str, tuple[str, ...]]:
    """The formats that images may have here, as Pillow calls them, and how their names end."""
    known = PLAIN | ({"AVIF": AVIF} if features.check("avif") else {})
    try:
        import pillow_heif  # pyright: ignore[reportMissingImports] (an extra)

        pillow_heif.register_heif_opener()
    except Exception:  # a broken library raises whatever it likes, and JPEGs need none
        return known
    return known | {"HEIF": HEIC}


@cache
def suffixes() -> frozenset[str]:
    """How the names of images end here, in lower case."""
    return frozenset(ending for endings in formats().values() for ending in endings)


def ending(name: str) -> str:
    """How a file's name ends, in lower case."""
    return splitext(name)[1].lower()


def list_endings(others: Counter[str]) -> str:
    """Files that are not images by their endings, in a few words, and what would let some be read."""
    return ", ".join(
        f"{n:,} {end or 'without an ending'}" + (f" (readable with {CURES[end]})" if end in CURES else "")
        for end, n in others.most_common(MOST_KINDS)
    )


def decode(data: bytes, max_side: int = 0) -> UInt8[np.ndarray, "H W 3"]:
    """The image in a file's bytes, its longer side shrunk to `max_side` (0: never) with antialiasing.

    A JPEG skips detail as long as both its sides stay that large, and is decoded faster.
    """
    with _opened(data) as image:
        if max_side:
            image.draft("RGB", (max_side, max_side))  # a half, a quarter or an eighth
        return seen(image, max_side)


def decode_square(data: bytes, size: int) -> UInt8[np.ndarray, "{size} {size} 3"]:
    """The central square of the image in a file's bytes, as evaluation sees it.

    A large JPEG is decoded at a half, a quarter or an eighth, if that divides both its sides: a last column that
    stood for fewer pixels than the others would shift all of them.
    """
    with _opened(data) as image:
        divisor = gcd(8, *image.size)
        width, height = (max(ENOUGH * size, side // divisor) for side in image.size)
        image.draft("RGB", (width, height))
        return square(seen(image), size)


def seen_size(path: Path) -> tuple[int, int]:
    """Height and width as a person sees the image in a file, of which the first bytes tell."""
    with _opened(path) as image:
        told = "exif" in image.info or image.format == "TIFF"  # else Pillow would look behind a PNG's pixels for it
        sideways = told and orientation(image) in SIDEWAYS
        return (image.width, image.height) if sideways else (image.height, image.width)


@contextmanager
def _opened(source: bytes | Path) -> Iterator[Image.Image]:
    """The image in a file or its bytes, not yet decoded; BadImage for whatever fails while it is."""
    if source == b"":
        raise BadImage("empty file")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of Pillow: odd metadata, large images, palettes with transparency
            file = io.BytesIO(source) if isinstance(source, bytes) else source
            with Image.open(file, formats=tuple(formats())) as image:
                _check_size(image)
                yield image
    except Exception as error:  # decoders raise whatever broken bytes lead them to
        if isinstance(source, Path) and isinstance(error, OSError) and error.errno is not None:
            raise  # the file is gone, or not ours
        raise BadImage(plain_reason(error)) from error


def plain_reason(error: Exception) -> str:
    """Why an image could not be read, in words that are the same each time."""
    if isinstance(error, UnidentifiedImageError):  # which names a place in memory
        return "not an image"
    told = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return " ".join(told.split()) or type(error).__name__


class JpegHeader(NamedTuple):
    """What must be known of a JPEG before nvJPEG may have it."""

    orientation: int
    pixels: int


def read_jpeg_header(data: bytes) -> JpegHeader | None:
    """The header of a whole JPEG in grey or YCbCr; None for any other bytes, which `decode` must judge.

    nvJPEG does not notice a truncated file: it leaves what its memory held before. So the end must be there.
    """
    if data[:2] != START_OF_JPEG or END_OF_JPEG not in data[-64:]:
        return None
    try:
        with _opened(data) as image:
            is_plain = image.mode in ("L", "RGB") and image.info.get("adobe_transform") != RGB_AS_IT_IS
            turn = orientation(image)
            return JpegHeader(turn if turn in TURNS else 1, image.width * image.height) if is_plain else None
    except BadImage:
        return None


def seen(image: Image.Image, max_side: int = 0) -> UInt8[np.ndarray, "H W 3"]:
    """An image as a person sees it, its longer side shrunk to `max_side` (0: never); the image itself stays."""
    _check_size(image)
    image.load()  # Pillow turns TIFF here, and takes its tag away
    turn = TURNS.get(orientation(image))
    # Not `ImageOps.exif_transpose`: it writes the other tags anew, and fails if a camera wrote them wrongly.
    pixels = np.array(_rgb(image if turn is None else image.transpose(turn)))
    scale = max_side / max(pixels.shape[:2])
    if not 0 < scale < 1:
        return pixels
    height, width = (max(1, round(side * scale)) for side in pixels.shape[:2])
    return resized(pixels, (height, width), "bilinear")


def _check_size(image: Image.Image) -> None:
    if image.width * image.height > MOST_PIXELS or max(image.size) > LONGEST * min(image.size):
        raise BadImage(f"{image.width} x {image.height} pixels are too many, or too long")


def orientation(image: Image.Image) -> int:
    """EXIF's number for how an image must be turned; 1 (upright) if there is none, or it makes no sense."""
    try:
        found = image.getexif().get(ORIENTATION, 1)
    except Exception:  # broken metadata make no broken image
        return 1
    return found if isinstance(found, int) else 1


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
    if values.dtype == np.int32 and low >= 0 and high < 2**8:  # 32-bit files of 8-bit images
        return Image.fromarray(values.astype(np.uint8))
    if values.dtype != np.float32 and low >= 0 and high < 2**16:
        return Image.fromarray((values.astype(np.uint32) >> 8).astype(np.uint8))
    return Image.fromarray((255 * (values - low) / max(high - low, 1e-12)).astype(np.uint8))


class Middle(NamedTuple):
    """The way to an image's central square: resize it, cut the square."""

    resized: tuple[int, int]
    square: tuple[slice, slice]


def middle_of(height: int, width: int, size: int) -> Middle:
    """The short side brought to `size`, the middle cut out: torchvision's `Resize(size)` and `CenterCrop(size)`."""
    high, wide = (side * size // min(height, width) for side in (height, width))  # rounded down, as there
    return Middle((high, wide), (_central(high, size), _central(wide, size)))


def _central(length: int, size: int) -> slice:
    start = round((length - size) / 2)  # a half to the even number beside it, as there
    return slice(start, start + size)


def square(image: UInt8[np.ndarray, "H W 3"], size: int) -> UInt8[np.ndarray, "S S 3"]:
    """The image with its short side brought to `size` and its middle cut out, for evaluation."""
    middle = middle_of(image.shape[0], image.shape[1], size)
    return np.ascontiguousarray(resized(image, middle.resized, "bicubic")[middle.square])


def resized(
    image: UInt8[np.ndarray, "H W C"], size: tuple[int, int], mode: Literal["bilinear", "bicubic"]
) -> UInt8[np.ndarray, "h w C"]:
    """The image in another height and width, antialiased: by torch, in a fraction of Pillow's time (decision 0013)."""
    pixels = torch.from_numpy(np.require(image, requirements=["C", "W"]))[None]
    channels_last = pixels.permute(0, 3, 1, 2)  # and so it comes out
    return F.interpolate(channels_last, size=size, mode=mode, antialias=True).permute(0, 2, 3, 1)[0].numpy()


class DatasetInfo(NamedTuple):
    """What settings can be chosen by."""

    n_images: int
    side: int
    """Of the shorter sides, the median, in pixels."""
    channels: int
    labelled: bool

    def __str__(self) -> str:
        kind = "" if self.channels == 3 else f" with {self.channels} channels"
        return (
            f"{counted(self.n_images, 'image')} of about {self.side} px{kind}, "
            f"{'with' if self.labelled else 'without'} labels"
        )


def dataset_info(data: ImageSet) -> DatasetInfo:
    """What is known before anything is trained; of photographs, from the headers of some."""
    images = data.train.images
    sizes = image_sizes(images)
    if isinstance(images, Photos) and not sizes:
        raise none_readable(images)
    return DatasetInfo(len(data.train), int(median(map(min, sizes))), data.channels, data.train.has_labels)


def image_sizes(images: Tensor | Photos) -> list[tuple[int, int]]:
    """Width and height of an array's images; of some photographs, as their headers say, if they can be read."""
    if isinstance(images, Tensor):
        return [(images.shape[3], images.shape[2])]
    sizes = list[tuple[int, int]]()
    for content in sample(images, LOOKED_AT):
        with suppress(BadImage), _opened(content) as image:
            sizes.append(image.size)
    return sizes


def statistics(images: Tensor | Photos) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and standard deviation of each channel, on a scale from 0 to 1."""
    if isinstance(images, Photos):
        found = decoded_sample(images, STATISTICS_FROM_PHOTOS, STATISTICS_SIDE)
        values = torch.cat([torch.from_numpy(image).view(-1, 3).T for image in found], dim=1).float() / 255
    else:
        values = images[evenly(len(images), STATISTICS_FROM)].transpose(0, 1).flatten(1).float() / 255
    spread = values.std(dim=1).clamp_min(1 / 255)  # a constant channel must not divide by zero
    return tuple(values.mean(dim=1).tolist()), tuple(spread.tolist())


def look_at(split: Split, most: int, max_side: int) -> list[UInt8[np.ndarray, "_ _ C"]]:
    """Some images of a split, evenly spread, as arrays; those that cannot be read are left out."""
    if not isinstance(split.images, Photos):
        return list(split.thinned(most).array.permute(0, 2, 3, 1).numpy())
    return decoded_sample(split.images, most, max_side)


def sample(photos: Photos, most: int) -> Iterator[bytes]:
    """At most so many files, evenly spread; those that cannot be read are left out."""
    for row in evenly(len(photos), most).tolist():
        with suppress(OSError):
            yield photos.read(row)


def decoded_sample(photos: Photos, most: int, max_side: int) -> list[UInt8[np.ndarray, "_ _ 3"]]:
    """What such files show; those that cannot be decoded are left out as well, unless all are."""
    images = []
    for content in sample(photos, most):
        with suppress(BadImage):
            images.append(decode(content, max_side))
    if not images:
        raise none_readable(photos)
    return images


def none_readable(photos: Photos, what: str = "images") -> UserError:
    """The error for photographs of which none can be read: which is the first, and why it cannot."""
    why = ""
    try:
        decode(photos.read(0))
    except (OSError, BadImage) as error:
        why = f", {plain_reason(error)}"
    return UserError(f"None of the {what} can be read (the first: {photos.name(0)}{why}); look at the files.")
