"""What is told of a run? Its files, and what its encoder makes of images, which is computed once for each encoder."""

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import torch

from ..augment.preview import draw_crops
from ..data import ImageSet, load_data, locate, statistics
from ..data.decode import look_at
from ..data.sources import NAMES
from ..detection.evaluate import COLUMNS, MEASURES
from ..detection.evaluate import PAPER as DETECTION
from ..errors import DataMissing, UserError
from ..eval.affinity import measures_of
from ..eval.encoder import load_encoder
from ..eval.transfer import PAPER as TRANSFER
from ..eval.transfer import SETS
from ..hardware import best_device, hardware
from ..randomness import stream
from ..recipes import Recipe, flat, is_harmless, read_recipe, unused
from ..run import Run
from ..strategies import LoGoConfig
from ..train.collapse import knn_summary
from .affinity_bars import Comparison
from .alarms import alarms, most_directions
from .feature_map import FeatureMap
from .features import look_around
from .gaps import Gap, by_reason, which
from .neighbours import Neighbourhood
from .paper_tables import Paper
from .reading import Told
from .references import choices
from .rerun import departures, rerun, stands_beside

PAPERS = Paper({name: found.title for name, found in SETS.items()}, TRANSFER, COLUMNS, DETECTION, MEASURES)
CROPS_OF = 4  # images whose crops are shown
PAUSE_S = 120  # between two looks at a run that goes on: they take from its time


class Missing(NamedTuple):
    """What cannot be shown, and why."""

    what: str
    why: str


class Looked(NamedTuple):
    """What an encoder makes of images, as far as it could be looked at."""

    neighbourhood: Neighbourhood | None = None
    feature_map: FeatureMap | None = None
    comparisons: Sequence[Comparison] = ()
    missing: tuple[Missing, ...] = ()


class Look(NamedTuple):
    """What was seen when the run's files were these."""

    own: tuple[object, ...]
    newest: tuple[object, ...]
    """Its newest checkpoint."""
    at: float
    looked: Looked

    def is_old(self, own: tuple[object, ...], newest: tuple[object, ...]) -> bool:
        """Whether to look again: at once if there are other files, after a pause if there is but a newer checkpoint."""
        rests = self.looked.feature_map is not None and time.monotonic() < self.at + PAUSE_S
        return own != self.own or (newest != self.newest and not rests)


class Drawn(NamedTuple):
    """A picture of crops, if there is one."""

    picture: bytes | None = None
    missing: tuple[Missing, ...] = ()


@dataclass
class Teller:
    """Tells runs; what takes long is done again only when the files that it is made of have changed."""

    crops: bool = True
    images: int = 400
    seed: int = 0
    device: str = "auto"
    say: Callable[[str], None] = lambda sentence: None
    data: str | None = None
    """Where the images are, if not where the runs had them."""
    kept: dict[tuple[Any, ...], Any] = field(default_factory=dict)
    looks: dict[Path, Look] = field(default_factory=dict)
    said: set[tuple[Path, str]] = field(default_factory=set)

    def tell(self, runs: Sequence[Run], *, quickly: bool = False) -> list[Told]:
        """The runs with their names; quickly leaves out what is not computed yet."""
        recipes = self._recipes(runs)
        named = zip(recipes.items(), names_of(list(recipes)), strict=True)
        told = [self._one(run, recipe, name, quickly) for (run, recipe), name in named]
        if not quickly:
            self._say_missing(told)
        return told

    def _recipes(self, runs: Sequence[Run]) -> dict[Run, Recipe]:
        """The recipes that can be used; runs with another are left out, which is said once, unless all would be."""
        found, refused = dict[Run, Recipe](), dict[Run, UserError]()
        for run in runs:
            try:
                found[run] = read_recipe(run)
            except UserError as error:
                refused[run] = error
        if refused and not found:
            raise next(iter(refused.values()))
        for run, error in refused.items():
            if (run.path, str(error)) not in self.said:
                self.said.add((run.path, str(error)))
                self.say(f"Left out: {error}")
        return found

    def _say_missing(self, told: Sequence[Told]) -> None:
        """Say, for all runs together, what cannot be shown and was not said before."""
        gaps = [Gap(str(run.run.path), run.run.path, sentence) for run in told for sentence in run.missing]
        new = [gap for gap in gaps if (gap.path, _what(gap)) not in self.said]
        self.said.update((gap.path, _what(gap)) for gap in new)
        for paths, sentence in by_reason(new):
            self.say(f"Not shown of {which(paths, len(told))}: {sentence}")

    def _one(self, run: Run, recipe: Recipe, name: str, quickly: bool) -> Told:
        drawn = self._once(("crops", *stamps(run.recipe_file)), lambda: self._crops(recipe), quickly) or Drawn()
        looked = self._looked(run, recipe, quickly)
        logged, idle = run.logged(), unused(recipe)
        missing = ["crops, neighbours and maps are being computed."] if quickly else []
        missing += [f"{what}: {why}" for what, why in together((*drawn.missing, *looked.missing))]
        return Told(
            run,
            name,
            drawn.picture,
            rerun(recipe, name),
            departures(recipe),
            alarms(logged.lines, recipe),
            most_directions(recipe),
            knn_summary(logged.lines),
            looked.comparisons,
            looked.neighbourhood,
            looked.feature_map,
            lambda setting: without_effect(setting) or setting in idle,
            missing,
            self._fingerprint(run, quickly),
            [asdict(row) for row in stands_beside(recipe)],
            logged,
            flat(recipe),
        )

    def _fingerprint(self, run: Run, quickly: bool) -> str | None:
        """Of its present weights, where an evaluation may be of others."""
        if not any(run.evaluation_file("x").parent.glob("*.json")):
            return None
        return self._once(weights_key(run), lambda: present_weights(run), quickly)

    def _once(self, key: tuple[Any, ...], make: Callable[[], Any], quickly: bool) -> Any:
        if key not in self.kept and not quickly:
            self.kept[key] = make()
        return self.kept.get(key)

    def _looked(self, run: Run, recipe: Recipe, quickly: bool) -> Looked:
        """What its newest encoder makes of images; that of a run that goes on is looked at now and then."""
        own, newest = stamps(run.recipe_file, run.backbone_file, run.heads_file), stamps(*run.saved()[:1])
        last = self.looks.get(run.path)
        if not quickly and (last is None or last.is_old(own, newest)):
            last = self.looks[run.path] = Look(own, newest, time.monotonic(), self._look(run, recipe))
        return Looked() if last is None else last.looked

    def _data(self, recipe: Recipe, size: int) -> ImageSet:
        """The images of a run, remembered until others are asked for: runs often share theirs."""
        source = locate(recipe.data if self.data is None else self.data)
        key = ("data", source, size)
        if key not in self.kept:
            for other in [other for other in self.kept if other[0] == "data"]:
                del self.kept[other]
            self.kept[key] = self._loaded(source, size)
            for sentence in self.kept[key].says:
                self.say(sentence)
        return self.kept[key]

    def _loaded(self, source: str, size: int) -> ImageSet:
        try:
            return load_data(source, size)
        except DataMissing as error:
            if source in NAMES:
                raise
            raise UserError(f"no data are at {source}; say with --data where they are.") from error

    def _crops(self, recipe: Recipe) -> Drawn:
        """A picture of the crops of some images, if these are there."""
        if not self.crops:
            return Drawn()
        try:
            data = self._data(recipe, recipe.crops.global_size)
            shown = look_at(data.train, CROPS_OF, recipe.loading.max_side)
            mean, std = statistics(data.train.images)
        except (UserError, OSError) as error:
            return Drawn(missing=(Missing("crops", str(error)),))
        return Drawn(draw_crops(shown, recipe.crops, stream(recipe.seed, "show"), mean, std))

    def _look(self, run: Run, recipe: Recipe) -> Looked:
        """Neighbours, maps and affinities, if the encoder and its data are there."""
        if not self.images:
            return Looked()
        key = weights_key(run)
        try:
            encoder = load_encoder(str(run.path))
            self.kept[key] = encoder.fingerprint  # or it would be loaded once more for that
            data = self._data(recipe, encoder.size)
        except (UserError, OSError) as error:
            return Looked(missing=(Missing("neighbours, maps and affinities", str(error)),))
        missing = list[Missing]()
        if encoder.unfinished:
            missing.append(Missing("the finished encoder", f"its pictures are of {encoder.unfinished}, unfinished."))
        near, seen = None, None
        try:
            near, seen = look_around(encoder, data, self.images, self.seed, self.device)
        except (UserError, OSError, torch.OutOfMemoryError) as error:
            missing.append(Missing("neighbours and maps", self._why(error)))
        found: Sequence[Comparison] = ()
        if isinstance(recipe.strategy, LoGoConfig) and recipe.strategy.affinity == "learned":
            try:
                found = choices(measures_of(run, encoder, self.device), data, recipe.loading.max_side, self.seed)
            except (UserError, OSError, torch.OutOfMemoryError) as error:
                missing.append(Missing("affinities", self._why(error)))
        return Looked(near, seen, found, tuple(missing))

    def _why(self, error: Exception) -> str:
        """What went wrong, in a sentence."""
        if not isinstance(error, torch.OutOfMemoryError):
            return str(error)
        return f"{hardware(best_device(self.device))} has too little memory left for them; use --device cpu."


def weights_key(run: Run) -> tuple[object, ...]:
    """By what the fingerprint of a run's encoder is kept: the files that it may be loaded from."""
    return ("weights", *stamps(run.recipe_file, run.backbone_file, run.provenance_file, *run.saved()[:1]))


def present_weights(run: Run) -> str | None:
    """The fingerprint of a run's encoder, if it has one."""
    try:
        return load_encoder(str(run.path)).fingerprint
    except (UserError, OSError):
        return None


def together(missing: Sequence[Missing]) -> list[Missing]:
    """One for each reason."""
    whats = dict[str, list[str]]()
    for what, why in missing:
        whats.setdefault(why, []).append(what)
    return [Missing(", ".join(what), why) for why, what in whats.items()]


def _what(gap: Gap) -> str:
    """What is missing, without the reason, which may change while a run goes on."""
    return gap.sentence.split(": ")[0]


def without_effect(setting: str) -> bool:
    """Whether a setting changes nothing of what is learned, as all that a session may change but data and epochs."""
    return is_harmless(setting) and setting not in ("data", "epochs")


def stamps(*files: Path) -> tuple[tuple[str, int, int] | None, ...]:
    """What tells, without reading them, that files were written anew."""
    found = []
    for file in files:
        try:
            seen = file.stat()
            found.append((str(file), seen.st_mtime_ns, seen.st_size))
        except OSError:
            found.append((str(file), 0, -1))
    return tuple(found)


def names_of(runs: Sequence[Run]) -> list[str]:
    """The folders' names, with as much of the path before them as tells the runs apart."""
    parts, depth = [run.path.absolute().parts for run in runs], 1
    while len({part[-depth:] for part in parts}) < len(set(parts)):
        depth += 1
    names = ["/".join(part[-depth:]) for part in parts]
    return [name if names.index(name) == i else f"{name} ({i + 1})" for i, name in enumerate(names)]
