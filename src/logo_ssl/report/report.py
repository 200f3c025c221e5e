"""How do runs look on one page? `logo-ssl report`: one HTML file, and the same figures as SVG and PNG if asked."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from ..data import locate
from ..data.sources import NAMES
from ..errors import UserError
from ..files import check_output
from ..terminal import plain_console
from .features import LEAST
from .figures import claim_figures, draw_figures
from .given import MOST_RUNS, runs_at, so_many
from .page import write_report
from .telling import PAPERS, Teller

MOST_IMAGES = 2000


@dataclass(frozen=True)
class Report:
    """Write one HTML page about some runs: numbers, curves, tables, pictures, settings. It needs no network.

    example: logo-ssl report runs/first runs/second --out report.html
    """

    runs: Annotated[tyro.conf.Positional[tuple[Path, ...]], tyro.conf.arg(metavar="RUN ...")]
    """Run folders, finished or not. A folder of runs, as `reproduce` makes it, stands for the finished runs in it."""
    out: Path = Path("report.html")
    """The page to write."""
    figures: Path | None = None
    """A folder for the page's figures as .svg and .png files."""
    data: str | None = None
    """A name or a path: where the images are now (default: where the runs had them)."""
    crops: bool = True
    """Show crops as the network sees them, if the data are on this machine."""
    images: int = 400
    """Images for the map and the neighbours (4 to 2000); 0: neither."""
    seed: int = 0
    """Decides which images and reference crops are shown."""
    device: Literal["auto", "cpu", "cuda", "mps"] = "auto"
    """Where features are computed."""
    overwrite: bool = False
    """Replace the page, and figures in --figures, if they exist."""

    def run(self) -> None:
        """Look at the runs, write the page, and say where it is."""
        runs, sentences = runs_at(self.runs)
        refuse(len(runs), self.runs, self.images, self.data)
        if self.out.suffix.lower() not in (".html", ".htm"):
            raise UserError(f"--out is {self.out}; the report is an .html file.")
        check_output(self.out, self.overwrite)
        console = plain_console()
        for sentence in sentences:
            console.print(sentence)
        teller = Teller(self.crops, self.images, self.seed, self.device, console.print, self.data)
        if self.figures is not None:
            shown = teller.tell(runs, quickly=True)
            claim_figures(shown, self.figures, self.overwrite, looked_at=self.images > 0)
        told = teller.tell(runs)
        for run in told:
            for sentence in run.damages:
                console.print(f"{run.name}: {sentence}")
        for file in draw_figures(told, self.figures, self.overwrite) if self.figures is not None else ():
            console.print(f"Figure: {file}")
        file = write_report(told, self.out, PAPERS)
        console.print(f"Report: {file} ({_size(file)})")


def _size(file: Path) -> str:
    size = file.stat().st_size
    return f"{size / 1e6:.1f} MB" if size >= 1e5 else f"{size / 1e3:.0f} kB"


def refuse(runs: int, paths: Sequence[Path], images: int, data: str | None) -> None:
    """Refuse what no page can be made of; how many runs the paths stand for is known."""
    if not 1 <= runs <= MOST_RUNS:
        raise UserError(f"{so_many(runs, paths)}; give 1 to {MOST_RUNS}.")
    if images and not LEAST <= images <= MOST_IMAGES:
        raise UserError(f"images={images}: must be {LEAST} to {MOST_IMAGES}, or 0 for no neighbours and maps.")
    if data is not None and (place := locate(data)) not in NAMES and not Path(place).exists():
        raise UserError(f"No data are at {place}; say with --data where they are.")
