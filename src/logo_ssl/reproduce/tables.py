"""Which rows make a table? Recipes by the row that they stand for, and the paper's figures for each."""

from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import NamedTuple

from ..errors import UserError, nearest
from ..knn import PROTOCOLS
from ..recipes import RECIPES, PaperRow, Recipe, find_recipe, literal, tuned
from ..strategies import LoGoConfig
from ..text import listed
from .settings import name_of

LINEAR = "sgd"  # "in the same way as in" MoCo (4.2), on features of the training set
TITLES = {
    "table1": "Table 1: {data}, {backbone}",
    "table2": "Table 2: {data}, {backbone}",
    "table3": "Table 3: {data}, {backbone}",
    "table4": "Table 4: {data}, {backbone}",
    "table5": "Table 5: transfer from {data}, {backbone}",
    "table6": "Table 6: detection and segmentation from {data}, {backbone}",
    "table7": "Table 7: with and without L2L, {data}, {backbone}",
    "fig1b": "Figure 1b: kNN over epochs",
    "fig3": "Figure 3: learned affinity beside cosine",
}
WRITTEN = {
    "cifar10": "CIFAR-10",
    "stl10": "STL-10",
    "imagenet100": "ImageNet-100",
    "small-alexnet": "small AlexNet",
    "resnet18": "ResNet-18",
    "resnet34": "ResNet-34",
    "resnet50": "ResNet-50",
}
"""How the paper writes data and backbones."""
PICTURED = {"table1": "cifar10", "table2": "stl10", "table3": "imagenet100"}
"""Tables whose rows Figures 1b and 3 show by themselves, and the set of each; the paper's show Table 3's."""
TRANSFER_ROWS = {
    "Super(IN-100)": "imagenet100-resnet50-supervised",
    "MoCo": "imagenet100-resnet50-moco",
    "MoCo+Aug*": "imagenet100-resnet50-moco-augself",
    "MoCo-LoGo w/o L2L": "imagenet100-resnet50-moco-multicrop",
    "MoCo-LoGo": "imagenet100-resnet50-moco-logo",
}
DETECTION_ROWS = {"MoCo": "imagenet100-resnet50-moco", "MoCo-LoGo": "imagenet100-resnet50-moco-logo"}
DETECTIONS = (("voc07+12", "box", "detect"), ("coco", "box", "segment"), ("coco", "mask", "segment"))
"""Data, what is found, and what measures it: on COCO boxes and masks come from one Mask R-CNN."""
SUPERVISED = (
    "the paper's row Super(IN-1k) needs no pretraining: `logo-ssl eval detect torchvision/resnet50 --data voc07+12` "
    "and `logo-ssl eval segment torchvision/resnet50 --data coco`"
)
TRANSFER_NOTES = {"MoCo+Aug*": "the paper's figures are those of 500 epochs"}


class Figure(NamedTuple):
    """One number of a row."""

    measurement: str
    """What measures it: knn, linear-PROTOCOL, transfer-SET, detect-SET or segment-SET."""
    metric: str
    """What the evaluation calls it."""
    protocol: str
    """What the table calls it."""
    paper: float | None


class Row(NamedTuple):
    """A row of a table: a recipe, and what is to be measured of it."""

    label: str
    recipe: Recipe
    figures: tuple[Figure, ...]
    note: str = ""


class PaperTable(NamedTuple):
    """A table of the paper, or a figure, which needs the runs alone."""

    name: str
    rows: tuple[Row, ...]
    own: bool = False
    """Whether the settings are of our choice."""
    otherwise: frozenset[str] = frozenset()
    """Recipes of rows that are finished beside it, with other settings or images."""

    @property
    def title(self) -> str:
        """What stands above it, with the data and backbones that its rows have."""
        shown = [written(row.recipe) for row in self.rows]
        data, backbone = map(listed, zip(*shown, strict=True))
        title = TITLES[self.name].format(data=data, backbone=backbone)
        return title + (", with settings of our choice" if self.own else "")

    @property
    def stem(self) -> str:
        """What its files are called."""
        return self.name + ("-tuned" if self.own else "")

    def with_recipes(self, changed: Mapping[str, Recipe]) -> "PaperTable":
        """The same with other recipes of these names, and without the rows that have none."""
        rows = (row for row in self.rows if row.recipe.name in changed)
        return self._replace(rows=tuple(row._replace(recipe=changed[row.recipe.name]) for row in rows))

    def left_out(self) -> tuple[list[str], list[str]]:
        """The paper's rows that it lacks and could show, a figure none: not run, and finished with other settings."""
        whole = choose([self.name], own=self.own)[0].rows if self.name.startswith("table") else ()
        shown = {row.recipe.name for row in self.rows}
        lacking = [row for row in whole if row.recipe.name not in shown]
        return (
            [row.label for row in lacking if row.recipe.name not in self.otherwise],
            [row.label for row in lacking if row.recipe.name in self.otherwise],
        )


def choose(
    names: Sequence[str], patterns: Sequence[str] = (), own: bool = False, sets: Sequence[str] = ()
) -> list[PaperTable]:
    """The tables of these names, with the rows whose recipes match one of the patterns (all, without any).

    With `own`, the rows have settings of our choice; those for which there are none are left out. A figure shows the
    rows of the tables named with it; without any, those of any table that match, or those on `sets`.
    """
    for name in names:
        if name not in TITLES:
            _refuse_recipe(name)
            raise UserError(f"No table is called {name!r}; choose among {', '.join(TITLES)}.{nearest(name, TITLES)}")
    shown = pictured(names, sets, patterns, own)
    tables = [PaperTable(name, _rows(name, shown)) for name in dict.fromkeys(names)]
    if own:
        tables = [PaperTable(table.name, tuple(_own(table.rows)), own) for table in tables]
        if not any(table.rows for table in tables):
            having = [name for name in TITLES if any(_own(_rows(name, list(PICTURED))))]
            raise UserError(
                f"No row of {', '.join(names)} has settings of our choice; leave out --tuned, or choose among "
                f"{', '.join(having)}."
            )
    known = dict.fromkeys(row.recipe.name for table in tables for row in table.rows)
    for pattern in patterns:
        if not any(_answers(recipe, pattern) for recipe in known):
            if not _tables_with(pattern):
                _refuse_recipe(pattern)
            meant = [row.recipe.name for t in tables for row in t.rows if row.label.casefold() == pattern.casefold()]
            hint = f" Did you mean {' or '.join(dict.fromkeys(meant))}?" if meant else nearest(pattern, known)
            cure = " Add --tuned." if "-tuned-" in pattern and not own else hint
            raise UserError(f"No row matches {pattern!r}; there are {', '.join(known)}.{cure}")
    kept = [table._replace(rows=tuple(_matching(table.rows, patterns))) for table in tables]
    return [table for table in kept if table.rows]


def _refuse_recipe(name: str) -> None:
    """UserError, where a table or row is called like a recipe, with the command that runs it."""
    if name not in RECIPES:
        return
    if not (found := _tables_with(name)):
        raise UserError(f"{name} is in no table of the paper; run `logo-ssl pretrain {name}`.")
    asked = f"{found[0]}{' --tuned' if literal(RECIPES[name]).name != name else ''} --rows {name}"
    raise UserError(f"{name} is no table, but a row of {listed(found)}; run `logo-ssl reproduce {asked}`.")


def _tables_with(recipe: str) -> list[str]:
    """The tables that have such a row, with the paper's settings or ours."""
    if recipe not in RECIPES:
        return []
    papers = literal(RECIPES[recipe]).name
    return [name for name in TITLES if name.startswith("table") and papers in {row.recipe.name for row in _rows(name)}]


def pictured(names: Sequence[str], sets: Sequence[str], patterns: Sequence[str] = (), own: bool = False) -> list[str]:
    """The tables whose rows a figure shows: those named with it; else all that patterns or settings choose from.

    Without any of these it shows those on the sets, or Table 3.
    """
    every = [name for name in TITLES if name.startswith("table")]
    beside = [table for table in every if table in names]
    chosen = every if patterns else list(PICTURED) if own else []
    return beside or chosen or [table for table, data in PICTURED.items() if data in sets] or ["table3"]


def measured_at_home(tables: Iterable[PaperTable]) -> dict[str, list[str]]:
    """What tells classes apart on the data of the pretraining, by recipe; the curves of Figure 1b do, too."""
    measured: dict[str, list[str]] = {}
    for table in tables:
        for row in table.rows:
            found = [f.measurement for f in row.figures if f.measurement.startswith(("knn", "linear"))]
            if found or table.name == "fig1b":
                measured.setdefault(row.recipe.name, []).extend(found)
    return measured


def without_own(names: Sequence[str]) -> list[str]:
    """What to say of rows that have no settings of our choice, and are left out for that."""
    told = []
    for table in choose([name for name in names if name.startswith("table")]):
        n = sum(tuned(row.recipe) is None for row in table.rows)
        if n:
            rows = f"{n} of {len(table.rows)} rows" if n < len(table.rows) else f"All {n} rows"
            told.append(f"{rows} of {table.name} have no settings of our choice (--tuned), and are left out.")
    return told


def written(recipe: Recipe) -> tuple[str, str]:
    """Data and backbone as the paper writes them; others by their names, and what these are names of."""
    data, backbone = name_of(recipe.data), recipe.backbone
    return WRITTEN.get(data, f"data {data}"), WRITTEN.get(backbone, f"backbone {backbone}")


def _own(rows: Iterable[Row]) -> Iterable[Row]:
    note = "settings of our choice (docs/decisions/0025), not the paper's"
    rows_and_ours = ((row, tuned(row.recipe)) for row in rows)
    return (row._replace(label=f"{row.label}, tuned", recipe=ours, note=note) for row, ours in rows_and_ours if ours)


def _matching(rows: Iterable[Row], patterns: Sequence[str]) -> Iterable[Row]:
    return (row for row in rows if not patterns or any(_answers(row.recipe.name, p) for p in patterns))


def _answers(recipe: str, pattern: str) -> bool:
    """Whether a row is meant, by its recipe's name or, with settings of our choice, by that of the paper's."""
    return any(fnmatchcase(name, pattern) for name in (recipe, literal(find_recipe(recipe)).name))


def _rows(name: str, shown: Sequence[str] = ()) -> tuple[Row, ...]:
    """The rows of a table, or of the tables that a figure shows."""
    if name == "table5":
        return _transfer_rows()
    if name == "table6":
        return _detection_rows()
    if not name.startswith("fig"):
        return _table_rows(int(name.removeprefix("table")))
    rows = dict[str, Row]()  # tables share some
    for row in (row for table in shown for row in _rows(table)):
        if name == "fig1b" or isinstance(row.recipe.strategy, LoGoConfig):
            rows.setdefault(row.recipe.name, row._replace(figures=()))
    return tuple(rows.values())


def _table_rows(number: int) -> tuple[Row, ...]:
    tagged = [(recipe, row) for recipe in RECIPES.values() for row in recipe.paper if row.table == number]
    return tuple(Row(row.row, recipe, tuple(_figures(row))) for recipe, row in tagged)


def _figures(row: PaperRow) -> Iterable[Figure]:
    """Both ways to measure, whichever of them the paper tells."""
    for k, tau in PROTOCOLS:
        yield Figure("knn", f"knn top-1, k={k}, tau={tau}", f"kNN k={k}, tau={tau}", row.knn)
    yield Figure(f"linear-{LINEAR}", f"linear top-1, {LINEAR}", f"linear, {LINEAR}", row.linear)


def _transfer_rows() -> tuple[Row, ...]:
    from ..eval.table5 import PAPER, SETS  # slow to import: only where it is needed

    rows = []
    for label, recipe in TRANSFER_ROWS.items():
        figures = []
        for (name, known), paper in zip(SETS.items(), PAPER[label], strict=True):
            metric = "mean per class" if known.per_class else "top-1"
            figures.append(Figure(f"transfer-{name}", f"{name} {metric}", f"{known.title}, {metric}", paper))
        rows.append(Row(label, find_recipe(recipe), tuple(figures), TRANSFER_NOTES.get(label, "")))
    return tuple(rows)


def _detection_rows() -> tuple[Row, ...]:
    from ..eval.table6 import COLUMNS, MEASURES, PAPER  # slow to import: only where it is needed

    rows = []
    for label, recipe in DETECTION_ROWS.items():
        figures = []
        for data, what, measured_by in DETECTIONS:
            for column, paper in zip(COLUMNS, PAPER[data, what][label], strict=True):
                metric = f"{what} {column} ({MEASURES[data]})"
                figures.append(Figure(f"{measured_by}-{data}", metric, f"{data}, {what} {column}", paper))
        rows.append(Row(label, find_recipe(recipe), tuple(figures), SUPERVISED if not rows else ""))
    return tuple(rows)
