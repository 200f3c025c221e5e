"""What a page needs that run folders do not say: a run's recipe explained, and features of images by its encoder."""

import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Generator, Tensor

from ..augment.preview import draw_crops, visible
from ..data import NAMES, BadImages, ImageSet, Photos, Split, load_data, locate, squared, statistics
from ..data.decode import look_at
from ..encoders import FrozenEncoder, load_encoder
from ..errors import DataMissing, UserError
from ..eval.features import exact_convolutions, in_channels
from ..knn import extract, nearest_neighbours, prepared
from ..models.backbones import class_attention, has_class_attention
from ..recipes import RECIPES, Recipe, differences, flat, is_harmless, literal, read_recipe, unused
from ..run import Run
from ..strategies import LoGoConfig
from ..system.hardware import best_device
from ..system.randomness import stream
from ..system.terminal import distinct_names, printable
from ..train.monitors import collapse_alarm, diagnose, directions
from .affinity import (
    class_name,
    comparisons_for_page,
    image_name,
    load_measures,
    rows_by_class,
    test_or_train,
)
from .gallery import LARGE, Attention, Comparison, FeatureMap, Pictured, Pixels, clustered, projections
from .summary import Collected, Missing, RunSummary, Stamps, stamps

ATTENDED = 4  # images on which attention is shown
CROPS_OF = 4  # images whose crops are shown
PAUSE_S = 120  # between two looks at newer checkpoints of a run: they take from its time
QUERIES, NEAR = 6, 6  # images shown with their neighbours, and how many of these
OF_LABELLED, OF_UNLABELLED = 400, 2000  # images on a map unless their number is given
LEAST = 4  # images to ask about, and others to look among

COMPUTING = Missing("crops, neighbours and maps", "being computed.")


class Collection(NamedTuple):
    """What was collected when the run's files were these."""

    files: Stamps
    at: float
    collected: Collected


@dataclass
class RunCollector:
    """Summarises runs; what takes long is done again only if the files that it is made of have changed."""

    crops: bool = True
    images: int | None = None
    """On the map: 400 if they have labels, up to 2000 if they have none; 0: neither map nor neighbours."""
    seed: int = 0
    device: str = "auto"
    say: Callable[[str], None] = lambda sentence: None
    data: str | None = None
    """Where the images are, if not where the runs had them."""
    collections: dict[Path, Collection] = field(default_factory=dict)
    loaded: dict[tuple[str, int], ImageSet] = field(default_factory=dict)
    """The images that were asked for last, since runs often share theirs."""
    said: set[str] = field(default_factory=set)

    def collect(self, runs: Sequence[Run], *, quickly: bool = False) -> list[RunSummary]:
        """The runs with their names; quickly leaves out what is not computed yet."""
        recipes = dict[Run, Recipe]()
        for run in runs:
            try:
                recipes[run] = read_recipe(run)
            except UserError as error:
                if not recipes and run is runs[-1]:
                    raise
                self._say_once(f"Left out: {error}")
        names = distinct_names(str(run.path.absolute()) for run in recipes)
        return [self._summary(run, recipe, names[str(run.path.absolute())], quickly) for run, recipe in recipes.items()]

    def _summary(self, run: Run, recipe: Recipe, name: str, quickly: bool) -> RunSummary:
        metrics, settings = list(run.metrics()), flat(recipe)
        harmless = {setting for setting in settings if is_harmless(setting)} - {"data", "epochs"}
        tuned = recipe.name in RECIPES and not recipe.paper  # settings of our choice for rows of the paper
        del settings["paper"]  # it is shown with the figures
        changes = differences(literal(RECIPES[recipe.name]), recipe) if recipe.name in RECIPES else {}
        return RunSummary(
            run,
            name,
            metrics,
            settings,
            without_effect=frozenset(harmless | unused(recipe)),
            departures=[f"{setting} ({before} -> {after})" for setting, (before, after) in changes.items()],
            paper=[asdict(row) for row in (literal(recipe) if tuned else recipe).paper],
            signs=signs_of_collapse(metrics, recipe),
            most_directions=directions(recipe.batch_size, recipe.framework.dim),
            collected=Collected(missing=(COMPUTING,)) if quickly else self._collected(run, recipe),
        )

    def _collected(self, run: Run, recipe: Recipe) -> Collected:
        """What is shown of images; at newer checkpoints of a run that goes on it looks now and then."""
        last = self.collections.get(run.path)
        files = stamps(run.recipe_file, run.backbone_file, run.heads_file, *run.saved()[:1])
        if last is None or (files != last.files and (run.is_finished or time.monotonic() > last.at + PAUSE_S)):
            last = self.collections[run.path] = Collection(files, time.monotonic(), self._collect(run, recipe))
        return last.collected

    def _images(self, recipe: Recipe, size: int) -> ImageSet:
        source = locate(recipe.data if self.data is None else self.data)
        if (source, size) not in self.loaded:
            self.loaded.clear()
            try:
                self.loaded[source, size] = load_data(source, size)
            except DataMissing as error:
                if source in NAMES:
                    raise
                raise UserError(f"data={source}: not there; --data says where the images are now.") from error
            for sentence in self.loaded[source, size].says:
                self.say(sentence)
        return self.loaded[source, size]

    def _collect(self, run: Run, recipe: Recipe) -> Collected:
        """Crops, and neighbours, maps and affinities if the encoder and its data are there."""
        crops, seen, comparisons, missing = None, None, list[Comparison](), list[Missing]()
        attention = list[Attention]()
        if self.crops:
            with self._noting("crops", missing):
                data = self._images(recipe, recipe.crops.global_size)
                shown = look_at(data.train, CROPS_OF, recipe.loading.max_side)
                mean, std = statistics(data.train.images)
                crops = draw_crops(shown, recipe.crops, stream(recipe.seed, "show"), mean, std)
        if self.images != 0:
            with self._noting("neighbours, maps and affinities", missing):
                encoder = load_encoder(str(run.path))
                data = self._images(recipe, encoder.size)
                if encoder.unfinished:
                    missing.append(Missing("the finished encoder", f"shown is {encoder.unfinished}."))
                with self._noting("neighbours and maps", missing):
                    seen = neighbours_and_map(encoder, data, self.images, self.seed, self.device)
                if has_class_attention(encoder.backbone):
                    with self._noting("attention", missing):
                        attention = attention_maps(encoder, data, self.seed, self.device)
                if isinstance(recipe.strategy, LoGoConfig) and recipe.strategy.affinity == "learned":
                    with self._noting("affinities", missing):
                        measures = load_measures(run, self.device, encoder)
                        comparisons = comparisons_for_page(measures, data, recipe.loading.max_side, self.seed)
        return Collected(crops, seen, comparisons, attention, missing)

    @contextmanager
    def _noting(self, what: str, missing: list[Missing]) -> Iterator[None]:
        """Note what cannot be made, and why, instead of making no page."""
        try:
            yield
        except (UserError, OSError, torch.OutOfMemoryError) as error:
            full = isinstance(error, torch.OutOfMemoryError)
            why = "the GPU has too little memory left; use --device cpu." if full else str(error)
            missing.append(Missing(what, why))
            self._say_once(f"Not shown: {what}: {why}")

    def _say_once(self, sentence: str) -> None:
        if sentence not in self.said:
            self.said.add(sentence)
            self.say(sentence)


class Sample(NamedTuple):
    """Some images with their rows in the split and their unit features."""

    images: list[Pictured]
    rows: Int[Tensor, " N"]
    labels: Int[Tensor, " N"] | None
    unit: Float[Tensor, "N F"]


def neighbours_and_map(
    encoder: FrozenEncoder, data: ImageSet, n: int | None, seed: int, device: str = "auto"
) -> FeatureMap:
    """Neighbours among training images, and maps, of n held-out images by seed; UserError if there are too few.

    Without a test split these are training images, and each is asked among the others.
    """
    part, asked = test_or_train(data, encoder)
    n, alone = n or (OF_LABELLED if asked.has_labels else OF_UNLABELLED), part == "train"
    queries = bank = _sample(encoder, data, asked, n, stream(seed, "report queries"), part, device)
    known = asked
    if not alone:
        known = in_channels(encoder, data.train)
        bank = _sample(encoder, data, known, n, stream(seed, "report bank"), "train", device)
    if (least := min(len(queries.images), len(bank.images) - alone)) < LEAST:
        raise UserError(f"{data.name} has {least} such images that can be read; {LEAST} are needed.")
    near = nearest_neighbours(queries.unit, bank.unit, NEAR, leave_one_out=alone)
    right = None
    if queries.labels is not None and bank.labels is not None and torch.isin(queries.labels, bank.labels).all():
        right = 100 * float((bank.labels[near.row[:, 0]] == queries.labels).double().mean())
    clusters, cluster_of = ([], []) if queries.labels is not None else clustered(queries.unit.numpy(), seed)
    first = 0 if alone else len(queries.images)  # of the bank's images among all
    shown = [*range(min(QUERIES, len(near.row))), *(row for cluster in clusters for row in cluster.examples)]
    large = _large(asked, queries, shown, 0, encoder.size)
    large |= _large(known, bank, near.row[:QUERIES].unique().tolist(), first, encoder.size)
    return FeatureMap(
        queries.images if alone else [*queries.images, *bank.images],
        (near.row + first).tolist(),
        near.cosine.tolist(),
        f"{len(bank.images):,} training images{' (the others: there are no test images)' if alone else ''}",
        f"{'held-out' if part == 'test' else 'training'} images of {data.name}",
        *projections(queries.unit.numpy(), seed),
        right,
        clusters,
        [*cluster_of, *[-1] * first],
        large,
    )


def _sample(
    encoder: FrozenEncoder, data: ImageSet, split: Split, n: int, generator: Generator, part: str, device: str
) -> Sample:
    """n images of a split, without those that cannot be read, as squares, and their features."""
    rows = torch.tensor(rows_by_class(split, n, generator)[:n])
    shown = _squares(split, rows, encoder.size)
    kept = rows if shown.labels is None else shown.labels
    backbone = encoder.backbone.to(best_device(device))
    with exact_convolutions():
        features = extract(backbone, shown.array, encoder.mean, encoder.std, encoder.size).cpu()
    labels = split.labels[kept] if split.labels is not None and split.has_labels else None
    images = [
        Pictured(visible(pixels.permute(1, 2, 0).numpy()), printable(image_name(split, row, part, data)))
        for pixels, row in zip(shown.array, kept.tolist(), strict=True)
    ]
    if labels is not None:
        names = [printable(class_name(data.classes, label)) if label >= 0 else None for label in labels.tolist()]
        images = [image._replace(label=name) for image, name in zip(images, names, strict=True)]
    return Sample(images, kept, labels, F.normalize(features, dim=1))


def attention_maps(encoder: FrozenEncoder, data: ImageSet, seed: int, device: str = "auto") -> list[Attention]:
    """Which patches the class token looks at in some held-out images, or training images if there are no others."""
    part, split = test_or_train(data, encoder)
    rows = torch.tensor(rows_by_class(split, ATTENDED, stream(seed, "report attention"))[:ATTENDED])
    shown, side = _squares(split, rows, encoder.size), best_device(device)
    x = prepared(shown.array.to(side), encoder.mean, encoder.std, encoder.size)
    looks = class_attention(encoder.backbone.to(side), x).cpu().numpy()
    kept = rows if shown.labels is None else shown.labels
    return [
        Attention(Pictured(visible(pixels.permute(1, 2, 0).numpy()), image_name(split, row, part, data)), heads)
        for pixels, row, heads in zip(shown.array, kept.tolist(), looks, strict=True)
    ]


def _squares(split: Split, rows: Int[Tensor, " N"], size: int) -> Split:
    """Some images as central squares, with their rows for labels."""
    return squared(Split(split.images[rows], rows), size, BadImages(len(rows), math.inf), workers=0)


def _large(split: Split, seen: Sample, chosen: Sequence[int], first: int, size: int) -> dict[int, Pixels]:
    """Photographs larger than the encoder sees them, by their row among all images."""
    if size >= LARGE or not isinstance(split.images, Photos) or not chosen:
        return {}
    squares = _squares(split, seen.rows[list(chosen)], LARGE).array
    return {first + i: visible(each.permute(1, 2, 0).numpy()) for i, each in zip(chosen, squares, strict=True)}


def signs_of_collapse(lines: Sequence[dict[str, Any]], recipe: Recipe) -> list[str]:
    """What training would warn of at the last measurement in a log, with the likeliest cause."""
    latents = [line for line in lines if {"z_std", "z_rank"} <= line.keys()]
    if not latents:
        return []
    last, ratios = latents[-1], [line["ratio"] for line in lines if "ratio" in line]
    widest = max(line.get("z_std_widest", line["z_std"]) for line in latents)
    alarm = collapse_alarm(last["z_std"], last["z_rank"], widest, recipe.batch_size, recipe.framework.dim)
    return [f"{alarm} {diagnose(recipe, ratios[-1] if ratios else None)}"] if alarm else []
