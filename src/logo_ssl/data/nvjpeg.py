"""How are photographs decoded on the GPU? JPEG by nvJPEG, a batch at a time; whatever is not plain JPEG on the CPU."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import torch
import torch.nn.functional as F
import torchvision
from jaxtyping import UInt8
from torch import Tensor
from torch.utils.data import Dataset

from ..types import ImageBatch
from .bad import Bad, BadImages
from .feed import Feed, lay_out
from .workers import Decoding, Reader

AVAILABLE = hasattr(torchvision.io, "decode_jpeg")  # torchvision 0.29 announces that its decoders will go

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


class Read(NamedTuple):
    """A batch as a worker sends it: plain JPEGs in one buffer, all else decoded, and what could not be read."""

    jpegs: UInt8[Tensor, " bytes"]
    lengths: list[int]
    orientations: list[int]
    rows: list[int]
    places: list[int]
    """Where in the batch the JPEGs stand; the decoded ones take the other places, in order."""
    decoded: list[UInt8[Tensor, "3 _ _"]]
    bad: list[Bad]


class Reading(Dataset):
    """Photographs by number, left encoded where nvJPEG can take them."""

    def __init__(self, decoding: Decoding) -> None:
        self.decoding = decoding

    def __len__(self) -> int:
        return len(self.decoding)

    def __getitems__(self, rows: list[int]) -> Read:
        jpegs, decoded, bad, places = [], [], [], []
        for place, row in enumerate(rows):
            try:
                data = self.decoding.photos.read(row)
            except OSError:
                data = b""
            header = read_header(data)
            if header is not None and header.components in (1, 3):
                jpegs.append((data, header.orientation, row))
                places.append(place)
            else:
                array, found = self.decoding[row]
                decoded.append(torch.from_numpy(array).permute(2, 0, 1))
                bad += found
        buffer = torch.frombuffer(bytearray(b"".join(data for data, _, _ in jpegs) or b"\0"), dtype=torch.uint8)
        lengths, orientations = [len(data) for data, _, _ in jpegs], [turn for _, turn, _ in jpegs]
        return Read(buffer, lengths, orientations, [row for _, _, row in jpegs], places, decoded, bad)


class Nvjpeg(Feed):
    """Batches of photographs on a CUDA device: worker processes read, nvJPEG decodes."""

    def __init__(self, decoding: Decoding, bad: BadImages, workers: int, device: torch.device) -> None:
        self.decoding, self.bad, self.device = decoding, bad, device
        self.reader = Reader(Reading(decoding), workers, collate=_as_read)

    def batches(self, order: Iterable[Tensor]) -> Iterator[ImageBatch]:
        """The images of each group of rows."""
        for read in self.reader.read(order):
            yield self._decode(read)

    def close(self) -> None:
        """End the workers."""
        self.reader.close()

    def _decode(self, read: Read) -> ImageBatch:
        bad = read.bad
        images = dict.fromkeys(range(len(read.places) + len(read.decoded)))
        files = list(read.jpegs.split(read.lengths)) if read.lengths else []
        for place, row, turn, image in zip(
            read.places, read.rows, read.orientations, self._on_device(files), strict=True
        ):
            if image is None:
                array, found = self.decoding[row]
                image, turn, bad = torch.from_numpy(array).permute(2, 0, 1).to(self.device), 1, bad + found
            images[place] = shrunk(upright(image, turn), self.decoding.max_side)
        others = iter(read.decoded)
        filled = [next(others).to(self.device) if image is None else image for image in images.values()]
        self.bad.note(len(filled), bad)
        return lay_out(filled)

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


def _as_read(read: Read) -> Read:
    return read
