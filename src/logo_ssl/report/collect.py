"""What a page needs that run folders do not say: a run's recipe explained, and features of images by its encoder."""

import math
import shlex
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float, UInt8
from torch import Tensor

from ..augment.preview import draw_crops, visible
from ..data import NAMES, BadImages, ImageSet, Split, load_data, locate, squared, statistics
from ..data.decode import look_at
from ..errors import DataMissing, UserError
from ..eval.affinity import class_name, image_name, measures_of, rows_by_class, test_or_train
from ..eval.encoder import FrozenEncoder, load_encoder
from ..eval.features import exact_convolutions, in_channels
from ..features import extract
from ..hardware import best_device
from ..knn import nearest_neighbours
from ..randomness import stream
from ..recipes import AUTO, BASES, PARTS, RECIPES, Recipe, differences, flat, is_harmless, literal, read_recipe, unused
from ..run import Run
from ..strategies import LoGoConfig
from ..train.collapse import collapse_alarm, diagnose, diagnose_loss, directions, knn_fall, knn_loss
from .affinity import comparisons_for_page
from .gallery import Comparison, Neighbour, Neighbourhood, Pictured, Query
from .maps import FeatureMap, projections
from .summary import Missing, RunSummary, Stamps, names_of, stamps

CROPS_OF = 4  # images whose crops are shown
PAUSE_S = 120  # between two looks at newer checkpoints of a run: they take from its time
QUERIES, NEAR = 6, 6
LEAST = 4  # images to ask about, and others to look among


class Collected(NamedTuple):
    """What an encoder makes of images, and what it could not."""

    neighbourhood: Neighbourhood | None = None
    feature_map: FeatureMap | None = None
    comparisons: Sequence[Comparison] = ()
    missing: tuple[Missing, ...] = ()


class Collection(NamedTuple):
    """What was collected when the run's files were these."""

    weights: Stamps
    checkpoint: Stamps
    at: float
    collected: Collected


@dataclass
class RunCollector:
    """Summarises runs; what takes long is done again only if the files that it is made of have changed."""

    crops: bool = True
    images: int = 400
    seed: int = 0
    device: str = "auto"
    say: Callable[[str], None] = lambda sentence: None
    data: str | None = None
    """Where the images are, if not where the runs had them."""
    kept: dict[tuple[Any, ...], Any] = field(default_factory=dict)
    collections: dict[Path, Collection] = field(default_factory=dict)

    def collect(self, runs: Sequence[Run], *, quickly: bool = False) -> list[RunSummary]:
        """The runs with their names; quickly leaves out what is not computed yet."""
        recipes, refused = dict[Run, Recipe](), list[UserError]()
        for run in runs:
            try:
                recipes[run] = read_recipe(run)
            except UserError as error:
                refused.append(error)
        if refused and not recipes:
            raise refused[0]
        for error in refused:
            self._once(("refused", str(error)), lambda error=error: self.say(f"Left out: {error}"))
        named = zip(recipes.items(), names_of(list(recipes)), strict=True)
        return [self._summary(run, recipe, name, quickly) for (run, recipe), name in named]

    def _summary(self, run: Run, recipe: Recipe, name: str, quickly: bool) -> RunSummary:
        key = ("crops", *stamps(run.recipe_file))
        picture, *missing = self._once(key, lambda: self._draw_crops(recipe), quickly) or (None,)
        found = self._collected(run, recipe, quickly)
        missing = [Missing("crops, neighbours and maps", "being computed.")] if quickly else missing
        command, tuned = command_line(recipe, name), recipe.name in RECIPES and not recipe.paper
        logged, settings = run.logged(), flat(recipe)
        harmless = {setting for setting in settings if is_harmless(setting)} - {"data", "epochs"}
        return RunSummary(
            run,
            name,
            logged,
            settings,
            frozenset(harmless | unused(recipe)),
            command,
            departures(recipe),
            [asdict(row) for row in (literal(recipe) if tuned else recipe).paper],
            tuned,
            signs=signs_of_collapse(logged.lines, recipe),
            most_directions=directions(recipe.batch_size, recipe.framework.dim),
            fingerprint=self._fingerprint(run, quickly),
            crops=picture,
            comparisons=found.comparisons,
            neighbourhood=found.neighbourhood,
            feature_map=found.feature_map,
            missing=[*missing, *found.missing],
        )

    def _once(self, key: tuple[Any, ...], make: Callable[[], Any], quickly: bool = False) -> Any:
        if key not in self.kept and not quickly:
            self.kept[key] = make()
        return self.kept.get(key)

    def _fingerprint(self, run: Run, quickly: bool) -> str | None:
        """Of its present weights, if an evaluation may be of others."""
        if not any(run.evaluation_file("x").parent.glob("*.json")):
            return None
        return self._once(_weights_key(run), lambda: _fingerprint(run), quickly)

    def _collected(self, run: Run, recipe: Recipe, quickly: bool) -> Collected:
        """What its encoder makes of images; at newer checkpoints of a run that goes on it looks now and then."""
        weights = stamps(run.recipe_file, run.backbone_file, run.heads_file)
        checkpoint = stamps(*run.saved()[:1])
        last = self.collections.get(run.path)
        rests = last is not None and last.collected.feature_map and time.monotonic() < last.at + PAUSE_S
        old = last is None or last.weights != weights or (last.checkpoint != checkpoint and not rests)
        if self.images and old and not quickly:
            last = Collection(weights, checkpoint, time.monotonic(), self._collect(run, recipe))
            self.collections[run.path] = last
        return Collected() if last is None else last.collected

    def _images(self, recipe: Recipe, size: int) -> ImageSet:
        """The images of a run, kept until others are asked for: runs often share theirs."""
        source = locate(recipe.data if self.data is None else self.data)
        key = ("data", source, size)
        if key not in self.kept:
            for other in [other for other in self.kept if other[0] == "data"]:
                del self.kept[other]
            try:
                self.kept[key] = load_data(source, size)
            except DataMissing as error:
                if source in NAMES:
                    raise
                raise UserError(f"data={source}: not there; --data says where the images are now.") from error
            for sentence in self.kept[key].says:
                self.say(sentence)
        return self.kept[key]

    def _draw_crops(self, recipe: Recipe) -> tuple[Any, ...]:
        """A picture of the crops of some images, or None and why not."""
        if not self.crops:
            return (None,)
        try:
            data = self._images(recipe, recipe.crops.global_size)
            shown = look_at(data.train, CROPS_OF, recipe.loading.max_side)
            mean, std = statistics(data.train.images)
        except (UserError, OSError) as error:
            return None, self._missing("crops", error)
        return (draw_crops(shown, recipe.crops, stream(recipe.seed, "show"), mean, std),)

    def _collect(self, run: Run, recipe: Recipe) -> Collected:
        """Neighbours, maps and affinities, if the encoder and its data are there."""
        key = _weights_key(run)
        try:
            encoder = load_encoder(str(run.path))
            self.kept[key] = encoder.fingerprint  # or it would be loaded once more for that
            data = self._images(recipe, encoder.size)
        except (UserError, OSError) as error:
            return Collected(missing=(self._missing("neighbours, maps and affinities", error),))
        near, seen, comparisons, missing = None, None, list[Comparison](), list[Missing]()
        if encoder.unfinished:
            missing.append(Missing("the finished encoder", f"shown is {encoder.unfinished}."))
        try:
            near, seen = neighbours_and_map(encoder, data, self.images, self.seed, self.device)
        except (UserError, OSError, torch.OutOfMemoryError) as error:
            missing.append(self._missing("neighbours and maps", error))
        if isinstance(recipe.strategy, LoGoConfig) and recipe.strategy.affinity == "learned":
            try:
                measures = measures_of(run, encoder, self.device)
                comparisons = comparisons_for_page(measures, data, recipe.loading.max_side, self.seed)
            except (UserError, OSError, torch.OutOfMemoryError) as error:
                missing.append(self._missing("affinities", error))
        return Collected(near, seen, comparisons, tuple(missing))

    def _missing(self, what: str, error: Exception) -> Missing:
        full = isinstance(error, torch.OutOfMemoryError)
        missing = Missing(what, "the GPU has too little memory left; use --device cpu." if full else str(error))
        self._once(("missing", missing), lambda: self.say(f"Not shown: {what}: {missing.why}"))
        return missing


class Sample(NamedTuple):
    """Some images with their unit features."""

    pixels: UInt8[Tensor, "N C H W"]
    names: list[str]
    labels: list[int] | None
    unit: Float[Tensor, "N F"]

    def pictured(self, i: int, classes: tuple[str, ...]) -> Pictured:
        """Image i as the page shows it."""
        label = None if self.labels is None or self.labels[i] < 0 else class_name(classes, self.labels[i])
        return Pictured(visible(self.pixels[i].permute(1, 2, 0).numpy()), self.names[i], label)


def neighbours_and_map(
    encoder: FrozenEncoder, data: ImageSet, n: int, seed: int, device: str = "auto"
) -> tuple[Neighbourhood, FeatureMap]:
    """Neighbours among training images, and maps, of n held-out images by seed; UserError if there are too few.

    Without a test split these are training images, and each is asked among the others.
    """
    part, asked = test_or_train(data, encoder)
    alone = part == "train"
    known = in_channels(encoder, data.train)
    query_rows = torch.tensor(rows_by_class(asked, n, stream(seed, "report queries"))[:n])
    bank_rows = query_rows if alone else torch.tensor(rows_by_class(known, n, stream(seed, "report bank"))[:n])
    queries = _sample(encoder, data, asked, query_rows, part, device)
    bank = queries if alone else _sample(encoder, data, known, bank_rows, "train", device)
    if (least := min(len(queries.names), len(bank.names) - alone)) < LEAST:
        raise UserError(f"{data.name} has {least} such images that can be read; {LEAST} are needed.")
    near = nearest_neighbours(queries.unit, bank.unit, NEAR, leave_one_out=alone)
    shown = [
        Query(
            queries.pictured(i, data.classes),
            [
                Neighbour(bank.pictured(row, data.classes), cosine)
                for row, cosine in zip(near.row[i].tolist(), near.cosine[i].tolist(), strict=True)
            ],
        )
        for i in range(min(QUERIES, len(queries.names)))
    ]
    right = None
    if queries.labels is not None and bank.labels is not None and set(queries.labels) <= set(bank.labels):
        hits = torch.tensor(bank.labels)[near.row[:, 0]] == torch.tensor(queries.labels)
        right = 100 * float(hits.double().mean())
    among = f"{len(bank.names)} training images{' (the others: there are no test images)' if alone else ''}"
    images = [queries.pictured(i, data.classes) for i in range(len(queries.names))]
    of = f"{'held-out' if part == 'test' else 'training'} images of {data.name}"
    return (
        Neighbourhood(shown, among, len(queries.names), right),
        FeatureMap(images, *projections(queries.unit.numpy(), seed), of),
    )


def _sample(encoder: FrozenEncoder, data: ImageSet, split: Split, rows: Tensor, part: str, device: str) -> Sample:
    """The images of these rows that can be read, as squares, and their features."""
    shown = squared(Split(split.images[rows], rows), encoder.size, BadImages(len(rows), math.inf), workers=0)
    kept = rows if shown.labels is None else shown.labels
    backbone = encoder.backbone.to(best_device(device))
    with exact_convolutions():
        features = extract(backbone, shown.array, encoder.mean, encoder.std, encoder.size).cpu()
    names = [image_name(split, row, part, data) for row in kept.tolist()]
    labels = split.labels[kept].tolist() if split.labels is not None and split.has_labels else None
    return Sample(shown.array, names, labels, F.normalize(features, dim=1))


def signs_of_collapse(lines: Iterable[Mapping[str, Any]], recipe: Recipe) -> list[str]:
    """What training would warn of at the last measurements in a log, with the likeliest cause."""
    std, rank, ratio, widest = None, None, None, 0.0
    best, untrained, of, knn = 0.0, 0.0, None, None
    for line in lines:
        ratio = line.get("ratio", ratio)
        if "knn" in line and line.get("knn_of") != of:  # on other images from here
            best, untrained, of = 0.0, 0.0, line.get("knn_of")
        match line:
            case {"z_std": float(std), "z_rank": float(rank)}:
                first = line.get("z_std_widest")  # within the first epoch
                widest = max(widest, std, first if isinstance(first, float) else 0.0)
            case {"extended_from_epochs": int()}:  # the learning rate rose again, and kNN may fall
                best = 0.0
            case {"knn": float(accuracy), "epochs_done": int(epoch)} if 0 <= accuracy <= 100:
                knn, best = line, max(best, accuracy)
                untrained = accuracy if epoch == 0 else untrained
    signs = list[str]()
    if std is not None and rank is not None:
        alarm = collapse_alarm(std, rank, widest, recipe.batch_size, recipe.framework.dim)
        signs += [f"{alarm} {diagnose(recipe, ratio)}"] if alarm else []
    if knn is not None and knn["epochs_done"]:
        n, steps = knn.get("knn_images"), knn.get("step")
        images = n if isinstance(n, int) and n > 0 else None
        if fall := knn_fall(best, knn["knn"], images):
            signs.append(f"{fall} {diagnose(recipe)}")
        if loss := knn_loss(untrained, knn["knn"], images):
            signs.append(f"{loss} {diagnose_loss(recipe, steps if isinstance(steps, int) else 0, knn['epochs_done'])}")
    return signs


def base_recipe(recipe: Recipe) -> str:
    """The named recipe that this one began as; for one that was chosen for its data, the nearest."""
    if recipe.name != AUTO:
        return recipe.name
    return min(BASES, key=lambda name: len(differences(RECIPES[name], recipe)))


def departures(recipe: Recipe) -> list[str]:
    """In what a recipe differs from the one of the same row with the paper's settings."""
    name = base_recipe(recipe)
    if name not in RECIPES:
        return ["a recipe of another version"]
    changes = differences(literal(RECIPES[name]), recipe)
    return [f"{setting} ({before} -> {after})" for setting, (before, after) in changes.items()]


def command_line(recipe: Recipe, out: str) -> str | None:
    """The command that trains by this recipe again, if its name is still known."""
    name = base_recipe(recipe)  # where data and machine choose, others would choose otherwise
    if name not in RECIPES:
        return None
    base, arguments = RECIPES[name], ["pretrain", name]
    for part in PARTS:
        if base.kind(part) != (kind := recipe.kind(part)):
            base = base.with_part(part, kind)
            arguments += [f"--{part}", kind]
    for setting, (_, value) in differences(base, recipe).items():
        option = setting.replace("_", "-")
        if isinstance(value, bool):
            place, dot, last = option.rpartition(".")
            arguments.append(f"--{option}" if value else f"--{place}{dot}no-{last}")
        else:
            arguments += [f"--{option}", *map(str, value if isinstance(value, list) else [value])]
    return f"logo-ssl {shlex.join([*arguments, '--out', f'runs/{Path(out).name}-again'])}"


def _weights_key(run: Run) -> tuple[object, ...]:
    """By what the fingerprint of a run's encoder is kept: the files that it may be loaded from."""
    return ("weights", *stamps(run.recipe_file, run.backbone_file, run.provenance_file, *run.saved()[:1]))


def _fingerprint(run: Run) -> str | None:
    try:
        return load_encoder(str(run.path)).fingerprint
    except (UserError, OSError):
        return None
