"""Average precision against its definition and other tools; masks in files."""

import json
from pathlib import Path

import naive
import numpy as np
import pytest
from drawn import run_lengths as plain_run_lengths
from drawn import save_coco, save_voc
from hypothesis import given, settings
from hypothesis import strategies as st

from logo_ssl.detection import load_detection
from logo_ssl.detection.data import clean_annotations
from logo_ssl.detection.formats import ImageAnnotation, ObjectAnnotation, decoded, encoded, run_lengths
from logo_ssl.detection.metrics import RESULTS, Detections, coco_metric, eleven_points, voc07_metric, write_results
from logo_ssl.errors import UserError

SIDE = 120
CLASSES = ("cat", "dog")


def images_of(truths):
    """From lists of (label, box, crowd, difficult, area, segmentation)."""
    told = [
        [
            ObjectAnnotation(CLASSES[label - 1], box, shape, crowd, difficult, area)
            for label, box, crowd, difficult, area, shape in each
        ]
        for each in truths
    ]
    return clean_annotations([ImageAnnotation(Path("p"), SIDE, SIDE, each) for each in told], CLASSES).images


def detected(found, masks=False):
    return [
        Detections(
            np.array([box for _, box, _ in each], np.float32).reshape(-1, 4),
            np.array([score for _, _, score in each], np.float32),
            np.array([label for label, _, _ in each], np.int64),
            tuple(encoded(mask_of(box).astype(np.uint8)) for _, box, _ in each) if masks else (),
        )
        for each in found
    ]


def mask_of(box):
    """A box without its upper left quarter: a shape that is no box."""
    mask = np.zeros((SIDE, SIDE), bool)
    left, top, right, bottom = box
    mask[top:bottom, left:right] = True
    mask[top : (top + bottom) // 2, left : (left + right) // 2] = False
    return mask


edges = st.integers(0, SIDE - 2)
boxes = st.tuples(edges, edges, st.integers(2, 110), st.integers(2, 110)).map(
    lambda b: (b[0], b[1], min(b[0] + b[2], SIDE), min(b[1] + b[3], SIDE))
)
near = st.tuples(st.sampled_from([(5, 5, 20, 30), (10, 8, 70, 80), (2, 3, 112, 118)]), st.integers(0, 3)).map(
    lambda b: (b[0][0] + b[1], b[0][1], b[0][2], b[0][3])
)
labels = st.integers(1, 2)
truths_in = st.lists(st.tuples(labels, boxes | near, st.booleans()), max_size=4)
scenes = st.lists(st.tuples(truths_in, st.lists(st.tuples(labels, boxes | near), max_size=6)), min_size=1, max_size=3)


def scored(scene, seed):
    """Found objects with scores that are all different, so that the order is no matter of taste."""
    n = sum(len(found) for _, found in scene)
    scores = iter(np.float32(np.random.default_rng(seed).permutation(n) + 1) / np.float32(n + 1))
    return [[(label, box, float(next(scores))) for label, box in found] for _, found in scene]


@settings(max_examples=30, deadline=None)
@given(scenes, st.integers(0, 99))
def test_coco_boxes_follow_the_definition(scene, seed):
    found = scored(scene, seed)
    truths = [[(k, box, crowd, naive.area_of(box)) for k, box, crowd in each] for each, _ in scene]
    images = images_of([[(k, box, crowd, False, area, None) for k, box, crowd, area in each] for each in truths])
    ours = coco_metric(images, detected(found), CLASSES).overall
    for size in naive.SIZES:
        assert ours[size] == pytest.approx(naive.coco_ap(truths, found, 2, naive.box_overlap, size), abs=1e-3)
    for name, threshold in (("AP50", 0.5), ("AP75", 0.75)):
        expected = naive.coco_ap(truths, found, 2, naive.box_overlap, thresholds=[threshold])
        assert ours[name] == pytest.approx(expected, abs=1e-3)


@settings(max_examples=10, deadline=None)
@given(scenes, st.integers(0, 99))
def test_coco_masks_follow_the_definition(scene, seed):
    found = scored(scene, seed)
    truths = [[(k, mask_of(box), crowd, int(mask_of(box).sum())) for k, box, crowd in each] for each, _ in scene]
    shown = [
        [(k, box, crowd, False, int(mask_of(box).sum()), plain_run_lengths(mask_of(box))) for k, box, crowd in each]
        for each, _ in scene
    ]
    masks = [[(k, mask_of(box), score) for k, box, score in each] for each in found]
    ours = coco_metric(images_of(shown), detected(found, masks=True), CLASSES, "segm").overall
    for size in naive.SIZES:
        assert ours[size] == pytest.approx(naive.coco_ap(truths, masks, 2, naive.mask_overlap, size), abs=1e-3)


@settings(max_examples=60, deadline=None)
@given(scenes, st.integers(0, 99))
def test_voc07_follows_the_definition(scene, seed):
    found = scored(scene, seed)
    truths = [each for each, _ in scene]
    images = images_of([[(k, box, False, difficult, None, None) for k, box, difficult in each] for each in truths])
    ours = voc07_metric(images, detected(found), CLASSES).overall
    for name, threshold in (("AP50", 0.5), ("AP75", 0.75)):
        assert ours[name] == pytest.approx(naive.voc07_ap(truths, found, 2, threshold), abs=1e-3)


CAT, FAR = (10, 10, 50, 50), (60, 60, 100, 100)


def both(truths, found):
    images = images_of([[(k, box, False, False, None, None) for k, box in each] for each in truths])
    return coco_metric(images, detected(found), CLASSES), voc07_metric(images, detected(found), CLASSES)


def test_cases_that_can_be_counted_by_hand():
    for told in both([[(1, CAT)]], [[(1, CAT, 0.9)]]):
        assert [told.overall[name] for name in ("AP", "AP50", "AP75")] == [100, 100, 100]
        assert told.per_class == {"cat": 100, "dog": None}
    for told in both([[(1, CAT)]], [[]]):
        assert told.overall["AP"] == 0
    for told in both([[(1, CAT)]], [[(2, CAT, 0.9)]]):
        assert told.overall["AP"] == 0
    for told in both([[(1, CAT)]], [[(1, FAR, 0.9), (1, CAT, 0.5)]]):  # half of what is found is right
        assert told.overall["AP"] == pytest.approx(50)
    coco, voc = both([[(1, CAT), (1, FAR)]], [[(1, CAT, 0.9), (1, CAT, 0.8)]])  # found once, and once again
    assert coco.overall["AP"] == pytest.approx(100 * 51 / 101, abs=1e-3)
    assert voc.overall["AP"] == pytest.approx(100 * 6 / 11, abs=1e-3)
    for told in both([[]], [[(1, CAT, 0.9)]]):
        assert told.overall["AP"] is None


def test_eleven_points_compare_recalls_without_rounding():
    assert eleven_points(np.array([True] * 3), 10) == pytest.approx(4 / 11)
    assert eleven_points(np.zeros(0, bool), 3) == 0


def test_masks_are_the_same_as_polygons_and_run_lengths():
    square = np.zeros((20, 30), np.uint8)
    square[4:10, 5:17] = 1
    polygon = [[5, 4, 17, 4, 17, 10, 5, 10]]
    plain = plain_run_lengths(square.astype(bool))
    for segmentation in (polygon, plain, encoded(square)):
        assert np.array_equal(decoded(segmentation, 20, 30), square)
    assert not decoded([[1, 2, 3, 4]], 20, 30).any()  # a line has no pixels


TRIANGLE = [1, 1, 5, 5, 9]
NO_MASKS = [
    {"a": 1},
    3,
    [["a"] * 6],
    [[[1, 2]] * 6],
    *([[*TRIANGLE, odd]] for odd in (None, float("nan"), float("inf"), -float("inf"), 1e300, 1e6, 10**400)),
    {"size": [2, 2], "counts": [4]},
    *(
        {"size": [20, 30], "counts": counts}
        for counts in ([4], [-5, 605], [299.9, 300.1], [None, 600], [10**400], [2**63, 600 - 2**63], None)
    ),
    *(
        {"size": [20, 30], "counts": counts}
        for counts in ("zzzz", "", "o", "\u00e9", "0" * 9, "P" * 99 + "0", b"\xff", b"0")
    ),
]


@pytest.mark.parametrize("mask", NO_MASKS, ids=lambda mask: str(mask)[:60])
def test_a_mask_that_is_none_is_told(mask):
    with pytest.raises(UserError, match="mask"):
        run_lengths(mask, 20, 30)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.booleans(), min_size=1, max_size=300), st.sampled_from([1, 50, 4000]))
def test_compressed_counts_are_read_as_the_library_writes_them(column, times):
    mask = np.repeat(np.array(column, np.uint8), times)[:, None]
    compressed = encoded(mask)
    assert run_lengths(compressed, *mask.shape) is compressed
    assert np.array_equal(decoded(compressed, *mask.shape), mask)
    with pytest.raises(UserError, match="mask"):
        run_lengths(compressed | {"size": [mask.size + 1, 1]}, mask.size + 1, 1)


def nearly_found(image, rng):
    """The objects of an image a little beside their places, some of them of a wrong class, and more or less sure."""
    boxes = image.boxes + rng.normal(0, 2, image.boxes.shape).astype(np.float32)
    labels = np.where(rng.random(len(boxes)) < 0.2, 3 - image.labels, image.labels)
    masks = (np.roll(image.mask(n), rng.integers(-2, 3), (0, 1)) for n in range(len(boxes)))
    told = tuple(run_lengths(plain_run_lengths(mask), image.height, image.width) for mask in masks)
    return Detections(boxes, rng.random(len(boxes), np.float32), labels, told)


@pytest.fixture
def root(tmp_path):
    """Images whose test counts images and categories otherwise than we do, and than its training."""
    root = save_coco(tmp_path / "coco", {"train": 2, "val": 12})
    file = root / "annotations" / "instances_val.json"
    told = json.loads(file.read_text())
    swapped = {7: 900, 10: 3}
    for image in told["images"]:
        image["id"] = 1000 - image["id"]
    for annotation in told["annotations"]:
        annotation |= {"image_id": 1000 - annotation["image_id"], "category_id": swapped[annotation["category_id"]]}
    for category in told["categories"]:
        category["id"] = swapped[category["id"]]
    file.write_text(json.dumps(told))
    return root


@pytest.mark.parametrize("kind", ["bbox", "segm"])
def test_a_coco_evaluator_comes_to_our_figures_by_the_files_alone(root, tmp_path, kind):
    import faster_coco_eval  # an extra, which the other tests do without

    test, rng = load_detection(str(root), masks=True).test, np.random.default_rng(0)
    found = [nearly_found(image, rng) for image in test.images]
    write_results(test, found, tmp_path, masks=True)
    truth = faster_coco_eval.COCO(str(root / "annotations" / "instances_val.json"))
    theirs = faster_coco_eval.COCOeval_faster(
        truth, truth.loadRes(str(tmp_path / RESULTS[kind])), kind, print_function=lambda *_: None
    )
    theirs.evaluate()
    theirs.accumulate()
    theirs.summarize()
    ours = coco_metric(test.images, found, test.classes, kind).overall
    assert 5 < ours["AP"] < 95
    names = ("AP", "AP50", "AP75", "APs", "APm", "APl")
    shares = (-1 if ours[name] is None else ours[name] / 100 for name in names)
    np.testing.assert_allclose([*theirs.stats[:6]], [*shares], atol=1e-6)


def test_images_in_vocs_layout_are_known_by_their_names(tmp_path):
    test = load_detection(str(save_voc(tmp_path / "voc", {"train": 2, "test": 2}))).test
    nothing = Detections(np.zeros((0, 4), np.float32), np.zeros(0, np.float32), np.zeros(0, np.int64))
    one = Detections(np.array([[1, 2, 4, 8]], np.float32), np.array([0.5], np.float32), np.array([2]))
    write_results(test, [nothing, one], tmp_path, masks=False)
    (told,) = json.loads((tmp_path / "boxes.json").read_text())
    expected = {"image_id": "test1", "category_id": 2, "score": 0.5, "bbox": [1, 2, 3, 6]}
    assert told == expected
    assert not (tmp_path / "masks.json").exists()
