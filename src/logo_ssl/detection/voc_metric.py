"""How good is a detector by the measure of VOC 2007? Precision at eleven recalls, at each of ten overlaps.

Tables for VOC 07+12 are made with it at every overlap (detectron2's evaluator does so), not with COCO's measure.
"""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Bool, Float

from .pictures import Picture
from .precision import THRESHOLDS, AveragePrecision, Detected, summary

RECALLS = 11


def voc07_metric(
    pictures: Sequence[Picture], detected: Sequence[Detected], classes: tuple[str, ...]
) -> AveragePrecision:
    """AP, AP50, AP75 and AP by class; difficult objects (and crowds) are neither asked for nor counted."""
    table = np.stack([_of_class(pictures, detected, label) for label in range(1, len(classes) + 1)], 1)
    return summary(table, classes)


def _of_class(pictures: Sequence[Picture], detected: Sequence[Detected], label: int) -> Float[np.ndarray, " T"]:
    """Precision at each overlap; -1 where no object of the class is asked for."""
    truths = [np.flatnonzero(picture.labels == label) for picture in pictures]
    spared = [(picture.difficult | picture.crowd)[rows] for picture, rows in zip(pictures, truths, strict=True)]
    n_asked = sum(int((~each).sum()) for each in spared)
    if not n_asked:
        return np.full(len(THRESHOLDS), -1.0)
    scores, places, overlaps, objects = [], [], [], []
    for i, (picture, each) in enumerate(zip(pictures, detected, strict=True)):
        rows = np.flatnonzero(each.labels == label)
        shared = overlap(each.boxes[rows], picture.boxes[truths[i]])
        best = shared.argmax(1) if len(truths[i]) else np.full(len(rows), -1)
        scores += each.scores[rows].tolist()
        places += [i] * len(rows)
        objects += best.tolist()
        overlaps += shared.max(1).tolist() if len(truths[i]) else [0.0] * len(rows)
    order = np.argsort(-np.array(scores, np.float64), kind="stable").tolist()
    at = []
    for threshold in THRESHOLDS:
        taken: set[tuple[int, int]] = set()
        right: list[bool] = []
        for n in order:
            found = (places[n], objects[n])
            if overlaps[n] <= threshold:
                right.append(False)
            elif not spared[found[0]][found[1]]:
                right.append(found not in taken)
                taken.add(found)
        at.append(eleven_points(np.array(right, bool), n_asked))
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
