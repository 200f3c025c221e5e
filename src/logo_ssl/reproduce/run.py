"""The runs of a table: each row and seed by the commands `pretrain`, `resume` and `eval`, in processes of their own."""

import shlex
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Literal, NamedTuple

from filelock import FileLock, Timeout

from ..errors import UserError
from ..recipes import Recipe, differences, find_recipe, is_harmless
from ..report.collect import options_between
from ..run import Run
from ..system.signals import Stopped
from .tables import Evaluation, Table

CUT = ("batch_size", "framework.queue", "optimiser.warmup_epochs")
"""Fields that a run has lower than asked for if there are few images."""

State = Literal["done", "waiting", "failed", "run by another process"]


class RowRun(NamedTuple):
    """A row with a seed, and its folder."""

    recipe: Recipe
    folder: Path
    evaluations: tuple[Evaluation, ...]

    @property
    def run(self) -> Run:
        """The run folder."""
        return Run(self.folder)

    @property
    def log(self) -> Path:
        """What its commands print, if rows run side by side."""
        return self.folder.with_name(f"{self.folder.name}.log")

    def result_file(self, evaluation: Evaluation) -> Path:
        """Where the result of an evaluation is kept."""
        return self.run.evaluation_file(f"reproduce-{evaluation.name}")

    def commands(self) -> Iterator[list[str]]:
        """What is left to do, as arguments of `logo-ssl`."""
        if not self.run.provenance_file.is_file():
            if self.run.recipe_file.is_file():
                yield ["resume", str(self.folder), "--data", self.recipe.data, "--device", self.recipe.device]
            else:
                asked = options_between(find_recipe(self.recipe.name), self.recipe)
                yield ["pretrain", self.recipe.name, "--out", str(self.folder), *asked]
        for evaluation in self.evaluations:
            result = self.result_file(evaluation)
            if not result.is_file():
                protocol, *options = evaluation.arguments
                options += ["--seed", str(self.recipe.seed)] if protocol in ("detect", "segment") else []
                if protocol == "transfer":  # it adds the set
                    result = result.with_name("reproduce-transfer.json")
                where = ["--device", self.recipe.device, "--out", str(result)]
                yield ["eval", protocol, str(self.folder), *options, *where]

    def check(self) -> None:
        """UserError if the folder holds a run with other settings, or something else."""
        if self.folder.exists() and not self.run.recipe_file.is_file() and any(self.folder.iterdir()):
            raise UserError(f"{self.folder} exists and is not a run; choose another --out.")
        if not self.run.recipe_file.is_file():
            return
        saved = Recipe.from_json(self.run.recipe_file.read_text())
        changed = differences(saved, self.recipe)
        other = {field: pair for field, pair in changed.items() if field == "epochs" or not is_harmless(field)}
        for field in CUT:
            if field in other and other[field][0] < other[field][1]:
                del other[field]
        if other:
            told = ", ".join(f"{field}={before}, now {now}" for field, (before, now) in other.items())
            raise UserError(f"{self.folder} has other settings ({told}); choose another --out.")


class Outcome(NamedTuple):
    """How a row's commands ended."""

    state: State
    reason: str = ""


def runs_of(tables: Sequence[Table], seeds: int, out: Path) -> list[RowRun]:
    """One for each recipe and seed; tables share runs."""
    needed: dict[str, tuple[Recipe, dict[Evaluation, None]]] = {}
    for row in (row for table in tables for row in table.rows):
        needed.setdefault(row.recipe.name, (row.recipe, {}))[1].update(dict.fromkeys(row.evaluations))
    return [
        RowRun(recipe.changed(seed=seed), out / recipe.name / f"seed{seed}", tuple(evaluations))
        for seed in range(seeds)
        for recipe, evaluations in needed.values()
    ]


class Runner:
    """Runs rows, several side by side; a row that fails is reported, and the others go on."""

    program: tuple[str, ...] = ("-m", "logo_ssl")
    """What Python runs each command with."""

    def __init__(self, jobs: int, say: Callable[[str], None]) -> None:
        self.jobs, self.say = jobs, say
        self.running = set[subprocess.Popen[bytes]]()
        self.stopping = False
        self.lock = threading.Lock()

    def run_all(self, rows: Sequence[RowRun], ended: Callable[[list[Outcome]], None]) -> list[Outcome]:
        """Do what is left of each row; `ended` sees how all of them stand each time that one has ended."""
        outcomes = [Outcome("waiting") for _ in rows]

        def run(place: int) -> None:
            outcome = self._run(rows[place])
            with self.lock:
                outcomes[place] = outcome
                ended(list(outcomes))

        with ThreadPoolExecutor(self.jobs) as pool:
            futures = [pool.submit(run, place) for place in range(len(rows))]
            try:
                for future in futures:
                    future.result()
            except BaseException as error:
                for future in futures:
                    future.cancel()
                self._stop(signal.SIGINT if isinstance(error, KeyboardInterrupt) else signal.SIGTERM)
                raise
        return outcomes

    def _run(self, row: RowRun) -> Outcome:
        """The commands of one row, which no other process runs meanwhile; what failed once trained fails alone."""
        row.folder.parent.mkdir(parents=True, exist_ok=True)
        try:
            lock = FileLock(row.folder.with_name(f".{row.folder.name}.lock")).acquire(blocking=False)
        except Timeout:
            self.say(f"{row.folder} is run by another process.")
            return Outcome("run by another process")
        failed = list[str]()
        with lock:
            for command in row.commands():
                name = " ".join(command[:2]) if command[0] == "eval" else command[0]
                if command[0] == "eval":
                    row.result_file(row.evaluations[0]).parent.mkdir(exist_ok=True)
                if self.stopping:
                    return Outcome("waiting")
                self.say(f"{row.folder}: logo-ssl {name}")
                if code := self.call(command, row.log):
                    failed.append(f"{name} ended with exit code {code}{f' (see {row.log})' if self.jobs > 1 else ''}")
                    if command[0] != "eval":
                        break
        return Outcome("failed", "; ".join(failed)) if failed else Outcome("done")

    def call(self, command: Sequence[str], log: Path) -> int:
        """Run one command; side by side, what it prints goes to a log."""
        with log.open("ab") as file:
            to = file if self.jobs > 1 else None
            with self.lock:
                if self.stopping:
                    return 0
                # A session of its own: Ctrl-C reaches this process alone, which passes it on once.
                arguments = [sys.executable, *self.program, *command]
                process = subprocess.Popen(
                    arguments, stdin=subprocess.DEVNULL, stdout=to, stderr=to, start_new_session=True
                )
                self.running.add(process)
            try:
                return process.wait()
            finally:
                self.running.discard(process)

    def _stop(self, number: signal.Signals) -> None:
        """Ask what runs to save and end, and wait for it; a second Ctrl-C does not wait."""
        with self.lock:
            self.stopping = True
        while self.running:
            for process in list(self.running):
                with suppress(ProcessLookupError):
                    process.send_signal(number)
            try:
                for process in list(self.running):
                    process.wait()
                return
            except (KeyboardInterrupt, Stopped):
                number = signal.SIGKILL


def shown(command: Sequence[str]) -> str:
    """A command as somebody would type it."""
    return f"logo-ssl {shlex.join(command)}"
