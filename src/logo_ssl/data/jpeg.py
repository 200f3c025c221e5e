"""Is this a plain JPEG, whole and upright? Its header, read without decoding it."""

from typing import NamedTuple

from .decode import MOST_PIXELS

SOI, EOI = b"\xff\xd8", b"\xff\xd9"
START_OF_FRAME = {0xC0, 0xC1, 0xC2}  # baseline, extended, progressive
EXIF, ADOBE = b"Exif\x00\x00", b"Adobe"
SHORT, LONG = 3, 4  # EXIF's types


class Header(NamedTuple):
    """What must be known of a JPEG before nvJPEG may have it."""

    orientation: int
    pixels: int


def read_header(data: bytes) -> Header | None:
    """The header of a whole JPEG in grey or YCbCr; None for any other bytes, which are Pillow's to judge.

    nvJPEG does not notice a truncated file: it leaves what its memory held before. So the end must be there.
    """
    if data[:2] != SOI or EOI not in data[-64:]:
        return None
    components, orientation, pixels, at = 0, None, 0, 2
    while at + 4 <= len(data) and data[at] == 0xFF:
        marker = data[at + 1]
        if marker == 0xFF:  # padding
            at += 1
            continue
        length = int.from_bytes(data[at + 2 : at + 4])
        segment = data[at + 4 : at + 2 + length]
        if marker == 0xE1 and segment[:6] == EXIF and orientation is None:
            orientation = _orientation(segment[6:])
        elif marker == 0xEE and segment[:5] == ADOBE and len(segment) >= 12 and segment[11] == 0:
            return None  # red, green and blue as they are
        elif marker in START_OF_FRAME and len(segment) >= 6:
            components = segment[5]
            pixels = int.from_bytes(segment[1:3]) * int.from_bytes(segment[3:5])
        elif marker == 0xDA:  # the scan begins
            usable = components in (1, 3) and 0 < pixels <= MOST_PIXELS
            return Header(orientation or 1, pixels) if usable else None
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
    for entry in range(min(number(first, 2), (len(tiff) - first - 2) // 12)):
        at = first + 2 + 12 * entry
        if number(at, 2) == 0x0112:
            value = number(at + 8, 4 if number(at + 2, 2) == LONG else 2)
            return value if 1 <= value <= 8 else 1
    return 1
