"""What is told of a run? Its files, and what its encoder makes of images, which is computed once for each encoder."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from ..augment.picture import draw_crops
from ..data import ImageSet, load_data, locate, statistics
from ..data.samples import look_at
from ..errors import UserError
from ..evaluate.affinity import load_measures
from ..evaluate.encoders import load_encoder
from ..evaluate.table5 import PAPER as TRANSFER
from ..evaluate.table5 import SETS
from ..evaluate.table6 import COLUMNS
from ..evaluate.table6 import PAPER as DETECTION
from ..randomness import stream
from ..recipes import Recipe, is_harmless, read_recipe
from ..report.affinity_bars import Comparison
from ..report.feature_map import FeatureMap
from ..report.neighbours import Neighbourhood
from ..report.paper_tables import Paper
from ..report.reading import Told
from ..run import Run
from ..strategies import LoGoConfig
from .alarms import alarms, most_directions
from .features import look_around
from .references import choices
from .rerun import departures, rerun

PAPERS = Paper({name: found.title for name, found in SETS.items()}, TRANSFER, COLUMNS, DETECTION)
CROPS_OF = 4  # images whose crops are shown


class Looked(NamedTuple):
    """What an encoder makes of images, as far as it could be looked at."""

    neighbourhood: Neighbourhood | None = None
    feature_map: FeatureMap | None = None
    comparisons: Sequence[Comparison] = ()
    missing: tuple[str, ...] = ()


@dataclass
class Teller:
    """Tells runs; what takes long is done again only when the files that it is made of have changed."""

    crops: bool = True
    images: int = 400
    seed: int = 0
    device: str = "auto"
    say: Callable[[str], None] = lambda sentence: None
    kept: dict[tuple[Any, ...], Any] = field(default_factory=dict)

    def tell(self, runs: Sequence[Run], *, quickly: bool = False) -> list[Told]:
        """The runs with their names; quickly leaves out what is not computed yet."""
        return [self._one(run, name, quickly) for run, name in zip(runs, names_of(runs), strict=True)]

    def _one(self, run: Run, name: str, quickly: bool) -> Told:
        recipe = read_recipe(run)
        crops = self._once(("crops", *stamps(run.recipe_file)), lambda: self._crops(recipe), quickly)
        files = stamps(run.recipe_file, run.backbone_file, run.heads_file)
        looked = self._once(("looked", *files), lambda: self._look(run, recipe), quickly) or Looked()
        missing = (*looked.missing, *(["crops, neighbours and maps are being computed."] if quickly else []))
        return Told(
            run,
            name,
            crops,
            rerun(recipe, name),
            departures(recipe),
            alarms(run.metrics(), recipe),
            most_directions(recipe),
            looked.comparisons,
            looked.neighbourhood,
            looked.feature_map,
            without_effect,
            missing,
        )

    def _once(self, key: tuple[Any, ...], make: Callable[[], Any], quickly: bool) -> Any:
        if key not in self.kept and not quickly:
            self.kept[key] = make()
        return self.kept.get(key)

    def _data(self, source: str, size: int) -> ImageSet:
        """The images of that name, remembered until others are asked for: runs often share theirs."""
        key = ("data", source, size)
        if key not in self.kept:
            for other in [other for other in self.kept if other[0] == "data"]:
                del self.kept[other]
            self.kept[key] = load_data(locate(source), size)
            for sentence in self.kept[key].says:
                self.say(sentence)
        return self.kept[key]

    def _crops(self, recipe: Recipe) -> bytes | None:
        """A picture of the crops of some images, if these are there."""
        if not self.crops:
            return None
        try:
            data = self._data(recipe.data, recipe.crops.global_size)
            shown = look_at(data.train, CROPS_OF, recipe.loading.max_side)
            mean, std = statistics(data.train.images)
        except (UserError, OSError) as error:
            self.say(f"No crops are shown of {recipe.data}: {error}")
            return None
        return draw_crops(shown, recipe.crops, stream(recipe.seed, "show"), mean, std)

    def _look(self, run: Run, recipe: Recipe) -> Looked:
        """Neighbours, maps and affinities, if the encoder and its data are there."""
        if not self.images:
            return Looked()
        if not run.backbone_file.is_file():
            return Looked(missing=("neighbours, maps and affinities come once the run is finished.",))
        try:
            encoder = load_encoder(str(run.path), unfinished=False)
            data = self._data(recipe.data, encoder.size)
            around = look_around(encoder, data, self.images, self.seed, self.device)
        except (UserError, OSError) as error:
            self.say(f"No neighbours, maps and affinities are shown of {run.path}: {error}")
            return Looked(missing=(f"neighbours, maps and affinities: {error}",))
        near, seen = around or (None, None)
        missing = () if around else (f"{data.name} has too few images for neighbours and maps.",)
        if not isinstance(recipe.strategy, LoGoConfig) or recipe.strategy.affinity != "learned":
            return Looked(near, seen, (), missing)
        try:
            found = choices(load_measures(run, self.device), data, recipe.loading.max_side, self.seed)
        except (UserError, OSError) as error:
            self.say(f"No affinities are shown of {run.path}: {error}")
            return Looked(near, seen, (), (*missing, f"affinities: {error}"))
        return Looked(near, seen, found, missing)


def without_effect(setting: str) -> bool:
    """Whether a setting changes nothing of what is learned, as all that a sitting may change but data and epochs."""
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
