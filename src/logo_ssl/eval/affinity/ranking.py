"""How well does each measure put crops of the same image, or class, before others? Over many references."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int

from .measures import MEASURES

RESAMPLES = 2000
LEVEL = 0.95
Scores = Mapping[str, Float[np.ndarray, "R N"]]
Question = tuple[int, Bool[np.ndarray, " N"], Bool[np.ndarray, " _"]]
"""A reference, the crops that count, and which of these should come first."""


def roc_auc(positive: Bool[np.ndarray, " N"], scores: Float[np.ndarray, " N"]) -> float:
    """The share of (positive, negative) pairs in the right order, equal ones counting half."""
    _, place, counts = np.unique(scores, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - (counts - 1) / 2)[place]
    n_pos = int(positive.sum())
    n_neg = len(scores) - n_pos
    return float((ranks[positive].sum() - n_pos * (n_pos + 1) / 2) / (n_pos * n_neg))


def average_precision(positive: Bool[np.ndarray, " N"], scores: Float[np.ndarray, " N"]) -> float:
    """The precision at each threshold, weighted by the recall it adds."""
    order = np.argsort(-scores, kind="stable")
    hits = np.cumsum(positive[order])
    last = np.append(np.diff(scores[order]) != 0, True)  # of equal scores, all are taken or none
    recall = hits[last] / hits[-1]
    return float((np.diff(recall, prepend=0) * hits[last] / (np.flatnonzero(last) + 1)).sum())


METRICS = {"AUC": roc_auc, "average precision": average_precision}


def compare(
    scores: Scores, image: Int[np.ndarray, " N"], labels: Int[np.ndarray, " R"] | None, seed: int = 0
) -> list[dict[str, Any]]:
    """A row for each task and metric: both measures and their difference, each with an interval over references.

    Reference r is a crop of image r, and column n a crop of image `image[n]`.
    """
    rows = []
    for task, questions in _tasks(image, labels, len(scores[MEASURES[0]])):
        for name, metric in METRICS.items():
            found = {
                measure: np.array([metric(right, scores[measure][r, counts]) for r, counts, right in questions])
                for measure in MEASURES
            }
            found["difference"] = found["learned"] - found["cosine"]
            share = float(np.mean([right.mean() for _, _, right in questions]))
            about = {"task": task, "metric": name, "references": len(questions)}
            about["chance"] = 0.5 if name == "AUC" else round(share, 4)
            rows.append(about | {measure: _interval(values, seed) for measure, values in found.items()})
    return rows


def _tasks(
    image: Int[np.ndarray, " N"], labels: Int[np.ndarray, " R"] | None, n_references: int
) -> Iterator[tuple[str, list[Question]]]:
    """What is to be told apart, and the references for which there is something on both sides."""
    own = [image == r for r in range(n_references)]
    tasks = {"same image": [(np.ones_like(mine), mine) for mine in own]}
    if labels is not None:
        tasks["same class, other image"] = [(~mine, labels[image] == labels[r]) for r, mine in enumerate(own)]
    for task, masks in tasks.items():
        questions = [(r, counts, right[counts]) for r, (counts, right) in enumerate(masks)]
        questions = [question for question in questions if question[2].any() and not question[2].all()]
        if questions:
            yield task, questions


def _interval(values: Float[np.ndarray, " R"], seed: int) -> dict[str, float]:
    """Mean and bootstrap interval; the same seed draws the same references for every measure."""
    draws = np.random.default_rng(seed).integers(len(values), size=(RESAMPLES, len(values)))
    low, high = np.quantile(values[draws].mean(axis=1), [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return {"mean": round(float(values.mean()), 4), "low": round(float(low), 4), "high": round(float(high), 4)}
