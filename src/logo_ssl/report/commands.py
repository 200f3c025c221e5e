"""The options of the commands report, watch and affinity, and what they do."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import torch
import tyro
from rich.box import SIMPLE
from rich.table import Table

from ..data import NAMES, locate
from ..errors import UserError
from ..eval.features import Extraction
from ..eval.protocol import about_data, data_for, save
from ..files import check_output, write
from ..recipes import read_recipe
from ..run import Run
from ..system.randomness import stream
from ..system.terminal import plain_console
from .affinity import (
    CROPS,
    compared,
    find_reference,
    first_references,
    gather_pool,
    heat_map,
    load_measures,
    rank,
    reference_groups,
)
from .collect import LEAST, RunCollector
from .figures import draw_affinity_bars, draw_affinity_map, draw_curves
from .gallery import MEASURES
from .page import page
from .serve import LOOPBACK, PageRenewer, open_server, serving
from .summary import find_runs

MOST_IMAGES, MOST_ROWS = 5000, 8
Device = Literal["auto", "cpu", "cuda", "mps"]
Say = Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class PageOptions:
    """What a page shows of images."""

    data: str | None = None
    """A name or a path: where the images are now (default: where the runs had them)."""
    crops: bool = True
    """Show crops as the network sees them, if the data are on this machine."""
    images: int | None = None
    """Images for the map and the neighbours (4 to 5000; default: 400, or 2000 if they have no labels); 0: neither."""
    seed: int = 0
    """Decides which images and reference crops are shown."""

    def collector(self, device: Device, say: Say) -> RunCollector:
        """Summarises runs as these options ask for; UserError if it cannot."""
        if self.images and not LEAST <= self.images <= MOST_IMAGES:
            raise UserError(f"images={self.images}: must be {LEAST} to {MOST_IMAGES}, or 0 for no neighbours and maps.")
        if self.data is not None and (place := locate(self.data)) not in NAMES and not Path(place).exists():
            raise UserError(f"data={place}: must be the name of a data set, or a path that exists.")
        return RunCollector(self.crops, self.images, self.seed, device, say, self.data)


@dataclass(frozen=True)
class Report(PageOptions):
    """Write one HTML page about some runs: numbers, curves, tables, images, settings. It needs no network.

    example: logo-ssl report runs/first runs/second --out report.html
    """

    runs: Annotated[tyro.conf.Positional[tuple[Path, ...]], tyro.conf.arg(metavar="RUN ...")]
    """Run folders, finished or not. A folder of runs, as `reproduce` makes it, stands for the newest 50 runs in it."""
    out: Path = Path("report.html")
    """The page to write."""
    figures: Path | None = None
    """A new folder for the curves as .svg and .png files."""
    device: Device = "auto"
    """Where features are computed."""
    overwrite: bool = False
    """Replace the page, and figures in --figures, if they exist."""

    def run(self) -> None:
        """Summarise the runs, write the page, and print where it is."""
        say = plain_console().print
        found, earlier = find_runs(self.runs)
        collector = self.collector(self.device, say)
        if self.out.suffix.lower() not in (".html", ".htm"):
            raise UserError(f"out={self.out}: must be an .html file.")
        check_output(self.out, self.overwrite)
        if self.figures is not None and self.figures.exists() and not self.overwrite:
            raise UserError(f"figures={self.figures}: exists; add --overwrite to replace figures in it.")
        if earlier:
            say(f"The page shows the newest {len(found)} runs; {earlier} are left out.")
        runs = collector.collect(found)
        for file in draw_curves(runs, self.figures) if self.figures is not None else ():
            say(f"Figure: {file}")
        file = write(self.out, page(runs))
        say(f"Report: {file} ({file.stat().st_size / 1e6:.1f} MB)")


@dataclass(frozen=True)
class Watch(PageOptions):
    """Serve the page of `logo-ssl report` while runs are training; it updates itself. Ctrl-C ends it, not the runs.

    example: logo-ssl watch runs/first
    """

    runs: Annotated[tyro.conf.Positional[tuple[Path, ...]], tyro.conf.arg(metavar="RUN ...")]
    """Run folders, finished or not. A folder of runs, as `reproduce` makes it, stands for the newest 50 runs in it,
    also those that begin later."""
    port: int = 8600
    """Port to listen on; 0: any that is free."""
    host: str = "127.0.0.1"
    """Address to listen on; by default only this machine sees the page. There is no password."""
    every: float = 5.0
    """Seconds between two looks at the run folders."""
    device: Device = "cpu"
    """Where features are computed; the CPU leaves a GPU to the runs."""

    def run(self) -> None:
        """Serve until stopped."""
        if not 0.1 <= self.every <= 3600:
            raise UserError(f"every={self.every}: must be 0.1 to 3600 seconds.")
        torch.set_num_threads(1)  # the other cores are the runs'
        say = plain_console().print
        collector = self.collector(self.device, say)
        renewer = PageRenewer(self.runs, collector.collect, say)
        renewer.look(quickly=True)
        server = open_server(self.host, self.port, lambda: renewer.latest)
        # Pages are made in this thread, requests answered in another: Python freezes other threads when it ends, and
        # one that is inside torch then takes the process down (SIGABRT).
        with serving(server) as address:
            say(f"Watching: {address}")
            if self.host not in LOOPBACK:
                say(f"Everybody who can reach {self.host}:{server.server_port} can read it.")
            try:
                while True:
                    renewer.look()
                    time.sleep(self.every)
            except KeyboardInterrupt:
                say("Stopped watching; the runs go on.")


@dataclass(frozen=True)
class Affinity:
    """Compare crops with a reference crop by the learned affinity and by cosine, as Figure 3 of the paper.

    Next to the reference's own image: one of its class, one of the class with the nearest mean feature, and one of
    another class.

    example: logo-ssl affinity runs/first --map
    """

    run_folder: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="RUN")]
    """A run with a regressor (strategy logo); of an unfinished one, the newest checkpoint."""
    data: str | None = None
    """A name or a path, as for `pretrain` (default: what the run was trained on)."""
    reference: tuple[str, ...] = ()
    """IMAGE or IMAGE:x,y,w,h: a file or the number of a held-out (else training) image, a box in pixels; 8 at most."""
    rows: int = 2
    """References to draw at random if none is given (1 to 8)."""
    images: int = 100
    """Images, with one reference crop each, over which the ranking is measured (4 to 5000)."""
    map: bool = False
    """Also draw where in each image windows of the reference's size are similar to it (NAME-map.png)."""
    out: Path | None = None
    """The image to write, as .png and .svg (default: figures/affinity.png in the run)."""
    overwrite: bool = False
    """Replace the images if they exist."""
    seed: int = 0
    """Decides images, references and crops."""
    device: Device = "auto"
    """Where to compute."""

    def run(self) -> None:
        """Measure, draw, save, and print."""
        began, console = time.time(), plain_console()
        run = Run.existing(self.run_folder)
        bars, heat = self._files(run)
        measures = load_measures(run, self.device)
        encoder = measures.encoder
        if encoder.unfinished:
            console.print(encoder.says[0])
        data, max_side = data_for(encoder, self.data, console.print), read_recipe(run).loading.max_side
        pool = gather_pool(data, encoder, self.images, max_side, stream(self.seed, "affinity images"))
        if pool.unread:
            console.print(f"Unreadable images: {pool.unread}; {len(pool.images)} are compared.")
        given = [find_reference(text, data, encoder, max_side) for text in self.reference]
        results, centres = rank(pool, measures, self.seed)
        references = given or first_references(pool, self.rows)
        groups = reference_groups(references, pool, centres, data, measures, self.seed)
        note = f"{run.path.absolute().name}{f' ({encoder.unfinished}, unfinished)' if encoder.unfinished else ''} on "
        note += f"{data.name} ({pool.part}), seed {self.seed}. Each measure runs from 0 (least alike) to 1 (most alike)"
        over_crops = f"{note} over the crops of a row; lines are means over an image's."
        files = draw_affinity_bars([compared(group, measures, data) for group in groups], bars, over_crops)
        if self.map:
            maps = [heat_map(group, measures) for group in groups]
            files += draw_affinity_map(maps, heat, f"{note} over the windows of a row.")
        console.print(ranking_table(results))
        held = "held-out" if pool.part == "test" else "training"
        record = {
            "protocol": f"one local crop of each of {len(pool.images)} {held} images against {CROPS} local crops of "
            "every image, unaugmented, projected latents in eval mode; mean over references, with a 95 % bootstrap "
            "interval over them, given these crops",
            "results": results,
            "images": len(pool.images),
            "crops": CROPS,
            "part": pool.part,
            "seed_of_crops": self.seed,
            "seconds": round(time.time() - began, 1),
        }
        how = Extraction(device=self.device, say=console.print)
        settings = {"images": self.images, "seed": self.seed}
        try:
            save("affinity", record | about_data(data, how), encoder, how, settings=settings)
        except OSError as error:  # of a run that may only be read; --out names another place for the pictures
            console.print(f"These figures are not saved: {run.path} cannot be written ({error.strerror}).")
        for path in files:
            console.print(f"Picture: {path}")

    def _files(self, run: Run) -> tuple[Path, Path]:
        """The pictures of bars and of heat; UserError for what would fail only after the work."""
        if not LEAST <= self.images <= MOST_IMAGES:
            raise UserError(f"images={self.images}: must be {LEAST} to {MOST_IMAGES}.")
        if not 1 <= self.rows <= MOST_ROWS or len(self.reference) > MOST_ROWS:
            raise UserError(f"rows={self.rows} reference={len(self.reference)}: must be 1 to {MOST_ROWS}.")
        file = self.out or run.path / "figures" / "affinity.png"
        if file.suffix.lower() not in (".png", ".svg"):
            raise UserError(f"out={file}: must be a .png or .svg file.")
        bars, heat = file, file.with_name(f"{file.stem}-map{file.suffix}")
        if self.out is not None:  # pictures in the run are replaced
            for each in (bars, heat)[: 1 + self.map]:
                for suffix in (".png", ".svg"):
                    check_output(each.with_suffix(suffix), self.overwrite)
        return bars, heat


def ranking_table(results: Sequence[dict[str, Any]]) -> Table:
    """The ranking as a table that fits 80 columns, 95 % bootstrap intervals below the means."""

    def cell(value: dict[str, float]) -> str:
        return f"{value['mean']:.3f}\n{value['low']:.3f} to {value['high']:.3f}"

    caption = "means over n references, 95 % bootstrap intervals; AUC: 1 is perfect"
    head = ("task", *MEASURES, "learned\n- cosine", "chance")
    table = Table(*head, title="Ranking of crops", caption=caption, box=SIMPLE, padding=(0, 1, 0, 0))
    for row in results:
        cells = [cell(row[measure]) for measure in (*MEASURES, "difference")]
        table.add_row(f"{row['task']}\n{row['metric']}", *cells, f"{row['chance']:.3f}\nn={row['references']}")
    return table
