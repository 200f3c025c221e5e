"""Are the best and the worst pictures those that they should be, and is on them what was found?"""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from drawn import save_coco
from PIL import Image, ImageColor

from logo_ssl.detection import load_detection
from logo_ssl.detection.drawing import EACH, RIGHT, SIDE, SPARED, TRUE, WRONG, draw_found, harmony, matched, spared
from logo_ssl.detection.masks import encoded
from logo_ssl.detection.pictures import BadPicture, Told, ToldPicture, settled
from logo_ssl.detection.precision import Detected

CAT, FAR = (10, 10, 50, 50), (60, 60, 100, 100)


def picture(*objects, **marks):
    told = ToldPicture(Path("p"), 120, 120, [Told(name, box, **marks) for name, box in objects])
    return settled([told], ("cat", "dog")).pictures[0]


def found(*things):
    boxes, labels, scores = zip(*things, strict=True) if things else ((), (), ())
    kinds = ((boxes, np.float32), (scores, np.float32), (labels, np.int64))
    shaped = [np.array(values, kind) for values, kind in kinds]
    return Detected(shaped[0].reshape(-1, 4), shaped[1], shaped[2])


@pytest.mark.parametrize(
    ("there", "seen", "right", "score"),
    [
        ([("cat", CAT)], [(CAT, 1, 0.9)], [True], 1.0),
        ([("cat", CAT)], [(CAT, 1, 0.4)], [False], 0.0),  # not sure
        ([("cat", CAT)], [(CAT, 2, 0.9)], [False], 0.0),  # another class
        ([("cat", CAT)], [(CAT, 1, 0.8), (CAT, 1, 0.9)], [False, True], 2 / 3),  # once
        ([("cat", CAT), ("dog", FAR)], [(CAT, 1, 0.9)], [True], 2 / 3),
        ([], [(CAT, 1, 0.9)], [False], 0.0),
        ([], [], [], 1.0),
    ],
)
def test_a_detection_is_right_once_for_each_object(there, seen, right, score):
    assert matched(picture(*there), found(*seen)).tolist() == right
    assert harmony(picture(*there), found(*seen)) == pytest.approx(score)


def test_crowds_and_difficult_objects_are_not_asked_for():
    assert harmony(picture(("cat", CAT), crowd=True), found()) == 1
    assert harmony(picture(("cat", CAT), difficult=True), found()) == 1


IN_CAT = (10, 10, 20, 20)


@pytest.mark.parametrize(
    ("marks", "seen", "neither", "score"),
    [
        ({"difficult": True}, [(CAT, 1, 0.9)], [True], 1.0),
        ({"difficult": True}, [(IN_CAT, 1, 0.9)], [False], 0.0),  # a small part of it
        ({"difficult": True}, [(CAT, 2, 0.9)], [False], 0.0),  # another class
        ({"difficult": True}, [(CAT, 1, 0.4)], [False], 1.0),  # not sure
        ({"crowd": True}, [(CAT, 1, 0.9), (IN_CAT, 1, 0.8), (FAR, 1, 0.7)], [True, True, False], 0.0),
        ({}, [(CAT, 1, 0.9), (CAT, 1, 0.8)], [False, False], 2 / 3),
    ],
)
def test_what_is_found_of_crowds_and_difficult_objects_is_neither_right_nor_wrong(marks, seen, neither, score):
    there, things = picture(("cat", CAT), **marks), found(*seen)
    assert spared(there, things, matched(there, things)).tolist() == neither
    assert harmony(there, things) == pytest.approx(score)


def test_a_find_is_right_before_it_is_spared(tmp_path):
    objects = [Told("cat", CAT), Told("cat", CAT, difficult=True)]
    (there,) = settled([ToldPicture(tmp_path, 120, 120, objects)], ("cat",)).pictures
    things = found((CAT, 1, 0.9), (CAT, 1, 0.8), (FAR, 1, 0.7))
    right = matched(there, things)
    assert right.tolist() == [True, False, False]
    assert spared(there, things, right).tolist() == [False, True, False]
    assert harmony(there, things) == pytest.approx(2 / 3)


def test_what_does_not_count_is_grey_on_both_sides(tmp_path):
    Image.new("RGB", (120, 120)).save(tmp_path / "0.png")
    told = ToldPicture(tmp_path / "0.png", 120, 120, [Told("cat", CAT, difficult=True)])
    pictures = settled([told], ("cat",)).pictures
    files = draw_found(pictures, [found((CAT, 1, 0.9))], ("cat",), tmp_path / "drawn")
    assert colours(files["best"]) == {("truth", SPARED), ("found", SPARED)}


def colours(file):
    pixels = np.asarray(Image.open(file))
    halves = {"truth": pixels[:, :SIDE], "found": pixels[:, SIDE : 2 * SIDE]}
    return {
        (where, colour)
        for where, half in halves.items()
        for colour in (TRUE, RIGHT, WRONG, SPARED)
        if (half == ImageColor.getrgb(colour)).all(2).any()
    }


def test_truth_and_detections_are_drawn_beside_each_other(tmp_path):
    data = load_detection(str(save_coco(tmp_path / "coco", {"train": 1, "val": EACH + 1}))).test
    right = [
        Detected(p.boxes, np.ones(len(p.labels), np.float32), p.labels, (encoded(np.eye(64, dtype=np.uint8)),) * 2)
        for p in data.pictures
    ]
    wrong = Detected(np.array([[0, 0, 8, 8]], np.float32), np.ones(1, np.float32), np.ones(1, np.int64))
    files = draw_found(data.pictures, [wrong, *right[1:]], data.classes, tmp_path / "pictures")
    assert list(files) == ["best", "worst", "random"]
    assert colours(files["best"]) == {("truth", TRUE), ("found", RIGHT)}
    first = Image.open(files["worst"])
    first.crop((0, 0, first.width // 2, SIDE)).save(tmp_path / "first.png")
    assert colours(tmp_path / "first.png") == {("truth", TRUE), ("found", WRONG)}
    assert draw_found(data.pictures[:1], right[:1], data.classes, tmp_path / "one").keys() == files.keys()


def test_a_sheet_of_wide_pictures_has_no_empty_halves(tmp_path):
    files = [tmp_path / f"{n}.png" for n in range(3)]
    for file in files:
        Image.new("RGB", (120, 30), "black").save(file)
    told = settled([ToldPicture(file, 30, 120, []) for file in files], ("cat",))
    drawn = draw_found(told.pictures, [found()] * 3, told.classes, tmp_path / "drawn")
    sheet = np.asarray(Image.open(drawn["best"]).convert("L"))
    assert sheet.shape[0] < 2 * SIDE / 2
    assert (sheet == 0).any(1).mean() > 0.6


def test_masks_are_drawn_where_they_are_asked_for_and_a_broken_one_names_its_picture(tmp_path):
    data = load_detection(str(save_coco(tmp_path / "coco", {"train": 1, "val": 1}))).test
    plain, shining = (
        np.asarray(Image.open(draw_found(data.pictures, [found()], data.classes, tmp_path, masks)["best"]))
        for masks in (False, True)
    )
    assert (plain != shining).any(2).mean() > 0.01
    broken = replace(data.pictures[0], segmentations=({"size": [64, 64], "counts": "zzzz"},) * 2)
    draw_found([broken], [found()], data.classes, tmp_path)
    with pytest.raises(BadPicture, match=r"val/0\.png, the object with the bbox \[.*\]: its mask is neither polygons"):
        draw_found([broken], [found()], data.classes, tmp_path, masks=True)
