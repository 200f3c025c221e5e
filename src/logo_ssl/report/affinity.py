"""Affinity of crops: what a run's regressor learned compared with cosine, for the command affinity and for the page.

How well both measures rank crops of an image, and what they say of a reference crop and the images around it.
"""

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any, NamedTuple

import numpy as np
import safetensors
import torch
import torch.nn.functional as F
from jaxtyping import Float, Int, UInt8
from sklearn.metrics import average_precision_score, roc_auc_score
from torch import Generator, Tensor, nn

from ..augment import CropPlan, draw_boxes
from ..augment.preview import visible
from ..augment.transforms import normalise, resized_crop
from ..data import ImageSet, Photos, Split
from ..data.decode import BadImage, decode
from ..encoders import FrozenEncoder, load_encoder
from ..errors import UserError
from ..eval.features import exact_convolutions, in_channels
from ..recipes import read_recipe
from ..regressor import Regressor
from ..run import Run
from ..system.hardware import best_device
from ..system.randomness import stream
from ..weights import build_heads, load_heads
from .gallery import MEASURES, Comparison, Group, Heat, HeatMap, Pixels

METRICS = {"AUC": roc_auc_score, "average precision": average_precision_score}
CROPS = 10  # of each image, as in the paper
OTHERS = 3  # images compared with the reference's own
PAIRS = 2**15  # that the regressor sees at a time
BATCH = 256  # crops that the encoder sees at a time
LEAST = 2  # images: one to ask and one to be unlike
STEPS = 4  # windows that begin within the length of one, each way
RESAMPLES, LEVEL = 2000, 0.95  # of bootstrap intervals
BOX = re.compile(r"\s*-?\d+\s*(,\s*-?\d+\s*){3}")
LONGEST = 24  # characters of a name
REFERENCES = 6  # on the page
IMAGES_OF_PAGE = 60  # among which the page chooses images to compare with
CROPS_FOR_CENTRES = 2  # of each, whose features tell which class is near

Centres = Mapping[int, Float[Tensor, " F"]]
"""The mean direction of each class's features."""


class EncodedCrops(NamedTuple):
    """What the encoder makes of N crops."""

    features: Float[Tensor, "N F"]
    z: Float[Tensor, "N D"]


@dataclass(frozen=True)
class Measures:
    """Encoder, projector and regressor of a run, and how its local crops are cut."""

    encoder: FrozenEncoder
    projector: nn.Module
    regressor: Regressor
    plan: CropPlan
    device: torch.device

    def draw(self, image: UInt8[Tensor, "C H W"], n: int, generator: Generator) -> Int[Tensor, "n 4"]:
        """Boxes (top, left, height, width) of n local crops, drawn as in training."""
        return draw_boxes(n, (image.shape[1], image.shape[2]), self.plan.local_scale, self.plan.ratio, generator)

    def cut(self, image: UInt8[Tensor, "C H W"], boxes: Int[Tensor, "n 4"]) -> Float[Tensor, "n C s s"]:
        """The crops as they are: neither mirrored nor recoloured, in [0, 1]."""
        return resized_crop(image[None], boxes.float(), self.plan.local_size)

    @torch.no_grad()
    def encode(self, image: UInt8[Tensor, "C H W"], boxes: Int[Tensor, "n 4"]) -> EncodedCrops:
        """Features and latents of parts of an image, on the CPU."""
        found = []
        for batch in self.cut(image, boxes).split(BATCH):
            with exact_convolutions():
                x = normalise(batch.to(self.device), self.encoder.mean, self.encoder.std)
                features = self.encoder.backbone(x).float()
                found.append((features.cpu(), self.projector(features).cpu()))
        return EncodedCrops(*(torch.cat(part) for part in zip(*found, strict=True)))

    @torch.no_grad()
    def affinities(
        self, references: Float[Tensor, "R D"], others: Float[Tensor, "N D"]
    ) -> dict[str, Float[np.ndarray, "R N"]]:
        """Each reference against each of the others, by each measure."""
        learned = torch.empty(len(references), len(others))
        rows = max(1, PAIRS // len(others))
        answers = others.to(self.device)
        for begin in range(0, len(references), rows):
            asks = references[begin : begin + rows].to(self.device)
            pairs = asks.repeat_interleave(len(answers), dim=0), answers.repeat(len(asks), 1)
            learned[begin : begin + rows] = self.regressor(*pairs).view(len(asks), -1).cpu()
        cosine = F.normalize(references, dim=1) @ F.normalize(others, dim=1).T
        return {"learned": learned.numpy(), "cosine": cosine.numpy()}


def load_measures(run: Run, device: str = "auto", encoder: FrozenEncoder | None = None) -> Measures:
    """The measures of a run, and its encoder unless that is given; of an unfinished run, its newest checkpoint's."""
    encoder = encoder or load_encoder(str(run.path))
    recipe, place, backbone = read_recipe(run), best_device(device), encoder.backbone.cpu()
    try:
        if encoder.heads is None:
            projector, regressor = load_heads(run, backbone)
        else:
            projector, regressor = build_heads(recipe, encoder.heads, backbone)
    except (safetensors.SafetensorError, RuntimeError, KeyError, TypeError) as error:
        raise UserError(f"{run.path} has no whole heads ({error}); train it or copy it again.") from error
    if regressor is None:
        kind, affinity = recipe.kind("strategy"), getattr(recipe.strategy, "affinity", "none")
        raise UserError(f"{run.path} has no regressor (strategy {kind}, affinity {affinity}); give a run that has one.")
    for part in (backbone, projector, regressor):
        part.to(place).requires_grad_(False)
    return Measures(encoder, projector, regressor, recipe.crops, place)


def rescale(values: Float[np.ndarray, "*any"]) -> Float[np.ndarray, "*any"]:
    """From 0, the least alike, to 1, the most alike of what is shown together; all 0 if all are equal."""
    values = values.astype(float) - values.min()
    return values / (values.max() or 1)


# -- Images to compare


class Pool(NamedTuple):
    """Images of various sizes, with labels if there are any."""

    images: list[UInt8[Tensor, "C _ _"]]
    labels: list[int] | None
    part: str
    """Which split: test, or train if nothing is held out."""
    names: list[str]
    """What to call them."""
    unread: int = 0
    """How many could not be read; others were taken in their place, as far as there are any."""


class Reference(NamedTuple):
    """An image to compare others with, the box of a crop of it if one was given, and its class if it is known."""

    image: UInt8[Tensor, "C H W"]
    name: str
    label: int | None = None
    box: Int[Tensor, "1 4"] | None = None


def gather_pool(data: ImageSet, encoder: FrozenEncoder, n: int, max_side: int, generator: Generator) -> Pool:
    """About n images, as many of each class as can be and two at least; others stand in for unreadable ones."""
    part, split = test_or_train(data, encoder)
    rows, images, unread = list[int](), list[Tensor](), 0
    for row in rows_by_class(split, n, generator):
        if len(images) == n:
            break
        try:
            images.append(_read(split, row, max_side))
            rows.append(row)
        except (BadImage, OSError):
            unread += 1
    if len(images) < LEAST:
        raise UserError(f"{data.name} has {len(images)} readable images to compare; give {LEAST} or more.")
    labels = split.labels[torch.tensor(rows)].tolist() if split.labels is not None and split.has_labels else None
    return Pool(images, labels, part, [image_name(split, row, part, data) for row in rows], unread)


def find_reference(text: str, data: ImageSet, encoder: FrozenEncoder, max_side: int) -> Reference:
    """The image and box that IMAGE[:x,y,w,h] names: a file, or the number of an image in the compared split."""
    part, split = test_or_train(data, encoder)
    named, colon, box = text.rpartition(":")  # names of files may have colons as well
    if not colon or not BOX.fullmatch(box) or Path(text).expanduser().is_file():
        named, box = text, ""
    path, images = Path(named).expanduser(), split
    if path.is_file():
        images, number, name = Split.from_paths([str(path)]), 0, named
        files = [split.images.name(i) for i in range(len(split))] if isinstance(split.images, Photos) else []
        alike = (i for i, file in enumerate(files) if file.endswith(path.name))
        row = next((i for i in alike if os.path.abspath(files[i]) == os.path.abspath(path)), None)
        if encoder.channels != images.channels:
            raise UserError(f"reference={named}: has 3 channels, and {encoder.name} sees {encoder.channels}.")
    elif named.isdecimal() and int(named) < len(split):
        row = number = int(named)
        name = image_name(split, row, part, data)
    else:
        raise UserError(
            f"reference={text}: must be a file or one of the {len(split):,} {part} images of {data.name} (0 to "
            f"{len(split) - 1}), and may have a box :x,y,w,h in pixels."
        )
    try:
        image, whole = (_read(images, number, side) for side in (max_side, 0))
    except BadImage as error:
        raise UserError(f"reference={named}: cannot be read ({error}).") from error
    label = None if row is None or split.labels is None or split.labels[row] < 0 else int(split.labels[row])
    return Reference(image, name, label, _box(text, box, whole, image) if box else None)


def _box(text: str, box: str, whole: UInt8[Tensor, "C H W"], shown: UInt8[Tensor, "C h w"]) -> Int[Tensor, "1 4"]:
    """x, y, w, h in pixels of the whole image, as top, left, height and width in those of the shown one."""
    x, y, w, h = map(int, box.split(","))
    (H, W), (tall, wide) = whole.shape[1:], shown.shape[1:]
    if w < 1 or h < 1 or x < 0 or y < 0 or x + w > W or y + h > H:
        raise UserError(f"reference={text}: the box must be inside the image, which is {W} px wide and {H} px high.")
    top, left = min(round(y * tall / H), tall - 1), min(round(x * wide / W), wide - 1)
    height, width = max(1, round(h * tall / H)), max(1, round(w * wide / W))
    return torch.tensor([[top, left, min(height, tall - top), min(width, wide - left)]])


def test_or_train(data: ImageSet, encoder: FrozenEncoder) -> tuple[str, Split]:
    """What is held out, else the training images."""
    part, split = ("test", data.test) if data.test is not None and len(data.test) else ("train", data.train)
    return part, in_channels(encoder, split)


def rows_by_class(split: Split, n: int, generator: Generator) -> list[int]:
    """Rows in random order, the classes in turn; of no more classes than have two of the first n rows each."""
    order = torch.randperm(len(split), generator=generator).tolist()
    if split.labels is None or not split.has_labels:
        return order
    labels, of_class = split.labels.tolist(), dict[int, list[int]]()
    for row in order:
        of_class.setdefault(labels[row], []).append(row)
    of_class.pop(-1, None)  # no label
    several = [rows for rows in of_class.values() if len(rows) > 1] or list(of_class.values())
    chosen = several[: max(1, n // 2)]
    longest = max(map(len, chosen))
    return [rows[turn] for turn in range(longest) for rows in chosen if turn < len(rows)]


def image_name(split: Split, row: int, part: str, data: ImageSet) -> str:
    """What to call an image: its file as seen from the folder of the data, or its number."""
    if not isinstance(split.images, Photos):
        return f"{part} image {row}"
    name = PurePath(split.images.name(row))
    if data.root is not None and name.is_relative_to(data.root):
        return name.relative_to(data.root).as_posix()
    return name.name if name.is_absolute() else str(name)


def class_name(classes: Sequence[str], label: int) -> str:
    """What to call a class; a number alone would not be taken for one."""
    name = classes[label] if label < len(classes) else str(label)
    return f"class {name}" if name.isdecimal() else name


def _read(split: Split, row: int, max_side: int) -> UInt8[Tensor, "C H W"]:
    if not isinstance(split.images, Photos):
        return split.array[row]
    return torch.from_numpy(decode(split.images.read(row), max_side)).permute(2, 0, 1)


# -- A reference with the images it is compared with, as in Figure 3


class Member(NamedTuple):
    """An image with some of its crops."""

    role: str
    image: UInt8[Tensor, "C H W"]
    boxes: Int[Tensor, "n 4"]


class ReferenceGroup(NamedTuple):
    """A reference crop and the images it is compared with, its own first."""

    reference: Reference
    box: Int[Tensor, "1 4"]
    members: tuple[Member, ...]


def reference_group(
    reference: Reference,
    pool: Pool,
    centres: Centres,
    classes: Sequence[str],
    measures: Measures,
    generator: Generator,
) -> ReferenceGroup:
    """The reference's own image, one of its class, of the nearest and of another class; unlabelled, three others."""
    box = measures.draw(reference.image, 1, generator) if reference.box is None else reference.box
    rest = [i for i, image in enumerate(pool.images) if not torch.equal(image, reference.image)]
    roles = list[tuple[str, list[int]]]()  # and the rows of the pool that may have it
    if pool.labels is None or reference.label is None or reference.label not in centres:
        order = torch.randperm(len(rest), generator=generator).tolist()
        roles += [("another image", [rest[i]]) for i in order[:OTHERS]]
    else:
        of_class = dict[int, list[int]]()
        for row in rest:
            of_class.setdefault(pool.labels[row], []).append(row)
        if same := of_class.pop(reference.label, []):
            roles.append((f"same class: {class_name(classes, reference.label)}", same))
        centre = centres[reference.label]
        nearest = sorted(of_class, key=lambda c: float(centres[c] @ centre), reverse=True)
        labels = nearest[:1] + _one(nearest[1:], generator)
        for role, label in zip(("nearest class by features", "other class"), labels, strict=False):
            roles.append((f"{role}: {class_name(classes, label)}", of_class[label]))
    shown = [("own image", reference.image)]
    shown += [(role, pool.images[row]) for role, rows in roles for row in _one(rows, generator)]
    members = tuple(Member(role, image, measures.draw(image, CROPS, generator)) for role, image in shown)
    return ReferenceGroup(reference, box, members)


def class_centres(pool: Pool, features: Float[Tensor, "N F"], per_image: int) -> Centres:
    """The mean direction of each class's backbone features: not what either measure is computed from."""
    if pool.labels is None:
        return {}
    labels = torch.tensor(pool.labels).repeat_interleave(per_image)
    directions = F.normalize(features - features.mean(dim=0), dim=1)
    return {int(c): F.normalize(directions[labels == c].mean(dim=0), dim=0) for c in labels.unique()}


def _one(choices: list[int], generator: Generator) -> list[int]:
    """One of them at random, if there are any."""
    return [choices[int(torch.randint(len(choices), (1,), generator=generator))]] if choices else []


# -- How well each measure ranks crops of the same image, or class, before others


def compare_rankings(
    scores: Mapping[str, Float[np.ndarray, "R N"]],
    image: Int[np.ndarray, " N"],
    labels: Int[np.ndarray, " R"] | None,
    seed: int = 0,
) -> list[dict[str, Any]]:
    """A row for each task and metric: both measures and their difference, each with an interval over references.

    Reference r is a crop of image r, and column n a crop of image `image[n]`. A reference counts in a task if there are
    crops that should come first, and others.
    """
    rows = []
    own = image == np.arange(len(scores["learned"]))[:, None]  # [R N]
    tasks = {"same image": (np.ones_like(own), own)}
    if labels is not None:
        tasks["same class, other image"] = (~own, labels[image] == labels[:, None])
    for task, (counts, right) in tasks.items():
        asked = [r for r in range(len(own)) if 0 < right[r, counts[r]].mean() < 1]
        for name, metric in METRICS.items() if asked else ():
            found = {
                measure: np.array([metric(right[r, counts[r]], scores[measure][r, counts[r]]) for r in asked])
                for measure in MEASURES
            }
            found["difference"] = found["learned"] - found["cosine"]
            share = float(np.mean([right[r, counts[r]].mean() for r in asked]))
            about = {"task": task, "metric": name, "references": len(asked)}
            about["chance"] = 0.5 if name == "AUC" else round(share, 4)
            rows.append(about | {measure: _interval(values, seed) for measure, values in found.items()})
    return rows


def _interval(values: Float[np.ndarray, " R"], seed: int) -> dict[str, float]:
    """Mean and bootstrap interval; the same seed draws the same references for every measure."""
    draws = np.random.default_rng(seed).integers(len(values), size=(RESAMPLES, len(values)))
    low, high = np.quantile(values[draws].mean(axis=1), [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return {"mean": round(float(values.mean()), 4), "low": round(float(low), 4), "high": round(float(high), 4)}


def rank(pool: Pool, measures: Measures, seed: int) -> tuple[list[dict[str, Any]], Centres]:
    """How well the measures rank ten crops of every image for a crop of each, and where the classes' features are."""
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
    return compare_rankings(scores, image, labels, seed), centres


# -- Where in an image the reference is found: windows that slide over it


def slide(
    measures: Measures, reference: Float[Tensor, "1 D"], image: UInt8[Tensor, "C H W"], window: tuple[float, float]
) -> dict[str, Float[np.ndarray, "H W"]]:
    """By each measure, how alike the windows over each pixel are to the reference, on average.

    A window has so large a share of the image's height and width.
    """
    size = (image.shape[1], image.shape[2])
    boxes = window_boxes(size, window)
    found = measures.affinities(reference, measures.encode(image, boxes).z)
    return {measure: spread_over(values[0], boxes, size) for measure, values in found.items()}


def window_boxes(size: tuple[int, int], window: tuple[float, float]) -> Int[Tensor, "n 4"]:
    """Windows from edge to edge, a quarter of their side apart."""
    lines = []
    for length, share in zip(size, window, strict=True):
        side = max(1, min(length, round(length * share)))
        n = 1 + -(-(length - side) * STEPS // side)
        lines.append((torch.linspace(0, length - side, n).round().long().unique(), side))
    (tops, height), (lefts, width) = lines
    grid = torch.cartesian_prod(tops, lefts).view(-1, 2)
    return torch.cat([grid, torch.tensor([[height, width]]).expand(len(grid), 2)], dim=1)


def spread_over(
    values: Float[np.ndarray, " n"], boxes: Int[Tensor, "n 4"], size: tuple[int, int]
) -> Float[np.ndarray, "H W"]:
    """At each pixel the mean of the boxes that cover it."""
    total, count = np.zeros(size), np.zeros(size)
    for value, (top, left, height, width) in zip(values, boxes.tolist(), strict=True):
        total[top : top + height, left : left + width] += value
        count[top : top + height, left : left + width] += 1
    return total / np.maximum(count, 1)


# -- As numbers and pixels


def comparisons_for_page(measures: Measures, data: ImageSet, max_side: int, seed: int) -> list[Comparison]:
    """References of different classes, if there are any, with how alike other crops are by both measures."""
    pool = gather_pool(data, measures.encoder, IMAGES_OF_PAGE, max_side, stream(seed, "affinity images"))
    features = [
        measures.encode(image, measures.draw(image, CROPS_FOR_CENTRES, stream(seed, "report crops", i))).features
        for i, image in enumerate(pool.images)
    ]
    centres = class_centres(pool, torch.cat(features), CROPS_FOR_CENTRES)
    groups = reference_groups(first_references(pool, REFERENCES), pool, centres, data, measures, seed)
    return [compared(group, measures, data) for group in groups]


def first_references(pool: Pool, n: int) -> list[Reference]:
    """The first images of the pool, which is in random order; of different classes if there are any."""
    labels = pool.labels or [None] * len(pool.images)
    return [Reference(*each) for each in zip(pool.images, pool.names, labels, strict=True)][:n]


def reference_groups(
    references: Sequence[Reference], pool: Pool, centres: Centres, data: ImageSet, measures: Measures, seed: int
) -> list[ReferenceGroup]:
    """The images that each reference is compared with."""
    return [
        reference_group(reference, pool, centres, data.classes, measures, stream(seed, "affinity company", i))
        for i, reference in enumerate(references)
    ]


def compared(group: ReferenceGroup, measures: Measures, data: ImageSet) -> Comparison:
    """A reference and its group as numbers and pixels; each measure from 0 to 1 over all crops of the group."""
    reference = group.reference
    z = measures.encode(reference.image, group.box).z
    others = torch.cat([measures.encode(member.image, member.boxes).z for member in group.members])
    counts = np.cumsum([len(member.boxes) for member in group.members])[:-1]
    found = {name: np.split(rescale(values[0]), counts) for name, values in measures.affinities(z, others).items()}
    groups = [
        Group(member.role, _pixels(member.image), _crops(measures, member.image, member.boxes), *values)
        for member, *values in zip(group.members, *(found[name] for name in MEASURES), strict=True)
    ]
    name = _short(reference.name)
    title = name if reference.label is None else f"{class_name(data.classes, reference.label)}, {name}"
    (crop,) = _crops(measures, reference.image, group.box)
    return Comparison(title, _pixels(reference.image), group.box[0].tolist(), crop, groups)


def heat_map(group: ReferenceGroup, measures: Measures) -> HeatMap:
    """Where in its group the reference is found; each measure from 0 to 1 over all images of the group."""
    reference, (_, _, tall, wide) = group.reference, group.box[0].tolist()
    z = measures.encode(reference.image, group.box).z
    window = tall / reference.image.shape[1], wide / reference.image.shape[2]
    heats = [slide(measures, z, member.image, window) for member in group.members]
    ends = np.cumsum([heat["learned"].size for heat in heats])[:-1]
    scaled = [np.split(rescale(np.concatenate([heat[name].ravel() for heat in heats])), ends) for name in MEASURES]
    images = [
        Heat(member.role, _pixels(member.image), *(part.reshape(heat["learned"].shape) for part in parts))
        for member, heat, *parts in zip(group.members, heats, *scaled, strict=True)
    ]
    (crop,) = _crops(measures, reference.image, group.box)
    return HeatMap(_short(reference.name), group.box[0].tolist(), crop, images)


def _short(name: str) -> str:
    """A file without its folders, and no longer than the image above which it is written."""
    last = name.rsplit("/", 1)[-1]
    return last if len(last) <= LONGEST else f"...{last[3 - LONGEST :]}"


def _pixels(image: UInt8[Tensor, "C H W"]) -> Pixels:
    return visible(image.permute(1, 2, 0).numpy())


def _crops(measures: Measures, image: UInt8[Tensor, "C H W"], boxes: Tensor) -> list[Pixels]:
    return [_pixels((crop * 255).round().byte()) for crop in measures.cut(image, boxes).clamp(0, 1)]
