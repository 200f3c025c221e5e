"""Which files are images? Those whose format can be read here; of others, what would let them be read."""

from collections import Counter
from collections.abc import Mapping
from functools import cache
from importlib.util import find_spec
from os.path import splitext

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
"""How the bytes of such files begin, behind `ftyp`."""
MOST_KINDS = 6  # of files that are named one by one


@cache
def readable() -> dict[str, tuple[str, ...]]:
    """The formats that images may have here, as Pillow calls them, and how their names end."""
    there = {AVIF: features.check("avif"), HEIF: find_spec("pillow_heif") is not None}
    return PLAIN | {name: endings for name, endings in OF_PHONES.items() if there[name]}


@cache
def opened() -> tuple[str, ...]:
    """The same formats, once Pillow knows all of them."""
    if HEIF in readable():
        import pillow_heif  # pyright: ignore[reportMissingImports] (an extra)

        pillow_heif.register_heif_opener()
    return tuple(readable())


@cache
def suffixes() -> frozenset[str]:
    """How the names of images end here, in lower case."""
    return frozenset(ending for endings in readable().values() for ending in endings)


def names_image(name: str) -> bool:
    """Whether a file of that name should be an image."""
    return name[name.rfind(".") :].lower() in suffixes()


def what_reads(data: bytes) -> str | None:
    """What must be done before an image with these bytes can be read, where that is known."""
    name = BRANDS.get(data[8:12]) if data[4:8] == b"ftyp" else None
    return None if name is None or name in readable() else f"{name}; {CURES[name]} lets it be read"


def ending(name: str) -> str:
    """How a file's name ends, in lower case."""
    return splitext(name)[1].lower()


def told(passed_over: Mapping[str, int]) -> str:
    """Files that are no images by their endings, in a few words, and what would let some be read."""
    cures = {end: CURES[name] for name, ends in OF_PHONES.items() for end in ends}
    kinds = sorted(Counter(passed_over).most_common(), key=lambda kind: kind[0] not in cures)
    words = [
        f"{n:,} {end or 'without an ending'}" + (f" ({cures[end]} lets them be read)" if end in cures else "")
        for end, n in kinds[:MOST_KINDS]
    ]
    others = sum(n for _, n in kinds[MOST_KINDS:])
    return ", ".join(words) + (f", {others:,} others" if others else "")
