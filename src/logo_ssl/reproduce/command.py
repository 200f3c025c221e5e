"""How are tables asked for in a shell? Their names, and what the user may change for all rows."""

import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from math import inf
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from ..data.sources import absolute
from ..errors import UserError
from ..files import write
from ..hardware import best_device, hardware
from ..provenance import provenance
from ..recipes import Recipe
from ..run import Run
from ..terminal import plain_console
from ..text import listed
from .beside import with_finished
from .estimate import days_on_a_cpu, describe, few_steps
from .figures import (
    PICTURES,
    draw_affinities,
    draw_curves,
    needs_weights,
    not_to_be_drawn,
    refuse_undrawable,
    strange_pictures,
)
from .images import facts_of, other_sets, refuse_other_images, refuse_unmeasurable
from .launch import LEFT, Outcome, carry_out
from .markdown import markdown
from .plan import Task, refuse_occupied, refuse_other_settings, tasks_for
from .results import Ended, gather
from .settings import set_of, with_data, with_settings
from .sources import images_at, refuse_wrong_paths
from .tables import PICTURED, PaperTable, choose, measured_at_home, pictured, without_own

MOST_SEEDS = 1000


@dataclass(frozen=True)
class Reproduce:
    """Run the rows of the paper's tables (table1 to table7) or figures (fig1b, fig3), and write what came out.

    Finished rows are not run again, interrupted ones go on, and tables share their runs; a table is written each time
    that a row has ended, with all of it that is finished in --out by the same settings. Commands may share --out: a
    row that one of them is at is left to it by the others, which is said, and is no failure. Exit code 1: a row failed,
    or its data are missing.

    example: logo-ssl reproduce table1 --tuned --seeds 3
    """

    tables: Annotated[tyro.conf.Positional[tuple[str, ...]], tyro.conf.arg(metavar="TABLE ...")]
    """table1 to table7; fig1b and fig3 draw the rows of the tables that are named with them; alone, those that --rows
    names, or those on the set that --data is named after (cifar10.npz: Table 1), else Table 3's."""
    out: Path = Path("runs/reproduce")
    """Where runs and tables go: OUT/RECIPE/seedK/ is a run folder, OUT/TABLE.md and OUT/TABLE.json the table (with
    --tuned, TABLE-tuned)."""
    seeds: int = 1
    """Runs of each row, with the seeds 0, 1, ..."""
    epochs: int | None = None
    """Passes over the data (default: the recipes')."""
    rows: tuple[str, ...] = ()
    """Recipes of rows, or patterns such as 'cifar10-*' (default: all rows)."""
    tuned: bool = False
    """Rows with settings of our choice, baselines alike, instead of the paper's; there are some on CIFAR-10."""
    data: tuple[str, ...] = ()
    """Where images lie, if not by name: a source as for `pretrain`; where rows are on several sets, one that is called
    like its set (cifar10.npz), or NAME=SOURCE."""
    settings: Annotated[
        tyro.conf.UseAppendAction[tuple[str, ...]], tyro.conf.arg(name="set", metavar="FIELD=VALUE")
    ] = ()
    """Any field of the recipes for all rows that have it, such as --set optimiser.lr=0.12 --set
    crops.global_scale=0.2,1.0; may be given often."""
    jobs: int = 1
    """Rows that run side by side on the device. On an NVIDIA GPU, unless its Multi-Process Service runs
    (`nvidia-cuda-mps-control -d`), they take turns, which cost 11 % when we measured it."""
    device: Literal["auto", "cpu", "cuda", "mps"] = "auto"
    """Where to train and to measure."""
    dry_run: bool = False
    """Run nothing; say what would run, and how long by the measured speed."""
    images_per_s: float | None = None
    """Speed to estimate by, for runs that have not begun; also where other commands slowed down another seed."""

    def run(self) -> bool:
        """Do it; whether all that was asked for, and can be had, is there."""
        console = plain_console()
        images_at.cache_clear()  # of a command before, in Python
        facts_of.cache_clear()
        tables = self._tables()
        out = self._folder()
        tasks = tasks_for(tables, self.seeds, out)
        refuse_occupied(tasks)
        refuse_other_settings(tasks)
        refuse_other_images(tasks)
        left_out = without_own(self.tables) if self.tuned and not self.rows else []
        unmatched = [name for name in dict.fromkeys(self.tables) if name not in {table.name for table in tables}]
        left_out += [f"No row of {name} matches --rows, so it is left out." for name in unmatched if self.rows]
        more = []
        for table, others in self._shown(tables, tasks, out):
            found = [task for task, _ in others]
            if found:
                more.append(f"{table.name} also shows what is finished in {out}: {'; '.join(t.name for t in found)}.")
            more += not_to_be_drawn(table, [*tasks, *found])
        remarks = (*other_sets(tables), *strange_pictures(tables), *self._rows_of_pictures(tables))
        for sentence in (*left_out, *remarks, *more):
            console.print(sentence)
        if self.dry_run:
            for line in describe(tasks, self.jobs, self.images_per_s):
                console.print(line)
            return True
        idle = ["--images-per-s is for --dry-run alone, and changes nothing here."] if self.images_per_s else []
        for sentence in (*idle, *few_steps(tasks), *days_on_a_cpu(tasks)):
            console.print(sentence)
        written_by = provenance(hardware(best_device("auto")))  # now: later, a GPU may be too busy to be asked

        def keep(outcomes: Sequence[Outcome]) -> None:
            self._keep(tables, list(zip(tasks, outcomes, strict=True)), out, written_by)
            images_at.cache_clear()

        images_at.cache_clear()  # rows may take days, and each loads its own
        ended = list(zip(tasks, carry_out(tasks, self.jobs, console.print, keep), strict=True))
        whole = all(outcome.is_well for _, outcome in ended)
        elsewhere = {task.recipe.name for task, outcome in ended if outcome.state == LEFT}
        for asked in tables:  # each with what other commands have finished by now: drawing another took its time
            [(table, others)] = self._shown([asked], tasks, out)
            record = self._record(table, [*ended, *others], written_by)
            for line in self._written(table, [*ended, *others], out, record):
                console.print(line)
            missed = record.get("not_drawn", {}).keys() & {row.recipe.name for row in asked.rows}
            whole = whole and missed <= elsewhere
        return whole

    def _tables(self) -> list[PaperTable]:
        """The tables, every setting checked before anything runs."""
        for name in ("seeds", "jobs"):
            if getattr(self, name) < 1:
                raise UserError(f"--{name} is {getattr(self, name)}; use 1 or more.")
        if self.seeds > MOST_SEEDS:
            raise UserError(f"--seeds is {self.seeds}; use {MOST_SEEDS} or fewer.")
        if self.images_per_s is not None and not 0 < self.images_per_s < inf:  # nor not a number
            raise UserError(f"--images-per-s is {self.images_per_s}; use a number above 0.")
        tables = choose(self.tables, self.rows, self.tuned, self._sets())
        recipes = list({row.recipe.name: row.recipe for table in tables for row in table.rows}.values())
        placed = with_data(recipes, self.data)
        refuse_wrong_paths(recipe.data for recipe in placed)
        measured = measured_at_home(tables)
        changed = {recipe.name: recipe for recipe in self._changed(placed)}
        refuse_unmeasurable(changed.values(), measured)
        tables = [table.with_recipes(changed) for table in tables]
        refuse_undrawable(tables)
        return tables

    def _changed(self, recipes: Sequence[Recipe]) -> list[Recipe]:
        """Recipes with what is set for all of them."""
        own = {"device": self.device, "epochs": self.epochs}
        return with_settings(recipes, self.settings, {k: str(v) for k, v in own.items() if v not in (None, "auto")})

    def _shown(self, tables: list[PaperTable], tasks: list[Task], out: Path) -> list[tuple[PaperTable, Ended]]:
        """The tables and figures with what else of them is finished in the folder by now."""
        book = choose(self.tables, self.rows and ("*",), self.tuned, self._sets())
        recipes = {row.recipe.name: row.recipe for table in book for row in table.rows}
        data = {recipes[task.recipe.name].data: task.recipe.data for task in tasks if task.recipe.name in recipes}
        asked = {task.recipe.name: replace(task.recipe, seed=0) for task in tasks}
        changed = dict(asked)
        for name, recipe in recipes.items():
            if name in asked or not (out / name).is_dir():
                continue
            with suppress(UserError):  # one that was not asked for may not take these settings
                placed = replace(recipe, data=data.get(recipe.data, recipe.data))
                changed[name] = self._changed([placed, *asked.values()])[0]
        whole = {table.name: table.with_recipes(changed) for table in book}
        whole |= {table.name: table for table in tables if self.rows and needs_weights(table)}  # drawn row by row
        return [with_finished(table, whole[table.name], tasks, out) for table in tables]

    def _folder(self) -> Path:
        """The folder of all this."""
        out = absolute(self.out)
        if out.exists() and not out.is_dir():
            raise UserError(f"--out is {out}, which is a file; name a folder.")
        if Run(out).recipe_file.is_file():
            raise UserError(f"--out is {out}, which is a run; name a folder for tables and their runs.")
        return out

    def _rows_of_pictures(self, tables: list[PaperTable]) -> list[str]:
        """Which rows each figure shows."""
        shown = pictured(self.tables, self._sets(), self.rows, self.tuned)
        told = []
        for table in (table for table in tables if table.name in PICTURES):
            if self.rows or self.tuned:
                told.append(f"{table.name} shows {listed(row.recipe.name for row in table.rows)}.")
                continue
            whose = listed(f"Table {name.removeprefix('table')}'s" for name in shown)
            alone = not any(name in self.tables for name in shown)
            by_data = alone and shown != ["table3"]
            why = f", by --data ({', '.join(PICTURED[name] for name in shown)})" if by_data else ""
            other = next((name for name in ("table3", *PICTURED) if alone and name not in shown), None)
            more = f"; `{other} {table.name}` shows others" if other else ""
            told.append(f"{table.name} shows {whose} rows{why}{more}.")
        return told

    def _sets(self) -> list[str]:
        """Which sets --data names."""
        return [set_of(source) for source in self.data]

    def _keep(self, tables: list[PaperTable], ended: Ended, out: Path, written_by: dict[str, Any]) -> None:
        """Write the tables as far as they are, for whoever looks in or cannot wait; figures are drawn at the end."""
        with suppress(OSError, UserError):  # a full disk, say, is no reason to stop the rows that are under way
            for table, others in self._shown(tables, [task for task, _ in ended], out):
                if table.name not in PICTURES:
                    record = self._record(table, [*ended, *others], written_by)
                    self._written(table, [*ended, *others], out, record)

    def _record(self, table: PaperTable, ended: Ended, written_by: dict[str, Any]) -> dict[str, Any]:
        """What came out, and by whom."""
        options = json.loads(json.dumps(asdict(self), default=str))
        return gather(table, ended) | {"options": options, "written_by": written_by}

    def _written(self, table: PaperTable, ended: Ended, out: Path, record: dict[str, Any]) -> list[str]:
        """Write a table or its picture; gives back what to print."""
        if table.name == "fig1b":
            return draw_curves(table, ended, out, record)
        if table.name == "fig3":
            return draw_affinities(table, ended, out, record, self.device)
        if not any(figure["n"] for row in record["rows"] for figure in row["figures"]):
            return [f"{table.name} is not written: nothing in it is measured yet."]
        text = markdown(record)
        write(out / f"{table.stem}.json", json.dumps(record, indent=2) + "\n")
        return [f"\n{text}", f"Table: {write(out / f'{table.stem}.md', text)}"]
