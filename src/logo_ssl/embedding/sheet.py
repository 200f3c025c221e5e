"""How do the neighbours of an image look? A contact sheet: the query in front, the likest images behind it."""

import io
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import matplotlib
from PIL import Image, ImageDraw, ImageFont, ImageOps
from PIL.PngImagePlugin import PngInfo

from ..data.decode import BadImage, decode
from ..data.images import Paths
from ..text import on_one_line
from .searching import Neighbour

SIDE, GAP, TEXT = 160, 12, 34  # pixels: of a picture, between them, of the two lines below
PER_ROW = 7
LETTERS = 11  # pixels: their size
LONGEST = 24  # of them in a name
PAPER, INK, FRAME, EMPTY = "white", "#222222", "#1f5fa8", "#dddddd"


def contact_sheet(queries: Sequence[str], found: Sequence[Sequence[Neighbour]]) -> bytes:
    """One block of pictures for each query, as a PNG; where a picture cannot be read a grey field stands for it."""
    rows = [row for query, neighbours in zip(queries, found, strict=True) for row in _rows(query, neighbours)]
    width = GAP + PER_ROW * (SIDE + GAP)
    height = GAP + len(rows) * (SIDE + TEXT + GAP)
    page = Image.new("RGB", (width, height), PAPER)
    for i, row in enumerate(rows):
        for j, (path, caption, is_query) in row:
            place = (GAP + j * (SIDE + GAP), GAP + i * (SIDE + TEXT + GAP))
            _paste(page, place, path, caption, is_query)
    file = io.BytesIO()
    about = PngInfo()
    about.add_text("Software", "logo-ssl")
    page.save(file, "PNG", pnginfo=about)
    return file.getvalue()


Tile = tuple[int, tuple[str, str, bool]]


def _rows(query: str, neighbours: Sequence[Neighbour]) -> list[list[Tile]]:
    """The query in the first column; its neighbours fill the others, row by row."""
    tiles = [
        (n.path, on_one_line(f"{i}. {n.cosine:.3f}{f' {n.label}' if n.label else ''}"), False)
        for i, n in enumerate(neighbours, start=1)
    ]
    step = PER_ROW - 1
    rows = [list(enumerate(tiles[begin : begin + step], start=1)) for begin in range(0, len(tiles), step)] or [[]]
    return [[(0, (query, "query", True)), *rows[0]], *rows[1:]]


def _paste(page: Image.Image, place: tuple[int, int], path: str, caption: str, is_query: bool) -> None:
    x, y = place
    draw, font = ImageDraw.Draw(page), _font()
    draw.rectangle((x, y, x + SIDE - 1, y + SIDE - 1), fill=EMPTY)
    picture = _picture(path)
    if picture is not None:
        page.paste(picture, (x + (SIDE - picture.width) // 2, y + (SIDE - picture.height) // 2))
    if is_query:
        draw.rectangle((x - 3, y - 3, x + SIDE + 2, y + SIDE + 2), outline=FRAME, width=3)
    for line, text in enumerate((caption, _short(on_one_line(Path(path).name)))):
        draw.text((x, y + SIDE + 3 + 15 * line), text, fill=INK, font=font)


@cache
def _font() -> ImageFont.FreeTypeFont:
    """DejaVu Sans, which matplotlib brings along: it has the letters of most alphabets."""
    return ImageFont.truetype(Path(matplotlib.get_data_path()) / "fonts" / "ttf" / "DejaVuSans.ttf", LETTERS)


def _picture(path: str) -> Image.Image | None:
    try:
        picture = Image.fromarray(decode(Paths([path]).read(0), 2 * SIDE))
    except (OSError, BadImage):
        return None
    return ImageOps.contain(picture, (SIDE, SIDE))  # small ones are enlarged: 32 px would be hard to see


def _short(name: str) -> str:
    return name if len(name) <= LONGEST else f"{name[: LONGEST - 3]}..."
