"""Which files are images? Those whose format can be read here; of others, what would let them be read."""

from collections import Counter
from collections.abc import Mapping
from functools import cache
from os.path import splitext
from typing import Any

from PIL import features

PLAIN = {
    "JPEG": (".jpg", ".jpeg"),
    "PNG": (".png",),
    "WEBP": (".webp",),
    "BMP": (".bmp",),
    "TIFF": (".tif", ".tiff"),
    "PPM": (".ppm", ".pgm"),
    "GIF": (".gif",),
}
"""What every Pillow reads, and how such files' names end; no others, since some run programs."""
AVIF, HEIF = "AVIF", "HEIF"
OF_PHONES = {AVIF: (".avif",), HEIF: (".heic", ".heif", ".hif")}
CURES = {AVIF: "pip install 'pillow>=11.3'", HEIF: "pip install 'logo-ssl[heic]'"}
BRANDS = {b"avif": AVIF, b"avis": AVIF} | dict.fromkeys((b"heic", b"heix", b"heim", b"heis", b"hevc", b"mif1"), HEIF)
"""What such files say of themselves in their first bytes, behind `ftyp`; `mif1` is said by many AVIF files, too."""
MOST_KINDS = 6  # of files that are named one by one


@cache
def readable() -> dict[str, tuple[str, ...]]:
    """The formats that images may have here, as Pillow calls them, and how their names end."""
    there = {AVIF: features.check("avif"), HEIF: _heif() is not None}
    return PLAIN | {name: endings for name, endings in OF_PHONES.items() if there[name]}


@cache
def opened() -> tuple[str, ...]:
    """The same formats, once Pillow knows all of them."""
    if HEIF in readable():
        _heif().register_heif_opener()
    return tuple(readable())


def _heif() -> Any:
    """The package that reads HEIF; None where there is none, or it cannot be loaded."""
    try:
        import pillow_heif  # pyright: ignore[reportMissingImports] (an extra)
    except Exception:  # a broken library raises whatever it likes, and JPEGs need none
        return None
    return pillow_heif


@cache
def suffixes() -> frozenset[str]:
    """How the names of images end here, in lower case."""
    return frozenset(ending for endings in readable().values() for ending in endings)


def names_image(name: str) -> bool:
    """Whether a file of that name should be an image."""
    return name[name.rfind(".") :].lower() in suffixes()


def what_reads(data: bytes) -> str | None:
    """What must be done before an image with these bytes can be read, where that is known."""
    name = _of_phone(data)
    return None if name is None or name in readable() else f"{name}; {CURES[name]} lets it be read"


def _of_phone(data: bytes) -> str | None:
    """Which of the formats of phones these bytes are in, by all that they say of themselves."""
    if data[4:8] != b"ftyp":
        return None
    box = data[8 : int.from_bytes(data[:4])]
    said = {BRANDS.get(box[start : start + 4]) for start in range(0, len(box), 4)}
    return next((name for name in OF_PHONES if name in said), None)


def ending(name: str) -> str:
    """How a file's name ends, in lower case."""
    return splitext(name)[1].lower()


def told(passed_over: Mapping[str, int]) -> str:
    """Files that are no images by their endings, in a few words, and what would let some be read."""
    cures = {end: CURES[name] for name, ends in OF_PHONES.items() for end in ends}
    kinds = sorted(Counter(passed_over).most_common(), key=lambda kind: kind[0] not in cures)
    words = [
        f"{n:,} {end or 'without an ending'}" + (f" (readable with {cures[end]})" if end in cures else "")
        for end, n in kinds[:MOST_KINDS]
    ]
    others = sum(n for _, n in kinds[MOST_KINDS:])
    return ", ".join(words) + (f", {others:,} others" if others else "")
