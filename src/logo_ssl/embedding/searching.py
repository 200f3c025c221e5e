"""The images most like a query, by the cosine of features that `embed` wrote, and the sheets that show them."""

import base64
import csv
import io
import os
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import NamedTuple

import matplotlib
import numpy as np
from jinja2 import Environment, PackageLoader, StrictUndefined
from matplotlib.ft2font import FT2Font
from PIL import Image, ImageDraw, ImageFont, ImageOps

from ..data import ImageSet, load_data, locate
from ..data.decode import BadImage, decode
from ..encoders import EncoderOptions, FrozenEncoder
from ..errors import UserError
from ..eval.features import PREPROCESSING
from ..files import check_output, write
from ..system.terminal import distinct_names, on_one_line
from .embeddings import Device, Embeddings, Encoder, embed
from .module import frozen, read_square
from .tables import about_table, read_table


class Neighbour(NamedTuple):
    """An image of the index, and how like the query it is."""

    path: str
    label: str | None
    cosine: float


def search(
    encoder: Encoder,
    index: str | os.PathLike[str] | Embeddings,
    query: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    *,
    k: int = 12,
    device: str = "auto",
) -> list[list[Neighbour]]:
    """The `k` images of an index (a file from `embed`, or what it returned) that are most like each query.

    The most similar come first; the query's own file is left out. A file says which encoder made it, and of which
    input; others are refused. A .csv and features in memory say nothing: that is up to you.
    """
    if k < 1:
        raise UserError(f"k={k}: ask for 1 neighbour or more.")
    known, table = frozen(encoder), index if isinstance(index, Embeddings) else Path(index)
    if isinstance(table, Path):
        _refuse_others(table, known)
    queries = [query] if isinstance(query, str | os.PathLike) else list(query)
    found = embed(known, queries, device=device, workers=0, decoder="workers", max_bad=1.0)
    if found.bad:
        read_square(Path(found.bad[0]), known.size)  # says why it cannot
        raise UserError(f"{found.bad[0]} cannot be read as an image; give another query.")
    return nearest_in(table, found.vectors, k, found.paths)


def _refuse_others(table: Path, encoder: FrozenEncoder) -> None:
    """Raise a UserError if an index says that it was made by another encoder, or of other inputs."""
    made_by = about_table(table)
    looks = {"size": encoder.size, "mean": [*encoder.mean], "std": [*encoder.std]}
    known = {"fingerprint": encoder.fingerprint, "preprocessing": PREPROCESSING, **looks}
    if others := {name: made_by[name] for name, value in known.items() if made_by.get(name, value) != value}:
        name = next(iter(others))
        what = f"{name}={others[name]}" if name in looks else f"other weights or another version ({made_by['encoder']})"
        raise UserError(f"{table} was made with {what}, not as {encoder.name} is now; make it again, or use that.")


def nearest_in(table: Path | Embeddings, queries: np.ndarray, k: int, own: Sequence[str] = ()) -> list[list[Neighbour]]:
    """The best of each part of the table, then the best of these; a query's `own` file is not its neighbour."""
    wanted, files = _normalised(queries), [os.path.realpath(path) for path in own]
    names = {os.path.basename(path) for path in own}
    best: list[list[Neighbour]] = [[] for _ in wanted]
    for part in read_table(table) if isinstance(table, Path) else [table]:
        if part.vectors.shape[1] != wanted.shape[1]:
            raise UserError(
                f"{table} holds features of width {part.vectors.shape[1]}, and this encoder's have {wanted.shape[1]}; "
                "search with the encoder that made it."
            )
        cosines = wanted @ _normalised(part.vectors).T
        for j, path in enumerate(part.paths):
            if os.path.basename(path) in names:  # few: asking the disk about each path would take long
                cosines[[i for i, file in enumerate(files) if file == os.path.realpath(path)], j] = -np.inf
        for i, row in enumerate(cosines):
            top = [j for j in np.argsort(-row, kind="stable")[:k].tolist() if row[j] > -np.inf]
            new = [Neighbour(str(part.paths[j]), part.labels[j], float(row[j])) for j in top]
            best[i] = sorted([*best[i], *new], key=lambda neighbour: -neighbour.cosine)[:k]
    return best


def _normalised(vectors: np.ndarray) -> np.ndarray:
    return vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)


# -- What was found, as a picture (.png), a page (.html) or a table (.csv)

COLUMNS, QUERY, SIDE, LARGEST = 6, 240, 180, 480  # neighbours in a row; pixels of a query, a neighbour, and as read
MARGIN, GAP = 32, 14  # pixels around the page, and between images
LINE, TEXT = 18, 62  # pixels of a line, and of all that is below an image
LEFT = 2 * MARGIN + QUERY
WIDTH = LEFT + COLUMNS * (SIDE + GAP) - GAP + MARGIN
PAPER, INK, SOFT, LINES, EMPTY, BLUE = "#ffffff", "#1c2024", "#667080", "#e6e8ec", "#f0f1f4", "#2563eb"
NUMBERED = re.compile(r"(train|val|test)\[(\d+)\]")
"""What an image without a file is called."""
FONTS = Path(matplotlib.get_data_path()) / "fonts" / "ttf"  # which matplotlib brings along
LETTERS = 13  # pixels


class Found(NamedTuple):
    """Each query and its neighbours, and the data set in which images without a file are."""

    rows: Sequence[tuple[str, Sequence[Neighbour]]]
    data: str | None = None


class Tile(NamedTuple):
    """An image with what is written below it."""

    path: str
    name: str
    head: str
    label: str
    picture: Image.Image | None


def tiles_of(found: Found) -> list[tuple[Tile, list[Tile]]]:
    """Each query with its neighbours; images of one name are told apart by their folders."""
    names = distinct_names(path for query, row in found.rows for path in (query, *(each.path for each in row)))
    return [
        (
            Tile(query, names[query], "Query", "", _picture(query, None)),
            [
                Tile(path, names[path], f"{cosine:.3f}", label or "", _picture(path, found.data))
                for path, label, cosine in row
            ],
        )
        for query, row in found.rows
    ]


def _picture(path: str, data: str | None) -> Image.Image | None:
    with suppress(OSError, BadImage, UserError, LookupError):  # a file or a data set that is gone, or is another
        if (numbered := NUMBERED.fullmatch(path)) and data is not None:
            pixels = getattr(_load(data), numbered[1]).array[int(numbered[2])]
            return Image.fromarray(pixels.expand(3, -1, -1).permute(1, 2, 0).numpy()) if len(pixels) in (1, 3) else None
        return Image.fromarray(decode(Path(path).read_bytes(), LARGEST))
    return None


@cache
def _load(data: str) -> ImageSet:
    return load_data(locate(data), LARGEST)


def as_png(found: Found) -> bytes:
    """Blocks one below the other, each with its query to the left of its rows."""
    blocks = tiles_of(found)
    heights = [max(QUERY + TEXT, -(-len(tiles) // COLUMNS) * (SIDE + TEXT)) for _, tiles in blocks]
    page, y = Image.new("RGB", (WIDTH, MARGIN + sum(height + MARGIN for height in heights)), PAPER), MARGIN
    draw = ImageDraw.Draw(page)
    for (query, tiles), height in zip(blocks, heights, strict=True):
        if y > MARGIN:
            draw.line((MARGIN, y - MARGIN, WIDTH - MARGIN, y - MARGIN), LINES)
        draw.rectangle((MARGIN - 6, y - 6, MARGIN + QUERY + 5, y + QUERY + 5), PAPER, BLUE, 3)
        _draw(page, query, (MARGIN, y), QUERY, BLUE)
        for i, tile in enumerate(tiles):
            row, column = divmod(i, COLUMNS)
            _draw(page, tile, (LEFT + column * (SIDE + GAP), y + row * (SIDE + TEXT)), SIDE, INK)
        y += height + MARGIN
    page.save(file := io.BytesIO(), "PNG")
    return file.getvalue()


def _draw(page: Image.Image, tile: Tile, corner: tuple[int, int], side: int, ink: str) -> None:
    """An image in a square, and the lines below it."""
    (x, y), draw = corner, ImageDraw.Draw(page)
    draw.rectangle((x, y, x + side - 1, y + side - 1), EMPTY)
    if tile.picture is None:
        draw.text(
            (x + side // 2, y + side // 2),
            "no image",
            SOFT,
            ImageFont.truetype(FONTS / "DejaVuSans.ttf", LETTERS),
            anchor="mm",
        )
    else:
        page.paste(ImageOps.pad(tile.picture, (side, side), Image.Resampling.LANCZOS, EMPTY), corner)
    bold = ImageFont.truetype(FONTS / "DejaVuSans-Bold.ttf", LETTERS)
    draw.text((x, y + side + 8), tile.head, ink, bold)
    indent = int(bold.getlength(f"{tile.head}  "))
    _write(draw, (x + indent, y + side + 8), tile.label, side - indent)
    _write(draw, (x, y + side + 8 + LINE), tile.name, side)


def _write(draw: ImageDraw.ImageDraw, corner: tuple[int, int], text: str, width: int) -> None:
    """One line, without its middle if it is too long."""
    text, font = drawable(on_one_line(text))
    shown, kept = text, len(text)
    while shown and font.getlength(shown) > width:
        kept -= 1
        shown = f"{text[: (kept + 1) // 2]}…{text[len(text) - kept // 2 :]}" if kept else ""
    draw.text(corner, shown, SOFT, font)


@cache
def drawable(text: str) -> tuple[str, ImageFont.FreeTypeFont]:
    """The text and the font that has most of its letters, with escapes for those that no font here has."""
    best = FONTS / "DejaVuSans.ttf"  # Latin, Greek, Cyrillic, Arabic and more
    if not set(text) <= _letters(best):
        best = max([best, *_installed_fonts()], key=lambda file: len(_letters(file).intersection(text)))
    has = _letters(best)
    text = "".join(each if each in has else each.encode("ascii", "backslashreplace").decode() for each in text)
    return text, ImageFont.truetype(best, LETTERS)


@cache
def _installed_fonts() -> list[Path]:
    """Upright fonts without serifs first."""
    from matplotlib.font_manager import findSystemFonts  # builds a cache when it is imported

    others = ("bold", "italic", "oblique", "mono", "serif", "light", "thin", "black")
    return sorted(map(Path, findSystemFonts()), key=lambda file: sum(word in file.name.lower() for word in others))


@cache
def _letters(file: Path) -> frozenset[str]:
    """Those of a font; none if it cannot be drawn at this size."""
    try:
        ImageFont.truetype(file, LETTERS)
        return frozenset(map(chr, FT2Font(str(file)).get_charmap()))
    except (OSError, RuntimeError):
        return frozenset()


def _address(picture: Image.Image) -> str:
    picture.save(file := io.BytesIO(), "WEBP", quality=82)
    return f"data:image/webp;base64,{base64.b64encode(file.getvalue()).decode()}"


TEMPLATES = Environment(loader=PackageLoader("logo_ssl.embedding"), autoescape=True, undefined=StrictUndefined)
TEMPLATES.filters["address"] = _address


def as_page(found: Found) -> bytes:
    """A page in one file, with the images in it."""
    return TEMPLATES.get_template("sheet.html").render(blocks=tiles_of(found)).encode(errors="replace")


def as_table(found: Found) -> bytes:
    """A line for each neighbour."""
    writer = csv.writer(text := io.StringIO())
    writer.writerow(["query", "rank", "path", "label", "cosine"])
    for query, row in found.rows:
        for rank, (path, label, cosine) in enumerate(row, start=1):
            writer.writerow([query, rank, path, label or "", f"{cosine:.6f}"])
    return text.getvalue().encode(errors="surrogateescape")


SHEETS: dict[str, Callable[[Found], bytes]] = {".png": as_png, ".html": as_page, ".csv": as_table}
"""What writes a file of that ending."""


@dataclass(frozen=True)
class Search(EncoderOptions):
    """Find the images that are most like a query, by features that `embed` wrote.

    example: logo-ssl search runs/photos --index features.npz --query cat.jpg --out sheet.png
    """

    index: Path = field(kw_only=True)
    """The file that `embed` wrote."""
    query: tuple[Path, ...] = field(kw_only=True)
    """One image or more."""
    k: int = 12
    """Neighbours of each."""
    out: Path | None = None
    """A contact sheet (.png), a page in one file (.html) or a table (.csv) of what was found."""
    overwrite: bool = False
    """Replace --out if it exists."""
    device: Device = "auto"
    """Where to compute."""

    def run(self) -> None:
        """Search, show the neighbours, and draw them."""
        if self.out is not None:
            if self.out.suffix.lower() not in SHEETS:
                raise UserError(f"out={self.out}: must end in {', '.join(SHEETS)}.")
            check_output(self.out, self.overwrite)
        encoder, console = self.open()
        about = about_table(self.index)
        if not about:
            console.print(f"{self.index} does not name its encoder; cosines mean something only if it was this one.")
        found = search(encoder, self.index, self.query, k=self.k, device=self.device)
        for query, neighbours in zip(self.query, found, strict=True):
            console.print(on_one_line(f"Most like {query}:"))
            for i, (path, label, cosine) in enumerate(neighbours, start=1):
                console.print(on_one_line(f"{i:4}  {cosine:7.4f}  {path}{f'  ({label})' if label else ''}"))
        if self.out is not None:
            together = Found(list(zip(map(str, self.query), found, strict=True)), about.get("data"))
            console.print(f"Written: {write(self.out, SHEETS[self.out.suffix.lower()](together))}")
