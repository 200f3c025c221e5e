"""The commands about recipes and training: demo, recipes, pretrain, resume, bench, show-crops."""

import json
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, fields, make_dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, get_type_hints

import tyro
from rich.table import Table

from .cli import read
from .errors import UserError
from .frameworks import FRAMEWORKS
from .recipes import AUTO, HARMLESS, PARTS, RECIPES, WEIGHTY, Recipe, check, find_recipe, read_recipe
from .run import Run
from .strategies import STRATEGIES
from .system.launch import is_first
from .system.signals import ends_imports
from .system.terminal import plain_console, put

FIRST = dict.fromkeys(PARTS, str) | {"data": str, "device": str, "init": str, "init_key": str} | WEIGHTY
"""Fields that decide the defaults of others."""
MOST_SHOWN = 30
TINY = RECIPES["tiny"]
LOCAL_CROPS_IN_DEMO = (
    "Over five seeds two crops alone reach 69 % (k=20), with local crops 82 %. Pushing them apart makes no measurable "
    "difference here (83 %)."
)
"""Measured: results/experiments/55-demo.md."""


@dataclass(frozen=True)
class Demo:
    """Pretrain the recipe tiny on made-up scenes and compare its encoder with pixels and an untrained encoder.

    The same command continues a demo that was interrupted, and shows one that is done again.

    example: logo-ssl demo --out runs/demo
    """

    out: Path = Path("runs/demo")
    """Run folder."""
    epochs: int | None = None
    """Passes over the data (default: the recipe's)."""
    seed: int = 0
    """Decides initial weights, order and augmentation."""

    def run(self) -> None:
        """Train to the end, from where a demo was interrupted; compare; report."""
        with ends_imports():
            from .eval.knn import KNN
            from .report.commands import Report
            from .train import pretrain, resume
        console, run = plain_console(), Run(self.out)
        saved = read_recipe(run) if run.recipe_file.is_file() and run.saved() else None
        if saved is None or saved.name != TINY.name:
            pretrain(
                TINY,
                run.path,
                console=console,
                seed=self.seed,
                epochs=TINY.epochs if self.epochs is None else self.epochs,
            )
        elif saved.seed != self.seed or self.epochs not in (None, saved.epochs):
            raise UserError(f"out={run.path}: holds a demo of --seed {saved.seed} --epochs {saved.epochs}; give these.")
        elif not run.is_finished:
            console.print(f"{run.path} holds an interrupted demo, which continues.")
            resume(run.path, console=console)
        KNN(str(run.path), device=read_recipe(run).device).run()  # type: ignore[arg-type] (one of the names)
        console.print(LOCAL_CROPS_IN_DEMO)
        Report((run.path,), run.path / "report.html", images=1000, overwrite=True).run()
        console.print(
            "Next, with photographs of your own in a folder: logo-ssl pretrain --data photos/ --out runs/photos"
        )


@dataclass(frozen=True)
class Recipes:
    """List the recipes, with the tables and figures of the paper.

    Recipes *-logo push local crops apart, *-multicrop do not. cifar10-tuned-* are rows of the paper with our settings.
    Those of NNCLR, SwAV, DINO, VICReg, Barlow Twins and vision transformers, and on Imagenette all but MoCo's, have
    published learning rates, crops of ours, and are not measured yet.
    `logo-ssl pretrain RECIPE --help` shows what a recipe sets.

    example: logo-ssl recipes
    """

    def run(self) -> None:
        """Print the table."""
        table = Table("recipe", "backbone", "paper's\ntables", "paper\nkNN %", "paper\nlinear %", show_edge=False)
        table.add_row(AUTO, "chosen")
        for recipe in RECIPES.values():
            known = ({getattr(row, what) for row in recipe.paper} - {None} for what in ("knn", "linear"))
            figures = (" / ".join(f"{value:.2f}" for value in sorted(of)) for of in known)
            tables = ", ".join(str(row.table) for row in recipe.paper)
            table.add_row(recipe.name, recipe.backbone, tables, *figures)
        plain_console().print(table)


@dataclass(frozen=True)
class RecipeOptions:
    """A recipe, its parts by name, and every field of it as an option."""

    without_data: ClassVar[str] = AUTO
    """The recipe that is taken if neither a recipe nor data are given."""

    recipe: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="[RECIPE]")] = AUTO
    """Before all options: auto, a name that `logo-ssl recipes` lists, a run folder, or a .json or .yaml file."""
    framework: Literal[tuple(FRAMEWORKS)] = "moco"  # pyright: ignore (known once it runs)
    """How crops are compared."""
    strategy: Literal[tuple(STRATEGIES)] = "logo"  # pyright: ignore (known once it runs)
    """Which crops are compared."""
    settings: Annotated[Recipe, tyro.conf.arg(name="")] = TINY
    first: tyro.conf.Suppress[str] = AUTO
    """The recipe that the options were read for."""

    @classmethod
    def defaults(cls, arguments: Sequence[str], prog: str) -> "RecipeOptions":
        """The named recipe, or one chosen for --data, with all that decides other defaults as the arguments have it."""
        named = arguments[0] if arguments and not arguments[0].startswith("-") else ""
        options = [
            (name, Annotated[kind | None, tyro.conf.arg(name=name.replace("__", "."))], None)
            for name, kind in FIRST.items()
        ]
        target = make_dataclass("First", options)
        first, _ = read(target, arguments, prog, return_unknown_args=True, add_help=False)
        wishes = {name: value for name, value in vars(first).items() if value is not None}
        name = named or (AUTO if "data" in wishes else cls.without_data)
        recipe = find_recipe(name) if name != AUTO else _chosen(arguments, wishes)
        if "init" in wishes and name != AUTO:  # which has it already
            from .train.build import with_network_of  # with the networks, which others do not wait for

            recipe = with_network_of(recipe, wishes)
        recipe = recipe.changed(**wishes)
        return cls(name, recipe.kind("framework"), recipe.kind("strategy"), recipe, name)

    def checked(self) -> Recipe:
        """The recipe, if it can work."""
        if self.recipe != self.first:
            raise UserError(f"recipe={self.recipe}: must come before all options.")
        if not self.settings.data:
            raise UserError("data='': must be a folder of images or another source; or name a recipe, such as tiny.")
        check(self.settings)
        return self.settings


def _chosen(arguments: Sequence[str], wishes: dict[str, Any]) -> Recipe:
    """The recipe `auto`; an example of it for the help, and if --data are missing."""
    from .data.decode import DatasetInfo
    from .recipes import Machine, choose

    if {"-h", "--help"} & set(arguments) or "data" not in wishes:
        return choose(DatasetInfo(10_000, 224, 3, False), Machine("cuda", "a GPU", 16 * 10**9), wishes).changed(data="")
    from .train.build import recipe_for  # with the networks, which help does not wait for

    return recipe_for(wishes["data"], wishes.get("device", "auto"), wishes)


@dataclass(frozen=True)
class Pretrain(RecipeOptions):
    """Pretrain an encoder; every field of the recipe is an option.

    Without a recipe, or with auto, settings are chosen for the images at --data and this machine; --help then shows
    those for 10,000 photographs on a GPU. `logo-ssl pretrain RECIPE --help` shows the values of a recipe.

    example: logo-ssl pretrain --data photos/ --out runs/photos
    """

    out: Path | None = None
    """Run folder, new or empty (default: runs/RECIPE)."""
    verbose: bool = False
    """Print more: why settings were chosen, where images wait."""
    finish_in: str | None = None
    """Train for about this time at most, such as 90s, 10m or 1.5h: three steps tell with how many epochs."""
    dry_run: bool = False
    """Time three steps, print how long the training would take, and write nothing."""

    def run(self) -> None:
        """Train, or say how long it would take."""
        recipe = self.checked()
        with ends_imports():
            from .train import pretrain
            from .train.bench import dry_run
        if self.dry_run:
            dry_run(recipe, plain_console())
            return
        out = self.out or Path("runs") / recipe.name
        print_next(pretrain(recipe, out, finish_in=self.finish_in, verbose=self.verbose))


CHANGING = make_dataclass(
    "Changing",
    [
        (each.name, tyro.conf.Suppress[get_type_hints(Recipe, include_extras=True)[each.name]])
        for each in fields(Recipe)
        if each.name not in HARMLESS
    ],
    bases=(Recipe,),
    frozen=True,
    kw_only=True,
)
"""A recipe of which only the fields are options that may change when a run goes on."""


@dataclass(frozen=True)
class Resume:
    """Continue an interrupted run from its last checkpoint, or a finished one for more epochs.

    Only fields that do not decide what a step learns may change. `logo-ssl resume RUN --help` shows the run's values.
    With fewer epochs than planned, or --finish-in, the learning rate decays to its end from here.

    example: logo-ssl resume runs/first --epochs 400
    """

    settings: Annotated[CHANGING, tyro.conf.arg(name="")]  # pyright: ignore (known once it runs)
    path: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="RUN")] = tyro.MISSING
    """Run folder."""
    finish_in: str | None = None
    """End the run in about this time, such as 90s, 10m or 1.5h: three steps tell with how many epochs."""
    verbose: bool = False
    """Print more: which fields changed, where images wait."""

    @classmethod
    def defaults(cls, arguments: Sequence[str], prog: str) -> "Resume":
        """The values of the run that is named first."""
        named = bool(arguments) and not arguments[0].startswith("-")
        recipe = read_recipe(Run.existing(arguments[0])) if named else TINY
        return cls(CHANGING(**vars(recipe)))

    def run(self) -> None:
        """Train."""
        with ends_imports():
            from .train import resume
        recipe = Recipe(**vars(self.settings))
        print_next(resume(self.path, recipe, finish_in=self.finish_in, verbose=self.verbose))


def print_next(run: Run) -> None:
    """Whether training improved the weights that it began with, and the command that uses the encoder."""
    if not is_first():
        return
    console, recipe = plain_console(), read_recipe(run)
    if recipe.start is not None and not any("knn" in line for line in run.metrics()):  # else the result has told
        from .embedding.comparing import compare
        from .encoders import load_encoder

        try:
            start = load_encoder(recipe.start, key=recipe.init_key, size=recipe.crops.global_size)
            found = compare(
                [start, run.path], recipe.data, labels=False, device=recipe.device, workers=recipe.loading.workers
            )
            console.print(f"Compared with {recipe.start} (crops of the images): {found.encoders[1].verdict}.")
        except (UserError, RuntimeError) as error:  # too few images, no network of ours, too little memory
            console.print(f"Not compared with {recipe.start}: {error}")
    features = f"{run.path.absolute().name}-features.npz"  # of its own: those of another run are not replaced
    console.print(f"Next: logo-ssl embed {shlex.join([str(run.path), '--out', features])}")


@dataclass(frozen=True)
class Bench(RecipeOptions):
    """Measure the speed of training, in images/s of data, augmentation, forward and backward, and the whole step.

    Trains for four epochs, whatever --epochs says, keeps nothing, and prints one JSON line.

    example: logo-ssl bench tiny
    """

    def run(self) -> None:
        """Measure, and print the JSON line."""
        recipe = self.checked()
        with ends_imports():
            from .train.bench import bench
        put(json.dumps(bench(recipe)) + "\n")


@dataclass(frozen=True)
class ShowCrops(RecipeOptions):
    """Draw the crops of some images as the network sees them, and their boxes on the originals.

    example: logo-ssl show-crops --data photos/ --out crops.png
    """

    without_data: ClassVar[str] = "tiny"

    out: Path = Path("crops.png")
    """The image to write (.png)."""
    images: int = 6
    """How many images to show, evenly spread over the data."""
    overwrite: bool = False
    """Replace --out if it exists."""

    def run(self) -> None:
        """Draw, and say where the picture is."""
        from .augment.preview import draw_crops
        from .data import load_data, locate, statistics
        from .data.decode import look_at
        from .files import check_output, write
        from .system.randomness import stream

        recipe, console = self.checked(), plain_console()
        if not 1 <= self.images <= MOST_SHOWN:
            raise UserError(f"images={self.images}: must be 1 to {MOST_SHOWN}.")
        if self.out.suffix.lower() != ".png":
            raise UserError(f"out={self.out}: must be a .png file.")
        check_output(self.out, self.overwrite)
        data = load_data(locate(recipe.data), recipe.crops.global_size)
        for sentence in data.says:
            console.print(sentence)
        shown = look_at(data.train, self.images, recipe.loading.max_side)
        picture = draw_crops(shown, recipe.crops, stream(recipe.seed, "show"), *statistics(data.train.images))
        console.print(f"Crops: {write(self.out, picture)}")
