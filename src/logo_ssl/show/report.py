"""How do runs look on one page? `logo-ssl report`: one HTML file, and the same figures as SVG and PNG if asked."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from ..errors import UserError
from ..outputs import claim, said
from ..report.figures import draw_figures
from ..report.page import write_report
from ..run import Run
from ..terminal import plain_console
from .telling import PAPERS, Teller

MOST_RUNS, MOST_IMAGES = 50, 2000


@dataclass(frozen=True)
class Report:
    """Write one HTML page about some runs: numbers, curves, tables, pictures, settings. It needs no network.

    example: logo-ssl report runs/first runs/second --out report.html
    """

    runs: Annotated[tyro.conf.Positional[tuple[Path, ...]], tyro.conf.arg(metavar="RUN")]
    """Run folders, finished or not."""
    out: Path = Path("report.html")
    """The page to write."""
    figures: Path | None = None
    """A folder for the page's figures as .svg and .png files."""
    crops: bool = True
    """Show crops as the network sees them, where the data are on this machine."""
    images: int = 400
    """Held-out images on the map of features, and training images among which neighbours are looked for; 0: neither."""
    seed: int = 0
    """Decides which images and reference crops are shown."""
    device: Literal["auto", "cpu", "cuda", "mps"] = "auto"
    """Where features are computed."""
    overwrite: bool = False
    """Replace what lies at --out or in --figures even if logo-ssl did not write it."""

    def run(self) -> None:
        """Look at the runs, write the page, and say where it is."""
        if not 1 <= len(self.runs) <= MOST_RUNS:
            raise UserError(f"{len(self.runs)} runs were given; give 1 to {MOST_RUNS}.")
        if self.out.suffix.lower() not in (".html", ".htm"):
            raise UserError(f"--out is {self.out}; the report is an .html file.")
        if not 0 <= self.images <= MOST_IMAGES:
            raise UserError(f"images is {self.images}; use 0 to {MOST_IMAGES}.")
        replaced = claim(self.out, self.overwrite)
        if self.figures is not None:
            claim(self.figures / "curve.svg", overwrite=True)
        console = plain_console()
        runs = [Run.existing(path) for path in self.runs]
        told = Teller(self.crops, self.images, self.seed, self.device, console.print).tell(runs)
        for run in told:
            for sentence in run.damages:
                console.print(f"{run.name}: {sentence}")
        there = set(self.figures.iterdir()) if self.figures is not None and self.figures.is_dir() else ()
        for file in draw_figures(told, self.figures, self.overwrite) if self.figures is not None else ():
            console.print(f"Figure: {said(file, file in there)}")
        file = write_report(told, self.out, PAPERS)
        console.print(f"Report: {said(file, replaced)} ({_size(file.stat().st_size)})")


def _size(n_bytes: int) -> str:
    return f"{n_bytes / 1e6:.1f} MB" if n_bytes >= 1e5 else f"{n_bytes / 1e3:.1f} kB"
