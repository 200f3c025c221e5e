"""Photographs decoded on the GPU: JPEG by nvJPEG, some at a time; whatever is not plain JPEG on the CPU."""

import io
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import cache

import torch
import torch.nn.functional as F
from jaxtyping import UInt8
from PIL import Image
from torch import Tensor

from ..types import ImageBatch
from .bad_images import BadImages
from .decode import JpegHeader, middle_of
from .workers import AheadFeed, Decoding, Message, Reader, lay_out

AHEAD = 2  # batches whose files are there before they are decoded
PIXELS_AT_ONCE = 2**26  # 200 MB decoded, 800 MB as floats; 256 photographs of 12 megapixels at once would be 9 GB


@cache
def works(device: torch.device) -> bool:
    """Whether a tiny JPEG is decoded; torchvision may be built without nvJPEG, and 0.29 announces an end to it."""
    file = io.BytesIO()
    Image.new("RGB", (16, 16), (200, 100, 50)).save(file, "JPEG")
    try:
        decode_jpegs([torch.frombuffer(bytearray(file.getvalue()), dtype=torch.uint8)], device)
    except (RuntimeError, AttributeError):
        return False
    return True


def upright(image: UInt8[Tensor, "C H W"], orientation: int) -> UInt8[Tensor, "C h w"]:
    """Undo the turn that EXIF names: 5 to 8 exchange rows and columns, then each mirrors an axis or both."""
    if orientation >= 5:
        image = image.transpose(1, 2)
    axes = {2: [2], 3: [1, 2], 4: [1], 6: [2], 7: [1, 2], 8: [1]}.get(orientation)
    return image.flip(axes) if axes else image


def shrunk(images: UInt8[Tensor, "N C H W"], max_side: int) -> UInt8[Tensor, "N C h w"]:
    """Images with their longer side at most `max_side` (0: as they are), antialiased."""
    height, width = images.shape[2:]
    if not max_side or max(height, width) <= max_side:
        return images
    scale = max_side / max(height, width)
    return _resized(images, (max(1, round(height * scale)), max(1, round(width * scale))), "bilinear")


def cut_square(images: UInt8[Tensor, "N C H W"], size: int) -> UInt8[Tensor, "N C S S"]:
    """Images with their short side brought to `size` and their middle cut out, as `decode.square` does."""
    middle = middle_of(images.shape[2], images.shape[3], size)
    if images.shape[2:] != middle.resized:
        images = _resized(images, middle.resized, "bicubic")
    return images[:, :, *middle.square]


def _resized(images: UInt8[Tensor, "N C H W"], size: tuple[int, int], mode: str) -> UInt8[Tensor, "N C h w"]:
    floats = F.interpolate(images.float(), size=size, mode=mode, antialias=True)
    return floats.round_().clamp_(0, 255).to(torch.uint8)


def by_shape(images: list[Tensor], fit: Callable[[Tensor], Tensor]) -> list[Tensor]:
    """Each image as `fit` makes it from a stack of all that have its shape: a few large calls, not many small ones."""
    rows_of: dict[torch.Size, list[int]] = {}
    for row, image in enumerate(images):
        rows_of.setdefault(image.shape, []).append(row)
    fitted = list(images)
    for rows in rows_of.values():
        for row, image in zip(rows, fit(torch.stack([images[row] for row in rows])), strict=True):
            fitted[row] = image
    return fitted


def bounded(pixels: list[int]) -> Iterator[slice]:
    """Neighbours that may be decoded together: at most PIXELS_AT_ONCE of them, or a single image."""
    start = total = 0
    for i, more in enumerate(pixels):
        if i > start and total + more > PIXELS_AT_ONCE:
            yield slice(start, i)
            start, total = i, 0
        total += more
    if pixels:
        yield slice(start, len(pixels))


def decode_jpegs(files: list[Tensor], device: torch.device) -> list[Tensor]:
    """RGB pixels of several encoded images, on the device."""
    import torchvision  # slow to import: only where it is needed

    return torchvision.io.decode_jpeg(files, mode=torchvision.io.ImageReadMode.RGB, device=device)  # type: ignore[return-value] (a list for a list)


class NvjpegFeed(AheadFeed):
    """Batches of photographs on a CUDA device: worker processes read, nvJPEG decodes."""

    def __init__(self, decoding: Decoding, bad: BadImages, workers: int, device: torch.device) -> None:
        self.decoding, self.bad, self.device = decoding, bad, device
        self.reader = Reader(replace(decoding, keeps_jpegs=True), workers)

    def batches(self, order: Iterable[Tensor]) -> Iterator[ImageBatch]:
        """The images of each group of rows; the files of the next are received while nvJPEG decodes."""
        for messages in self.make_ahead(self.reader.read(order), AHEAD):
            self.bad.note([bad for message in messages for bad in message.bad])
            images, used = self._decoded(messages)
            yield lay_out(images)._replace(rows=torch.tensor(used))

    def close(self) -> None:
        """End the workers."""
        super().close()
        self.reader.close()

    def _decoded(self, messages: list[Message]) -> tuple[list[Tensor], list[int]]:
        """The images of some messages, in order, on the device, and the rows that are really shown."""
        sent = [image for message in messages for image in message.images()]
        jpegs = self._on_device([(file, about.header) for about, file in sent if about.header is not None])
        images, shown = [], []
        for about, content in sent:
            image = content.to(self.device, non_blocking=True) if about.header is None else next(jpegs)
            used = about.used
            if image is None:
                image, used = self._by_pillow(about.row)
            images.append(image)
            shown.append(used)
        return images, shown

    def _on_device(self, jpegs: list[tuple[Tensor, JpegHeader]]) -> Iterator[Tensor | None]:
        """Upright and shrunk images, decoded in groups of bounded size; None if nvJPEG fails."""
        for group in bounded([header.pixels for _, header in jpegs]):
            files, headers = zip(*jpegs[group], strict=True)
            decoded = self._group(list(files))
            whole = [
                upright(image, header.orientation)
                for image, header in zip(decoded, headers, strict=True)
                if image is not None
            ]
            fitted = iter(by_shape(whole, self._fitted))
            yield from (None if image is None else next(fitted) for image in decoded)

    def _fitted(self, images: UInt8[Tensor, "N C H W"]) -> UInt8[Tensor, "N C h w"]:
        square = self.decoding.square
        return cut_square(images, square) if square else shrunk(images, self.decoding.max_side)

    def _group(self, files: list[Tensor]) -> list[Tensor | None]:
        """Decode together; if one fails nvJPEG gives up all, so each is tried alone."""
        if self.device.type == "cuda":
            # The decoder writes on a stream of its own, into memory that this one may still be reading.
            torch.cuda.current_stream(self.device).synchronize()
        try:
            return list(decode_jpegs(files, self.device))
        except RuntimeError:
            return [None] if len(files) == 1 else [image for file in files for image in self._group([file])]

    def _by_pillow(self, row: int) -> tuple[Tensor, int]:
        decoded = self.decoding[row]
        self.bad.note(decoded.bad)
        return torch.from_numpy(decoded.pixels).permute(2, 0, 1).to(self.device), decoded.row
