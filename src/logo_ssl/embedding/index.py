"""The images most like a query, by the cosine of features that `embed` wrote, and a contact sheet of them."""

import io
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import NamedTuple

import matplotlib
import numpy as np
from PIL import Image, ImageDraw, ImageFont, ImageOps

from ..data.decode import BadImage, decode
from ..data.images import Paths
from ..errors import UserError
from ..eval.encoder import EncoderOptions, FrozenEncoder
from ..eval.features import PREPROCESSING
from ..files import check_output, write
from ..system.text import on_one_line
from .embeddings import Device, Embeddings, Encoder, embed
from .module import frozen, read_square
from .tables import about_table, read_table

SIDE, GAP, TEXT = 160, 12, 34  # pixels: of a picture, between them, of the two lines below
PER_ROW = 7
LETTERS = 11  # pixels: their size
LONGEST = 24  # of them in a name
PAPER, INK, FRAME, EMPTY = "white", "#222222", "#1f5fa8", "#dddddd"


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

    The most similar come first. A file says which encoder made it, and of which input; others are refused. A .csv and
    features in memory say nothing: that is up to you.
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
    return nearest_in(table, found.vectors, k)


def _refuse_others(table: Path, encoder: FrozenEncoder) -> None:
    """Raise a UserError if an index says that it was made by another encoder, or of other inputs."""
    made_by = about_table(table)
    looks = {"size": encoder.size, "mean": [*encoder.mean], "std": [*encoder.std]}
    known = {"fingerprint": encoder.fingerprint, "preprocessing": PREPROCESSING, **looks}
    if others := {name: made_by[name] for name, value in known.items() if made_by.get(name, value) != value}:
        name = next(iter(others))
        what = f"{name}={others[name]}" if name in looks else f"other weights or another version ({made_by['encoder']})"
        raise UserError(f"{table} was made with {what}, not as {encoder.name} is now; make it again, or use that.")


def nearest_in(table: Path | Embeddings, queries: np.ndarray, k: int) -> list[list[Neighbour]]:
    """The best of each part of the table, then the best of these: memory holds a part at a time."""
    wanted = _normalised(queries)
    best: list[list[Neighbour]] = [[] for _ in wanted]
    for part in read_table(table) if isinstance(table, Path) else [table]:
        if part.vectors.shape[1] != wanted.shape[1]:
            raise UserError(
                f"{table} holds features of width {part.vectors.shape[1]}, and this encoder's have {wanted.shape[1]}; "
                "search with the encoder that made it."
            )
        cosines = wanted @ _normalised(part.vectors).T
        for i, row in enumerate(cosines):
            top = np.argsort(-row, kind="stable")[:k].tolist()
            new = [Neighbour(str(part.paths[j]), part.labels[j], float(row[j])) for j in top]
            best[i] = sorted([*best[i], *new], key=lambda neighbour: -neighbour.cosine)[:k]
    return best


def _normalised(vectors: np.ndarray) -> np.ndarray:
    return vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)


def contact_sheet(queries: Sequence[str], found: Sequence[Sequence[Neighbour]]) -> bytes:
    """One block of pictures for each query, as a PNG; where a picture cannot be read a grey field stands for it."""
    rows = [row for query, neighbours in zip(queries, found, strict=True) for row in _rows(query, neighbours)]
    width = GAP + PER_ROW * (SIDE + GAP)
    height = GAP + len(rows) * (SIDE + TEXT + GAP)
    page = Image.new("RGB", (width, height), PAPER)
    for i, row in enumerate(rows):
        for tile in row:
            _paste(page, (GAP + tile.column * (SIDE + GAP), GAP + i * (SIDE + TEXT + GAP)), tile)
    file = io.BytesIO()
    page.save(file, "PNG")
    return file.getvalue()


class Tile(NamedTuple):
    """An image on the sheet, and where."""

    column: int
    path: str
    caption: str


def _rows(query: str, neighbours: Sequence[Neighbour]) -> list[list[Tile]]:
    """The query in the first column; its neighbours fill the others, row by row."""
    step, rows = PER_ROW - 1, [[Tile(0, query, "query")]]
    for i, (path, label, cosine) in enumerate(neighbours):
        if i and i % step == 0:
            rows.append([])
        rows[-1].append(Tile(1 + i % step, path, on_one_line(f"{i + 1}. {cosine:.3f}{f' {label}' if label else ''}")))
    return rows


def _paste(page: Image.Image, corner: tuple[int, int], tile: Tile) -> None:
    x, y = corner
    draw, font = ImageDraw.Draw(page), _font()
    draw.rectangle((x, y, x + SIDE - 1, y + SIDE - 1), fill=EMPTY)
    picture = _picture(tile.path)
    if picture is not None:
        page.paste(picture, (x + (SIDE - picture.width) // 2, y + (SIDE - picture.height) // 2))
    if tile.column == 0:
        draw.rectangle((x - 3, y - 3, x + SIDE + 2, y + SIDE + 2), outline=FRAME, width=3)
    for line, text in enumerate((tile.caption, _short(on_one_line(Path(tile.path).name)))):
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
    """A contact sheet to draw (.png)."""
    overwrite: bool = False
    """Replace --out if it exists."""
    device: Device = "auto"
    """Where to compute."""

    def run(self) -> None:
        """Search, show the neighbours, and draw them."""
        if gone := [query for query in self.query if not query.is_file()]:
            raise UserError(f"query={gone[0]}: this is not a file.")
        if self.out is not None:
            if self.out.suffix.lower() != ".png":
                raise UserError(f"out={self.out}: the contact sheet is a .png file.")
            check_output(self.out, self.overwrite)
        encoder, console = self.open()
        if not about_table(self.index):
            console.print(f"{self.index} does not name its encoder; cosines mean something only if it was this one.")
        found = search(encoder, self.index, self.query, k=self.k, device=self.device)
        for query, neighbours in zip(self.query, found, strict=True):
            console.print(on_one_line(f"Most like {query}:"))
            for i, (path, label, cosine) in enumerate(neighbours, start=1):
                console.print(on_one_line(f"{i:4}  {cosine:7.4f}  {path}{f'  ({label})' if label else ''}"))
        if self.out is not None:
            console.print(f"Sheet: {write(self.out, contact_sheet([*map(str, self.query)], found))}")
