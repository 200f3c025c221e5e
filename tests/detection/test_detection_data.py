"""Images with objects: both layouts, what is clipped, dropped, counted or refused."""

import json
from dataclasses import replace

import numpy as np
import pytest
from drawn import save_coco, save_voc, voc_object, write_xml
from PIL import Image
from small_detectors import HOW, SMALL

from logo_ssl.detection import load_detection
from logo_ssl.detection.data import OFFICIAL, clean_annotations
from logo_ssl.detection.evaluate import check_images
from logo_ssl.detection.formats import ImageAnnotation, ObjectAnnotation
from logo_ssl.detection.train import TrainingImages, read
from logo_ssl.errors import DataMissing, UserError
from logo_ssl.eval.features import Extraction


def edit(root, split, change):
    file = root / "annotations" / f"instances_{split}.json"
    content = json.loads(file.read_text())
    change(content)
    file.write_text(json.dumps(content))


def test_both_layouts_hold_the_same_images(tmp_path):
    coco = load_detection(str(save_coco(tmp_path / "coco", {"train": 3, "val": 2})))
    voc = load_detection(str(save_voc(tmp_path / "voc", {"train": 3, "test": 2})))
    assert coco.train.classes == ("square", "disc")
    assert voc.train.classes == ("disc", "square")
    assert (voc.is_voc, coco.is_voc) == (True, False)
    for ours, theirs in zip(coco.train.images + coco.test.images, voc.train.images + voc.test.images, strict=True):
        assert np.array_equal(ours.boxes, theirs.boxes)
        names = [coco.train.classes[label - 1] for label in ours.labels]
        assert names == [voc.train.classes[label - 1] for label in theirs.labels]
        assert np.array_equal(ours.pixels(), theirs.pixels())


def test_odd_objects_are_clipped_or_dropped_and_counted(tmp_path):
    objects = [
        ObjectAnnotation("cat", (-5, 2, 8, 30)),
        ObjectAnnotation("cat", (3, 3, 3, 8)),
        ObjectAnnotation("cat", (30, 3, 40, 8)),
        ObjectAnnotation("yeti", (0, 0, 5, 5)),
        ObjectAnnotation("cat", (1, 1, 5, 5), crowd=True, area=3.0),
    ]
    images = [ImageAnnotation(tmp_path, 20, 10, objects), ImageAnnotation(tmp_path, 20, 10, [])]
    found = clean_annotations(images, ["cat"])
    assert found.images[0].boxes.tolist() == [[0, 2, 8, 20], [1, 1, 5, 5]]
    assert found.images[0].area.tolist() == [144, 3]
    assert found.images[0].crowd.tolist() == [False, True]
    assert [*found.counts.values()] == [1, 2, 1, 1]
    assert found.unknown == {"yeti": 1}
    assert found.images[1].boxes.shape == (0, 4)


def test_outlines_of_fewer_than_three_corners_are_not_masks(tmp_path):
    shapes = ([np.ones(2)], [np.ones(2), np.arange(6.0)], None)
    objects = [ObjectAnnotation("cat", (1, 1, 5, 5), shape) for shape in shapes]
    images = [ImageAnnotation(tmp_path, 20, 10, objects)]
    assert clean_annotations(images, ["cat"]).n_objects == 3
    assert clean_annotations(images, ["cat"], masks=True).n_objects == 2


def test_categories_that_only_the_test_images_have_are_refused_unless_all_are_one(tmp_path):
    root = save_coco(tmp_path / "coco", {"train": 3, "val": 2})
    edit(root, "val", lambda content: [category.update(name="cube") for category in content["categories"][:1]])
    voc = save_voc(tmp_path / "voc", {"train": 3, "test": 1})
    write_xml(voc, "test0", voc_object("disc", (1, 1, 10, 20)) + voc_object("yeti", (1, 1, 10, 20)))
    for folder, name, n_objects in ((root, "cube", 4), (voc, "yeti", 2)):
        with pytest.raises(UserError, match=name):
            load_detection(str(folder))
        assert load_detection(str(folder), agnostic=True).test.n_objects == n_objects


def test_copies_of_training_images_and_classes_that_train_lacks_are_named(tmp_path):
    root = save_coco(tmp_path / "shapes", {"train": 2, "val": 2})
    for split, number in (("train", 7), ("val", 10)):
        edit(root, split, lambda content, n=number: [a.update(category_id=n) for a in content["annotations"]])
    *_, never = load_detection(str(root)).about()
    assert never.endswith("disc.")
    (root / "train" / "1.png").write_bytes((root / "val" / "0.png").read_bytes())
    *_, both, never = load_detection(str(root)).about()
    assert both.endswith("1 image (0.png).")


def remove(key, part):
    return lambda content: content[part][0].pop(key)


def update(part, **values):
    return lambda content: content[part][0].update(values)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (update("annotations", bbox=[1, 2, 3]), "annotation number 1"),
        (update("annotations", bbox=[0, 0, 10**400, 5]), "annotation number 1"),
        (update("annotations", bbox=[float("nan"), 1, 2, 3]), "not finite"),
        (update("annotations", category_id="cat"), "annotation number 1"),
        (update("annotations", image_id=[]), "annotation number 1"),
        (update("images", width=None), "image number 1"),
        (update("images", file_name="none.png"), None),  # one is missing: check_images finds it
        (remove("name", "categories"), "category number 1.*'name'"),
        (lambda content: content.pop("images"), "images"),
        (lambda content: [image.update(file_name="none.png") for image in content["images"]], "None of 2 images"),
        (lambda content: [a.update(category_id=str(a["category_id"])) for a in content["annotations"]], None),
    ],
)
def test_a_wrong_entry_of_a_coco_file_is_named(tmp_path, change, named):
    root = save_coco(tmp_path / "coco", {"train": 2, "val": 1})
    edit(root, "train", change)
    if named is None:
        assert load_detection(str(root)).train.n_objects
        return
    with pytest.raises(UserError, match=named):
        load_detection(str(root))


def write(name, content):
    return lambda root: (root / name).write_text(content)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (write("Annotations/test0.xml", "<annotation>"), "test0.xml"),
        (lambda root: write_xml(root, "test0", "<object><name>disc</name></object>"), "test0.xml"),
        (lambda root: write_xml(root, "test0", voc_object("disc", (1, 1, "wide", 20))), "test0.xml.*wide"),
        (lambda root: write_xml(root, "test0", voc_object("disc", (1, 1, "nan", 20))), "test0.xml"),
        (lambda root: write_xml(root, "test0", ""), "no objects"),
        (lambda root: (root / "JPEGImages" / "test0.png").unlink(), "test0.jpg"),
        (lambda root: (root / "ImageSets" / "Main" / "test.txt").unlink(), "ImageSets/Main"),
    ],
)
def test_what_is_wrong_with_a_voc_folder_is_named(tmp_path, change, named):
    root = save_voc(tmp_path / "voc", {"train": 2, "test": 1})
    change(root)
    with pytest.raises(UserError, match=named):
        load_detection(str(root))


def test_voc_counts_pixels_from_one_and_marks_difficult_objects(tmp_path):
    root = save_voc(tmp_path / "voc", {"train": 2, "test": 1})
    write_xml(root, "train0", voc_object("disc", (1, 1, 10, 20), 1))
    write_xml(root, "train1", "", size=0)
    write_xml(root, "test0", voc_object("disc", (1, 1, 10, 20)))
    first, second = load_detection(str(root)).train.images
    assert first.boxes.tolist() == [[0, 0, 10, 20]]
    assert first.difficult.tolist() == [True]
    assert (second.height, second.width) == (64, 64)  # from the image


def test_the_official_years_are_joined(tmp_path, monkeypatch):
    for year, lists in (("VOC2007", {"trainval": 2, "test": 1}), ("VOC2012", {"trainval": 1})):
        save_voc(tmp_path / "VOCdevkit" / year, lists)
        for file in (tmp_path / "VOCdevkit" / year / "Annotations").glob("*.xml"):
            file.write_text(file.read_text().replace("disc", "cat").replace("square", "dog"))
    monkeypatch.setenv("LOGO_DATA", str(tmp_path))
    found = load_detection("voc07+12")
    assert (len(found.train), len(found.test), len(found.train.classes)) == (3, 1, 20)
    monkeypatch.setitem(OFFICIAL, "voc07+12", (3, 1, 20))
    assert load_detection(str(tmp_path / "VOCdevkit")).official


def test_official_sets_are_known_by_what_they_hold_and_not_by_their_name(tmp_path, monkeypatch):
    monkeypatch.setenv("LOGO_DATA", str(tmp_path))
    root = save_coco(tmp_path / "coco", {"train": 3, "val": 2})
    for source in ("coco", str(root)):
        few = load_detection(source)
        assert (few.official, few.comparable_with_paper, few.name) == (False, False, "coco")
    monkeypatch.setitem(OFFICIAL, "coco", (3, 2, 2))
    (tmp_path / "elsewhere").symlink_to(root)
    for source in ("coco", str(root), str(tmp_path / "elsewhere")):
        whole = load_detection(source)
        assert (whole.official, whole.comparable_with_paper, whole.name) == (True, True, "coco")
        assert len(whole.about()) == 2
    agnostic = load_detection("coco", agnostic=True)
    assert (agnostic.official, agnostic.comparable_with_paper) == (True, False)  # the same schedule, other figures


@pytest.mark.parametrize("name", ["voc07+12", "coco", "cocoo", " "])
def test_missing_sets_are_named_with_their_place(tmp_path, monkeypatch, name):
    monkeypatch.setenv("LOGO_DATA", str(tmp_path))
    with pytest.raises(DataMissing, match=r"LOGO_DATA|coco"):
        load_detection(name)


@pytest.fixture
def root(tmp_path):
    return save_coco(tmp_path / "mine", {"train": 4, "val": 2})


def spoil(file):
    file.write_bytes(b"no image")


def truncate(file):
    file.write_bytes(file.read_bytes()[:-200])


def enlarge(file):
    Image.fromarray(np.zeros((70, 65, 3), np.uint8)).save(file)


@pytest.mark.parametrize("change", [spoil, truncate, enlarge, lambda file: file.unlink()])
@pytest.mark.parametrize("workers", [0, 1])
def test_images_that_cannot_be_used_are_named_and_left_out_of_training_on_request(root, monkeypatch, change, workers):
    monkeypatch.setattr("logo_ssl.detection.evaluate.ALONE", 1)
    data, said = load_detection(str(root)), []
    how = Extraction(workers=workers, max_bad=0.2, say=said.append)
    change(root / "train" / "0.png")
    with pytest.raises(UserError, match=r"1 of 4 training images .*0\.png.*--max-bad"):
        check_images(data, how)
    kept = check_images(data, replace(how, max_bad=0.25))
    assert (len(kept.train), len(kept.test), kept.official) == (3, 2, False)
    assert "0.png" in said[0]
    change(root / "val" / "1.png")
    with pytest.raises(UserError, match=r"1 of 2 test images .*1\.png"):
        check_images(data, replace(how, max_bad=1.0))


def test_a_rotated_photograph_has_the_size_that_a_person_sees(tmp_path):
    exif = Image.Exif()
    exif[0x0112] = 6
    root = save_voc(tmp_path / "voc", {"train": 1, "test": 1})
    (root / "JPEGImages" / "train0.png").unlink()
    Image.fromarray(np.zeros((40, 64, 3), np.uint8)).save(root / "JPEGImages" / "train0.jpg", exif=exif)
    write_xml(root, "train0", voc_object("disc", (1, 1, 20, 60)) + voc_object("square", (1, 1, 9, 9)), size=0)
    (image,) = load_detection(str(root)).train.images
    image.check()
    assert image.pixels().shape == (image.height, image.width, 3) == (64, 40, 3)


@pytest.mark.parametrize("workers", [0, 1])
def test_a_broken_mask_is_named_before_and_in_training(root, workers):
    broken = {"size": [64, 64], "counts": "zzzz"}
    edit(root, "train", lambda content: [a.update(segmentation=broken) for a in content["annotations"]])
    data = load_detection(str(root), masks=True)
    assert check_images(data, HOW) is data
    with pytest.raises(UserError, match=r"0\.png, object 1 .*mask"):
        check_images(data, HOW, masks=True)
    with pytest.raises(UserError, match=r"\.png, object 1 .*mask"):
        list(read(TrainingImages(data.train, SMALL, masks=True).__getitem__, [[0]], workers))
