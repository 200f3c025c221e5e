"""The images most like a query, by the cosine of features that `embed` wrote."""

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from ..errors import UserError
from ..eval.encoder import EncoderOptions, FrozenEncoder
from ..eval.features import PREPROCESSING
from ..files import check_output, write
from ..system.terminal import on_one_line
from .embeddings import Device, Embeddings, Encoder, embed
from .module import frozen, read_square
from .sheet import SHEETS, Found, Neighbour
from .tables import about_table, read_table


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
        if gone := [query for query in self.query if not query.is_file()]:
            raise UserError(f"query={gone[0]}: this is not a file.")
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
