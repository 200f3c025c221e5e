"""Does fine-tuning find the objects of pictures that it has seen, and say how in a file?"""

import json
from dataclasses import replace

import pytest
from drawn import save_coco, save_voc
from small_detectors import HOW, SMALL, at_iteration, small, thin_encoder

from logo_ssl.cli import main
from logo_ssl.detection import load_detection
from logo_ssl.detection.recipe import VOC_RECIPE, learning_rate
from logo_ssl.errors import UserError
from logo_ssl.eval.detect import detect
from logo_ssl.eval.detect_options import RecipeOptions
from logo_ssl.eval.detect_schedule import schedule
from logo_ssl.recipes import find_recipe
from logo_ssl.report.summary import RunSummary
from logo_ssl.run import Run

BRIEF = replace(SMALL, iterations=1, norm_batches=0)
LONG = small(
    replace(SMALL, iterations=120, lr=0.1, steps=(90,), warm_up=10, norm_batches=4, flip=False),
    short_sides=(96,),
    test_side=96,
    anchors=(24, 36, 48),
    candidates=(100, 100),
    proposals=(60, 40),
    regions=16,
)


@pytest.fixture(scope="module")
def encoder():
    return thin_encoder()


def test_a_handful_of_pictures_is_learned_by_heart(tmp_path, encoder):
    data = load_detection(str(save_coco(tmp_path / "coco", {"train": 4, "val": 1})))
    data, out = data._replace(test=data.train), tmp_path / "detect.json"
    figures = {str(figure): value for figure, value in detect(encoder, data, LONG, HOW, out=out)}
    assert figures["box AP50 (COCO)"] > 70  # versions of torch differ: 75 with 2.11
    record = json.loads(out.read_text())
    assert {"protocol", "commit", "hardware", "fingerprint", "data_fingerprint", "detection_recipe"} <= record.keys()
    (boxes,) = record["results"]
    assert boxes["overall"]["AP50"] == figures["box AP50 (COCO)"]
    assert boxes["per_class"].keys() == {"square", "disc"}


def test_a_run_keeps_figures_and_pictures_and_the_report_shows_them(tmp_path, encoder):
    run = Run(tmp_path / "run")
    run.path.mkdir()
    run.recipe_file.write_text(find_recipe("tiny").to_json())
    data = load_detection(str(save_coco(tmp_path / "coco", {"train": 2, "val": 2})))
    list(detect(replace(encoder, run=run), data, BRIEF, HOW, masks=True))
    (file,) = (run.path / "evaluation").glob("*.json")
    record, folder = json.loads(file.read_text()), file.with_name(f"{file.stem}-pictures")
    assert record["pictures"] == [f"{folder.name}/{name}.png" for name in ("best", "worst", "random")]
    assert record["found"] == [f"{folder.name}/{name}.json" for name in ("boxes", "masks")]
    assert all((file.parent / place).is_file() for place in (*record["pictures"], *record["found"]))
    assert {child.name for child in file.parent.iterdir()} == {file.name, f"{file.stem}-pictures"}
    shown = [words for words, _ in RunSummary(run, "run", run.logged(), {"epochs": 1}).figures()]
    assert len([words for words in shown if "what was found" in words]) == 3


def test_folders_of_others_beside_a_result_stay(tmp_path, encoder, monkeypatch):
    data = load_detection(str(save_coco(tmp_path / "coco", {"train": 2, "val": 1})))
    best = tmp_path / "res-pictures" / "best.png"
    boxes = best.with_name("boxes.json")

    def refused(precious, sentence, **options):
        precious.parent.mkdir(exist_ok=True)
        precious.write_text("precious")
        with monkeypatch.context() as patch:
            patch.setattr("logo_ssl.eval.detect.train_detector", None)  # before the work
            with pytest.raises(UserError, match=sentence):
                list(detect(encoder, data, BRIEF, HOW, out=tmp_path / "res.json", **options))
        assert precious.read_text() == "precious"

    refused(boxes, r"boxes\.json exists; add --overwrite")
    refused(best, r"best\.png exists; add --overwrite")
    list(detect(encoder, data, BRIEF, HOW, out=tmp_path / "res.json", overwrite=True))
    assert "precious" not in boxes.read_text()
    assert not (tmp_path / "res-training").exists()
    refused(tmp_path / "res.json", r"res\.json exists; add --overwrite")


def test_a_stranger_that_comes_while_a_detector_is_trained_stays(tmp_path, encoder, monkeypatch):
    data = load_detection(str(save_coco(tmp_path / "coco", {"train": 2, "val": 1})))
    thesis = tmp_path / "res-training" / "thesis.txt"
    at_iteration(monkeypatch, 0, lambda: thesis.write_text("precious"))
    list(detect(encoder, data, BRIEF, HOW, out=tmp_path / "res.json"))
    assert [child.read_text() for child in thesis.parent.iterdir()] == ["precious"]


def test_voc_layouts_are_measured_both_ways_and_masks_too(tmp_path, encoder):
    voc = load_detection(str(save_voc(tmp_path / "voc", {"train": 3, "test": 2})))
    measured = {(figure.of, figure.measure) for figure, _ in detect(encoder, voc, BRIEF, HOW)}
    assert measured == {("box", "VOC07"), ("box", "COCO")}
    with pytest.raises(UserError, match="has objects without masks"):
        list(detect(encoder, voc, BRIEF, HOW, masks=True))
    coco = load_detection(str(save_coco(tmp_path / "coco", {"train": 3, "val": 2})), agnostic=True)
    measured = {(figure.of, figure.measure) for figure, _ in detect(encoder, coco, BRIEF, HOW, masks=True)}
    assert measured == {("box", "COCO"), ("mask", "COCO")}


def test_masks_of_an_earlier_test_do_not_stay_beside_boxes_of_a_later_one(tmp_path, encoder):
    data, out = load_detection(str(save_coco(tmp_path / "coco", {"train": 2, "val": 1}))), tmp_path / "res.json"
    for masks, found in ((True, {"boxes.json", "masks.json"}), (False, {"boxes.json"})):
        list(detect(encoder, data, BRIEF, HOW, masks=masks, out=out, overwrite=True))
        assert {file.name for file in (tmp_path / "res-pictures").glob("*.json")} == found


def printed(arguments, capsys):
    with pytest.raises(SystemExit) as stop:
        main(arguments)
    assert stop.value.code == 0
    return capsys.readouterr().out


@pytest.mark.parametrize(
    ("protocol", "data", "iterations", "step"),
    [("detect", "voc07+12", "24,000", "18,000"), ("segment", "coco", "180,000", "120,000")],
)
def test_a_dry_run_shows_the_schedule_without_data(protocol, data, iterations, step, capsys, monkeypatch, tmp_path):
    monkeypatch.setenv("LOGO_DATA", str(tmp_path))
    shown = printed(["eval", protocol, "random/resnet18", "--data", data, "--dry-run"], capsys)
    assert f"{iterations} of 16 pictures" in shown
    assert f"0.02 up to {step}" in shown
    assert "training time" in shown
    assert "official set, which is not on this disk" in shown


@pytest.mark.parametrize(
    ("options", "rates"),
    [
        ({}, "0.02 up to 18,000, 0.002 up to 22,000, 0.0002 up to 24,000"),
        ({"iterations": 2}, "0.02 up to 2"),
        ({"iterations": 5}, "0.02 up to 4, 0.002 up to 5"),
        ({"iterations": 5, "steps": (1, 1)}, "0.02 up to 1, 0.0002 up to 5"),
        ({"iterations": 5, "steps": (0, 9)}, "0.002 up to 5"),
        ({"steps": ()}, "0.02 up to 24,000"),
    ],
)
def test_a_schedule_tells_no_stage_in_which_nothing_is_learned(options, rates):
    recipe = RecipeOptions(**options).applied_to(VOC_RECIPE)
    shown = dict(schedule("mine", recipe, 100))["learning rate"]
    assert shown.split(";")[0] == rates
    risen = replace(recipe, warm_up=0)
    learned = dict.fromkeys(f"{learning_rate(risen, i):g}" for i in range(recipe.iterations))
    assert [stage.split()[0] for stage in rates.split(", ")] == [*learned]


def test_a_dry_run_tells_what_is_wrong_with_the_data_that_are_there(capsys, tmp_path):
    root = save_coco(tmp_path / "coco", {"train": 2, "val": 1})
    shown = printed(["eval", "detect", "random/resnet18", "--data", str(root), "--dry-run", "--agnostic"], capsys)
    assert "train: 2 pictures, 4 objects" in shown
    assert "Whether each can be read is seen later" in shown


@pytest.mark.parametrize(
    ("command", "sentence"),
    [
        ("detect random/resnet18", "Say what to detect with --data"),
        ("detect random/resnet18 --data nowhere", "No data at 'nowhere'"),
        ("detect random/resnet18 --data nowhere --dry-run", "No data at 'nowhere'"),
        ("detect random/resnet18 --data coco --dry-run --lr 0", "lr is 0"),
        ("detect random/resnet18 --data coco --size 32", "--size"),
        ("detect runs/none --data coco --dry-run", "'runs/none' is no encoder"),
        ("detect random/resnet18 --data coco --dry-run --out .", "is a folder"),
        ("segment random/tiny --data coco --dry-run", "The encoder is a tiny; detection takes ResNets"),
        ("detect random/tiny --data nowhere", "pretrain one with --backbone resnet18"),  # before the data are read
        ("detect random/resnet18 --data nowhere --lr -1", "lr is -1"),
        ("detect random/resnet18 --data nowhere --test-side 0", "test-side is 0; use 8 px"),
        ("detect random/resnet18 --data nowhere --max-bad 3", "max-bad is 3"),
        ("segment random/resnet18 --data voc07+12", "voc07+12 has no masks"),
        ("detect random/resnet18 --data coco --dry-run --mean 0.5 --std 0.2", "The encoder sees 1 channels"),
        ("segment random/resnet18 --data voc07+12 --dry-run", "voc07+12 has no masks"),
    ],
)
def test_what_cannot_work_is_one_sentence(command, sentence, capsys, monkeypatch, tmp_path):
    monkeypatch.setenv("LOGO_DATA", str(tmp_path))
    with pytest.raises(SystemExit) as stop:
        main(["eval", *command.split()])
    assert stop.value.code == 2
    assert sentence in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize("protocol", ["detect", "segment"])
def test_the_help_has_an_example_and_the_numbers_of_the_protocol(protocol, capsys):
    shown = " ".join(printed(["eval", protocol, "--help"], capsys).replace("│", "").split())
    assert f"example: logo-ssl eval {protocol} " in shown
    assert "(default: 24000, for coco 180000, for other sets by their size)" in shown
    assert "Short side of test pictures. (default: 800)" in shown
    assert "transfer" not in shown.split("--out")[1].split("--overwrite")[0]
    options = shown.split("--iterations")[1].split("--data")[0]
    assert "default: None" not in options


def test_a_dry_run_refuses_folders_of_others_beside_the_result(capsys, monkeypatch, tmp_path):
    monkeypatch.setenv("LOGO_DATA", str(tmp_path))
    (tmp_path / "res-training").mkdir()
    (tmp_path / "res-training" / "thesis.txt").touch()
    with pytest.raises(SystemExit) as stop:
        main(f"eval detect random/resnet18 --data coco --dry-run --out {tmp_path / 'res.json'}".split())
    assert stop.value.code == 2
    assert "holds thesis.txt" in " ".join(capsys.readouterr().err.split())


def test_the_command_trains_tests_and_shows(tmp_path, capsys):
    root = save_coco(tmp_path / "coco", {"train": 2, "val": 1})
    options = "--iterations 1 --batch-size 2 --norm-batches 0 --short-sides 32 --test-side 32 --regions 4"
    options += " --proposals 8 8 --device cpu --workers 0 --agnostic"
    shown = printed(["eval", "detect", "random/resnet18", "--data", str(root), *options.split()], capsys)
    assert "random/resn" in shown
    assert "this encoder" not in shown
    assert "2 pictures, 4 objects" in shown
    assert "Not saved" in shown
