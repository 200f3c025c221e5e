"""What a search found, as a picture (.png), a page (.html) or a table (.csv)."""

import base64
import csv
import io
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import NamedTuple

import matplotlib
from jinja2 import Environment, PackageLoader, StrictUndefined
from PIL import Image, ImageDraw, ImageFont, ImageOps, features

from ..data import ImageSet, load_data, locate
from ..data.decode import BadImage, decode
from ..errors import UserError
from ..system.terminal import counted, on_one_line


class Neighbour(NamedTuple):
    """An image of the index, and how like the query it is."""

    path: str
    label: str | None
    cosine: float


class Found(NamedTuple):
    """Each query and its neighbours, and the data set in which images without a file are."""

    rows: Sequence[tuple[str, Sequence[Neighbour]]]
    data: str | None = None


WIDTH, MARGIN, GAP, QUERY = 1500, 32, 14, 240  # pixels: of the page, around it, between images, of a query
HIGH, HIGHEST = 180, 280  # pixels: of a row as it should be, and of one with few images
NARROWEST, WIDEST = 0.5, 2.5  # of the shapes of images, which are shown whole in a field of that shape
LETTERS, LINE, TEXT = 13, 18, 62  # pixels: their size, from line to line, and of what stands below an image
ROUND, FRAME = 8, 3  # pixels: of corners and around a query
PAPER, INK, SOFT, LINES, EMPTY, BLUE = "#ffffff", "#1c2024", "#667080", "#e6e8ec", "#f0f1f4", "#2563eb"
NUMBERED = re.compile(r"(train|val|test)\[(\d+)\]")
"""What an image without a file is called."""
FONTS = Path(matplotlib.get_data_path()) / "fonts" / "ttf"


class Tile(NamedTuple):
    """An image with what is written below it."""

    path: str
    name: str
    head: str
    label: str
    picture: Image.Image | None

    @property
    def wide(self) -> float:
        """Its width, as a multiple of its height."""
        if self.picture is None:
            return 1.0
        return round(min(max(self.picture.width / self.picture.height, NARROWEST), WIDEST), 3)


class Block(NamedTuple):
    """A query, and its neighbours in rows of one width."""

    query: Tile
    rows: list[list[Tile]]


def blocks_of(found: Found) -> list[Block]:
    """Each query with its neighbours; images of one name are told apart by their folders."""
    names = distinct_names(path for query, row in found.rows for path in (query, *(each.path for each in row)))
    blocks = []
    for query, row in found.rows:
        tiles = [
            Tile(each.path, names[each.path], f"{each.cosine:.3f}", each.label or "", _picture(each.path, found.data))
            for each in row
        ]
        blocks.append(Block(Tile(query, names[query], "Query", "", _picture(query, None)), _rows(tiles)))
    return blocks


def distinct_names(paths: Iterable[str]) -> dict[str, str]:
    """The name of each file, with as many folders before it as tell it from the others."""
    parts = {path: Path(path).parts for path in paths}
    depth = dict.fromkeys(parts, 1)
    while True:
        names = {path: on_one_line("/".join(parts[path][-n:])) for path, n in depth.items()}
        often = Counter(names.values())
        repeated = [path for path, name in names.items() if often[name] > 1 and depth[path] < len(parts[path])]
        if not repeated:
            return names
        depth |= {path: depth[path] + 1 for path in repeated}


def _rows(tiles: list[Tile]) -> list[list[Tile]]:
    """As many rows as give images the right height, all about as wide as each other, so that none has holes."""
    whole = sum(tile.wide for tile in tiles)
    n = max(1, min(len(tiles), round(whole * HIGH / (WIDTH - QUERY - 2 * MARGIN))))
    rows, before = [list[Tile]() for _ in range(n)], 0.0
    for tile in tiles:
        rows[min(n - 1, int(n * (before + tile.wide / 2) / whole))].append(tile)
        before += tile.wide
    return [row for row in rows if row]


def _picture(path: str, data: str | None) -> Image.Image | None:
    with suppress(OSError, BadImage, UserError, LookupError):  # a file or a data set that is gone, or is another
        if (numbered := NUMBERED.fullmatch(path)) and data is not None:
            pixels = getattr(_load(data), numbered[1]).array[int(numbered[2])]
            return Image.fromarray(pixels.expand(3, -1, -1).permute(1, 2, 0).numpy()) if len(pixels) in (1, 3) else None
        return Image.fromarray(decode(Path(path).read_bytes(), 2 * HIGHEST))
    return None


@cache
def _load(data: str) -> ImageSet:
    return load_data(locate(data), 2 * HIGHEST)


# -- The picture


class Place(NamedTuple):
    """Where an image is on the page, and how high."""

    tile: Tile
    x: float
    y: float
    high: float


def as_png(found: Found) -> bytes:
    """Blocks one below the other, each with its query to the left of its rows."""
    placed, lines, left, y = list[Place](), list[float](), 2 * MARGIN + QUERY, float(MARGIN)
    for block in blocks_of(found):
        if placed:
            lines.append(y - MARGIN)
        placed.append(Place(block.query, MARGIN, y, _height([block.query], QUERY)))
        end = y + placed[-1].high + TEXT
        for row in block.rows:
            x, high = float(left), _height(row, WIDTH - left - MARGIN)
            for tile in row:
                placed.append(Place(tile, x, y, high))
                x += high * tile.wide + GAP
            y += high + TEXT
        y = max(y, end) + 2 * MARGIN
    page = Image.new("RGB", (WIDTH, round(y) - 2 * MARGIN), PAPER)
    for line in lines:
        ImageDraw.Draw(page).line((MARGIN, line, WIDTH - MARGIN, line), LINES)
    for place in placed:
        _draw(page, place)
    page.save(file := io.BytesIO(), "PNG")
    return file.getvalue()


def _height(row: Sequence[Tile], width: int) -> float:
    """That at which the images of a row fill its width, or the highest that there may be."""
    return min(HIGHEST, (width - GAP * (len(row) - 1)) / sum(tile.wide for tile in row))


def _draw(page: Image.Image, place: Place) -> None:
    """An image in its field of round corners, a query with a frame, and the lines below it."""
    tile, high, query = place.tile, place.high, place.x == MARGIN
    x, y, right, bottom = (round(each) for each in (place.x, place.y, place.x + high * tile.wide, place.y + high))
    size, draw, ink = (right - x, bottom - y), ImageDraw.Draw(page), BLUE if query else INK
    if query:
        draw.rounded_rectangle((x - 6, y - 6, right + 5, bottom + 5), ROUND + 6, outline=ink, width=FRAME)
    field = Image.new("RGB", size, EMPTY)
    if tile.picture is None:
        middle, font = (size[0] // 2, size[1] // 2), ImageFont.truetype(FONTS / "DejaVuSans.ttf", LETTERS)
        ImageDraw.Draw(field).text(middle, "no image", SOFT, font, anchor="mm")
    else:
        picture = ImageOps.contain(tile.picture, size, Image.Resampling.LANCZOS)
        field.paste(picture, ((size[0] - picture.width) // 2, (size[1] - picture.height) // 2))
    mask = Image.new("L", (4 * size[0], 4 * size[1]))  # larger, so that corners come out smooth
    ImageDraw.Draw(mask).rounded_rectangle((0, 0, *mask.size), 4 * ROUND, fill=255)
    page.paste(field, (x, y), mask.resize(size, Image.Resampling.LANCZOS))
    draw.rounded_rectangle((x, y, right - 1, bottom - 1), ROUND, outline=LINES)
    bold, width = ImageFont.truetype(FONTS / "DejaVuSans-Bold.ttf", LETTERS), QUERY if query else size[0]
    draw.text((x, bottom + 8), tile.head, ink, bold)
    indent = int(bold.getlength(f"{tile.head}  "))
    _write(draw, (x + indent, bottom + 8), tile.label, width - indent)
    _write(draw, (x, bottom + 8 + LINE), tile.name, width)


def _write(draw: ImageDraw.ImageDraw, corner: tuple[int, int], text: str, width: int) -> None:
    """One line, without its middle if it is too long."""
    text, font = drawable(on_one_line(text))
    kept = len(text)
    while (shown := _shortened(text, kept)) and font.getlength(shown) > width:
        kept -= 1
    draw.text(corner, shown, SOFT, font, direction="ltr" if features.check("raqm") else None)  # of the whole name


def _shortened(text: str, kept: int) -> str:
    return text if kept >= len(text) else f"{text[: (kept + 1) // 2]}…{text[len(text) - kept // 2 :]}" if kept else ""


@cache
def drawable(text: str) -> tuple[str, ImageFont.FreeTypeFont]:
    """The text and the font that has most of its letters, with escapes for those that no font here has."""
    wanted = {letter for letter in text if unicodedata.category(letter) != "Cf"}  # marks of direction have no picture
    best = FONTS / "DejaVuSans.ttf"  # which matplotlib brings along: Latin, Greek, Cyrillic, Arabic and more
    if not wanted <= _letters(best):
        best = max([best, *_installed_fonts()], key=lambda file: len(wanted & _letters(file)))
    gone = wanted - _letters(best)
    text = "".join(f"\\u{ord(letter):04x}" if letter in gone else letter for letter in text)
    return text, ImageFont.truetype(best, LETTERS)


@cache
def _installed_fonts() -> list[Path]:
    """Upright fonts without serifs first."""
    from matplotlib.font_manager import findSystemFonts  # builds a cache when it is imported

    files = sorted(map(Path, findSystemFonts()))
    others = ("bold", "italic", "oblique", "mono", "serif", "light", "thin", "black")
    return sorted(files, key=lambda file: sum(word in file.name.lower() for word in others))


@cache
def _letters(file: Path) -> frozenset[str]:
    """Those of a font; none if it cannot be drawn at this size."""
    from matplotlib.ft2font import FT2Font  # slow to import: only where it is needed

    try:
        ImageFont.truetype(file, LETTERS)
        return frozenset(map(chr, FT2Font(str(file)).get_charmap()))
    except (OSError, RuntimeError):
        return frozenset()


# -- The page and the table


def _address(picture: Image.Image) -> str:
    picture.save(file := io.BytesIO(), "WEBP", quality=82)
    return f"data:image/webp;base64,{base64.b64encode(file.getvalue()).decode()}"


TEMPLATES = Environment(loader=PackageLoader("logo_ssl.embedding"), autoescape=True, undefined=StrictUndefined)
TEMPLATES.filters["address"] = _address


def as_page(found: Found) -> bytes:
    """A page in one file, with the images in it."""
    many, queries = sum(len(row) for _, row in found.rows), len(found.rows)
    about = f"{counted(many, 'image')} for {'1 query' if queries == 1 else f'{queries} queries'}, by cosine."
    page = TEMPLATES.get_template("sheet.html").render(
        title="Most similar images", about=about, blocks=blocks_of(found)
    )
    return page.encode(errors="replace")


def as_table(found: Found) -> bytes:
    """A line for each neighbour."""
    writer = csv.writer(text := io.StringIO())
    writer.writerow(["query", "rank", "path", "label", "cosine"])
    for query, row in found.rows:
        writer.writerows(
            [query, rank, each.path, each.label or "", f"{each.cosine:.6f}"] for rank, each in enumerate(row, start=1)
        )
    return text.getvalue().encode(errors="surrogateescape")


SHEETS: dict[str, Callable[[Found], bytes]] = {".png": as_png, ".html": as_page, ".csv": as_table}
"""What writes a file of that ending."""
