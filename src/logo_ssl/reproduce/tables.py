"""The rows of the paper's tables and figures: a recipe each, what is measured of it, and what the paper reports."""

from collections.abc import Iterable, Iterator, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, NamedTuple

from ..errors import UserError, nearest
from ..knn import PROTOCOLS
from ..recipes import PARTS, RECIPES, PaperRow, Recipe, differences, find_recipe, is_harmless, literal, tuned
from ..recipes.paper import DETECTION, DETECTION_COLUMNS, DETECTION_MEASURES, TRANSFER, TRANSFER_SETS
from ..run import Run
from ..strategies import LoGoConfig
from ..system.terminal import listed

TITLES = {
    "table1": "Table 1: linear and kNN accuracy on CIFAR-10",
    "table2": "Table 2: linear and kNN accuracy on STL-10",
    "table3": "Table 3: linear and kNN accuracy on ImageNet-100",
    "table4": "Table 4: ResNet-34 and ResNet-50 on ImageNet-100",
    "table5": "Table 5: transfer from ImageNet-100",
    "table6": "Table 6: detection and instance masks from ImageNet-100",
    "table7": "Table 7: with and without L2L",
    "fig1b": "Figure 1b: kNN over epochs",
    "fig3": "Figure 3: learned affinity and cosine",
}
TRANSFER_SIZE = 224
TRANSFER_RECIPES = {
    "Super(IN-100)": "imagenet100-resnet50-supervised",
    "MoCo": "imagenet100-resnet50-moco",
    "MoCo+Aug*": "imagenet100-resnet50-moco-augself",  # the paper's figures are those of 500 epochs
    "MoCo-LoGo w/o L2L": "imagenet100-resnet50-moco-multicrop",
    "MoCo-LoGo": "imagenet100-resnet50-moco-logo",
}
DETECTION_RECIPES = {name: TRANSFER_RECIPES[name] for name in ("MoCo", "MoCo-LoGo")}


class Evaluation(NamedTuple):
    """One call of `logo-ssl eval`."""

    name: str
    """What its result file is called."""
    arguments: tuple[str, ...]
    """The protocol, and its options."""


class Figure(NamedTuple):
    """One number of a row."""

    evaluation: Evaluation
    protocol: str
    """What the table calls it."""
    paper: float | None
    keys: tuple[Any, ...]
    """Where the result file has it: keys, or the entries that pick one of a list."""


class Row(NamedTuple):
    """A row of a table: a recipe, and what is measured of it."""

    label: str
    recipe: Recipe
    figures: tuple[Figure, ...]

    @property
    def evaluations(self) -> tuple[Evaluation, ...]:
        """Each once: one evaluation may give several figures."""
        return tuple(dict.fromkeys(figure.evaluation for figure in self.figures))


class Table(NamedTuple):
    """A table of the paper, or a figure, which needs the runs alone."""

    name: str
    rows: tuple[Row, ...]
    tuned: bool = False

    @property
    def title(self) -> str:
        """What its page is called."""
        return TITLES[self.name] + (", tuned settings" if self.tuned else "")

    @property
    def stem(self) -> str:
        """What its files are called."""
        return self.name + ("-tuned" if self.tuned else "")


KNN = Evaluation("knn", ("knn",))
LINEAR = Evaluation("linear-sgd", ("linear", "--protocol", "sgd"))


def tables_named(names: Sequence[str], patterns: Sequence[str] = (), own: bool = False) -> list[Table]:
    """The tables of these names, with the rows whose recipes match one of the patterns (all without any).

    With `own` the rows have tuned settings, and those without such settings are left out. A figure shows the rows of
    the tables named with it; alone, as in the paper, Table 3's.
    """
    for name in names:
        if name not in TITLES:
            raise UserError(f"No table is called {name!r}; choose {', '.join(TITLES)}.{nearest(name, TITLES)}")
    shown = [name for name in names if name.startswith("table")] or ["table3"]
    tables, known = [], list[str]()
    for name in dict.fromkeys(names):
        rows = list(_rows_of_figure(name, shown) if name.startswith("fig") else rows_of(name))
        if own:
            own_recipes = ((row, tuned(row.recipe)) for row in rows)
            rows = [row._replace(label=f"{row.label}, tuned", recipe=found) for row, found in own_recipes if found]
        known += [row.recipe.name for row in rows]
        rows = tuple(row for row in rows if not patterns or _matches(row.recipe, patterns))
        tables += [Table(name, rows, own)] if rows else []
    if not tables:
        asked = f"rows={list(patterns)}" if patterns else "tuned"
        raise UserError(f"{asked}: {listed(names)} has no such rows; it has {listed(known) or 'none'}.")
    return tables


def rows_of(name: str) -> tuple[Row, ...]:
    """The rows of a table with the paper's settings."""
    if name == "table5":
        return tuple(_transfer_row(label, recipe, TRANSFER[label]) for label, recipe in TRANSFER_RECIPES.items())
    if name == "table6":
        return tuple(_detection_row(label, recipe) for label, recipe in DETECTION_RECIPES.items())
    number = int(name.removeprefix("table"))
    tagged = ((recipe, row) for recipe in RECIPES.values() for row in recipe.paper if row.table == number)
    return tuple(Row(row.row, recipe, tuple(_accuracies(row))) for recipe, row in tagged)


def _rows_of_figure(name: str, tables: Iterable[str]) -> Iterator[Row]:
    """The rows of these tables, each once; Figure 3 needs a learned affinity."""
    rows = {row.recipe.name: row._replace(figures=()) for table in tables for row in rows_of(table)}
    for row in rows.values():
        if name != "fig3" or isinstance(row.recipe.strategy, LoGoConfig):
            yield row


def _accuracies(row: PaperRow) -> Iterator[Figure]:
    for k, tau in PROTOCOLS:
        yield Figure(KNN, f"kNN k={k}, tau={tau}", row.knn, ("results", {"k": k, "tau": tau}, "top1"))
    yield Figure(LINEAR, "linear, SGD", row.linear, ("results", "top-1"))


def _transfer_row(label: str, recipe: str, paper: Sequence[float]) -> Row:
    figures = []
    for (name, figure), value in zip(TRANSFER_SETS.items(), paper, strict=True):
        measured = Evaluation(f"transfer-{name}", ("transfer", "--sets", name, "--size", str(TRANSFER_SIZE)))
        figures.append(Figure(measured, f"{name}, {figure}", value, ("value",)))
    return Row(label, find_recipe(recipe), tuple(figures))


def _detection_row(label: str, recipe: str) -> Row:
    voc = Evaluation("detect-voc07+12", ("detect", "--data", "voc07+12"))
    coco = Evaluation("segment-coco", ("segment", "--data", "coco"))
    figures = []
    for measured, of in ((voc, "box"), (coco, "box"), (coco, "mask")):
        data = measured.name.partition("-")[2]
        for column, value in zip(DETECTION_COLUMNS, DETECTION[data, of][label], strict=True):
            where = ("results", {"of": of, "measure": DETECTION_MEASURES[data]}, "overall", column)
            figures.append(Figure(measured, f"{data}, {of} {column}", value, where))
    return Row(label, find_recipe(recipe), tuple(figures))


def _matches(recipe: Recipe, patterns: Sequence[str]) -> bool:
    """Whether a pattern means a recipe, by its own name or by that of the row with the paper's settings."""
    return any(fnmatchcase(name, pattern) for name in (recipe.name, literal(recipe).name) for pattern in patterns)


# -- Rows with a seed

CUT = ("batch_size", "framework.queue", "optimiser.warmup_epochs")
"""Fields that a run has lower than asked for if there are few images."""

DONE = "done"


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
                detects = protocol in ("detect", "segment")
                fixed = ["--seed", str(self.recipe.seed), "--schedule", "protocol"] if detects else ["--no-baselines"]
                if protocol == "transfer":  # it adds the set
                    result = result.with_name("reproduce-transfer.json")
                where = ["--device", self.recipe.device, "--out", str(result)]
                yield ["eval", protocol, str(self.folder), *options, *fixed, *where]

    def check(self) -> None:
        """UserError if the folder holds a run with other settings."""
        if not self.run.recipe_file.is_file():
            return
        saved = Recipe.from_json(self.run.recipe_file.read_text())
        changed = differences(saved, self.recipe)
        other = {field: pair for field, pair in changed.items() if field == "epochs" or not is_harmless(field)}
        other = {field: pair for field, pair in other.items() if field not in CUT or pair[0] > pair[1]}
        if other:
            told = ", ".join(f"{field}={before}, now {now}" for field, (before, now) in other.items())
            raise UserError(f"{self.folder} has other settings ({told}); choose another --out.")


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


def options_between(base: Recipe, recipe: Recipe) -> list[str]:
    """The options of `pretrain` that make one recipe of another."""
    options = list[str]()
    for part in PARTS:
        if base.kind(part) != (kind := recipe.kind(part)):
            base = base.with_part(part, kind)
            options += [f"--{part}", kind]
    for setting, (_, value) in differences(base, recipe).items():
        outer, dot, last = setting.replace("_", "-").rpartition(".")
        if isinstance(value, bool):
            options.append(f"--{outer}{dot}{'' if value else 'no-'}{last}")
        else:
            options += [f"--{outer}{dot}{last}", *map(str, value if isinstance(value, list) else [value])]
    return options
