"""The command compare and the function: encoders of any kind on the same images, and a page with their neighbours."""

import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass, replace
from math import inf
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import torch
import tyro
from PIL import Image
from rich.table import Column, Table

from ..augment.preview import visible
from ..data import BadImages, ImageSet, Photos, Split, load_data, squared
from ..encoders import FrozenEncoder, baselines, load_encoder
from ..errors import UserError
from ..eval.compare import MEASURES, Compared, EncoderComparison, compare_encoders, sample
from ..eval.features import Extraction, features_of
from ..eval.protocol import about_data, check_result, data_for, save
from ..files import check_output, write
from ..knn import Neighbours, nearest_neighbours
from ..models.backbones import set_size
from ..ranges import Seed, check_ranges
from ..system.hardware import best_device
from ..system.randomness import stream
from ..system.terminal import distinct_names, plain_console, progress_bars
from .embeddings import Device, Encoder
from .module import frozen
from .searching import TEMPLATES, Tile

UNTRAINED = "untrained"
QUERIES, NEAR = 8, 6  # on the page: images, and their neighbours
SHOWN = 192  # pixels of an image on the page, where it has as many
PAGES = (".html", ".htm")
PAIRED = "±: standard error of the difference from the first, paired over images. Another seed may move it further."


def compare(
    encoders: Sequence[Encoder],
    data: str | os.PathLike[str] | ImageSet | None = None,
    *,
    labels: bool = True,
    size: int | None = None,
    seed: int = 0,
    device: str = "auto",
    workers: int = -1,
    say: Callable[[str], None] = lambda sentence: None,
) -> EncoderComparison:
    """Compare encoders with the first one on the same images: `.encoders[1].verdict` is better, worse or neither.

    Encoders are what `load` takes or gave, or "untrained": the first one's network before training. With labels, kNN
    and a linear classifier decide; without any, or with `labels=False`, crops of an image have to find each other.
    Without `data` the images are those that the first encoder's run was trained on.
    """
    known = open_encoders(encoders, size)
    images = data if isinstance(data, ImageSet) else images_for(known, None if data is None else os.fspath(data), say)
    return compare_encoders(known, images, Extraction(device, workers=workers, say=say), labels=labels, seed=seed)


def open_encoders(sources: Sequence[Encoder], size: int | None = None) -> list[FrozenEncoder]:
    """Two encoders or more, all of one size if it is given."""
    if len(sources) < 2:
        raise UserError(f"encoders={' '.join(map(str, sources))}: must be two or more.")
    found = list[FrozenEncoder]()
    for source in sources:
        if source == UNTRAINED:
            if not found or (other := baselines(found[0])[:1]) == [] or other[0].name != UNTRAINED:
                raise UserError(f"{UNTRAINED}: must come after an encoder that is trained, whose network it is.")
            found += other
        elif isinstance(source, str | os.PathLike):
            found.append(load_encoder(os.fspath(source), size=size))
        else:
            known = frozen(source)
            if size is not None and size != known.size:  # the caller's own network stays as it is
                known = replace(known, backbone=deepcopy(known.backbone), size=size)
                set_size(known.backbone, size)
            found.append(known)
    return found


def images_for(
    encoders: Sequence[FrozenEncoder], source: str | None, say: Callable[[str], None] = lambda sentence: None
) -> ImageSet:
    """The data of that name or path, as large as the largest input; without one, those of the first encoder's run."""
    side = max(encoder.size for encoder in encoders)
    return data_for(encoders[0], source, say, lambda place, _: load_data(place, side))


# -- Shown


class Block(NamedTuple):
    """An image, and its neighbours by each encoder with that encoder's name."""

    query: Tile
    rows: list[tuple[str, list[Tile]]]


def rows_of(compared: Compared) -> list[str]:
    """The cells of an encoder in the table: its figures, each with the difference from the first encoder."""
    cells = [compared.name]
    for name, value in compared.figures.items():
        gap = compared.differences.get(name)
        cells.append(f"{value:.2f}" if gap is None else f"{value:.2f} ({gap.points:+.2f} ± {gap.error:.2f})")
    return [*cells, compared.verdict or ""]


def head_of(comparison: EncoderComparison) -> list[str]:
    """The head of the table."""
    return ["encoder", *(f"{MEASURES[name].title} %" for name in comparison.encoders[0].figures), "verdict"]


def notes_of(comparison: EncoderComparison) -> list[str]:
    """What each measure tells, and what decides."""
    rule = "the mean of both measures" if comparison.labelled else "both measures, which must agree"
    verdict = f"Verdict: by {rule}; a difference of two standard errors or less is no measurable difference."
    return [*comparison.about["measures"].values(), verdict, PAIRED]


def page(
    comparison: EncoderComparison, encoders: Sequence[FrozenEncoder], data: ImageSet, how: Extraction, seed: int
) -> bytes:
    """A page in one file: the table and, for some images, their neighbours by each encoder side by side."""
    blocks = list[Block]()
    with suppress(UserError):  # too few images: the table alone
        blocks = neighbours(encoders, data, how, seed)
    table = {"head": head_of(comparison), "rows": [rows_of(each) for each in comparison.encoders]}
    about = {"data": data.name, "n": comparison.about["test_images"], "notes": notes_of(comparison)}
    return TEMPLATES.get_template("compare.html").render(table=table, blocks=blocks, **about).encode(errors="replace")


def neighbours(encoders: Sequence[FrozenEncoder], data: ImageSet, how: Extraction, seed: int) -> list[Block]:
    """Some images with the nearest others, of a sample, by each encoder."""
    split, part = (data.test, "test") if data.test is not None and len(data.test) else (data.train, "train")
    squares = sample(data, max(encoder.size for encoder in encoders), how)
    assert squares.labels is not None
    order = torch.randperm(len(squares), generator=stream(seed, "compare queries"))
    rows, bank, near = squares.labels[order], Split(squares.array[order]), list[Neighbours]()
    for encoder in encoders:
        features = features_of(encoder, bank, replace(how, cache=False), f"neighbours, {encoder.name}")
        near.append(
            nearest_neighbours(features[:QUERIES], features, NEAR, leave_one_out=True, device=best_device(how.device))
        )
    shown = torch.cat([torch.arange(QUERIES), *(found.row.flatten() for found in near)]).unique()
    pictures = squared(Split(split.images[rows[shown]], shown), SHOWN, BadImages(len(shown), inf), workers=0)
    images, seen = split.images, dict(zip(shown.tolist(), pictures.array, strict=True))
    paths = {i: images.name(r) if isinstance(images, Photos) else f"{part}[{r}]" for i in seen for r in [int(rows[i])]}
    names = distinct_names(paths.values())

    def tile(i: int, head: str) -> Tile:
        label = -1 if split.labels is None else int(split.labels[rows[i]])
        title = data.classes[label] if 0 <= label < len(data.classes) else ""
        pixels = visible(seen[i].permute(1, 2, 0).numpy())
        return Tile(paths[i], names[paths[i]], head, title, Image.fromarray(pixels))

    def found_by(near: Neighbours, query: int) -> list[Tile]:
        pairs = zip(near.row[query].tolist(), near.cosine[query].tolist(), strict=True)
        return [tile(i, f"{cosine:.3f}") for i, cosine in pairs]

    named = list(zip((encoder.name for encoder in encoders), near, strict=True))
    return [Block(tile(q, "Query"), [(name, found_by(own, q)) for name, own in named]) for q in range(QUERIES)]


@dataclass(frozen=True)
class Compare:
    """Compare encoders on the same images with the first one: is another better, worse, or neither?

    With labels, kNN and a linear classifier decide. Without labels, crops of an image have to find each other and to
    have the same neighbours, which shows a ruined encoder but not how well features separate classes.

    example: logo-ssl compare runs/start runs/adapted untrained pixels --data photos/ --out page.html
    """

    encoders: Annotated[tyro.conf.Positional[tuple[str, ...]], tyro.conf.arg(metavar="ENCODER ...")]
    """Two or more, as `eval knn` takes them: a run, a checkpoint, torchvision/NAME, timm/NAME, random/NAME, pixels; or
    `untrained`, the first one's network before training."""
    data: str | None = None
    """A name or a path, as for `pretrain` (default: what the first run was trained on)."""
    labels: bool = True
    """Use labels, if there are any."""
    size: int | None = None
    """Side of the images in pixels, for all encoders (default: each its own)."""
    seed: Seed = 0
    """Decides crops, and splits that the data do not have."""
    device: Device = "auto"
    """Where to compute."""
    workers: int = -1
    """Processes that decode photographs; -1: one per core."""
    max_bad: float = Extraction.max_bad
    """Share of unreadable images that stops the command; fewer are left out."""
    out: Path | None = None
    """A page (.html), with the figures beside it as .json, or the figures alone (default: into the first run)."""
    overwrite: bool = False
    """Replace --out if it exists."""

    def __post_init__(self) -> None:
        check_ranges(self)

    def run(self) -> None:
        """Compare, show the table and the verdicts, and write what was asked for."""
        console, paged = plain_console(), self.out is not None and self.out.suffix.lower() in PAGES
        out = self.out.with_suffix(".json") if self.out is not None and paged else self.out
        encoders = open_encoders(self.encoders, self.size)
        for sentence in dict.fromkeys(sentence for encoder in encoders for sentence in encoder.says):
            console.print(sentence)
        home = next((encoder for encoder in encoders if encoder.run is not None), encoders[0])
        check_result(out, self.overwrite, home.run)
        if self.out is not None:
            check_output(self.out, self.overwrite)
        data = images_for(encoders, self.data, console.print)
        how = Extraction(self.device, workers=self.workers, max_bad=self.max_bad, say=console.print)
        with progress_bars(console) as progress:
            how = replace(how, progress=progress)
            found = compare_encoders(encoders, data, how, labels=self.labels, seed=self.seed)
            content = page(found, encoders, data, how, self.seed) if paged else b""
        title, *titles = head_of(found)
        images = f"{found.about['test_images']:,} images of {data.name}"
        table = Table(Column(title, overflow="fold"), *titles, title=images)
        for each in found.encoders:
            table.add_row(*rows_of(each))
        console.print(table)
        for note in notes_of(found):
            console.print(note)
        save("compare", record_of(found) | about_data(data, how), home, how, out, settings_of(found))
        if self.out is not None and paged:
            console.print(f"Page: {write(self.out, content)}")


def settings_of(comparison: EncoderComparison) -> dict[str, Any]:
    """What tells this comparison from others of the same images."""
    return {"encoders": [each.fingerprint for each in comparison.encoders], "labels": comparison.labelled}


def record_of(comparison: EncoderComparison) -> dict[str, Any]:
    """What is saved: for each encoder its figures, differences and verdict."""
    results = [
        {"encoder": each.name, "verdict": each.verdict}
        | {name: round(value, 2) for name, value in each.figures.items()}
        | {f"{name}_error": round(value, 2) for name, value in each.errors.items()}
        | {f"{name}_difference": round(gap.points, 2) for name, gap in each.differences.items()}
        | {f"{name}_difference_error": round(gap.error, 2) for name, gap in each.differences.items()}
        | {"encoder_fingerprint": each.fingerprint}
        for each in comparison.encoders
    ]
    how = "kNN and a linear classifier" if comparison.labelled else "crops of the same image"
    return {"protocol": f"encoders compared with the first by {how}, paired over images", "results": results} | (
        comparison.about
    )
