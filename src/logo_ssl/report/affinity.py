"""What did the regressor learn? `logo-ssl affinity`: the paper's Figure 3, and how well both measures rank."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from textwrap import fill
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
import torch
import tyro
from jaxtyping import Float, UInt8
from torch import Tensor

from ..augment.preview import visible
from ..data import ImageSet
from ..errors import UserError
from ..eval.affinity import (
    CROPS,
    MEASURES,
    Measures,
    Pool,
    Reference,
    ReferenceGroup,
    class_centres,
    class_name,
    compare_rankings,
    find_reference,
    gather_pool,
    load_measures,
    reference_group,
    rescale,
    slide,
)
from ..eval.encoder import FrozenEncoder
from ..eval.options import Extraction
from ..eval.results import data_for, save
from ..files import check_output
from ..randomness import stream
from ..recipes import read_recipe
from ..run import Run
from ..terminal import plain_console
from .affinity_bars import Comparison, Group, draw_affinity_bars
from .affinity_map import Heated, HeatMap, draw_affinity_map
from .verdicts import ABOUT_TABLE, table_of, verdicts

LEAST, MOST, MOST_ROWS = 4, 2000, 8
LONGEST = 24  # characters of a name
LETTERS = 200  # of a title that have room along the width


@dataclass(frozen=True)
class Affinity:
    """Compare crops with a reference crop by the learned affinity and by cosine, as Figure 3 of the paper.

    Next to the reference's own image: one of its class, one of the class with the nearest mean feature, and one of
    another class.

    example: logo-ssl affinity runs/first --map
    """

    run_folder: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="RUN")]
    """A run with a regressor (strategy logo); of an unfinished one, the newest checkpoint is looked at."""
    data: str | None = None
    """A name or a path, as for `pretrain` (default: what the run was trained on)."""
    reference: tuple[str, ...] = ()
    """IMAGE or IMAGE:x,y,w,h: a file or the number of a held-out (else training) image, a box in pixels; 8 at most."""
    rows: int = 2
    """References to draw at random if none is given (1 to 8)."""
    images: int = 100
    """Images, with one reference crop each, over which the ranking is measured (4 to 2000)."""
    map: bool = False
    """Also draw where in each image windows of the reference's size are similar to it (NAME-map.png)."""
    out: Path | None = None
    """The image to write, as .png and .svg (default: figures/affinity.png in the run)."""
    overwrite: bool = False
    """Replace the images if they exist."""
    seed: int = 0
    """Decides images, references and crops."""
    device: Literal["auto", "cpu", "cuda", "mps"] = "auto"
    """Where to compute."""

    def run(self, title: str = "") -> list[dict[str, Any]]:
        """Draw below a title, measure, and say where it is; gives back how well both measures rank."""
        began, console = time.time(), plain_console()
        run = Run.existing(self.run_folder)
        file = self._picture(run)
        mapped = [file.with_name(f"{file.stem}-map{file.suffix}")] if self.map else []
        self._check(file, *mapped)
        seen = self._look(run, console.print)
        files = self._draw(seen, file, mapped, title)
        seconds = round(time.time() - began, 1)
        console.print(table_of(seen.ranked.results))
        for sentence in (ABOUT_TABLE, *verdicts(seen.ranked.results)):
            console.print(sentence)
        self._save(run, seen, seconds, console.print)
        for path in files:
            console.print(f"Picture: {path}")
        return seen.ranked.results

    def _look(self, run: Run, say: Callable[[str], None]) -> "Seen":
        """Load encoder and images, and rank crops; references are refused, if they are, before that takes its time."""
        measures = load_measures(run, self.device)
        if measures.encoder.unfinished:
            say(measures.encoder.says[0])
        data = data_for(measures.encoder, self.data, say)
        max_side = read_recipe(run).loading.max_side
        pool = gather_pool(data, measures.encoder, self.images, max_side, stream(self.seed, "affinity images"))
        if pool.unread:
            were = "image was" if pool.unread == 1 else "images were"
            say(f"{pool.unread} {were} passed over that cannot be read; {len(pool.images)} are compared.")
        given = [find_reference(text, data, measures.encoder, max_side) for text in self.reference]
        references = given or chosen_references(pool, self.rows)
        return Seen(measures, data, pool, references, rank(pool, measures, self.seed))

    def _draw(self, seen: "Seen", file: Path, mapped: Sequence[Path], title: str) -> list[Path]:
        """Draw each reference beside its company, and where in it the reference is found; gives back the files."""
        measures, data, pool, references, ranked = seen
        companies = [
            reference_group(
                reference, pool, ranked.centres, data.classes, measures, stream(self.seed, "affinity company", i)
            )
            for i, reference in enumerate(references)
        ]
        note = f"{fill(title, LETTERS)}\n{_note(measures.encoder, data, pool, self.seed)}".lstrip()
        pictured = [compared(company, measures, data) for company in companies]
        files = draw_affinity_bars(pictured, file, f"{note} over the crops of a row; lines are means over an image's.")
        for place in mapped:
            maps = [heated(company, measures) for company in companies]
            files += draw_affinity_map(maps, place, f"{note} over the windows of a row.")
        return files

    def _save(self, run: Run, seen: "Seen", seconds: float, say: Callable[[str], None]) -> None:
        """Save the ranking with the run's evaluations."""
        record = {
            "protocol": _protocol(seen.pool),
            "results": seen.ranked.results,
            "images": len(seen.pool.images),
            "crops": CROPS,
            "part": seen.pool.part,
            "seed_of_crops": self.seed,
            "seconds": seconds,
        }
        how = Extraction(device=self.device, say=say)
        settings = {"images": self.images, "seed": self.seed}
        try:
            save("affinity", record, seen.measures.encoder, seen.data, how, settings=settings)
        except OSError as error:  # of a run that may only be read; the pictures lie elsewhere, by --out
            say(f"These figures are not saved: {run.path} cannot be written ({error.strerror}).")

    def _picture(self, run: Run) -> Path:
        """Where the picture goes, once all is refused that would fail only after the work."""
        if not LEAST <= self.images <= MOST:
            raise UserError(f"images={self.images}: must be {LEAST} to {MOST}.")
        if not 1 <= self.rows <= MOST_ROWS:
            raise UserError(f"rows={self.rows}: must be 1 to {MOST_ROWS}.")
        if len(self.reference) > MOST_ROWS:
            raise UserError(f"{len(self.reference)} references were given; give at most {MOST_ROWS}.")
        file = self.out or run.path / "figures" / "affinity.png"
        if file.suffix.lower() not in (".png", ".svg"):
            raise UserError(f"--out is {file}; the picture is a .png file, with an .svg beside it.")
        return file

    def _check(self, *files: Path) -> None:
        """UserError if a picture cannot be written to --out; those in the run are replaced."""
        if self.out is not None:
            for file in files:
                for suffix in (".png", ".svg"):
                    check_output(file.with_suffix(suffix), self.overwrite)


@dataclass(frozen=True)
class Ranked:
    """How well the measures rank, and where the classes lie in feature space."""

    results: list[dict[str, Any]]
    centres: dict[int, Float[Tensor, " F"]]


class Seen(NamedTuple):
    """What is compared, and how well both measures rank it."""

    measures: Measures
    data: ImageSet
    pool: Pool
    references: list[Reference]
    ranked: Ranked


def rank(pool: Pool, measures: Measures, seed: int) -> Ranked:
    """One reference crop of each image against ten crops of every image."""
    seen = []
    for i, image in enumerate(pool.images):
        boxes = measures.draw(image, 1 + CROPS, stream(seed, "affinity crops", i))
        seen.append(measures.encode(image, boxes))
    references = torch.stack([crops.z[0] for crops in seen])
    others = torch.cat([crops.z[1:] for crops in seen])
    scores = measures.affinities(references, others)
    image = np.arange(len(pool.images)).repeat(CROPS)
    labels = None if pool.labels is None else np.array(pool.labels)
    centres = class_centres(pool, torch.cat([crops.features[1:] for crops in seen]), CROPS)
    return Ranked(compare_rankings(scores, image, labels, seed), centres)


def chosen_references(pool: Pool, rows: int) -> list[Reference]:
    """The first images of the pool, which chance has ordered; of different classes where there are any."""
    labels = pool.labels or [None] * len(pool.images)
    return [Reference(*each) for each in zip(pool.images, pool.names, labels, strict=True)][:rows]


def compared(company: ReferenceGroup, measures: Measures, data: ImageSet) -> Comparison:
    """A reference and its company as numbers and pixels; each measure from 0 to 1 over all crops of the row."""
    reference = company.reference
    z = measures.encode(reference.image, company.box).z
    others = torch.cat([measures.encode(member.image, member.boxes).z for member in company.members])
    counts = np.cumsum([len(member.boxes) for member in company.members])[:-1]
    found = {name: np.split(rescale(values[0]), counts) for name, values in measures.affinities(z, others).items()}
    groups = [
        Group(member.role, _pixels(member.image), _crops(measures, member.image, member.boxes), *values)
        for member, *values in zip(company.members, *(found[name] for name in MEASURES), strict=True)
    ]
    name = _short(reference.name)
    title = name if reference.label is None else f"{class_name(data.classes, reference.label)}\n{name}"
    (crop,) = _crops(measures, reference.image, company.box)
    return Comparison(title, _pixels(reference.image), company.box[0].tolist(), crop, groups)


def heated(company: ReferenceGroup, measures: Measures) -> HeatMap:
    """Where in its company the reference is found; each measure from 0 to 1 over all images of the row."""
    reference, (_, _, tall, wide) = company.reference, company.box[0].tolist()
    z = measures.encode(reference.image, company.box).z
    window = tall / reference.image.shape[1], wide / reference.image.shape[2]
    heats = [slide(measures, z, member.image, window) for member in company.members]
    ends = np.cumsum([heat.learned.size for heat in heats])[:-1]
    scaled = [np.split(rescale(np.concatenate([h[k].ravel() for h in heats])), ends) for k in range(len(MEASURES))]
    images = [
        Heated(member.role, _pixels(member.image), *(part.reshape(heat.learned.shape) for part in parts))
        for member, heat, *parts in zip(company.members, heats, *scaled, strict=True)
    ]
    (crop,) = _crops(measures, reference.image, company.box)
    return HeatMap(_short(reference.name), company.box[0].tolist(), crop, images)


def _protocol(pool: Pool) -> str:
    held = "held-out" if pool.part == "test" else "training"
    return (
        f"one local crop of each of {len(pool.images)} {held} images against {CROPS} local crops of every image, "
        "unaugmented, projected latents in eval mode; mean over references, with a 95 % bootstrap interval over them, "
        "given these crops"
    )


def _note(encoder: FrozenEncoder, data: ImageSet, pool: Pool, seed: int) -> str:
    far = f" ({encoder.unfinished}, unfinished)" if encoder.unfinished else ""
    return (
        f"{Path(encoder.name).absolute().name}{far} on {data.name} ({pool.part}), seed {seed}. Each measure runs from "
        "0 (least alike) to 1 (most alike)"
    )


def _short(name: str) -> str:
    """A file without its folders, and no longer than the picture above which it stands."""
    last = name.rsplit("/", 1)[-1]
    return last if len(last) <= LONGEST else f"...{last[3 - LONGEST :]}"


def _pixels(image: UInt8[Tensor, "C H W"]) -> UInt8[np.ndarray, "H W 3"]:
    return visible(image.permute(1, 2, 0).numpy())


def _crops(measures: Measures, image: UInt8[Tensor, "C H W"], boxes: Tensor) -> list[UInt8[np.ndarray, "s s 3"]]:
    return [_pixels((crop * 255).round().byte()) for crop in measures.cut(image, boxes).clamp(0, 1)]
