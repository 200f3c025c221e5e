"""Did it help? Encoders on the same images, each compared with the first: with labels or, without any, by crops."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Literal, NamedTuple, TypeAlias

import torch
import torch.nn.functional as F
from jaxtyping import Float, UInt8
from torch import Tensor

from ..augment import CropPlan, make_crops
from ..data import BadImages, ImageSet, Split, squared
from ..encoders import FrozenEncoder
from ..errors import UserError
from ..knn import PROTOCOLS, nearest_neighbours, votes
from ..system.hardware import best_device
from ..system.randomness import stream
from ..system.terminal import counted
from .features import Extraction, brought_back, exact_convolutions, in_channels
from .lbfgs import WEIGHTS, how_chosen, select_weight
from .protocol import CLEAR
from .splits import split_features

K, TAU = PROTOCOLS[0]
LEAST, MOST = 20, 1000
"""Images whose crops are looked for: fewer tell nothing, and more take long."""
VIEWS = CropPlan(n_global=4, n_local=0, global_scale=(0.2, 1.0), jitter=(0.8, 0.8, 0.8, 0.4), grey_p=0.5)
"""Strong colour jitter: with less of it, colours alone find an image again, and pixels win (docs/decisions/0030)."""
NEIGHBOURS = 10  # that crops of an image should share
CHUNK = 64  # images whose crops are made together
L2_WEIGHTS = WEIGHTS[::4]  # all 45, and folds, take 20 times as long

Verdict: TypeAlias = Literal["better", "worse", "no measurable difference"]
VERDICTS: dict[int, Verdict] = {1: "better", -1: "worse", 0: "no measurable difference"}


class Measure(NamedTuple):
    """A figure in percent, larger is better: its title, what it can tell and what it cannot, and its resolution."""

    title: str
    about: str
    step: float
    """Points that the smallest change of an image moves its value by."""


MEASURES = {
    "knn": Measure(
        "kNN",
        f"kNN (k={K}): test images whose class most of the nearest training images share. It tells whether classes lie "
        "together, not whether a classifier could separate them.",
        100,
    ),
    "linear": Measure(
        "linear",
        "Linear: test images that a linear classifier (L-BFGS) gets right. It tells what a classifier can read from "
        "frozen features, not what fine-tuning would reach.",
        100,
    ),
    "found_again": Measure(
        "found again",
        "Found again: crops of an image that are nearest to another crop of it, among one of each image. It tells "
        "whether features survive crops and colours, not whether they know your classes.",
        100 / VIEWS.n_global,
    ),
    "same_neighbours": Measure(
        "same neighbours",
        f"Same neighbours: how many of the {NEIGHBOURS} nearest images two crops of an image share. It tells whether "
        "neighbours can be relied on, not whether they are alike in what matters to you.",
        100 / (VIEWS.n_global // 2 * NEIGHBOURS),
    ),
}
WITH_LABELS, WITHOUT = ("knn", "linear"), ("found_again", "same_neighbours")

Scores: TypeAlias = dict[str, Float[Tensor, " N"]]
"""Of each image in percent, by measure."""


class Difference(NamedTuple):
    """Points ahead of the first encoder, and their standard error over the same images."""

    points: float
    error: float

    @property
    def sign(self) -> int:
        """1 or -1 if it is clear that they differ, else 0."""
        return (self.points > CLEAR * self.error) - (self.points < -CLEAR * self.error)


class Compared(NamedTuple):
    """An encoder, its figures in percent with their standard errors, and how it compares with the first encoder."""

    name: str
    fingerprint: str
    figures: dict[str, float]
    errors: dict[str, float]
    differences: dict[str, Difference]
    """By measure; nothing for the first encoder."""
    verdict: Verdict | None
    """None for the first encoder."""


class EncoderComparison(NamedTuple):
    """What was found of encoders on the same images, the first of which is what the others are compared with."""

    encoders: tuple[Compared, ...]
    labelled: bool
    """Whether by kNN and a linear classifier, or by crops of images without labels."""
    about: dict[str, Any]
    """Which images, and how."""


def compare_encoders(
    encoders: Sequence[FrozenEncoder],
    data: ImageSet,
    how: Extraction | None = None,
    *,
    labels: bool = True,
    seed: int = 0,
) -> EncoderComparison:
    """Compare encoders with the first: by labels, if the data have any and these are wanted, else by crops.

    The seed decides the splits that the data do not have, and the crops.
    """
    how = how or Extraction()
    labelled = labels and data.train.has_labels
    about, scores = dict[str, Any](), list[Scores]()
    squares = None if labelled else sample(data, max(encoder.size for encoder in encoders), how)
    for encoder in encoders:
        with brought_back(encoder.backbone):
            if squares is None:
                found, about = class_scores(encoder, data, how, seed)
                how = replace(how, look_for_copies=False, say=lambda sentence: None, unreadable=[])  # the same for each
            else:
                found, about = crop_scores(encoder, squares, how, seed), {"test_images": len(squares)}
        scores.append(found)
    about |= {"measures": {name: MEASURES[name].about for name in scores[0]}, "seed_of_comparison": seed}
    pairs = zip(encoders, scores, strict=True)
    compared = (_compared(encoder, own, None if own is scores[0] else scores[0]) for encoder, own in pairs)
    return EncoderComparison(tuple(compared), labelled, about)


def _compared(encoder: FrozenEncoder, scores: Scores, first: Scores | None) -> Compared:
    figures = {name: own.mean().item() for name, own in scores.items()}
    errors = {name: _error(own) for name, own in scores.items()}
    differences = {} if first is None else {name: difference(own, first[name], name) for name, own in scores.items()}
    verdict = None if first is None else judge(scores, first)
    return Compared(encoder.name, encoder.fingerprint, figures, errors, differences, verdict)


def difference(own: Float[Tensor, " N"], first: Float[Tensor, " N"], measure: str) -> Difference:
    """How far the mean over images is from that of the first encoder, paired over images."""
    return Difference((own - first).mean().item(), _error(own - first, MEASURES[measure].step))


def _error(values: Float[Tensor, " N"], step: float = 0.0) -> float:
    """The standard error of a mean over images, or of a mean difference, of which the smallest is a step.

    Few images that differ prove little: as Agresti and Min (2005), each of the four outcomes gets half an image more.
    """
    total, n = values.double().sum().item(), len(values) + (2 if step else 0)
    squares = values.double().square().sum().item() + step**2
    return math.sqrt(max(0.0, squares - total**2 / n)) / n


def judge(scores: Mapping[str, Float[Tensor, " N"]], first: Mapping[str, Float[Tensor, " N"]]) -> Verdict:
    """With labels, by the mean of both measures; without, only if both agree, since each alone can be misled."""
    if "knn" in scores:
        both, before = (sum(each[name] for name in WITH_LABELS) / len(WITH_LABELS) for each in (scores, first))
        return VERDICTS[difference(both, before, "knn").sign]  # pyright: ignore[reportArgumentType]
    signs = {difference(scores[name], first[name], name).sign for name in WITHOUT}
    return VERDICTS[signs.pop() if len(signs) == 1 else 0]


# -- With labels


def class_scores(encoder: FrozenEncoder, data: ImageSet, how: Extraction, seed: int) -> tuple[Scores, dict[str, Any]]:
    """Which test images kNN and a linear classifier get right, 100 or 0, and which images these are."""
    device = best_device(how.device)
    splits = split_features(encoder, data, how, seed).to(device)
    known, labels = splits.train.joined(splits.val), splits.test.labels
    about = splits.about() | {"k": K, "tau": TAU}
    kept = "" if about["official_test"] else f" of {len(labels) + len(known.labels):,}, as there is no test split"
    how.say(f"{len(labels):,} test images{kept}; {splits.n_classes} classes, chance {about['chance']:.2f} %.")
    near = nearest_neighbours(splits.test.features, known.features, K, device=device)
    voted = votes(near, known.labels, splits.n_classes, K, TAU).argmax(dim=1)
    val = torch.arange(len(known.labels), device=known.labels.device) >= len(splits.train.labels)
    progress = partial(how.progress, f"{encoder.name}, L2 weights")
    chosen = select_weight(known, splits.n_classes, val, L2_WEIGHTS, progress=progress)
    guesses = {"knn": voted, "linear": chosen.probe.scores(splits.test.features).argmax(dim=1).cpu()}
    scores = {name: 100 * (guess == labels.cpu()).double() for name, guess in guesses.items()}
    return scores, about | {"l2_weight": how_chosen(splits, folds=False)}


# -- Without labels


def sample(data: ImageSet, size: int, how: Extraction, most: int = MOST) -> Split:
    """Some images as squares, with their rows for labels: test images, or training images if there are no others."""
    split = data.test if data.test is not None and len(data.test) else data.train
    some = Split(split.images, torch.arange(len(split))).thinned(most)
    squares = squared(some, size, bad := BadImages(len(some), how.max_bad, root=data.root), how.workers)
    if bad.names:
        how.say(f"{counted(len(bad), 'image')} cannot be read and had to be left out.")
        how.unreadable.extend(sorted(bad.names))
    if len(squares) < LEAST:
        raise UserError(f"{data.name} has {len(squares)} such images; {LEAST} are needed to compare without labels.")
    return squares


def crop_scores(encoder: FrozenEncoder, squares: Split, how: Extraction, seed: int) -> Scores:
    """How often crops of each image find each other, and which share of their neighbours they have in common."""
    views = crop_features(encoder, in_channels(encoder, squares).array, how, seed)
    cosine = [(view @ other.T, other @ view.T, view @ view.T, other @ other.T) for view, other in views.split(2)]
    found = [found_again(between) for there, back, _, _ in cosine for between in (there, back)]
    same = [same_neighbours(own, others) for _, _, own, others in cosine]
    return {"found_again": 100 * torch.stack(found).mean(dim=0), "same_neighbours": 100 * torch.stack(same).mean(dim=0)}


@torch.no_grad()
def crop_features(
    encoder: FrozenEncoder, images: UInt8[Tensor, "N C H W"], how: Extraction, seed: int
) -> Float[Tensor, "V N F"]:
    """Unit features of random crops of each image; of images of one size, all encoders see the same crops."""
    device, plan, done = best_device(how.device), replace(VIEWS, global_size=encoder.size), 0
    backbone, views = encoder.backbone.to(device).eval(), list[Tensor]()
    with exact_convolutions():
        for number, part in enumerate(images.split(CHUNK)):
            draws = stream(seed, "compare", number)
            x_g = make_crops(part.to(device), plan, draws, encoder.mean, encoder.std).x_g
            views.append(torch.stack([F.normalize(backbone(x).double(), dim=1).cpu() for x in x_g]))
            how.progress(f"{encoder.name}, crops", done := done + len(part), len(images))
    return torch.cat(views, dim=1)


def found_again(cosine: Float[Tensor, "N N"]) -> Float[Tensor, " N"]:
    """1 for each image of whose two crops the second is nearest to the first; equal features find nothing."""
    return ((cosine >= cosine.diagonal()[:, None]).sum(dim=1) == 1).double()


def same_neighbours(*cosines: Float[Tensor, "N N"]) -> Float[Tensor, " N"]:
    """Which share of its nearest images two crops of an image have in common; of equally near ones, none counts."""
    near = []
    for cosine in cosines:
        others = cosine.clone().fill_diagonal_(-math.inf)
        near.append(others > others.topk(NEIGHBOURS + 1, dim=1).values[:, -1:])
    return (near[0] & near[1]).sum(dim=1).double() / NEIGHBOURS
