"""The options of the commands report, watch and affinity, and what they do."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from textwrap import fill
from typing import Annotated, Any, Literal, NamedTuple

import torch
import tyro
from rich.box import SIMPLE
from rich.table import Table

from ..data import NAMES, ImageSet, locate
from ..errors import UserError
from ..eval.affinity import CROPS, Measures, Pool, Reference, find_reference, gather_pool, load_measures
from ..eval.options import Extraction
from ..eval.results import data_for, save
from ..files import check_output
from ..randomness import stream
from ..recipes import read_recipe
from ..run import Run
from ..terminal import plain_console
from .affinity import Ranking, compared, first_references, heat_map, rank, reference_groups
from .collect import LEAST, RunCollector
from .figures import check_figures, draw_affinity_bars, draw_affinity_map, draw_figures
from .gallery import MEASURES
from .html import plotly, write_report
from .serve import LOOPBACK, Background, PageRenewer, address_of, open_server
from .summary import find_runs, refuse_count, runs_at

MOST_IMAGES, MOST_ROWS = 2000, 8
PATIENCE_S, PAUSE_S = 30, 0.2
"""How long a run is waited for that is not there yet, and between two looks for it."""
LETTERS = 200  # of a title that have room along the width of a picture
Device = Literal["auto", "cpu", "cuda", "mps"]
Say = Callable[[str], None]


@dataclass(frozen=True)
class Report:
    """Write one HTML page about some runs: numbers, curves, tables, images, settings. It needs no network.

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
    device: Device = "auto"
    """Where features are computed."""
    overwrite: bool = False
    """Replace the page, and figures in --figures, if they exist."""

    def run(self) -> None:
        """Summarise the runs, write the page, and print where it is."""
        found = find_runs(self.runs)
        refuse_count(len(found.runs))
        _check_images(self.images, self.data)
        if self.out.suffix.lower() not in (".html", ".htm"):
            raise UserError(f"out={self.out}: must be an .html file.")
        check_output(self.out, self.overwrite)
        say = plain_console().print
        for folder, n in found.below.items():
            say(f"{folder}: {n} finished run{'s' * (n > 1)}.")
        if found.unfinished:
            say(f"Left out, not finished: {', '.join(str(run.path) for run in found.unfinished)}")
        collector = RunCollector(self.crops, self.images, self.seed, self.device, say, self.data)
        if self.figures is not None:
            check_figures(collector.collect(found.runs, quickly=True), self.figures, self.overwrite, self.images > 0)
        runs = collector.collect(found.runs)
        for run in runs:
            for sentence in run.damages:
                say(f"{run.name}: {sentence}")
        for file in draw_figures(runs, self.figures) if self.figures is not None else ():
            say(f"Figure: {file}")
        file = write_report(runs, self.out)
        size = file.stat().st_size
        say(f"Report: {file} ({f'{size / 1e6:.1f} MB' if size >= 1e5 else f'{size / 1e3:.0f} kB'})")


@dataclass(frozen=True)
class Watch:
    """Serve the page of `logo-ssl report` while runs are training; it updates itself. Ctrl-C ends it, not the runs.

    example: logo-ssl watch runs/first
    """

    runs: Annotated[tyro.conf.Positional[tuple[Path, ...]], tyro.conf.arg(metavar="RUN ...")]
    """Run folders, finished or not. A folder of runs, as `reproduce` makes it, stands for the newest 50 runs in it,
    also those that begin later. Folders that do not exist yet have half a minute to appear."""
    port: int = 8600
    """Port to listen on; 0: any that is free."""
    host: str = "127.0.0.1"
    """Address to listen on; by default only this machine sees the page. There is no password."""
    every: float = 5.0
    """Seconds between two looks at the run folders."""
    data: str | None = None
    """A name or a path: where the images are now (default: where the runs had them)."""
    crops: bool = True
    """Show crops as the network sees them, if the data are on this machine."""
    images: int = 400
    """Images for the map and the neighbours (4 to 2000); 0: neither."""
    seed: int = 0
    """Decides which images and reference crops are shown."""
    device: Device = "cpu"
    """Where features are computed; the CPU leaves a GPU to the runs."""

    def run(self) -> None:
        """Serve until stopped."""
        refuse_count(len(self.runs))
        _check_images(self.images, self.data)
        if not 0.1 <= self.every <= 3600:
            raise UserError(f"every={self.every}: must be 0.1 to 3600 seconds.")
        torch.set_num_threads(1)  # the other cores are the runs'
        say = plain_console().print
        for path in self.runs:
            wait_for_runs(path, say)
        collector = RunCollector(self.crops, self.images, self.seed, self.device, say, self.data)
        renewer = PageRenewer(self.runs, collector.collect)
        server = open_server(self.host, self.port, lambda: renewer.latest, cache(lambda: plotly().encode()))
        try:
            with Background(lambda stop: renewer.renew(stop, self.every, say)):
                try:
                    say(f"Watching: http://{address_of(self.host)}:{server.server_address[1]}/")
                    if self.host not in LOOPBACK:
                        say(f"Everybody who can reach {self.host}:{server.server_address[1]} can read it.")
                    server.serve_forever()
                except KeyboardInterrupt:
                    say("Stopped watching; the runs go on.")
        finally:
            server.server_close()


def wait_for_runs(path: Path, say: Say) -> None:
    """Wait until a run is at a path, or below it: one that was started at the same moment as we were will be."""
    until = time.monotonic() + PATIENCE_S
    if path.is_file():
        Run.existing(path)  # raises
    if not runs_at(path):
        say(f"{path} holds no run yet; waiting for it, {PATIENCE_S} seconds at most.")
    while not (found := runs_at(path)) and time.monotonic() < until:
        time.sleep(PAUSE_S)
    if not found:
        Run.existing(path)  # raises


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
    """Images, with one reference crop each, over which the ranking is measured (4 to 2000)."""
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

    def run(self, title: str = "") -> list[dict[str, Any]]:
        """Measure, draw below a title, save, and print; gives back how well both measures rank."""
        began, console = time.time(), plain_console()
        run = Run.existing(self.run_folder)
        file = self._check(run)
        seen = self._look(run, console.print)
        files = self._draw(seen, file, title)
        console.print(ranking_table(seen.ranking.results))
        self._save(run, seen, round(time.time() - began, 1), console.print)
        for path in files:
            console.print(f"Picture: {path}")
        return seen.ranking.results

    def _check(self, run: Run) -> Path:
        """The file of the picture; UserError for what would fail only after the work."""
        if not LEAST <= self.images <= MOST_IMAGES:
            raise UserError(f"images={self.images}: must be {LEAST} to {MOST_IMAGES}.")
        if not 1 <= self.rows <= MOST_ROWS:
            raise UserError(f"rows={self.rows}: must be 1 to {MOST_ROWS}.")
        if len(self.reference) > MOST_ROWS:
            raise UserError(f"reference: {len(self.reference)} were given; give at most {MOST_ROWS}.")
        file = self.out or run.path / "figures" / "affinity.png"
        if file.suffix.lower() not in (".png", ".svg"):
            raise UserError(f"out={file}: must be a .png or .svg file.")
        if self.out is not None:  # pictures in the run are replaced
            for each in (file, *self._map_file(file)):
                for suffix in (".png", ".svg"):
                    check_output(each.with_suffix(suffix), self.overwrite)
        return file

    def _map_file(self, file: Path) -> list[Path]:
        return [file.with_name(f"{file.stem}-map{file.suffix}")] if self.map else []

    def _look(self, run: Run, say: Say) -> "_Seen":
        """Load encoder and images, find the references, and rank crops."""
        measures = load_measures(run, self.device)
        if measures.encoder.unfinished:
            say(measures.encoder.says[0])
        data = data_for(measures.encoder, self.data, say)
        max_side = read_recipe(run).loading.max_side
        pool = gather_pool(data, measures.encoder, self.images, max_side, stream(self.seed, "affinity images"))
        if pool.unread:
            say(f"Unreadable images: {pool.unread}; {len(pool.images)} are compared.")
        given = [find_reference(text, data, measures.encoder, max_side) for text in self.reference]
        return _Seen(measures, data, pool, given or first_references(pool, self.rows), rank(pool, measures, self.seed))

    def _draw(self, seen: "_Seen", file: Path, title: str) -> list[Path]:
        """Draw each reference with what it is compared with, and where in it the reference is found."""
        measures, data, pool, references, ranking = seen
        groups = reference_groups(references, pool, ranking.centres, data, measures, self.seed)
        encoder = measures.encoder
        far = f" ({encoder.unfinished}, unfinished)" if encoder.unfinished else ""
        note = (
            f"{fill(title, LETTERS)}\n{Path(encoder.name).absolute().name}{far} on {data.name} ({pool.part}), seed "
            f"{self.seed}. Each measure runs from 0 (least alike) to 1 (most alike)"
        ).lstrip()
        pictured = [compared(group, measures, data) for group in groups]
        files = draw_affinity_bars(pictured, file, f"{note} over the crops of a row; lines are means over an image's.")
        for place in self._map_file(file):
            maps = [heat_map(group, measures) for group in groups]
            files += draw_affinity_map(maps, place, f"{note} over the windows of a row.")
        return files

    def _save(self, run: Run, seen: "_Seen", seconds: float, say: Say) -> None:
        """Save the ranking with the run's evaluations."""
        held = "held-out" if seen.pool.part == "test" else "training"
        record = {
            "protocol": f"one local crop of each of {len(seen.pool.images)} {held} images against {CROPS} local crops "
            "of every image, unaugmented, projected latents in eval mode; mean over references, with a 95 % bootstrap "
            "interval over them, given these crops",
            "results": seen.ranking.results,
            "images": len(seen.pool.images),
            "crops": CROPS,
            "part": seen.pool.part,
            "seed_of_crops": self.seed,
            "seconds": seconds,
        }
        how = Extraction(device=self.device, say=say)
        settings = {"images": self.images, "seed": self.seed}
        try:
            save("affinity", record, seen.measures.encoder, seen.data, how, settings=settings)
        except OSError as error:  # of a run that may only be read; --out names another place for the pictures
            say(f"These figures are not saved: {run.path} cannot be written ({error.strerror}).")


class _Seen(NamedTuple):
    """What is compared, and how well both measures rank it."""

    measures: Measures
    data: ImageSet
    pool: Pool
    references: Sequence[Reference]
    ranking: Ranking


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


def _check_images(images: int, data: str | None) -> None:
    if images and not LEAST <= images <= MOST_IMAGES:
        raise UserError(f"images={images}: must be {LEAST} to {MOST_IMAGES}, or 0 for no neighbours and maps.")
    if data is not None and (place := locate(data)) not in NAMES and not Path(place).exists():
        raise UserError(f"data={place}: must be the name of a data set, or a path that exists.")
