"""The command `reproduce`: the rows of tables by `pretrain`, `resume` and `eval`, in processes of their own."""

import json
import shlex
import signal
import subprocess
import sys
import time
from ast import literal_eval
from collections import deque
from collections.abc import Callable, Generator, Sequence
from contextlib import nullcontext, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro
from filelock import FileLock, Timeout

from ..data import NAMES, locate
from ..errors import UserError, nearest
from ..files import check_folder
from ..recipes import Recipe, check, flat
from ..run import Run
from ..system.hardware import best_device, hardware, provenance
from ..system.signals import Stopped
from ..system.terminal import plain_console
from .render import draw_figure_1b, markdown, record_of, write_table
from .tables import DONE, RowRun, Table, runs_of, tables_named

OWN_OPTIONS = ("data", "seed", "epochs", "device", "name", "paper", "chosen", "framework.kind", "strategy.kind")
"""Fields that `--set` does not take: they have an option of their own, or make a row what it is."""
WAITING, ELSEWHERE = "waiting", "run by another process"
"""What has become of a row that is neither done nor failed."""
PAUSE = 0.1  # seconds between two looks at what runs

Row = Generator[None, None, str]
"""The commands of a row, advanced until they end with what has become of it."""


@dataclass(frozen=True)
class Reproduce:
    """Run the rows of the paper's tables (table1 to table7) or figures (fig1b, fig3), and compare with its numbers.

    Each row is pretrained and evaluated by the commands `pretrain`, `resume` and `eval`, which `--dry-run` prints.
    Finished rows are not run again, interrupted ones go on, and tables share runs. A table is written each time that a
    row has ended. Exit code 1: a row failed.

    example: logo-ssl reproduce table1 --tuned --seeds 3
    """

    tables: Annotated[tyro.conf.Positional[tuple[str, ...]], tyro.conf.arg(metavar="TABLE ...")]
    """table1 to table7. fig1b and fig3 draw the rows of the tables that are named with them; alone, Table 3's."""
    out: Path = Path("runs/reproduce")
    """Folder of runs and tables: OUT/RECIPE/seedK/ is a run, OUT/TABLE.md and OUT/TABLE.json the table (TABLE-tuned
    with --tuned)."""
    seeds: int = 1
    """Runs of each row, with the seeds 0, 1, ..."""
    epochs: int | None = None
    """Passes over the data (default: the recipes')."""
    rows: tuple[str, ...] = ()
    """Recipes of rows, or patterns such as 'cifar10-*' (default: all rows)."""
    tuned: bool = False
    """Rows with tuned settings, baselines as well, instead of the paper's (CIFAR-10 only)."""
    data: tuple[str, ...] = ()
    """Where the images are: a source as for `pretrain`, or NAME=SOURCE if the rows are on several sets."""
    settings: Annotated[
        tyro.conf.UseAppendAction[tuple[str, ...]], tyro.conf.arg(name="set", metavar="FIELD=VALUE")
    ] = ()
    """Any field of the recipes, for all rows that have it: --set optimiser.lr=0.12 --set crops.global_scale=0.2,1.0."""
    jobs: int = 1
    """Rows that run side by side on the device. On an NVIDIA GPU this pays if its Multi-Process Service runs."""
    device: Literal["auto", "cpu", "cuda", "mps"] = "auto"
    """Where to train and to measure."""
    dry_run: bool = False
    """Print the commands that would run, and run nothing."""

    def run(self) -> bool:
        """Do it; whether every row is done."""
        console = plain_console()
        tables = self.chosen()
        out = self.out.expanduser().absolute()
        rows = runs_of(tables, self.seeds, out)
        for row in rows:
            row.check()
        if self.dry_run:
            for command in (command for row in rows for command in row.commands()):
                console.print(f"logo-ssl {shlex.join(command)}")
            return True
        out.mkdir(parents=True, exist_ok=True)
        check_folder(out)
        options = json.loads(json.dumps(asdict(self), default=str))
        made = {"options": options, "written_by": provenance(hardware(best_device("cpu")))}

        def write(outcomes: Sequence[str]) -> list[dict[str, Any]]:
            ended = {row.folder: outcome for row, outcome in zip(rows, outcomes, strict=True)}
            records = [record_of(table, out, ended) | made for table in tables]
            for table, record in zip(tables, records, strict=True):
                if table.name.startswith("table"):
                    write_table(table, record, out)
            return records

        outcomes = Runner(self.jobs, console.print).run_all(rows, write)
        for table, record in zip(tables, write(outcomes), strict=True):
            if table.name.startswith("table"):
                console.print(f"\n{markdown(record)}")
                console.print(f"Table: {out / f'{table.stem}.md'}")
            elif table.name == "fig1b":
                for file in draw_figure_1b(table, record, out):
                    console.print(f"Figure: {file}")
            else:
                self._draw_affinities(table, rows, out)
        return all(outcome in (DONE, ELSEWHERE) for outcome in outcomes)

    def chosen(self) -> list[Table]:
        """The tables, every setting checked before anything runs."""
        for name in ("seeds", "jobs"):
            if getattr(self, name) < 1:
                raise UserError(f"{name}={getattr(self, name)}: must be 1 or more.")
        if Run(self.out).recipe_file.is_file() or self.out.is_file():
            raise UserError(f"out={self.out}: this is a run or a file; name a folder for tables and their runs.")
        best_device(self.device)
        tables = tables_named(self.tables, self.rows, self.tuned)
        recipes = {row.recipe.name: row.recipe for table in tables for row in table.rows}
        places = self._places({recipe.data for recipe in recipes.values()})
        own = {"device": self.device} | ({} if self.epochs is None else {"epochs": self.epochs})
        for name, recipe in recipes.items():
            recipes[name] = recipe.changed(data=places.get(recipe.data, recipe.data), **own)
        recipes = with_settings(recipes, self.settings)
        for recipe in recipes.values():
            check(recipe)
        return [
            table._replace(rows=tuple(row._replace(recipe=recipes[row.recipe.name]) for row in table.rows))
            for table in tables
        ]

    def _places(self, sets: set[str]) -> dict[str, str]:
        """Where each data set is."""
        places = {}
        for source in self.data:
            name, _, path = source.rpartition("=")
            name = name or (next(iter(sets)) if len(sets) == 1 else Path(path).stem)
            if name not in sets:
                raise UserError(f"data={source}: the rows are on {', '.join(sorted(sets))}; give NAME=SOURCE.")
            if path not in NAMES and not Path(path).expanduser().exists():
                raise UserError(f"data={source}: there is nothing at {path!r}.")
            places[name] = locate(path)
        return places

    def _draw_affinities(self, table: Table, rows: Sequence[RowRun], out: Path) -> None:
        """Figure 3 of the first finished run of each row, by the command `affinity`."""
        finished = {row.recipe.name: row for row in reversed(rows) if row.run.backbone_file.is_file()}
        for name in (row.recipe.name for row in table.rows if row.recipe.name in finished):
            row, picture = finished[name], out / f"{table.name}-{name}.png"
            options = ["--data", row.recipe.data, "--device", self.device, "--out", str(picture), "--overwrite"]
            subprocess.run([sys.executable, *Runner.program, "affinity", str(row.folder), *options], check=False)


def with_settings(recipes: dict[str, Recipe], settings: Sequence[str]) -> dict[str, Recipe]:
    """The recipes with each `field=value` in those that have the field; a field that none has is refused."""
    changed = dict(recipes)
    for setting in settings:
        field, equals, value = setting.partition("=")
        field = field.strip().replace("-", "_")
        if not equals or field in OWN_OPTIONS:
            raise UserError(f"set={setting}: give FIELD=VALUE, such as optimiser.lr=0.12; {', '.join(OWN_OPTIONS[:4])} "
                            "have options of their own.")  # fmt: skip
        having = {name: old[field] for name, recipe in changed.items() if field in (old := flat(recipe))}
        if not having:
            known = {known for recipe in recipes.values() for known in flat(recipe)}
            raise UserError(f"set={setting}: no row has the field {field}.{nearest(field, known)}")
        for name, old in having.items():
            several = tuple(map(_parsed, value.replace(",", " ").split()))
            parsed = several if isinstance(old, list) else _parsed(value)
            changed[name] = changed[name].changed(**{field.replace(".", "__"): parsed})
    return changed


def _parsed(value: str) -> Any:
    try:
        return literal_eval(value)
    except (ValueError, SyntaxError):
        return value


class Runner:
    """Runs rows, several side by side; a row that fails is reported, and the others go on."""

    program: tuple[str, ...] = ("-m", "logo_ssl")
    """What Python runs each command with."""

    def __init__(self, jobs: int, say: Callable[[str], None]) -> None:
        self.jobs, self.say = jobs, say
        self.running = set[subprocess.Popen[Any]]()

    def run_all(self, rows: Sequence[RowRun], ended: Callable[[list[str]], object]) -> list[str]:
        """Do what is left of each row; `ended` sees how all of them stand each time that one has ended."""
        outcomes, waiting, under_way = [WAITING] * len(rows), deque(range(len(rows))), dict[int, Row]()
        try:
            while waiting or under_way:
                while waiting and len(under_way) < self.jobs:
                    place = waiting.popleft()
                    under_way[place] = self._run(rows[place])
                for place, row in list(under_way.items()):
                    try:
                        next(row)
                    except StopIteration as end:
                        outcomes[place] = end.value
                        del under_way[place]
                        ended(outcomes)
                time.sleep(PAUSE)
        except BaseException as error:
            self._stop(signal.SIGINT if isinstance(error, KeyboardInterrupt) else signal.SIGTERM)
            raise
        return outcomes

    def _run(self, row: RowRun) -> Row:
        """The commands of one row, which no other process runs meanwhile; what failed once trained fails alone."""
        row.folder.parent.mkdir(parents=True, exist_ok=True)
        try:
            lock = FileLock(row.folder.with_name(f".{row.folder.name}.lock")).acquire(blocking=False)
        except Timeout:
            self.say(f"{row.folder} is run by another process.")
            return ELSEWHERE
        failed = list[str]()
        with lock:
            for command in row.commands():
                name = " ".join(command[:2]) if command[0] == "eval" else command[0]
                self.say(f"{row.folder}: logo-ssl {name}")
                process = self._start(command, row.log)
                while (code := process.poll()) is None:
                    yield
                self.running.remove(process)
                if code:
                    failed.append(f"{name} ended with exit code {code}{f' (see {row.log})' if self.jobs > 1 else ''}")
                    if command[0] != "eval":
                        break
        return "; ".join(failed) or DONE

    def _start(self, command: Sequence[str], log: Path) -> subprocess.Popen[Any]:
        """One command; side by side, what it prints goes to a log."""
        with log.open("ab") if self.jobs > 1 else nullcontext() as file:
            # A session of its own: Ctrl-C reaches this process alone, which passes it on once.
            arguments = [sys.executable, *self.program, *command]
            process = subprocess.Popen(
                arguments, stdin=subprocess.DEVNULL, stdout=file, stderr=file, start_new_session=True
            )
        self.running.add(process)
        return process

    def _stop(self, number: signal.Signals) -> None:
        """Ask what runs to save and end, and wait for it; a second Ctrl-C does not wait."""
        for each in (number, signal.SIGKILL):
            for process in self.running:
                process.send_signal(each)
            with suppress(KeyboardInterrupt, Stopped):
                for process in self.running:
                    process.wait()
                return
