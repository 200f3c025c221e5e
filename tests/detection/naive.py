"""Average precision as its definition reads: one object, one threshold and one recall after the other."""

from fractions import Fraction

import numpy as np

SIZES = {"AP": (0, 1e10), "APs": (0, 32**2), "APm": (32**2, 96**2), "APl": (96**2, 1e10)}


def box_overlap(a, b, crowd=False):
    width = min(a[2], b[2]) - max(a[0], b[0])
    height = min(a[3], b[3]) - max(a[1], b[1])
    shared = max(width, 0) * max(height, 0)
    area_a, area_b = ((c[2] - c[0]) * (c[3] - c[1]) for c in (a, b))
    return shared / (area_a if crowd else area_a + area_b - shared)


def mask_overlap(a, b, crowd=False):
    return (a & b).sum() / (a.sum() if crowd else (a | b).sum())


def area_of(shape):
    return int(shape.sum()) if isinstance(shape, np.ndarray) else (shape[2] - shape[0]) * (shape[3] - shape[1])


def coco_ap(truths, found, n_classes, overlap, size="AP", thresholds=None):
    """truths: a list of (label, shape, crowd, area) for each image; found: of (label, shape, score)."""
    low, high = SIZES[size]
    values = []
    for label in range(1, n_classes + 1):
        for threshold in thresholds or np.arange(50, 100, 5) / 100:
            judged, n_asked = [], 0
            for objects, guesses in zip(truths, found, strict=True):
                asked = [o for o in objects if o[0] == label]
                ignored = [o[2] or not low <= o[3] <= high for o in asked]
                order = sorted(range(len(asked)), key=lambda k, ignored=ignored: ignored[k])
                asked, ignored = [asked[k] for k in order], [ignored[k] for k in order]
                n_asked += ignored.count(False)
                taken = [False] * len(asked)
                for _, shape, score in sorted((g for g in guesses if g[0] == label), key=lambda g: -g[2])[:100]:
                    best, match = min(threshold, 1 - 1e-10), None
                    for k, (_, other, crowd, _) in enumerate(asked):
                        if taken[k] and not crowd:
                            continue
                        if match is not None and not ignored[match] and ignored[k]:
                            break
                        shared = overlap(shape, other, crowd)
                        if shared >= best:
                            best, match = shared, k
                    if match is not None:
                        taken[match] = True
                        if not ignored[match]:
                            judged.append((score, True))
                    elif low <= area_of(shape) <= high:
                        judged.append((score, False))
            if n_asked:
                values.append(_at_recalls([right for _, right in sorted(judged, key=lambda j: -j[0])], n_asked))
    return 100 * float(np.mean(values)) if values else None


def _at_recalls(right, n_asked):
    points, n_right = [], 0
    for n, each in enumerate(right, 1):
        n_right += each
        points.append((n_right / n_asked, n_right / n))
    reached = [[p for recall, p in points if recall >= r] for r in np.linspace(0, 1, 101)]
    return float(np.mean([max(each, default=0.0) for each in reached]))


def voc07_ap(truths, found, n_classes, threshold):
    """truths: a list of (label, box, difficult) for each image; found: of (label, box, score)."""
    values = []
    for label in range(1, n_classes + 1):
        n_asked = sum(o[0] == label and not o[2] for objects in truths for o in objects)
        if not n_asked:
            continue
        guesses = [(s, i, box) for i, each in enumerate(found) for name, box, s in each if name == label]
        taken, right = set(), []
        for _, i, box in sorted(guesses, key=lambda g: -g[0]):
            shared = [(box_overlap(box, o[1]), -k) for k, o in enumerate(truths[i]) if o[0] == label]
            best, k = max(shared, default=(0.0, 0))
            if best <= threshold:
                right.append(False)
            elif not truths[i][-k][2]:
                right.append((i, k) not in taken)
                taken.add((i, k))
        total = Fraction(0)
        for tenth in range(11):
            reached = [
                Fraction(sum(right[:n]), n)
                for n in range(1, len(right) + 1)
                if Fraction(sum(right[:n]), n_asked) >= Fraction(tenth, 10)
            ]
            total += max(reached, default=Fraction(0))
        values.append(float(total / 11))
    return 100 * float(np.mean(values)) if values else None
