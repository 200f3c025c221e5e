"""How do runs look on one page? `logo-ssl report`: makes what needs the networks' parts, and hands it over as files."""

import shlex
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import tyro

from ..augment.picture import draw_crops
from ..data import load_data, statistics
from ..data.samples import look_at
from ..errors import UserError
from ..evaluate.record import refuse_unwritable
from ..frameworks import FRAMEWORKS
from ..randomness import stream
from ..recipes import AUTO, DECIDED, RECIPES, Recipe, differences, flat, read_recipe
from ..report.page import write_report
from ..report.reading import Told
from ..run import Run, write
from ..strategies import STRATEGIES, TwoViewConfig
from ..terminal import plain_console

IMAGES = 4  # whose crops are shown
MOST_RUNS = 50


@dataclass(frozen=True)
class Report:
    """Write one HTML page about some runs: numbers, curves, tables, pictures, settings. It needs no network.

    example: logo-ssl report runs/first runs/second --out report.html
    """

    runs: Annotated[tyro.conf.Positional[tuple[Path, ...]], tyro.conf.arg(metavar="RUN")]
    """Run folders, finished or not."""
    out: Path = Path("report.html")
    """The page to write."""
    crops: bool = True
    """Show crops as the network sees them, where the data are on this machine."""

    def run(self) -> None:
        """Make the pictures, write the page, and say where it is."""
        if not 1 <= len(self.runs) <= MOST_RUNS:
            raise UserError(f"{len(self.runs)} runs were given; give 1 to {MOST_RUNS}.")
        if self.out.suffix.lower() not in (".html", ".htm"):
            raise UserError(f"--out is {self.out}; the report is an .html file.")
        refuse_unwritable(self.out)
        console, runs = plain_console(), [Run.existing(path) for path in self.runs]
        with tempfile.TemporaryDirectory() as folder:
            told = []
            for i, (run, name) in enumerate(zip(runs, names_of(runs), strict=True)):
                recipe = read_recipe(run)
                picture = _crops(recipe, Path(folder) / f"{i}.png", console.print) if self.crops else None
                told.append(Told(run, name, picture, rerun(recipe, name), departures(recipe)))
            file = write_report(told, self.out)
        console.print(f"Report: {file} ({file.stat().st_size / 1e6:.1f} MB)")


def names_of(runs: list[Run]) -> list[str]:
    """The folders' names, with as much of the path before them as tells the runs apart."""
    parts, depth = [run.path.absolute().parts for run in runs], 1
    while len({part[-depth:] for part in parts}) < len(set(parts)):
        depth += 1
    names = ["/".join(part[-depth:]) for part in parts]
    return [name if names.index(name) == i else f"{name} ({i + 1})" for i, name in enumerate(names)]


def departures(recipe: Recipe) -> list[str]:
    """In what a recipe differs from the named one it began as."""
    if recipe.name not in RECIPES:
        return ["a recipe of another version"]
    changes = differences(RECIPES[recipe.name], recipe)
    return [f"{field} ({before} -> {after})" for field, (before, after) in changes.items()]


def rerun(recipe: Recipe, out: str) -> str | None:
    """The command that trains by this recipe again, if its name is still known."""
    if recipe.name not in RECIPES:
        return None
    base, words = RECIPES[recipe.name], ["logo-ssl", "pretrain", recipe.name]
    for part, registry in (("framework", FRAMEWORKS), ("strategy", STRATEGIES)):
        kind = flat(recipe)[f"{part}.kind"]
        if flat(base)[f"{part}.kind"] != kind:
            base = replace(base, **{part: registry[kind]()})
            words += [f"--{part}", kind]
    if isinstance(base.strategy, TwoViewConfig):
        base = replace(base, crops=replace(base.crops, n_local=0))
    told = {field: value for field, (_, value) in differences(base, recipe).items()}
    if recipe.name == AUTO:  # other data or another machine would choose otherwise
        told |= {field: flat(recipe)[field] for field in DECIDED if field in flat(recipe)}
    for field, value in told.items():
        words += _option(field.replace("_", "-"), value)
    return shlex.join([*words, "--out", f"runs/{out.rsplit('/', 1)[-1]}-again"])


def _option(flag: str, value: Any) -> list[str]:
    if isinstance(value, bool):
        place, _, name = flag.rpartition(".")
        return [f"--{flag}"] if value else [f"--{place + '.' if place else ''}no-{name}"]
    return [f"--{flag}", *map(str, value)] if isinstance(value, list) else [f"--{flag}", str(value)]


def _crops(recipe: Recipe, file: Path, say: Any) -> Path | None:
    """A picture of the crops of some images, if these are there."""
    try:
        data = load_data(recipe.data, recipe.crops.global_size)
        shown = look_at(data.train, IMAGES, recipe.loading.max_side)
        mean, std = statistics(data.train.images)
    except (UserError, OSError) as error:
        say(f"No crops are shown of {recipe.data}: {error}")
        return None
    return write(file, draw_crops(shown, recipe.crops, stream(recipe.seed, "show"), mean, std))
