"""How good is a detector by COCO's measure? Average precision of boxes or masks, by the library that others use."""

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from .masks import coco_library, run_lengths
from .pictures import Picture
from .precision import AveragePrecision, Detected, mean, summary

Kind = Literal["bbox", "segm"]
SIZES = {"APs": 1, "APm": 2, "APl": 3}
"""Small, medium and large objects (up to 32 and 96 px a side), as the library numbers them."""


def coco_metric(
    pictures: Sequence[Picture], detected: Sequence[Detected], classes: tuple[str, ...], kind: Kind = "bbox"
) -> AveragePrecision:
    """AP, AP50, AP75, AP by size and by class; crowds and difficult objects are neither asked for nor counted."""
    library: Any = coco_library()
    truth = library.COCO(
        {
            "images": [{"id": i, "height": p.height, "width": p.width} for i, p in enumerate(pictures)],
            "categories": [{"id": k, "name": name} for k, name in enumerate(classes, 1)],
            "annotations": _truths(pictures, kind),
        }
    )
    found = as_coco(detected, range(len(pictures)), range(1, len(classes) + 1), kind)
    judge = library.COCOeval_faster(
        truth, truth.loadRes(found), kind, print_function=lambda *_: None, rle_iou_max_workers=1
    )
    judge.evaluate()
    judge.accumulate()
    precision = np.asarray(judge.eval["precision"])  # [thresholds, recalls, classes, sizes, detections]
    by_class = np.where((precision > -1).all(1), precision.mean(1), -1.0)[..., -1]
    told = summary(by_class[..., 0], classes)
    return told._replace(overall=told.overall | {name: mean(by_class[..., size]) for name, size in SIZES.items()})


def _truths(pictures: Sequence[Picture], kind: Kind) -> list[dict[str, Any]]:
    truths: list[dict[str, Any]] = []
    for i, picture in enumerate(pictures):
        for n, box in enumerate(picture.boxes):
            truth = {"id": len(truths) + 1, "image_id": i, "category_id": int(picture.labels[n]), "bbox": _sides(box)}
            truth |= {"area": float(picture.area[n]), "iscrowd": int(picture.crowd[n] or picture.difficult[n])}
            if kind == "segm":
                truth["segmentation"] = run_lengths(picture.segmentations[n], picture.height, picture.width)
            truths.append(truth)
    return truths


def as_coco(
    detected: Sequence[Detected], images: Sequence[Any], categories: Sequence[int], kind: Kind
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
