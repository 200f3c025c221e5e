"""Average precision: VOC 2007's measure and COCO's; F1 of one image; detections as COCO's result files.

Tables for VOC 07+12 are made with precision at eleven recalls at every overlap (detectron2's evaluator does so), not
with COCO's measure.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Float32, Int64

from ..files import write
from .data import AnnotatedImage, AnnotatedImages
from .formats import RunLengths, coco_library

THRESHOLDS = tuple(percent / 100 for percent in range(50, 100, 5))
"""Overlaps from which a detection counts; AP is the mean over them."""


class Detections(NamedTuple):
    """What a detector found in an image."""

    boxes: Float32[np.ndarray, "n 4"]
    scores: Float32[np.ndarray, " n"]
    labels: Int64[np.ndarray, " n"]
    masks: tuple[RunLengths, ...] = ()


class AveragePrecision(NamedTuple):
    """Percent; None where there is nothing to find."""

    overall: dict[str, float | None]
    """AP, AP50, AP75, and by size where the metric knows sizes."""
    per_class: dict[str, float | None]
    """AP of each class."""


def summary(table: np.ndarray, classes: tuple[str, ...]) -> AveragePrecision:
    """AP, AP50 and AP75 of a table [thresholds x classes] of shares, negative where a class has no objects."""
    rows = {"AP": slice(None), "AP50": THRESHOLDS.index(0.5), "AP75": THRESHOLDS.index(0.75)}
    overall = {name: mean(table[row]) for name, row in rows.items()}
    return AveragePrecision(overall, {name: mean(table[:, k]) for k, name in enumerate(classes)})


def mean(shares: np.ndarray) -> float | None:
    """The mean in percent of those that are known."""
    known = shares[shares > -1]
    return round(100 * float(known.mean()), 4) if known.size else None


RECALLS = 11


def voc07_metric(
    images: Sequence[AnnotatedImage], detected: Sequence[Detections], classes: tuple[str, ...]
) -> AveragePrecision:
    """AP, AP50, AP75 and AP by class; difficult objects (and crowds) are neither asked for nor counted."""
    table = np.stack([_precision_of_class(images, detected, label) for label in range(1, len(classes) + 1)], 1)
    return summary(table, classes)


def _precision_of_class(
    images: Sequence[AnnotatedImage], detected: Sequence[Detections], label: int
) -> Float[np.ndarray, " T"]:
    """Precision at each overlap; -1 where no object of the class is asked for."""
    n_asked = sum(int((image.asked & (image.labels == label)).sum()) for image in images)
    if not n_asked:
        return np.full(len(THRESHOLDS), -1.0)
    columns, n_objects = [], 0
    for image, found in zip(images, detected, strict=True):
        truths, rows = image.labels == label, found.labels == label
        overlaps = np.pad(overlap(found.boxes[rows], image.boxes[truths]), ((0, 0), (0, 1)))  # the last: no object
        best = overlaps.argmax(1)
        asked = np.append(image.asked[truths], False)[best]
        columns.append((found.scores[rows], overlaps.max(1), asked, n_objects + best))
        n_objects += overlaps.shape[1]
    scores, overlaps, asked, objects = (np.concatenate(column) for column in zip(*columns, strict=True))
    order = np.argsort(-scores.astype(np.float64), kind="stable")
    overlaps, asked, objects = overlaps[order], asked[order], objects[order]
    at = []
    for threshold in THRESHOLDS:
        fits = overlaps > threshold
        right = np.zeros(len(order), bool)
        right[np.flatnonzero(fits & asked)[np.unique(objects[fits & asked], return_index=True)[1]]] = True
        at.append(eleven_points(right[asked | ~fits], n_asked))  # what fits others is neither right nor wrong
    return np.array(at)


def eleven_points(right: Bool[np.ndarray, " n"], n_asked: int) -> float:
    """The mean over recalls 0, 0.1, ..., 1 of the best precision at that recall or above; best scores first."""
    found = right.cumsum()
    precision = found / np.arange(1, len(right) + 1)
    reached = [precision[10 * found >= tenth * n_asked] for tenth in range(RECALLS)]  # whole numbers, no rounding
    return sum(float(each.max()) if each.size else 0.0 for each in reached) / RECALLS


def overlap(a: Float[np.ndarray, "n 4"], b: Float[np.ndarray, "m 4"]) -> Float[np.ndarray, "n m"]:
    """Intersection over union of all pairs of boxes."""
    shared = intersection(a, b)
    return shared / (area(a)[:, None] + area(b)[None] - shared)


def intersection(a: Float[np.ndarray, "n 4"], b: Float[np.ndarray, "m 4"]) -> Float[np.ndarray, "n m"]:
    """Pixels that are in both boxes of each pair."""
    a, b = a.astype(np.float64), b.astype(np.float64)
    corners = np.maximum(a[:, None, :2], b[None, :, :2]), np.minimum(a[:, None, 2:], b[None, :, 2:])
    return (corners[1] - corners[0]).clip(0).prod(2)


def area(boxes: Float[np.ndarray, "n 4"]) -> Float[np.ndarray, " n"]:
    """Pixels of each box."""
    boxes = boxes.astype(np.float64)
    return (boxes[:, 2:] - boxes[:, :2]).prod(1)


Kind = Literal["bbox", "segm"]
SIZES = {"APs": 1, "APm": 2, "APl": 3}
"""Small, medium and large objects (up to 32 and 96 px a side), as the library numbers them."""


def coco_metric(
    images: Sequence[AnnotatedImage], detected: Sequence[Detections], classes: tuple[str, ...], kind: Kind = "bbox"
) -> AveragePrecision:
    """AP, AP50, AP75, AP by size and by class; crowds and difficult objects are neither asked for nor counted."""
    library: Any = coco_library()
    truths: list[dict[str, Any]] = []
    for i, image in enumerate(images):
        for n, box in enumerate(image.boxes):
            truth = {"id": len(truths) + 1, "image_id": i, "category_id": int(image.labels[n]), "bbox": _sides(box)}
            truth |= {"area": float(image.area[n]), "iscrowd": int(image.crowd[n] or image.difficult[n])}
            if kind == "segm":
                truth["segmentation"] = image.run_lengths(n)
            truths.append(truth)
    known = library.COCO(
        {
            "images": [{"id": i, "height": p.height, "width": p.width} for i, p in enumerate(images)],
            "categories": [{"id": k, "name": name} for k, name in enumerate(classes, 1)],
            "annotations": truths,
        }
    )
    found = as_coco(detected, range(len(images)), range(1, len(classes) + 1), kind)
    judge = library.COCOeval_faster(
        known, known.loadRes(found), kind, print_function=lambda *_: None, rle_iou_max_workers=1
    )
    judge.evaluate()
    judge.accumulate()
    precision = np.asarray(judge.eval["precision"])  # [thresholds, recalls, classes, sizes, detections]
    by_class = np.where((precision > -1).all(1), precision.mean(1), -1.0)[..., -1]
    told = summary(by_class[..., 0], classes)
    return told._replace(overall=told.overall | {name: mean(by_class[..., size]) for name, size in SIZES.items()})


def as_coco(
    detected: Sequence[Detections], images: Sequence[Any], categories: Sequence[int | None], kind: Kind
) -> list[dict[str, Any]]:
    """What was found as COCO's results: of which image, of which category, where, and how sure."""
    found = []
    for image, each in zip(images, detected, strict=True):
        for n, (box, score, label) in enumerate(zip(each.boxes, each.scores, each.labels, strict=True)):
            shape = {"segmentation": each.masks[n]} if kind == "segm" else {"bbox": _sides(box)}
            found.append({"image_id": image, "category_id": categories[label - 1], "score": float(score), **shape})
    return found


def _sides(box: np.ndarray) -> list[float]:
    left, top, right, bottom = (float(edge) for edge in box)
    return [left, top, right - left, bottom - top]


RESULTS: dict[Kind, str] = {"bbox": "boxes.json", "segm": "masks.json"}
"""Files of all that was found."""


def write_results(test: AnnotatedImages, detected: Sequence[Detections], folder: Path, masks: bool) -> None:
    """Write all that was found, as COCO has it: boxes, and where asked for masks; masks of an earlier test go."""
    images = [image.number for image in test.images]
    for kind, name in RESULTS.items():
        if kind == "segm" and not masks:
            (folder / name).unlink(missing_ok=True)
            continue
        write(folder / name, results_json(as_coco(detected, images, test.numbers, kind)))


def results_json(found: list[dict[str, Any]]) -> str:
    """COCO's results as a file has them."""
    letters = lambda counts: bytes(counts).decode("ascii")  # noqa: E731 (compressed run lengths)
    return json.dumps(found, separators=(",", ":"), default=letters)


SURE = 0.5
"""Score from which a detection is drawn and judged, and overlap from which it is right."""


class Judgement(NamedTuple):
    """Which detections of an image are sure and right, wrong, or neither."""

    right: Bool[np.ndarray, " found"]
    wrong: Bool[np.ndarray, " found"]
    f1: float
    """Twice what is right over what is asked for and what is right or wrong; 1 if there is nothing of either."""


def judge(image: AnnotatedImage, detected: Detections) -> Judgement:
    """Match detections with objects of their class, the surest first, each object once.

    What is found of crowds and difficult objects is neither right nor wrong: a difficult object is found like any
    other, as VOC has it, and a crowd by all that lie in it, as COCO does.
    """
    shared = overlap(detected.boxes, image.boxes)
    inside = intersection(detected.boxes, image.boxes) > SURE * area(detected.boxes)[:, None]
    alike = image.labels == detected.labels[:, None]
    free = image.asked.copy()
    right, wrong = np.zeros((2, len(detected.scores)), bool)
    for n in np.argsort(-detected.scores, kind="stable"):
        if detected.scores[n] < SURE:
            break
        fits = np.where(free & alike[n], shared[n], 0)
        if fits.max(initial=0) > SURE:
            right[n] = True
            free[fits.argmax()] = False
        else:
            spared = (image.difficult & (shared[n] > SURE)) | (image.crowd & inside[n])
            wrong[n] = not (alike[n] & spared).any()
    n_all = int(image.asked.sum() + right.sum() + wrong.sum())
    return Judgement(right, wrong, 2 * int(right.sum()) / n_all if n_all else 1.0)
