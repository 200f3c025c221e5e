"""Are pictures that cannot be used found before a training, named, and never left out unsaid?"""

import json
from dataclasses import replace

import numpy as np
import pytest
from drawn import save_coco, save_voc, voc_object
from PIL import Image
from small_detectors import HOW, SMALL, thin_encoder

from logo_ssl.detection import checking, load_detection
from logo_ssl.detection.checking import usable
from logo_ssl.errors import UserError
from logo_ssl.eval import detect as evaluating
from logo_ssl.eval.detect import detect

BRIEF = replace(SMALL, iterations=2, norm_batches=0)


@pytest.fixture
def root(tmp_path):
    return save_coco(tmp_path / "mine", {"train": 4, "val": 2})


def spoil(file):
    file.write_bytes(b"no picture")


def truncate(file):
    file.write_bytes(file.read_bytes()[:-200])


def enlarge(file):
    Image.fromarray(np.zeros((70, 65, 3), np.uint8)).save(file)


WRONG = [
    (spoil, r"0\.png cannot be read \(not an image\)"),
    (truncate, r"0\.png cannot be read \(truncated\)"),
    (enlarge, r"0\.png is 65 x 70 px, and its annotation says 64 x 64"),
    (lambda file: file.write_bytes(b""), r"0\.png cannot be read \(not an image\)"),
]


@pytest.mark.parametrize(("change", "why"), WRONG)
@pytest.mark.parametrize(("split", "what"), [("train", "1 of 4 training pictures"), ("val", "1 of 2 test pictures")])
def test_no_training_begins_with_a_picture_that_cannot_be_used(root, monkeypatch, change, why, split, what):
    data = load_detection(str(root))
    change(root / split / "0.png")
    monkeypatch.setattr(evaluating, "train_detector", None)
    with pytest.raises(UserError, match=rf"{what} cannot be used: .*{why}") as told:
        list(detect(thin_encoder(), data, BRIEF, HOW))
    assert "BytesIO" not in str(told.value)
    assert "Mend it, or take it out of the annotations" in str(told.value)


def test_a_picture_that_is_gone_is_told(root):
    data = load_detection(str(root))
    (root / "val" / "1.png").unlink()
    with pytest.raises(UserError, match=r"1\.png cannot be read \(No such file or directory\)"):
        usable(data, max_bad=1.0)  # test pictures are never left out


def test_a_short_training_judges_its_pictures_by_their_headers(root):
    data = load_detection(str(root))
    truncate(root / "train" / "0.png")
    assert usable(data, whole=False) is data
    truncate(root / "val" / "0.png")
    with pytest.raises(UserError, match=r"1 of 2 test pictures"):
        usable(data, whole=False)


def save_turned(file):
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.fromarray(np.zeros((40, 64, 3), np.uint8)).save(file, exif=exif)


def test_a_turned_photograph_has_the_size_that_a_person_sees(tmp_path):
    root = save_coco(tmp_path / "mine", {"train": 1, "val": 1})
    save_turned(root / "train" / "0.jpg")
    file = root / "annotations" / "instances_train.json"
    content = json.loads(file.read_text())
    content["images"][0] |= {"file_name": "0.jpg", "height": 64, "width": 40}
    file.write_text(json.dumps(content))
    picture = load_detection(str(root)).train.pictures[0]
    picture.look()
    assert picture.pixels().shape == (64, 40, 3)


def test_a_turned_photograph_whose_annotation_leaves_its_size_out_can_be_used(tmp_path):
    voc = save_voc(tmp_path / "voc", {"train": 1, "test": 1})
    (voc / "JPEGImages" / "train0.png").unlink()
    save_turned(voc / "JPEGImages" / "train0.jpg")
    objects = voc_object("disc", (3, 50, 20, 60))
    (voc / "Annotations" / "train0.xml").write_text(f"<annotation>{objects}</annotation>")
    picture = load_detection(str(voc)).train.pictures[0]
    picture.look()
    assert picture.boxes.tolist() == [[2, 49, 20, 60]]
    (voc / "JPEGImages" / "train0.jpg").write_bytes(b"no picture")
    with pytest.raises(UserError, match="cannot be read, and its annotation does not tell its size"):
        load_detection(str(voc))


@pytest.mark.parametrize("workers", [0, 2])
def test_training_pictures_are_left_out_up_to_a_share_and_that_is_said(root, monkeypatch, workers):
    monkeypatch.setattr(checking, "ALONE", 1)
    monkeypatch.setattr(checking, "CHUNK", 1)
    data, said, seen = load_detection(str(root)), [], []
    spoil(root / "train" / "2.png")
    kept = usable(
        data._replace(official=True),
        max_bad=0.25,
        workers=workers,
        say=said.append,
        progress=lambda *told: seen.append(told),
    )
    assert [picture.path.name for picture in kept.train.pictures] == ["0.png", "1.png", "3.png"]
    assert not kept.official
    assert "1 of 4 training pictures cannot be used" in said[0]
    assert said[0].endswith("It is left out.")
    assert kept.about()[0].endswith("; 1 training picture that cannot be used, left out.")
    assert seen[-1] == ("checking test pictures", 2, 2)
    spoil(root / "train" / "1.png")
    with pytest.raises(UserError, match=r"2 of 4 training pictures .* Mend them, .* with --max-bad \(now 0\.25\)"):
        usable(data, max_bad=0.25)
    with pytest.raises(UserError, match="max-bad is 2"):
        usable(data, max_bad=2)


@pytest.mark.parametrize(("learn_from_empty", "used"), [(False, "2 pictures"), (True, "3 pictures")])
def test_it_is_said_how_many_pictures_are_really_used(root, monkeypatch, learn_from_empty, used):
    file, said = root / "annotations" / "instances_train.json", []
    content = json.loads(file.read_text())
    content["annotations"] = [told for told in content["annotations"] if told["image_id"] != content["images"][0]["id"]]
    file.write_text(json.dumps(content))
    spoil(root / "train" / "2.png")
    monkeypatch.setattr(evaluating, "is_first", lambda: False)
    monkeypatch.setattr(evaluating, "train_detector", lambda *arguments: None)
    recipe = replace(BRIEF, learn_from_empty=learn_from_empty)
    list(detect(thin_encoder(), load_detection(str(root)), recipe, replace(HOW, say=said.append), max_bad=0.25))
    assert said[-1] == f"Training on {used}, testing on 2 pictures."


def break_a_mask(root):
    file = root / "annotations" / "instances_val.json"
    content = json.loads(file.read_text())
    content["annotations"][0]["segmentation"] = {"size": [64, 64], "counts": "zzzz"}
    file.write_text(json.dumps(content))


def test_broken_masks_are_found_before_the_training(root):
    break_a_mask(root)
    data = load_detection(str(root), masks=True)
    assert usable(data) is data
    with pytest.raises(UserError, match=r"0\.png, the object with the bbox \[.*\]: its mask is neither polygons"):
        usable(data, masks=True)


def test_what_breaks_after_the_check_costs_no_training(root, tmp_path, monkeypatch):
    data, out = load_detection(str(root)), tmp_path / "figures.json"
    broken, original = root / "val" / "1.png", (root / "val" / "1.png").read_bytes()

    def trained(*arguments):
        result = train_detector(*arguments)
        spoil(broken)
        return result

    train_detector = evaluating.train_detector
    monkeypatch.setattr(evaluating, "train_detector", trained)
    sentence = r"1\.png cannot be read .*figures-training: mend the picture, and the same command goes on"
    with pytest.raises(UserError, match=sentence):
        list(detect(thin_encoder(), data, BRIEF, HOW, out=out))
    monkeypatch.setattr(evaluating, "train_detector", train_detector)
    broken.write_bytes(original)
    list(detect(thin_encoder(), data, BRIEF, HOW, out=out))
    assert json.loads(out.read_text())["resumed_at"] == BRIEF.iterations


def test_a_broken_mask_that_nobody_asked_for_costs_nothing(root, tmp_path):
    break_a_mask(root)
    out = tmp_path / "figures.json"
    assert list(detect(thin_encoder(), load_detection(str(root)), BRIEF, HOW, out=out))
    pictures = [tmp_path / name for name in json.loads(out.read_text())["pictures"]]
    assert len(pictures) == 3
    assert all(picture.is_file() for picture in pictures)


def test_what_cannot_be_drawn_costs_no_figures_and_is_drawn_later(root, tmp_path, monkeypatch):
    data, out, said = load_detection(str(root)), tmp_path / "figures.json", []
    how, drawn = replace(HOW, say=said.append), tmp_path / "figures-pictures"
    list(detect(thin_encoder(), data, BRIEF, how, out=out))
    out.unlink()
    with monkeypatch.context() as patch:
        file = root / "val" / "1.png"
        kept, measured = file.read_bytes(), evaluating.coco_metric
        patch.setattr(evaluating, "coco_metric", lambda *shown: spoil(file) or measured(*shown))
        figures = dict(detect(thin_encoder(), data, BRIEF, how, out=out))
        file.write_bytes(kept)
    assert json.loads(out.read_text())["results"][0]["overall"]["AP"] == next(iter(figures.values()))
    assert "The figures are saved, but what was found could not all be shown" in said[-1]
    assert "1.png cannot be read (not an image)" in said[-1]
    assert [file.name for file in drawn.iterdir()] == ["boxes.json"]  # pictures of earlier figures are gone
    assert dict(detect(thin_encoder(), data, BRIEF, how, out=out)) == figures
    assert json.loads(out.read_text())["resumed_at"] == BRIEF.iterations
    assert len([*drawn.iterdir()]) == 4
    assert not (tmp_path / "figures-training").exists()
