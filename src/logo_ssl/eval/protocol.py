"""What all protocols share: options, the way from an encoder and images to figures, and the JSON that keeps them."""

import hashlib
import json
import math
import os
import re
import time
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import mean
from typing import Any, ClassVar, Literal, NamedTuple, TypeAlias

import torch
from jaxtyping import Float, Int
from rich.console import Console
from rich.table import Table
from torch import Tensor

from ..data import ImageSet, fingerprints, load_data, locate
from ..encoders import EncoderOptions, FrozenEncoder, baselines
from ..errors import UserError
from ..files import check_folder, check_output, write
from ..recipes import recipe_as_written
from ..run import Run, standard_error
from ..system.hardware import best_device, hardware, provenance
from ..system.terminal import progress_bars
from .features import Extraction

MOST_UNREADABLE = 100
"""Names of images in a result; the rest are counted."""
CLEAR = 2
"""Standard errors of a difference that is not chance."""


@dataclass(frozen=True)
class EvalOptions(EncoderOptions):
    """Options of every protocol."""

    device: Literal["auto", "cpu", "cuda", "mps"] = "auto"
    """Where to compute."""
    workers: int = -1
    """Processes that decode photographs; -1: one per core."""
    max_bad: float = Extraction.max_bad
    """Share of unreadable images that stops an evaluation; fewer are left out."""
    out: Path | None = None
    """JSON file (default: into the run folder); `transfer` names one for each set after it."""
    overwrite: bool = False
    """Replace --out if it exists."""

    @property
    def how(self) -> Extraction:
        """How features are computed; UserError if these options cannot be."""
        return Extraction(self.device, workers=self.workers, max_bad=self.max_bad, cache=False)

    def open(self) -> tuple[FrozenEncoder, Console]:
        """The same, if the other options are possible."""
        best_device(self.how.device)
        return super().open()

    @contextmanager
    def extraction(self, console: Console) -> Iterator[Extraction]:
        """How features are computed, with a bar while they are."""
        with progress_bars(console) as progress:
            yield replace(self.how, say=console.print, progress=progress)


@dataclass(frozen=True)
class FeatureOptions(EvalOptions):
    """Options of every protocol on frozen features."""

    batch_size: int = Extraction.batch_size
    """Images that the encoder sees at a time; it changes memory and speed, not the figures."""
    cache: bool = True
    """Keep features for the next evaluation."""

    @property
    def how(self) -> Extraction:
        """How features are computed."""
        return replace(super().how, batch_size=self.batch_size, cache=self.cache)


class Measurement(NamedTuple):
    """What a protocol found of an encoder."""

    name: str
    """How its file in a run begins."""
    figures: dict[str, float]
    """Percent, by metric."""
    record: dict[str, Any]
    """What is saved of them; `standard_errors` by the number of test images are among it."""
    settings: dict[str, Any]
    """What tells this evaluation from others of the same images."""
    classifier: FrozenEncoder | None = None
    """What was trained and measured, if it was that: the encoder with a head."""


Comparison: TypeAlias = dict[str, Measurement]
"""What was found, by what the features are: the encoder's first, then baselines."""
SAVED_OF_BASELINES = ("results", "metric", "value", "standard_errors")


def evaluate(
    measure: Callable[[FrozenEncoder, ImageSet, Extraction], Measurement],
    encoder: FrozenEncoder,
    data: ImageSet,
    how: Extraction,
    out: Path | None,
    with_baselines: bool,
) -> Comparison:
    """Measure an encoder and, in silence, its baselines by the same protocol; save the encoder's record with theirs."""
    began = time.time()
    ours = measure(encoder, data, how)
    found, saved = {encoder.name: ours}, dict[str, Any]()
    for other in baselines(encoder) if with_baselines else ():
        silent = replace(how, say=lambda sentence: None, look_for_copies=False, unreadable=[])
        try:
            theirs = found[other.name] = measure(other, data, silent)
        except UserError as error:
            how.say(f"{other.name} is not measured: {error}")
        else:
            saved[other.name] = {key: theirs.record[key] for key in SAVED_OF_BASELINES if key in theirs.record}
    record = ours.record | {"baselines": saved, "seconds": round(time.time() - began, 1)}
    save(ours.name, record | about_data(data, how), encoder, how, out, ours.settings)
    return found


def show(console: Console, title: str, comparisons: Sequence[Comparison]) -> None:
    """A table with a row for each figure of the encoder and of its baselines, and a verdict."""
    table = Table("metric", "features", "%", title=title)
    for compared in comparisons:
        for metric in next(iter(compared.values())).figures:
            for name, found in compared.items():
                error = found.record["standard_errors"][metric]
                table.add_row(metric, name, f"{found.figures[metric]:.2f} ± {error:.2f}")
    console.print(table)
    console.print("±: standard error by the number of test images; another seed may move a figure further.")
    if verdict := judge(comparisons):
        console.print(verdict)


def judge(comparisons: Sequence[Comparison]) -> str:
    """How the encoder compares with its baselines, in every figure but top-5; nothing if there are none."""
    gaps = dict[str, list[tuple[float, float]]]()
    for compared in comparisons:
        (_, ours), *others = compared.items()
        for metric, value in ours.figures.items():
            for name, found in others if "top-5" not in metric else ():
                # cautious: the images are the same
                error = math.hypot(*(each.record["standard_errors"][metric] for each in (ours, found)))
                gaps.setdefault(name, []).append((value - found.figures[metric], CLEAR * error))
    if not gaps:
        return ""
    told = [f"{_standing(gap)} {name} ({mean(points for points, _ in gap):+.1f} points)" for name, gap in gaps.items()]
    level = " Level is within two standard errors of the difference." if "level" in " ".join(told) else ""
    return f"Verdict: {', '.join(told)}.{level}"


def _standing(gaps: Sequence[tuple[float, float]]) -> str:
    """Of points ahead, and how many are needed to be clear."""
    better, worse = (sum(sign * points > clear for points, clear in gaps) for sign in (1, -1))
    if 0 < better < len(gaps):
        return f"better in {better} of {len(gaps)} figures than"
    return "better than" if better else "worse than" if worse == len(gaps) else "level with"


@dataclass(frozen=True)
class DataProtocol(EvalOptions):
    """A protocol on one data set; its options are its fields."""

    data: str | None = None
    """A name or a path, as for `pretrain` (default: what the run was trained on)."""

    baselines: bool = True
    """Also measure the untrained network and pixels with colours, and compare."""

    title: ClassVar[str]
    """Of its table."""

    def images(self, encoder: FrozenEncoder, say: Callable[[str], None]) -> ImageSet:
        """What to evaluate on."""
        return data_for(encoder, self.data, say)

    @abstractmethod
    def measure(self, encoder: FrozenEncoder, data: ImageSet, how: Extraction) -> Measurement:
        """Evaluate an encoder."""

    def run(self) -> None:
        """Load encoder and images, evaluate, save, and show the figures."""
        encoder, console = self.open()
        check_result(self.out, self.overwrite, encoder.run)
        with self.extraction(console) as how:
            data = self.images(encoder, how.say)
            found = evaluate(self.measure, encoder, data, how, self.out, self.baselines)
        show(console, self.title, [found])


def check_result(out: Path | None, overwrite: bool, run: Run | None = None) -> None:
    """UserError, before the work, if a result cannot be written to `out` or, without it, in the encoder's run."""
    if out is None:
        if run is not None:
            folder = run.evaluation_file("x").parent
            check_folder(folder if folder.exists() else run.path)
        return
    if out.suffix.lower() != ".json":
        raise UserError(f"out={out}: must be a .json file.")
    check_output(out, overwrite)


def data_for(
    encoder: FrozenEncoder,
    source: str | None,
    say: Callable[[str], None] = lambda sentence: None,
    load: Callable[[str, int], ImageSet] = load_data,
) -> ImageSet:
    """The data of that name or path; without one, what the encoder's run was trained on."""
    if source is not None:
        data = load(locate(source), encoder.size)
    elif encoder.run is None:
        raise UserError(f"{encoder.name} is not a run, so its data are unknown; name them with --data.")
    else:
        data = load(locate(str(recipe_as_written(encoder.run)["data"])), encoder.size)
    for sentence in data.says:
        say(sentence)
    return data


def about_data(data: ImageSet, how: Extraction) -> dict[str, Any]:
    """What a result says of its images."""
    above = "" if data.root is None else os.path.join(data.root, "")
    return {
        "data": data.name,
        "source": data.source,
        "data_fingerprint": fingerprints(data),
        "unreadable_count": len(how.unreadable),
        "unreadable_images": [name.removeprefix(above) for name in how.unreadable[:MOST_UNREADABLE]],
    }


def save(
    protocol: str,
    result: dict[str, Any],
    encoder: FrozenEncoder,
    how: Extraction,
    out: Path | None = None,
    settings: Mapping[str, Any] | None = None,
) -> Path | None:
    """Write a result that has its `data` and `data_fingerprint`, with its provenance, to the `place_of` it."""
    file = place_of(protocol, result, encoder, out, settings)
    if file is None:
        how.say("Not saved; `--out FILE` keeps the figures with their protocol.")
        return None
    how.say(f"Saved: {write(file, content_of(protocol, result, encoder, how))}")
    return file


def content_of(protocol: str, result: Mapping[str, Any], encoder: FrozenEncoder, how: Extraction) -> str:
    """A result with its provenance, as a file has it."""
    record = dict(result) | {
        "evaluation": protocol,
        "encoder": encoder.name,
        "fingerprint": encoder.fingerprint,
        **_input_of(encoder),
        "about": list(encoder.says),
    }
    if encoder.run is not None:
        recipe = recipe_as_written(encoder.run)
        crops = f"{recipe['crops']['n_global']} global + {recipe['crops']['n_local']} local"
        record |= {name: recipe[name] for name in ("seed", "epochs")} | {"recipe": recipe["name"], "crops": crops}
    if encoder.unfinished is not None:
        record["unfinished"] = encoder.unfinished
    return json.dumps(record | provenance(hardware(best_device(how.device))), indent=2) + "\n"


def place_of(
    protocol: str,
    result: Mapping[str, Any],
    encoder: FrozenEncoder,
    out: Path | None = None,
    settings: Mapping[str, Any] | None = None,
) -> Path | None:
    """Where a result with this `data` and `data_fingerprint` goes: to `out`, which was checked, else into the run.

    There the name is PROTOCOL-DATA-HASH.json, with a hash of images, sizes and settings: the same evaluation replaces
    itself, and another has a name of its own.
    """
    if out is not None or encoder.run is None:
        return out
    identity = json.dumps([result["data_fingerprint"], _input_of(encoder), dict(settings or {})], sort_keys=True)
    name = re.sub(r"[^\w.-]", "-", result["data"])
    return encoder.run.evaluation_file(f"{protocol}-{name}-{hashlib.sha256(identity.encode()).hexdigest()[:8]}")


def _input_of(encoder: FrozenEncoder) -> dict[str, Any]:
    """How images are shown to an encoder."""
    return {"size": encoder.size, "mean": list(encoder.mean), "std": list(encoder.std)}


# -- Figures

Metric: TypeAlias = Callable[[Float[Tensor, "N C"], Int[Tensor, " N"]], float]
"""Percent, higher is better, from scores and labels: top1 or mean_per_class."""


def top1(scores: Float[Tensor, "N C"], labels: Int[Tensor, " N"]) -> float:
    """Percent of images whose highest score is that of their class."""
    return 100 * (scores.argmax(dim=1) == labels).sum().item() / len(labels)


def top_k(scores: Float[Tensor, "N C"], labels: Int[Tensor, " N"], k: int = 5) -> float:
    """Percent of images whose class is among the k highest scores."""
    if k == 1:
        return top1(scores, labels)  # of equal scores, the first
    highest = scores.topk(min(k, scores.shape[1]), dim=1).indices
    return 100 * (highest == labels[:, None]).any(dim=1).sum().item() / len(labels)


def mean_per_class(scores: Float[Tensor, "N C"], labels: Int[Tensor, " N"]) -> float:
    """Top-1 of each class alone, averaged; classes that no label names are left out."""
    right = (scores.argmax(dim=1) == labels).double()
    images = torch.bincount(labels, minlength=scores.shape[1])
    hits = torch.zeros_like(images, dtype=torch.float64).index_add_(0, labels, right)
    present = images > 0
    return 100 * (hits[present] / images[present]).mean().item()


def tops_for(n_classes: int) -> tuple[int, ...]:
    """1 and 5; of five classes or fewer, five guesses name them all."""
    return (1, 5) if n_classes > 5 else (1,)


def standard_errors(figures: Mapping[str, float], n_images: int) -> dict[str, float]:
    """The standard error of each percentage by the number of images that were classified."""
    return {metric: round(standard_error(value, n_images), 2) for metric, value in figures.items()}


def error_per_class(scores: Float[Tensor, "N C"], labels: Int[Tensor, " N"]) -> float:
    """The standard error of `mean_per_class`."""
    classes = [(scores[labels == c], labels[labels == c]) for c in labels.unique()]
    return math.hypot(*(standard_error(top1(*of_class), len(of_class[1])) for of_class in classes)) / len(classes)
