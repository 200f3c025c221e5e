"""What do the figures show? 1b: kNN over epochs, from the logs of the runs; 3: what each regressor holds for alike."""

import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import count
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal

from ..errors import UserError
from ..files import read_json, write
from ..recipes import Recipe
from ..strategies import LoGoConfig
from ..text import listed
from .images import cut
from .plan import Place, Task
from .results import Ended
from .settings import name_of
from .tables import PaperTable, Row, written

if TYPE_CHECKING:
    from ..report import Curve

KINDS = ("png", "svg")
PICTURES = {"fig1b": ("ImageNet-100", "ResNet-34"), "fig3": ("ImageNet-100", None)}
"""Data and backbone of the paper's figures; None: it does not say."""


def files_of(table: PaperTable, out: Path) -> list[Path]:
    """What is written of a table or figure."""
    told = out / f"{table.stem}.json"
    if table.name == "fig1b":
        return [told, *(out / f"{table.stem}.{kind}" for kind in KINDS)]
    if table.name == "fig3":
        return [told, *(out / f"{table.name}-{row.recipe.name}.{kind}" for row in table.rows for kind in KINDS)]
    return [told, out / f"{table.stem}.md"]


def needs_weights(table: PaperTable) -> bool:
    """Whether it is drawn of encoders, where others need no more than what was noted."""
    return table.name == "fig3"


def refuse_undrawable(tables: Sequence[PaperTable]) -> None:
    """UserError, before anything is trained, where a figure is asked for and there would be nothing to draw."""
    for table in tables:
        for recipe in (row.recipe for row in table.rows):
            if table.name == "fig1b" and not recipe.knn_every:
                raise UserError("fig1b draws kNN over epochs, and knn_every is 0; leave that out, or set 1 or more.")
            if table.name == "fig3" and not _learns_affinity(recipe):
                raise UserError("fig3 draws what a regressor learned, and strategy.affinity is cosine; leave that out.")


def _learns_affinity(recipe: Recipe) -> bool:
    return isinstance(recipe.strategy, LoGoConfig) and recipe.strategy.affinity == "learned"


def draw_curves(table: PaperTable, ended: Ended, out: Path, record: dict[str, Any]) -> list[str]:
    """Draw the curves and write their numbers beside; gives back what to print."""
    from ..report import draw_knn_curves  # slow to import: only where it is needed

    curves = curves_of(table, ended)
    drawn = [curve for curve in curves if curve.points()]
    failed = {c.row: "it has no finished run with kNN over epochs." for c in curves if c not in drawn}
    found = [*_torn(drawn, table.rows), *_measured_on(drawn)]
    remarks = [*_caption(table, record), *found]
    points = {curve.row: curve.points() for curve in drawn}
    record |= {"curves": points, "not_drawn": failed, "remarks": remarks}
    write(out / f"{table.stem}.json", json.dumps(record, indent=2) + "\n")
    told = [f"{row} is not drawn: {why}" for row, why in failed.items()]
    if not drawn:
        return [*told, "Figure 1b has nothing to draw."]
    files = draw_knn_curves(drawn, out / table.stem, " ".join(remarks))
    return [*told, *found, *(f"Figure: {file}" for file in files)]


def curves_of(table: PaperTable, ended: Ended) -> list["Curve"]:
    """kNN over epochs of each row, of all its seeds that are finished."""
    from ..report import Curve  # slow to import: only where it is needed

    curves = []
    for row in table.rows:
        runs = [task.place.run for task, _ in ended if task.recipe.name == row.recipe.name and task.place.finished]
        curves.append(Curve(row.recipe.name, row.label, name_of(row.recipe.data), tuple(runs)))
    return curves


def _torn(curves: Sequence[Any], rows: Sequence[Row]) -> Iterator[str]:
    """Curves of finished runs that end too early."""
    epochs = {row.recipe.name: row.recipe.epochs for row in rows}
    for curve in curves:
        if (last := max(curve.points())) < epochs[curve.row]:
            yield f"The log of {curve.row} tells no kNN after epoch {last} of {epochs[curve.row]}."


def _measured_on(curves: Sequence[Any]) -> Iterator[str]:
    """Panels that are not of test images among all."""
    found = set()
    for curve in curves:
        for line in (line for run in curve.runs for line in run.metrics()):
            if "knn_bank_of" in line:
                among = f"{line['knn_bank']:,} of {line['knn_bank_of']:,} images"
                found.add(f"Neighbours of {curve.panel} are looked for among {among}.")
            if "knn_of" in line:
                found.add(f"Curves of {curve.panel} are of {line['knn_of']}, tables of test images.")
    yield from sorted(found)


def draw_affinities(
    table: PaperTable, ended: Ended, out: Path, record: dict[str, Any], device: Literal["auto", "cpu", "cuda", "mps"]
) -> list[str]:
    """Draw each row's first run that has weights, and write how well both measures rank; gives back what to print."""
    from ..show.affinity import Affinity  # slow to import: only where it is needed

    remarks, drawn, failed, told = _caption(table, record), {}, {}, list[str]()
    for row in table.rows:
        name = row.recipe.name
        tasks = [task for task, _ in ended if task.recipe.name == name and task.place.finished]
        drawable = [task for task in tasks if not task.place.weightless]
        if not drawable:
            failed[name] = f"{_gone(tasks)}." if tasks else "it has no finished run."
            continue
        run, seed = drawable[0].place.run.path, drawable[0].recipe.seed
        if gone := tasks[: tasks.index(drawable[0])]:
            told.append(f"{name} is drawn of seed {seed}, since {_gone(gone)}.")
        picture = Affinity(run, row.recipe.data, out=out / f"{table.name}-{name}.png", overwrite=True, device=device)
        try:
            results = picture.run(" ".join((f"{row.label} ({name}), run of seed {seed}.", *remarks)))
            drawn[name] = {"run": str(run), "seed": seed, "results": results}
        except UserError as error:  # the other rows and the tables are not to blame
            failed[name] = str(error)
    record |= {"affinities": _drawn_before(table, out) | drawn, "not_drawn": failed, "remarks": remarks}
    write(out / f"{table.stem}.json", json.dumps(record, indent=2) + "\n")
    return [*told, *(f"{name} is not drawn: {sentence}" for name, sentence in failed.items())]


def _drawn_before(table: PaperTable, out: Path) -> dict[str, Any]:
    """What was written of rows that are not drawn now, and whose pictures are still there."""
    asked, noted = {row.recipe.name for row in table.rows}, read_json(out / f"{table.stem}.json").get("affinities")
    known = noted if isinstance(noted, dict) else {}
    return {
        name: of for name, of in known.items() if name not in asked and (out / f"{table.name}-{name}.png").is_file()
    }


def not_to_be_drawn(table: PaperTable, tasks: Sequence[Task]) -> list[str]:
    """What to say, before anything runs, of rows that a figure cannot show whatever is done: their weights are gone."""
    told = []
    for name in (row.recipe.name for row in table.rows if needs_weights(table)):
        own = [task for task in tasks if task.recipe.name == name]
        if own and all(task.place.weightless for task in own):
            row = own[0].place.run.path.parent
            seed = next(k for k in count() if not Place(row / f"seed{k}").weightless)
            told.append(f"{table.name} cannot draw {name}: {_gone(own)}; --seeds {seed + 1} trains seed {seed}.")
    return told


def _gone(tasks: Sequence[Task]) -> str:
    seeds = [str(task.recipe.seed) for task in tasks]
    return f"the weights of its {'seed' if len(seeds) == 1 else 'seeds'} {listed(seeds)} are gone"


def strange_pictures(tables: Sequence[PaperTable]) -> list[str]:
    """What to say, before anything runs, when a figure is drawn of something else than the paper's."""
    return [sentence for table in tables if table.name in PICTURES for sentence in _strange(table)]


def _caption(table: PaperTable, record: Mapping[str, Any]) -> list[str]:
    """What stands in a figure of runs that are done: of what it is, and that their settings are not the paper's."""
    told = {row["recipe"]: next((run["images"] for run in row["runs"] if run["images"]), {}) for row in record["rows"]}
    cuts = {row.recipe.name: cut(row.recipe.data, told[row.recipe.name]) for row in table.rows}
    departs = any(row["departures"].keys() - {"data"} for row in record["rows"])
    other_settings = [f"Settings differ from the paper's: see {table.stem}.json."] if departs else []
    return [*_strange(table, cuts), *other_settings]


def _strange(table: PaperTable, cuts: Mapping[str, str] = MappingProxyType({})) -> list[str]:
    """In what a figure is not the paper's; `cuts` tell, by the recipe of a row, which images are not the whole set."""
    data, backbone = PICTURES[table.name]
    shown = dict.fromkeys((*written(row.recipe), cuts.get(row.recipe.name, "")) for row in table.rows)
    if all(images == data and backbone in (network, None) and not cut_to for images, network, cut_to in shown):
        return []
    ours = listed(f"{images}{cut_to and f' ({cut_to})'} with {network}" for images, network, cut_to in shown)
    papers = data if backbone is None else f"{data} with {backbone}"
    return [f"The paper's Figure {table.name.removeprefix('fig')} is {papers}; this one is {ours}."]
