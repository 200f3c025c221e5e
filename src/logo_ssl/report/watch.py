"""How is a run doing right now? `logo-ssl watch`: the report's page, served on this machine and always new."""

import hashlib
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Annotated, Literal

import torch
import tyro

from ..errors import UserError
from ..run import Run
from ..terminal import plain_console
from ..text import counted, printable
from .beside import beside
from .given import Begun, begun_at
from .page import page, plotly
from .report import refuse
from .serving import LOOPBACK, Served, Server, address_of, open_server
from .telling import PAPERS, Teller, stamps

PATIENCE_S, PAUSE_S = 30, 0.2
"""How long a run is waited for that is not there yet, and between two looks for it."""


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
    device: Literal["auto", "cpu", "cuda", "mps"] = "cpu"
    """Where features are computed; the CPU leaves a GPU to the runs."""

    def run(self) -> None:
        """Listen until told to stop."""
        refuse(len(self.runs), self.runs, self.images, self.data)
        if not 0.1 <= self.every <= 3600:
            raise UserError(f"every={self.every}: must be 0.1 to 3600 seconds.")
        torch.set_num_threads(1)  # the other cores are the runs'
        console = plain_console()
        for path in self.runs:
            wait_for_runs(path, console.print)
        keeper = Keeper(self.runs, Teller(self.crops, self.images, self.seed, self.device, console.print, self.data))
        library = cache(lambda: plotly().encode())
        server = open_server(self.host, self.port, lambda: keeper.latest, library)
        try:
            with beside(lambda stop: keeper.keep(stop, self.every, console.print)):
                self._serve(server, console.print)
        finally:
            server.server_close()

    def _serve(self, server: Server, say: Callable[[str], None]) -> None:
        """Say where, and answer until Ctrl-C."""
        port = server.server_address[1]
        try:
            say(f"Watching: http://{address_of(self.host)}:{port}/")
            if self.host not in LOOPBACK:
                say(f"Everybody who can reach {self.host}:{port} can read it.")
            server.serve_forever()
        except KeyboardInterrupt:
            say("Stopped watching; the runs go on.")


def wait_for_runs(path: Path, say: Callable[[str], None]) -> None:
    """Wait until a run is at a path, or below it: one that was started at the same moment as we were will be."""
    until = time.monotonic() + PATIENCE_S
    if not begun_at(path):
        _refuse_occupied(path)
        say(f"{path} holds no run yet; waiting for it, {PATIENCE_S} seconds at most.")
    while not begun_at(path) and time.monotonic() < until:
        time.sleep(PAUSE_S)
    if not Run(path).recipe_file.is_file():
        found = begun_at(path) or [Run.existing(path)]  # which says that there is none
        say(f"{path} has {counted(len(found), 'run')}; others are shown when they begin.")


def _refuse_occupied(path: Path) -> None:
    """What a pretraining would refuse as its folder is no run to be, unless rows of `reproduce` are about to begin."""
    try:
        Run.new(path)
    except UserError:
        if not any(path.glob("*/seed*.json")):
            Run.existing(path)


@dataclass
class Keeper:
    """Keeps the newest page of the runs at some paths; it is made anew only when one of their files has changed."""

    paths: Sequence[Path]
    teller: Teller
    latest: Served = field(init=False)

    def __post_init__(self) -> None:
        self.begun = Begun(self.paths, self.teller.say)
        self.seen = self._stamps()
        self._make(quickly=True)

    def look(self) -> bool:
        """Make the page anew if anything changed; whether it did."""
        seen = self._stamps()
        if seen == self.seen:
            return False
        self.seen = seen
        self._make()
        return True

    def keep(self, stop: threading.Event, every: float, say: Callable[[str], None]) -> None:
        """First what takes long, then a look every so many seconds; after trouble of any kind, too.

        A torn file is looked at again soon; what else fails would fail again, and waits for the next change.
        """
        self.seen = ()
        while not stop.is_set():
            try:
                self.look()
            except (UserError, OSError) as error:
                self.seen = ()
                self._tell(str(error), say)
            except Exception as error:
                self._tell(f"{type(error).__name__}: {error}", say)
            stop.wait(every)

    def _make(self, *, quickly: bool = False) -> None:
        text = page(self.teller.tell(self.begun.runs(), quickly=quickly), PAPERS, served=True)
        version = hashlib.sha256(text.encode()).hexdigest()[:16]
        self.latest = Served(version, text.replace("<body>", f'<body data-version="{version}">', 1).encode())

    def _tell(self, reason: str, say: Callable[[str], None]) -> None:
        trouble = f"The page is not renewed: {printable(reason)}"
        self.latest = self.latest._replace(trouble=trouble)
        say(trouble)

    def _stamps(self) -> tuple[object, ...]:
        files = [file for run in self.begun.runs() for file in _files(run)]
        return stamps(*files)


def _files(run: Run) -> list[Path]:
    """Everything that the page is made of."""
    single = (
        run.recipe_file,
        run.metrics_file,
        run.provenance_file,
        run.backbone_file,
        run.heads_file,
        run.bad_images_file,
    )
    folders = (run.evaluation_file("x").parent.glob("*.json"), (run.path / "figures").glob("*.png"))
    return [*single, *(file for folder in folders for file in sorted(folder))]
