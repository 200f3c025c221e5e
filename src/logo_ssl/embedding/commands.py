"""The commands embed, search and export; names and defaults are those of Python."""

import os
import shlex
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from ..errors import UserError
from ..eval.encoder import EncoderOptions, FrozenEncoder
from ..eval.features import Extraction
from ..files import check_output, write
from ..terminal import plain_console, progress_bars
from ..text import on_one_line
from .embeddings import Which, embed
from .exporting import Target, export
from .exporting.weights import RGB
from .index import contact_sheet, search
from .tables import about_table, read_table, refuse_unknown


@dataclass(frozen=True)
class Embed(EncoderOptions):
    """Write the features of images to a file: path, label, split and vector of each, in order.

    Vectors are as the encoder gives them, not of unit length: divide by their norms before dot products.
    Run again after an interruption, it continues. Images that cannot be read are left out and listed.

    example: logo-ssl embed runs/photos --data photos/ --out features.npz
    """

    data: str | None = None
    """A name or a path, as for `pretrain` (default: what the run was trained on)."""
    out: Path = field(kw_only=True)
    """The file: .npz, .csv or .parquet (needs `pip install 'logo-ssl[parquet]'`)."""
    split: Which = "all"
    """Train, validation or test images, or all, in this order. If there is no test/, val/ is the test."""
    batch_size: int = Extraction.batch_size
    """Images that the encoder sees at a time."""
    device: Literal["auto", "cpu", "cuda", "mps"] = "auto"
    """Where to compute."""
    workers: int = -1
    """Processes that decode photographs; -1: one per core."""
    decoder: Literal["auto", "nvjpeg", "workers"] = "auto"
    """Worker processes, or nvJPEG on a CUDA device; auto takes nvJPEG if workers are few or photographs large."""
    max_bad: float = Extraction.max_bad
    """Share of unreadable images that stops the command; fewer are left out."""
    overwrite: bool = False
    """Replace --out if it exists."""

    def run(self) -> None:
        """Embed, and say where the features are."""
        Extraction(self.device, self.batch_size, self.workers, self.max_bad)
        refuse_unknown(self.out)
        check_output(self.out, self.overwrite)
        console, encoder = plain_console(), _loaded_aloud(self)
        with progress_bars(console) as progress:
            file = embed(
                encoder,
                self.data,
                out=self.out,
                split=self.split,
                batch_size=self.batch_size,
                device=self.device,
                workers=self.workers,
                decoder=self.decoder,
                max_bad=self.max_bad,
                overwrite=self.overwrite,
                say=console.print,
                progress=progress,
            )
        console.print(f"Features: {file}")
        if encoder.channels == RGB:  # as every image file is shown, and so every query
            looked_for = shlex.join(["--index", str(file), "--query", _an_image(file), "--out", "sheet.png"])
            console.print(f"Next: logo-ssl search {self.typed()} {looked_for}")


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
    device: Literal["auto", "cpu", "cuda", "mps"] = "auto"
    """Where to compute."""

    def run(self) -> None:
        """Search, show the neighbours, and draw them."""
        if gone := [query for query in self.query if not query.is_file()]:
            raise UserError(f"query={gone[0]}: this is not a file.")
        if self.out is not None:
            if self.out.suffix.lower() != ".png":
                raise UserError(f"out={self.out}: the contact sheet is a .png file.")
            check_output(self.out, self.overwrite)
        console = plain_console()
        if not about_table(self.index):
            console.print(f"{self.index} does not name its encoder; cosines mean something only if it was this one.")
        found = search(_loaded_aloud(self), self.index, self.query, k=self.k, device=self.device)
        for query, neighbours in zip(self.query, found, strict=True):
            console.print(on_one_line(f"Most like {query}:"))
            for i, (path, label, cosine) in enumerate(neighbours, start=1):
                console.print(on_one_line(f"{i:4}  {cosine:7.4f}  {path}{f'  ({label})' if label else ''}"))
        if self.out is not None:
            console.print(f"Sheet: {write(self.out, contact_sheet([*map(str, self.query)], found))}")


@dataclass(frozen=True)
class Export(EncoderOptions):
    """Write an encoder that torchvision, timm, ONNX Runtime or the Hugging Face Hub can load, and show how.

    example: logo-ssl export runs/photos --to timm --out encoder.safetensors
    """

    to: Target = field(kw_only=True)
    """torchvision, timm, onnx, safetensors, or hf: a folder with a model card."""
    out: Path | None = None
    """File, or folder for hf (default: encoder and the target's name, in this folder)."""
    overwrite: bool = False
    """Replace --out if it exists."""

    def run(self) -> None:
        """Export, and show how to load it."""
        console = plain_console()
        done = export(_loaded_aloud(self), self.to, self.out, overwrite=self.overwrite)
        console.print(f"Exported: {done.path}\n\n{done.snippet}")


def _an_image(table: Path) -> str:
    """The first image of a table that is a file and can be typed, to look for; IMAGE where there is none."""
    first = next((path for part in read_table(table) for path in part.paths if on_one_line(path) == path), "")
    if not Path(first).is_file():
        return "IMAGE"
    return os.path.relpath(first) if Path(first).is_relative_to(Path.cwd()) else first


def _loaded_aloud(source: EncoderOptions) -> FrozenEncoder:
    """The encoder, once what there is to say of it has been said."""
    encoder, console = source.load(), plain_console()
    for sentence in encoder.says:
        console.print(sentence)
    return encoder


USES = {"embed": Embed, "search": Search, "export": Export}
