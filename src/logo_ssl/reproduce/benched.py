"""How fast is a recipe on machines that we measured? Of other crops and pairs, by what passes the network."""

import json
from collections.abc import Iterable, Mapping
from importlib.resources import files
from math import log
from typing import Any, Literal, NamedTuple

from ..frameworks import global_passes
from ..recipes import RECIPES, Recipe
from ..strategies import assign_roles

LEARNING = 3  # forward passes that a forward and a backward one cost
WAITING = 2 / 3  # of its raw step: a row that is slower waits for images, which no passes tell (photographs on disk)


class Speed(NamedTuple):
    """Images a second, who says so, and what comes on top."""

    images_per_s: float
    source: str
    start_s: float = 0.0
    knn_s: float = 0.0
    elsewhere: str = ""
    """The hardware, if it was measured on another machine."""
    bound: Literal["about", "up to", "at least"] = "about"
    """Which way a time by it errs: up, if others ran beside what was measured, or it waited; down, if that had larger
    batches."""
    commit: str = ""
    """At which it was measured, if it was benched."""


def benchmarks(file: str = "speed.jsonl") -> list[dict[str, Any]]:
    """Lines of `logo-ssl bench`, measured on our machines."""
    text = files("logo_ssl.reproduce").joinpath(file).read_text("utf-8")
    return [json.loads(line) for line in text.splitlines()]


def benched(recipe: Recipe, lines: Iterable[dict[str, Any]]) -> Speed | None:
    """The speed of this backbone on our machine, of this framework if possible; crops and pairs cost by their passes.

    What waited for images tells rows of fewer passes no higher speed: they may wait as long. In smaller batches
    than it had smaller crops gain nothing, as one of them did (results/README.md, experiment 41).
    """
    alike = [(measured_recipe(bench), bench) for bench in lines]
    alike = [pair for pair in alike if network_of(pair[0]) == network_of(recipe)]
    if not alike:
        return None
    measured, bench = min(alike, key=lambda pair: _distance(pair[0], recipe))
    smaller = recipe.batch_size < measured.batch_size
    ratio = cost(measured) / cost(_with_crops_like(measured, recipe) if smaller else recipe)
    scaled = "" if ratio == 1 else ", scaled by the passes of the crops"
    if waited := ratio > 1 and bench["ratio"] < WAITING:
        ratio, scaled = 1, ", not scaled, since it waited for images"
    slower = f" (this row's {recipe.batch_size} are slower as a rule)" if smaller else ""
    batch = "" if measured.batch_size == recipe.batch_size else f" in batches of {measured.batch_size}{slower}"
    images = "" if bench["data"] == measured.data else " with other images"
    source = f"as {measured.name}{images}{batch} on {bench['hardware']}, commit {bench['commit']}{scaled}"
    speed = bench["images_per_s"]["whole_step"] * ratio
    bound = "about" if waited == smaller else "up to" if waited else "at least"
    return Speed(speed, source, bench["start_s"], bench["knn_s"] or 0.0, bench["hardware"], bound, bench["commit"])


def _with_crops_like(measured: Recipe, recipe: Recipe) -> Recipe:
    """The recipe, with local crops at least as large as those that were measured."""
    sizes = (each.crops.local_size for each in (measured, recipe) if each.crops.n_local)
    return recipe.changed(crops__local_size=max(sizes, default=recipe.crops.local_size))


def _distance(measured: Recipe, recipe: Recipe) -> tuple[bool, float]:
    """How far a measurement is from a recipe: another framework first, then how many times the cost and the batch."""
    another = type(measured.framework) is not type(recipe.framework)
    batches = abs(log(measured.batch_size / recipe.batch_size))
    return another, abs(log(cost(measured) / cost(recipe))) + batches


def measured_recipe(bench: Mapping[str, Any]) -> Recipe:
    """The recipe as it was measured: in batches of another size, or pairs that the paper's settings averaged once."""
    return RECIPES[bench["recipe"]].changed(batch_size=bench["batch_size"], strategy__pairs=bench["pairs"])


def network_of(recipe: Recipe) -> tuple[object, ...]:
    """What two recipes must share, so that the speed of one tells that of the other."""
    return recipe.backbone, recipe.stem


def cost(recipe: Recipe) -> int:
    """What a step costs for each image: pixels that pass the network forward, those that come back as three."""
    crops = recipe.crops
    roles = assign_roles(recipe.strategy_traits.pairs, crops.n_global, crops.n_local)
    learning, answering = global_passes(recipe.framework, roles, crops.n_global)
    globally = (LEARNING * learning + answering) * crops.global_size**2
    return globally + LEARNING * crops.n_local * crops.local_size**2
