"""Are pictures with boxes read from both layouts, odd ones mended and counted, and wrong ones told in a sentence?"""

import json
import re

import numpy as np
import pytest
from drawn import save_coco, save_voc, voc_object, write_xml
from small_detectors import SMALL

from logo_ssl.detection import Detection, load_detection
from logo_ssl.detection.masks import decoded
from logo_ssl.detection.pictures import Told, ToldPicture, settled
from logo_ssl.detection.samples import TrainingPictures, read, whole
from logo_ssl.detection.sources import OFFICIAL, Counts
from logo_ssl.errors import DataMissing, UserError


def edit(root, split, change):
    file = root / "annotations" / f"instances_{split}.json"
    content = json.loads(file.read_text())
    change(content)
    file.write_text(json.dumps(content))


def test_no_name_at_all_is_not_this_folder(tmp_path, monkeypatch):
    save_coco(tmp_path, {"train": 3, "val": 2})
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match="data is empty"):
        load_detection(" ")


def test_both_layouts_hold_the_same_pictures(tmp_path):
    coco = load_detection(str(save_coco(tmp_path / "coco", {"train": 3, "val": 2})))
    voc = load_detection(str(save_voc(tmp_path / "voc", {"train": 3, "test": 2})))
    assert coco.train.classes == ("square", "disc")
    assert voc.train.classes == ("disc", "square")
    assert (voc.is_voc, coco.is_voc) == (True, False)
    for ours, theirs in zip(
        coco.train.pictures + coco.test.pictures, voc.train.pictures + voc.test.pictures, strict=True
    ):
        assert np.array_equal(ours.boxes, theirs.boxes)
        names = [coco.train.classes[label - 1] for label in ours.labels]
        assert names == [voc.train.classes[label - 1] for label in theirs.labels]
        assert np.array_equal(ours.pixels(), theirs.pixels())


def test_class_agnostic_sets_have_one_class(tmp_path):
    found = load_detection(str(save_coco(tmp_path / "coco", {"train": 3, "val": 2})), agnostic=True)
    assert found.train.classes == ("object",)
    assert {label for picture in found.train.pictures for label in picture.labels} == {1}


def test_odd_objects_are_mended_dropped_and_counted(tmp_path):
    told = [
        Told("cat", (-5, 2, 8, 30)),
        Told("cat", (3, 3, 3, 8)),
        Told("cat", (30, 3, 40, 8)),
        Told("yeti", (0, 0, 5, 5)),
        Told("cat", (1, 1, 5, 5), crowd=True, area=3.0),
    ]
    found = settled([ToldPicture(tmp_path, 20, 10, told), ToldPicture(tmp_path, 20, 10, [])], ["cat"])
    assert found.pictures[0].boxes.tolist() == [[0, 2, 8, 20], [1, 1, 5, 5]]
    assert found.pictures[0].area.tolist() == [144, 3]
    assert found.pictures[0].crowd.tolist() == [False, True]
    assert dict(found.counts) == {
        "partly outside the picture, clipped": 1,
        "without area, dropped": 1,
        "wholly outside the picture, dropped": 1,
        "of unknown categories (yeti), dropped": 1,
        "pictures without objects": 1,
    }
    assert found.pictures[1].boxes.shape == (0, 4)


def test_one_picture_is_told_in_the_singular(tmp_path):
    full, empty = (ToldPicture(tmp_path, 20, 10, told) for told in ([Told("cat", (1, 1, 5, 5))], []))
    train, test = settled([full, empty], ["cat"]), settled([full], ["cat"])
    assert Detection("few", train, test, is_voc=False).about()[:2] == [
        "few, train: 2 pictures, 1 object; 1 picture without objects.",
        "few, test: 1 picture, 1 object.",
    ]


def test_a_box_that_is_not_finite_is_refused(tmp_path):
    with pytest.raises(UserError, match="coordinates are finite numbers"):
        settled([ToldPicture(tmp_path, 20, 10, [Told("cat", (0, 0, float("nan"), 5))])], ["cat"])


def test_outlines_of_fewer_than_three_corners_are_no_masks(tmp_path):
    told = [Told("cat", (1, 1, 5, 5), shape) for shape in ((np.ones(2),), (np.ones(2), np.arange(6.0)), None)]
    pictures = [ToldPicture(tmp_path, 20, 10, told)]
    assert settled(pictures, ["cat"]).n_objects == 3
    found = settled(pictures, ["cat"], masks=True)
    assert found.n_objects == 2
    assert found.counts["with outlines of fewer than three corners, dropped"] == 1
    root = save_coco(tmp_path / "coco", {"train": 2, "val": 1})
    edit(root, "train", lambda content: content["annotations"][0].update(segmentation=[[1, 2]]))
    assert (load_detection(str(root)).train.n_objects, load_detection(str(root), masks=True).train.n_objects) == (4, 3)


def test_categories_that_only_the_test_pictures_have_are_refused_unless_all_are_one(tmp_path):
    root = save_coco(tmp_path / "coco", {"train": 3, "val": 2})
    edit(root, "val", lambda content: [category.update(name="cube") for category in content["categories"][:1]])
    with pytest.raises(UserError, match=r"test of coco has objects of classes that train does not have \(\d: cube\)"):
        load_detection(str(root))
    assert load_detection(str(root), agnostic=True).test.n_objects == 4
    voc = save_voc(tmp_path / "voc", {"train": 3, "test": 1})
    write_xml(voc, "test0", voc_object("disc", (1, 1, 10, 20)) + voc_object("yeti", (1, 1, 10, 20)))
    with pytest.raises(UserError, match=r"The test of voc has .* \(1: yeti\)"):
        load_detection(str(voc))
    assert load_detection(str(voc), agnostic=True).test.n_objects == 2


def test_numbers_of_categories_that_the_file_does_not_explain_are_counted(tmp_path):
    root = save_coco(tmp_path / "coco", {"train": 3, "val": 2})
    edit(root, "val", lambda content: content["annotations"][0].update(category_id=99))
    for agnostic in (False, True):
        sentences = load_detection(str(root), agnostic).about()
        assert any("1 of categories without a name, dropped" in sentence for sentence in sentences)


def test_classes_that_nobody_learns_are_told(tmp_path):
    root = save_coco(tmp_path / "coco", {"train": 3, "val": 2})
    for split, number in (("train", 7), ("val", 10)):
        edit(root, split, lambda content, n=number: [a.update(category_id=n) for a in content["annotations"]])
    told = "Test objects of classes that no training picture has cannot be found: disc."
    assert told in load_detection(str(root)).about()
    assert told not in load_detection(str(root), agnostic=True).about()


def test_pictures_in_train_and_in_test_are_told(tmp_path):
    voc = save_voc(tmp_path / "voc", {"train": 3, "test": 1})
    lists = voc / "ImageSets" / "Main"
    assert len(load_detection(str(voc)).about()) == 2
    (lists / "test.txt").write_text("test0\ntrain1\n")
    assert load_detection(str(voc)).about()[-1] == (
        "1 picture is in train and in test (train1.png); what is learned by heart counts as found."
    )


def test_a_missing_list_is_told_as_such(tmp_path):
    voc = save_voc(tmp_path / "voc", {"train": 3, "test": 1})
    (voc / "ImageSets" / "Main" / "test.txt").unlink()
    with pytest.raises(UserError, match=r"Main has no test\.txt or val\.txt; list the pictures there"):
        load_detection(str(voc))


@pytest.mark.parametrize(
    ("part", "change", "sentence"),
    [
        ("annotations", {"bbox": [1, 2, 3]}, r"annotation 1 of image 0: its bbox is \[1, 2, 3\], not \[left, top"),
        ("annotations", {"bbox": [1, 2, 3, "x"]}, r"annotation 1 of image 0: its bbox is \[1, 2, 3, 'x'\]; use"),
        ("annotations", {"bbox": None}, "annotation 1 of image 0: its bbox is None, not"),
        ("annotations", {"category_id": "cat"}, "its category_id is 'cat', no whole number"),
        ("annotations", {"area": "big"}, "its area is 'big'; use numbers"),
        ("annotations", {"image_id": []}, r"annotation 1 of image \[\]: it is of a wrong kind"),
        ("images", {"width": None}, "image 0: its width is None, no whole number"),
        ("categories", {"name": ...}, "category 7: it has no 'name'"),
    ],
)
def test_a_wrong_entry_is_named_and_what_is_wrong_with_it(tmp_path, part, change, sentence):
    root = save_coco(tmp_path / "coco", {"train": 2, "val": 1})

    def spoil(content):
        content[part][0] |= {name: value for name, value in change.items() if value is not ...}
        for name in (name for name, value in change.items() if value is ...):
            del content[part][0][name]

    edit(root, "train", spoil)
    with pytest.raises(UserError, match=f"is no COCO annotation .*{sentence}.*; mend that entry"):
        load_detection(str(root))


def test_a_place_is_told_once_where_pictures_were_looked_for(tmp_path):
    root = save_coco(tmp_path / "coco", {"train": 2, "val": 1})
    (root / "train" / "0.png").unlink()
    load_detection(str(root))  # one is missing, which is told when pictures are looked at
    (root / "train" / "1.png").unlink()
    with pytest.raises(UserError, match=r"None of 2 pictures of .*train.json \(the first: 0.png\) is in ") as told:
        load_detection(str(root))
    places = str(told.value).split(" is in ")[1].split(";")[0].split(", ")
    assert len(places) == len(set(places)) == 5


@pytest.mark.parametrize(
    ("part", "changes", "sentence"),
    [
        ("categories", {"name": "blob"}, "category .* is listed twice, as .* and as blob"),
        ("images", {"file_name": "9.png"}, "image .* is listed twice, as 0.png of .* px and as 9.png of"),
    ],
)
def test_an_id_of_two_is_refused_and_one_that_is_repeated_is_not(tmp_path, part, changes, sentence):
    root = save_coco(tmp_path / "coco", {"train": 2, "val": 1})
    edit(root, "train", lambda content: content[part].append(content[part][0]))
    assert len(load_detection(str(root)).train) == 2
    edit(root, "train", lambda content: content[part].append(content[part][0] | changes))
    with pytest.raises(UserError, match=sentence):
        load_detection(str(root))


def test_a_box_that_is_not_finite_is_named_as_the_file_has_it(tmp_path):
    root = save_coco(tmp_path / "coco", {"train": 2, "val": 1})
    edit(root, "train", lambda content: content["annotations"][0].update(bbox=[float("nan"), 1, 2, 3]))
    with pytest.raises(UserError, match=r"annotation .* of image .*: its bbox is \[nan, 1, 2, 3\]; use numbers"):
        load_detection(str(root))


def test_a_copy_in_another_folder_is_in_both(tmp_path):
    root = save_coco(tmp_path / "shapes", {"train": 2, "val": 2})
    assert len(load_detection(str(root)).about()) == 2
    (root / "train" / "1.png").write_bytes((root / "val" / "0.png").read_bytes())
    assert load_detection(str(root)).about()[-1].startswith("1 picture is in train and in test (0.png);")


def test_a_number_that_voc_lacks_is_named(tmp_path):
    voc = save_voc(tmp_path / "voc", {"train": 2, "test": 1})
    write_xml(voc, "test0", voc_object("disc", (1, 1, "wide", 20)))
    with pytest.raises(UserError, match="the bndbox/xmax of 'disc' is 'wide', no number"):
        load_detection(str(voc))
    (voc / "JPEGImages" / "train0.png").write_bytes(b"no picture")
    write_xml(voc, "train0", "", size=0)
    with pytest.raises(UserError, match=r"train0\.png cannot be read, and its annotation does not tell its size"):
        load_detection(str(voc))


def test_voc_counts_pixels_from_one_and_marks_difficult_objects(tmp_path):
    root = save_voc(tmp_path / "voc", {"train": 2, "test": 1})
    write_xml(root, "train0", voc_object("disc", (1, 1, 10, 20), 1))
    write_xml(root, "train1", "", size=0)
    write_xml(root, "test0", voc_object("disc", (1, 1, 10, 20)))
    first, second = load_detection(str(root)).train.pictures
    assert first.boxes.tolist() == [[0, 0, 10, 20]]
    assert first.difficult.tolist() == [True]
    assert (second.height, second.width) == (64, 64)  # from the picture


def test_the_official_years_are_joined(tmp_path, monkeypatch):
    for year, lists in (("VOC2007", {"trainval": 2, "test": 1}), ("VOC2012", {"trainval": 1})):
        save_voc(tmp_path / "VOCdevkit" / year, lists)
        for file in (tmp_path / "VOCdevkit" / year / "Annotations").glob("*.xml"):
            file.write_text(file.read_text().replace("disc", "cat").replace("square", "dog"))
    monkeypatch.setenv("LOGO_DATA", str(tmp_path))
    found = load_detection("voc07+12")
    assert (len(found.train), len(found.test), len(found.train.classes)) == (3, 1, 20)
    monkeypatch.setitem(OFFICIAL, "voc07+12", Counts(3, 1, 20))
    assert load_detection(str(tmp_path / "VOCdevkit")).official


def test_official_sets_are_known_by_what_they_hold_and_not_by_their_name(tmp_path, monkeypatch):
    monkeypatch.setenv("LOGO_DATA", str(tmp_path))
    root = save_coco(tmp_path / "coco", {"train": 3, "val": 2})
    for source in ("coco", str(root)):
        few = load_detection(source)
        assert (few.official, few.beside_paper, few.name) == (False, False, "coco")
        assert few.about()[-1] == (
            "This is not the coco of Table 6 (118,287 + 5,000 pictures of 80 classes), so its figures are its own."
        )
    monkeypatch.setitem(OFFICIAL, "coco", Counts(3, 2, 2))
    (tmp_path / "elsewhere").symlink_to(root)
    for source in ("coco", str(root), str(tmp_path / "elsewhere")):
        whole = load_detection(source)
        assert (whole.official, whole.beside_paper, whole.name) == (True, True, "coco")
        assert len(whole.about()) == 2
    agnostic = load_detection("coco", agnostic=True)
    assert (agnostic.official, agnostic.beside_paper) == (True, False)  # the same schedule, other figures


@pytest.mark.parametrize("name", ["voc07+12", "coco", "cocoo"])
def test_missing_sets_are_told_with_their_place(tmp_path, monkeypatch, name):
    monkeypatch.setenv("LOGO_DATA", str(tmp_path))
    with pytest.raises(DataMissing, match=r"LOGO_DATA|Did you mean coco"):
        load_detection(name)


@pytest.mark.parametrize("name", ["voc07+12", "coco"])
def test_a_folder_with_the_name_of_a_missing_set_of_table_6_is_hinted_at(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LOGO_DATA", "elsewhere")
    save_coco(tmp_path / name, {"train": 3, "val": 2})
    with pytest.raises(DataMissing, match=rf"LOGO_DATA .*\. A folder {re.escape(name)} lies here, too: \./"):
        load_detection(name)
    assert len(load_detection(f"./{name}").train) == 3


def test_what_is_trained_on_is_never_tested_on(tmp_path):
    root = save_coco(tmp_path / "coco", {"trainval": 3, "val": 2})
    both = load_detection(str(root))
    assert (len(both.train), len(both.test)) == (3, 2)
    (root / "annotations" / "instances_val.json").unlink()
    with pytest.raises(UserError, match="no JSON file named after test or val"):
        load_detection(str(root))


def test_masks_are_kept_as_arrays_and_never_as_lists(tmp_path):
    root = save_coco(tmp_path / "coco", {"train": 2, "val": 1})
    triangle = [[1.07, 2.7, 30.33, 4.0, 8.0, 40.9]]
    edit(root, "train", lambda content: content["annotations"][0].update(segmentation=triangle))
    polygons, runs = load_detection(str(root)).train.pictures[0].segmentations
    assert [polygon.dtype for polygon in polygons] == [np.float32]
    assert runs["counts"].dtype == np.int64
    assert np.array_equal(decoded(polygons, 64, 64), decoded(triangle, 64, 64))


def test_numbers_of_categories_may_be_text(tmp_path):
    root = save_coco(tmp_path / "coco", {"train": 2, "val": 1})
    for split in ("train", "val"):
        edit(
            root,
            split,
            lambda content: [told.update(category_id=str(told["category_id"])) for told in content["annotations"]],
        )
    assert load_detection(str(root)).train.n_objects


def test_bad_input_is_one_sentence(tmp_path):
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match="has no boxes to learn from"):
        load_detection(str(tmp_path / "empty"))
    root = save_coco(tmp_path / "coco", {"train": 2, "val": 1})
    edit(root, "val", lambda content: content["annotations"][0].update(image_id=77))
    with pytest.raises(UserError, match="images that it does not list, such as 77"):
        load_detection(str(root))
    edit(root, "val", lambda content: content.pop("images"))
    with pytest.raises(UserError, match="no list 'images'"):
        load_detection(str(root))
    (root / "annotations" / "instances_val.json").write_text("{")
    with pytest.raises(UserError, match="is no COCO annotation"):
        load_detection(str(root))
    (root / "annotations" / "instances_val.json").unlink()
    with pytest.raises(UserError, match="no JSON file named after test or val"):
        load_detection(str(root))
    voc = save_voc(tmp_path / "voc", {"train": 2, "test": 1})
    (voc / "Annotations" / "test0.xml").write_text("<annotation>")
    with pytest.raises(UserError, match="is no VOC annotation"):
        load_detection(str(voc))
    write_xml(voc, "test0", "<object><name>disc</name></object>")
    with pytest.raises(UserError, match="is no VOC annotation"):
        load_detection(str(voc))
    write_xml(voc, "test0", "")
    with pytest.raises(UserError, match="no objects of known categories to test on"):
        load_detection(str(voc))
    (voc / "JPEGImages" / "test0.png").unlink()
    with pytest.raises(UserError, match=r"has no picture test0\.jpg"):
        load_detection(str(voc))


def test_a_picture_of_another_size_than_told_is_refused(tmp_path):
    root = save_coco(tmp_path / "coco", {"train": 2, "val": 1})
    edit(root, "train", lambda content: content["images"][0].update(width=63))
    picture = load_detection(str(root)).train.pictures[0]
    with pytest.raises(UserError, match="64 x 64 px, and its annotation says 63 x 64"):
        picture.pixels()


def test_a_number_too_large_for_any_picture_is_told(tmp_path):
    root = save_coco(tmp_path / "coco", {"train": 2, "val": 1})
    edit(root, "train", lambda content: content["annotations"][0].update(bbox=[0, 0, 10**400, 5]))
    with pytest.raises(UserError, match="is no COCO annotation"):
        load_detection(str(root))


@pytest.mark.parametrize("workers", [0, 1])
def test_a_broken_mask_is_told_by_worker_processes_too(tmp_path, workers):
    root = save_coco(tmp_path / "coco", {"train": 2, "val": 1})
    broken = {"size": [64, 64], "counts": "zzzz"}
    edit(root, "train", lambda content: [told.update(segmentation=broken) for told in content["annotations"]])
    pictures = TrainingPictures(load_detection(str(root)).train, SMALL, masks=True)
    (batch,) = read(pictures, [[0]], workers)
    with pytest.raises(UserError, match=r"\.png, the object with the bbox \[.*\]: its mask is neither polygons"):
        whole(batch)
