"""Does another tool read what was found, and come to our figures?"""

import json

import numpy as np
import pytest
from drawn import run_lengths as uncompressed
from drawn import save_coco, save_voc

from logo_ssl.detection import load_detection
from logo_ssl.detection.coco_metric import coco_metric
from logo_ssl.detection.finds import found_files, write_found
from logo_ssl.detection.masks import run_lengths
from logo_ssl.detection.precision import Detected


def nearly_found(picture, rng):
    """The objects of a picture a little beside their places, some of them of a wrong class, and more or less sure."""
    boxes = picture.boxes + rng.normal(0, 2, picture.boxes.shape).astype(np.float32)
    labels = np.where(rng.random(len(boxes)) < 0.2, 3 - picture.labels, picture.labels)
    masks = (np.roll(picture.mask(n), rng.integers(-2, 3), (0, 1)) for n in range(len(boxes)))
    told = tuple(run_lengths(uncompressed(mask), picture.height, picture.width) for mask in masks)
    return Detected(boxes, rng.random(len(boxes), np.float32), labels, told)


@pytest.fixture
def root(tmp_path):
    """Pictures whose test counts images and categories otherwise than we do, and than its training."""
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
    found = [nearly_found(picture, rng) for picture in test.pictures]
    write_found(test, found, tmp_path, masks=True)
    truth = faster_coco_eval.COCO(str(root / "annotations" / "instances_val.json"))
    theirs = faster_coco_eval.COCOeval_faster(
        truth, truth.loadRes(str(found_files(tmp_path, masks=True)[kind])), kind, print_function=lambda *_: None
    )
    theirs.evaluate()
    theirs.accumulate()
    theirs.summarize()
    ours = coco_metric(test.pictures, found, test.classes, kind).overall
    assert 5 < ours["AP"] < 95
    names = ("AP", "AP50", "AP75", "APs", "APm", "APl")
    shares = (-1 if ours[name] is None else ours[name] / 100 for name in names)
    np.testing.assert_allclose([*theirs.stats[:6]], [*shares], atol=1e-6)


def test_pictures_in_vocs_layout_are_known_by_their_names(tmp_path):
    test = load_detection(str(save_voc(tmp_path / "voc", {"train": 2, "test": 2}))).test
    nothing = Detected(np.zeros((0, 4), np.float32), np.zeros(0, np.float32), np.zeros(0, np.int64))
    one = Detected(np.array([[1, 2, 4, 8]], np.float32), np.array([0.5], np.float32), np.array([2]))
    write_found(test, [nothing, one], tmp_path, masks=False)
    (told,) = json.loads((tmp_path / "boxes.json").read_text())
    expected = {"image_id": "test1", "category_id": 2, "score": 0.5, "bbox": [1, 2, 3, 6]}
    assert told == {"software": "logo-ssl"} | expected
    assert not (tmp_path / "masks.json").exists()


def test_a_class_that_the_test_does_not_list_takes_the_number_of_no_other(root, tmp_path):
    file = root / "annotations" / "instances_val.json"
    told = json.loads(file.read_text())
    told["categories"] = [category for category in told["categories"] if category["id"] == 3]
    told["annotations"] = [annotation for annotation in told["annotations"] if annotation["category_id"] == 3]
    file.write_text(json.dumps(told))
    test = load_detection(str(root)).test
    assert dict(zip(test.classes, test.numbers, strict=True)) == {"square": 4, "disc": 3}
    assert load_detection(str(root), agnostic=True).test.numbers == (1,)
