"""How are photographs decoded on the GPU? JPEG by nvJPEG, a batch at a time; whatever is not plain JPEG on the CPU."""

from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import torch
import torch.nn.functional as F
import torchvision
from jaxtyping import UInt8
from torch import Tensor

from ..types import ImageBatch
from .bad import BadImages
from .feed import lay_out
from .workers import Decoding

AVAILABLE = hasattr(torchvision.io, "decode_jpeg")  # torchvision 0.29 announces that its decoders will go

READERS = 16
SOI, EOI = b"\xff\xd8", b"\xff\xd9"
START_OF_FRAME = {0xC0, 0xC1, 0xC2}  # baseline, extended, progressive
EXIF = b"Exif\x00\x00"


class Header(NamedTuple):
    """What must be known of a JPEG before nvJPEG may have it."""

    components: int
    orientation: int
    pixels: int


def read_header(data: bytes) -> Header | None:
    """The header of a whole JPEG; None where the bytes are anything else, or end too early.

    nvJPEG does not notice a truncated file: it leaves what its memory held before.
    """
    if data[:2] != SOI or EOI not in data[-64:]:
        return None
    components, orientation, pixels, at = 0, 1, 0, 2
    while at + 4 <= len(data) and data[at] == 0xFF:
        marker, length = data[at + 1], int.from_bytes(data[at + 2 : at + 4])
        segment = data[at + 4 : at + 2 + length]
        if marker == 0xFF:  # padding
            at += 1
            continue
        if marker == 0xE1 and segment[:6] == EXIF:
            orientation = _orientation(segment[6:])
        elif marker in START_OF_FRAME and len(segment) >= 6:
            components = segment[5]
            pixels = int.from_bytes(segment[1:3]) * int.from_bytes(segment[3:5])
        elif marker == 0xDA:  # the scan begins
            return Header(components, orientation, pixels) if components and pixels else None
        at += 2 + length
    return None


def _orientation(tiff: bytes) -> int:
    """EXIF's tag 0x0112 in the first directory; 1 (upright) where it is missing or makes no sense."""
    order = {b"II": "little", b"MM": "big"}.get(tiff[:2])
    if order is None or len(tiff) < 10:
        return 1

    def number(at: int, size: int) -> int:
        return int.from_bytes(tiff[at : at + size], order)  # type: ignore[arg-type] (one of the two)

    first = number(4, 4)
    for entry in range(number(first, 2)):
        at = first + 2 + 12 * entry
        if number(at, 2) == 0x0112:
            value = number(at + 8, 2)
            return value if 1 <= value <= 8 else 1
    return 1


def upright(image: UInt8[Tensor, "C H W"], orientation: int) -> UInt8[Tensor, "C h w"]:
    """Undo the turn that EXIF names: 5 to 8 exchange rows and columns, then each mirrors an axis or both."""
    if orientation >= 5:
        image = image.transpose(1, 2)
    axes = {2: [2], 3: [1, 2], 4: [1], 6: [2], 7: [1, 2], 8: [1]}.get(orientation)
    return image.flip(axes) if axes else image


def shrunk(image: UInt8[Tensor, "C H W"], max_side: int) -> UInt8[Tensor, "C h w"]:
    """The image with its longer side at most `max_side` (0: as it is), antialiased."""
    height, width = image.shape[1:]
    if not max_side or max(height, width) <= max_side:
        return image
    scale = max_side / max(height, width)
    size = (max(1, round(height * scale)), max(1, round(width * scale)))
    smaller = F.interpolate(image[None].float(), size=size, mode="bilinear", antialias=True)[0]
    return smaller.round_().clamp_(0, 255).to(torch.uint8)


def decode_jpegs(files: list[Tensor], device: torch.device) -> list[Tensor]:
    """RGB pixels of several encoded images, on the device."""
    return torchvision.io.decode_jpeg(files, mode=torchvision.io.ImageReadMode.RGB, device=device)  # type: ignore[return-value] (a list for a list)


class Nvjpeg:
    """Batches of photographs on a CUDA device."""

    def __init__(self, decoding: Decoding, bad: BadImages, device: torch.device) -> None:
        self.decoding, self.bad, self.device = decoding, bad, device
        self.readers = ThreadPoolExecutor(READERS, thread_name_prefix="reader")

    def batches(self, order: Iterable[Tensor]) -> Iterator[ImageBatch]:
        """The images of each group of rows; files are read two groups ahead."""
        waiting = []
        for rows in order:
            waiting.append((rows, [self.readers.submit(self._read, row) for row in rows.tolist()]))
            if len(waiting) > 2:
                yield self._decode(*waiting.pop(0))
        for group in waiting:
            yield self._decode(*group)

    def _read(self, row: int) -> tuple[Tensor, Header] | None:
        """The bytes of a plain JPEG; None for all that the CPU must look at."""
        try:
            data = self.decoding.photos.read(row)
        except OSError:
            return None
        header = read_header(data)
        if header is None or header.components not in (1, 3):
            return None
        return torch.frombuffer(bytearray(data), dtype=torch.uint8), header

    def _decode(self, rows: Tensor, read: list) -> ImageBatch:
        files = [future.result() for future in read]
        plain = [i for i, file in enumerate(files) if file is not None]
        images: list[Tensor | None] = [None] * len(files)
        for i, image in zip(plain, self._on_device([files[i][0] for i in plain]), strict=True):
            if image is not None:
                images[i] = shrunk(upright(image, files[i][1].orientation), self.decoding.max_side)
        left = [i for i, image in enumerate(images) if image is None]
        found = []
        for i, (array, bad) in zip(left, self.readers.map(self.decoding.__getitem__, rows[left].tolist()), strict=True):
            images[i] = torch.from_numpy(array).permute(2, 0, 1).to(self.device)
            found += bad
        self.bad.note(len(rows), found)
        return lay_out([image for image in images if image is not None])

    def _on_device(self, files: list[Tensor]) -> list[Tensor | None]:
        """Decode a batch; when one of it fails nvJPEG gives up the whole, so each is tried alone."""
        if not files:
            return []
        try:
            return list(decode_jpegs(files, self.device))
        except RuntimeError:
            if len(files) == 1:
                return [None]
            return [image for file in files for image in self._on_device([file])]
