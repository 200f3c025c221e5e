"""Do the benchmarks of detection run, and is every speed that is quoted one that was measured?"""

import importlib.util
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from drawn import save_coco

from logo_ssl.detection import load_detection, speed
from logo_ssl.detection.recipe import COCO_RECIPE, VOC_RECIPE
from logo_ssl.detection.speed import Measured, duration

ROOT = Path(__file__).parents[2]


def script(name):
    spec = importlib.util.spec_from_file_location(name, ROOT / "benchmarks" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def kept():
    return [json.loads(line) for line in (ROOT / "results" / "records" / "detection.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("what", ["box", "mask"])
def test_a_quoted_speed_is_the_measured_one(what):
    known = speed.MEASURED[what]
    measured = [line for line in kept() if line.get("benchmark") == "detection" and not line["tiny"]]
    told = {(line["iterations_per_s"][what], line["hardware"]) for line in measured}
    assert (known.iterations_per_s, known.hardware) in told


def test_hours_follow_from_iterations_and_speed(monkeypatch):
    monkeypatch.setattr(speed, "MEASURED", {})
    assert duration(VOC_RECIPE, masks=False).startswith("not measured")
    monkeypatch.setattr(speed, "MEASURED", {"box": Measured(2.0, "GPU", "raw.jsonl")})
    assert duration(VOC_RECIPE, masks=False).startswith("about 3.3 h with a ResNet-50 at 2.00 iterations/s of 16")
    assert duration(VOC_RECIPE, masks=True).startswith("not measured")
    assert "scaled" not in duration(VOC_RECIPE, masks=False)


def test_a_speed_is_told_with_what_else_it_was_measured_at():
    asked = {(of, masks): duration(of, masks) for of in (VOC_RECIPE, COCO_RECIPE) for masks in (False, True)}
    assert "measured at" not in asked[VOC_RECIPE, False] + asked[COCO_RECIPE, True]
    sides = "measured at short sides of {} to 800 px, and not with the short-sides asked for"
    assert sides.format(480) in asked[COCO_RECIPE, False]
    assert sides.format(640) in asked[VOC_RECIPE, True]
    pyramid = replace(VOC_RECIPE, detector=replace(VOC_RECIPE.detector, head="fpn", norm="frozen"))
    assert "not with the head, norm asked for" in duration(pyramid, masks=False)


def test_the_documented_hours_are_those_of_a_dry_run():
    page = (ROOT / "docs" / "results" / "measurements.md").read_text()
    for cell, recipe, masks in (
        ("VOC 07+12: {} h", VOC_RECIPE, False),
        ("COCO 2x: {} h", COCO_RECIPE, True),
        ("boxes of COCO: {} h", COCO_RECIPE, False),
    ):
        assert cell.format(duration(recipe, masks).split()[1]) in page


@pytest.mark.parametrize(("iterations", "written"), [(20, "5 s"), (3_000, "12 min"), (40_000, "2.8 h")])
def test_short_trainings_are_told_in_seconds_and_what_is_not_known_is_said(monkeypatch, iterations, written):
    monkeypatch.setattr(speed, "MEASURED", {"box": Measured(2.0, "GPU", "raw.jsonl")})
    told = duration(replace(VOC_RECIPE, iterations=iterations, batch_size=8), masks=False)
    assert told.startswith(f"about {written} with a ResNet-50 at 2.00 iterations/s of 16 pictures on one GPU")
    assert "scaled by the number of pictures alone" in told
    assert "other networks and devices are not measured" in told


def test_the_benchmark_measures_all_that_it_compares(capsys):
    script("detection").main(["--tiny", "--steps", "1", "--warm-up", "0", "--pictures", "8"])
    told = json.loads(capsys.readouterr().out)
    assert told["iterations_per_s"].keys() == {"box", "mask", "torchvision fpn"}
    assert min(*told["iterations_per_s"].values(), *told["batches_loaded_per_s"].values()) > 0
    assert told["iterations_per_s_from_files"] > 0


def test_masks_are_measured_on_their_way_in_and_out(capsys):
    script("masks").main(["--n", "3", "--outlines", "3"])
    told = json.loads(capsys.readouterr().out)
    assert max(each["iou"] for each in told["paste"].values()) < 1
    assert {len(shifts) for shifts in told["cut"].values()} == {6}
    assert told["keep"]["changed"]["packed"] == 0


def test_the_check_compares_in_both_layouts(tmp_path, capsys):
    root = save_coco(tmp_path / "coco", {"train": 3, "val": 2})
    options = "--run random/resnet18 --overfit-steps 1 --steps 1 --seeds 0 --side 32 --overfit-side 32 --pictures 2"
    options += " --batch-size 2 --regions 2 --norm-batches 0 --device cpu --workers 0"
    script("detection_check").main(["--data", str(root), *options.split()])
    overfit, coco, voc = (json.loads(line) for line in capsys.readouterr().out.splitlines())
    assert (overfit["pictures"], overfit["objects"]) == (2, 4)
    assert [each["layout"] for each in (coco, voc)] == ["coco", "voc"]
    assert "box AP50 (VOC07)" in voc["figures"]["run"][0]
    assert coco["mean"]["run"] == pytest.approx(coco["mean"]["random"])  # the same encoder, here


def test_a_set_in_vocs_layout_holds_the_same_boxes(tmp_path):
    data = load_detection(str(save_coco(tmp_path / "coco", {"train": 3, "val": 2})))
    voc = load_detection(str(script("detection_check").as_voc(data, tmp_path / "voc")))
    for ours, theirs in ((data.train, voc.train), (data.test, voc.test)):
        assert len(ours) == len(theirs)
        for before, after in zip(ours.pictures, theirs.pictures, strict=True):
            assert np.allclose(before.boxes, after.boxes)
            named = [
                [part.classes[label - 1] for label in picture.labels]
                for part, picture in ((ours, before), (theirs, after))
            ]
            assert named[0] == named[1]
