"""What do the evaluations write, and which encoders do they measure?"""

import json
import pickle
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torchvision
from made_up_data import save_coco, save_npz

import logo_ssl

FIGURES = {
    "knn": (["--protocols", "5", "0.07", "3", "0.1"], 2),
    "linear": (["--protocol", "lbfgs"], 1),
    "linear sgd": (["--protocol", "sgd", "--epochs", "2", "--rates", "0.1", "1"], 1),
    "linear sgd-augmented": (["--protocol", "sgd-augmented", "--epochs", "2"], 1),
    "finetune": (["--epochs", "1", "--batch-size", "16", "--lr", "0.01"], 1),
    "semi": (["--epochs", "1", "--fractions", "0.25", "0.5"], 2),
}


def written(folder: Path) -> dict[str, Any]:
    """The only result in a folder."""
    (file,) = folder.glob("*.json")
    return json.loads(file.read_text())


def top1(record: dict[str, Any]) -> list[float]:
    """Its figures."""
    results = record["results"]
    return [results["top-1"]] if isinstance(results, dict) else [result["top1"] for result in results]


@pytest.mark.parametrize("name", FIGURES)
def test_a_protocol_writes_figures_and_how_they_were_measured_into_the_run(logo, own_run, name):
    words, n = FIGURES[name]
    done = logo("eval", name.split()[0], own_run, *words)
    assert done.code == 0, done.err
    record = written(own_run / "evaluation")
    assert len(top1(record)) == n
    for figure in top1(record):
        assert 0 <= figure <= 100
        assert f"{figure:.2f}" in done.out
    told = {"protocol", "data", "data_fingerprint", "test_images", "size", "commit", "versions", "hardware"}
    assert told <= record.keys()
    assert (record["test_images"], record["size"]) == (32, 32)


def test_transfer_measures_each_set_and_exits_with_2_after_one_that_cannot_be(logo, own_run, tmp_path):
    sets = [save_npz(tmp_path / f"{name}.npz", 40, 20) for name in ("first", "second")]
    done = logo("eval", "transfer", own_run, "--sets", *sets)
    assert done.code == 0, done.err
    files = sorted((own_run / "evaluation").glob("*.json"))
    assert ["first" in files[0].name, "second" in files[1].name] == [True, True]
    assert all(json.loads(file.read_text())["test_images"] == 20 for file in files)
    np.savez(tmp_path / "unlabelled.npz", train_images=np.load(sets[0])["train_images"])
    done = logo("eval", "transfer", own_run, "--sets", tmp_path / "unlabelled.npz", sets[0], "--out", "again.json")
    assert done.code == 2
    assert "unlabelled" in done.err
    assert "Traceback" not in done.err


def test_the_same_encoder_has_the_same_figures_with_a_cache_and_without(logo, cwd, run):
    figures = []
    for out, words in (("a.json", ()), ("b.json", ()), ("c.json", ("--no-cache", "--batch-size", "7"))):
        done = logo("eval", "knn", run, "--protocols", "5", "0.07", "--out", out, *words)
        assert done.code == 0, done.err
        figures.append(top1(json.loads((cwd / out).read_text())))
    assert figures[0] == figures[1] == figures[2]


@pytest.fixture(scope="module")
def network() -> torch.nn.Module:
    """A ResNet-18 of torchvision's, with a classifier of no use."""
    torch.manual_seed(0)
    return torchvision.models.resnet18(weights=None).eval()


def renamed(network: torch.nn.Module, prefix: str) -> dict[str, torch.Tensor]:
    return {f"{prefix}{name}": x for name, x in network.state_dict().items() if not name.startswith("fc.")}


CHECKPOINTS = {
    "moco.pth.tar": lambda net: {"arch": "resnet18", "state_dict": renamed(net, "module.encoder_q.")},
    "simsiam.pth.tar": lambda net: {"state_dict": renamed(net, "module.encoder.")},
    "solo.ckpt": lambda net: {"state_dict": renamed(net, "backbone.") | {"classifier.weight": torch.zeros(10, 512)}},
    "lightly.ckpt": lambda net: {
        "state_dict": {
            f"backbone.{k}": x for k, x in torch.nn.Sequential(*list(net.children())[:-1]).state_dict().items()
        }
    },
    "torchvision.pth": lambda net: net.state_dict(),
}


@pytest.mark.parametrize("name", CHECKPOINTS)
def test_checkpoints_of_other_libraries_give_the_features_of_their_network(network, tmp_path, name):
    torch.save(CHECKPOINTS[name](network), tmp_path / name)
    x = torch.rand(2, 3, 64, 64)
    features = torch.nn.Sequential(*list(network.children())[:-1])(x).flatten(1)
    torch.testing.assert_close(logo_ssl.load(tmp_path / name, size=64)(x), features)


def test_a_checkpoint_of_another_library_is_measured_without_running_what_is_in_it(logo, cwd, network, data, tmp_path):
    class Bomb:
        def __reduce__(self):
            return Path.mkdir, (tmp_path / "ran",)

    torch.save({"state_dict": network.state_dict(), "args": Bomb()}, tmp_path / "moco.pth.tar", pickle_module=pickle)
    done = logo("eval", "knn", tmp_path / "moco.pth.tar", "--data", data, "--size", "32", "--out", "knn.json")
    assert done.code == 0, done.err
    assert json.loads((cwd / "knn.json").read_text())["size"] == 32
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("name", ["random/tiny", "random/resnet18"])
def test_an_untrained_network_is_always_the_same_and_can_be_measured(logo, cwd, data, name):
    x = torch.rand(2, 3, 32, 32)
    assert torch.equal(logo_ssl.load(name, size=32)(x), logo_ssl.load(name, size=32)(x))
    done = logo("eval", "knn", name, "--data", data, "--size", "32", "--protocols", "5", "0.07", "--out", "knn.json")
    assert done.code == 0, done.err
    assert len(top1(json.loads((cwd / "knn.json").read_text()))) == 1


BRIEF = (
    *("--iterations", "2", "--batch-size", "2", "--short-sides", "64", "--test-side", "64", "--longest", "96"),
    *("--anchors", "16", "32", "--candidates", "50", "50", "--proposals", "20", "20", "--regions", "8"),
    *("--norm-batches", "1", "--workers", "0"),
)


@pytest.fixture(scope="module")
def coco(tmp_path_factory) -> Path:
    """Four pictures to train on, two to test on."""
    return save_coco(tmp_path_factory.mktemp("coco") / "shapes", {"train": 4, "val": 2})


@pytest.mark.parametrize(("protocol", "keys"), [("detect", ["bbox"]), ("segment", ["bbox", "segmentation"])])
def test_a_kept_detector_finds_in_new_images_what_it_found_in_the_test(
    logo, cwd, resnet, coco, tmp_path, protocol, keys
):
    words = ("--lowest-score", "0", "--out", "found.json", "--save-model", "model")
    done = logo("eval", protocol, resnet, "--data", coco, *BRIEF, *words)
    assert done.code == 0, done.err
    assert {file.name for file in (cwd / "model").iterdir()} == {"model.safetensors", "model.json"}
    new = shutil.copytree(coco / "val", tmp_path / "new")
    (new / "corrupt.jpg").write_bytes(b"no image")
    words = ("predict", "model", "--data", new, "--out", "boxes.json", "--draw", "drawn", "--max-bad", "0.5")
    done = logo(*words, "--workers", "0")
    assert done.code == 0, done.err
    assert "corrupt.jpg" in (cwd / "boxes.json-bad-images.csv").read_text()
    assert len(list((cwd / "drawn").glob("*.png"))) == 2
    found = json.loads((cwd / "boxes.json").read_text())
    assert len(found) > 0
    assert {each["category"] for each in found} <= {"square", "bar"}
    for key, name in zip(keys, ("boxes.json", "masks.json"), strict=False):
        tested = json.loads((cwd / "found-pictures" / name).read_text())
        theirs = [(each["image_id"], each["category_id"], each["score"], each[key]) for each in tested]
        ours = [(int(Path(each["image_id"]).stem), each["category_id"], each["score"], each[key]) for each in found]
        assert ours == theirs
    predictions = logo_ssl.predict(cwd / "model", new, max_bad=0.5, workers=0)
    assert sum(map(len, predictions.labels)) == len(found)
    left, top, right, bottom = predictions.boxes[0][0].tolist()
    assert found[0]["bbox"] == pytest.approx([left, top, right - left, bottom - top])
    assert logo(*words).code == 2
    assert logo("predict", "model", "--data", new, "--out", "boxes.csv").code == 2


@pytest.mark.parametrize(("protocol", "kinds"), [("detect", ["box"]), ("segment", ["box", "mask"])])
def test_objects_of_a_set_in_cocos_layout_are_found(logo, cwd, resnet, coco, protocol, kinds):
    done = logo("eval", protocol, resnet, "--data", coco, *BRIEF, "--out", "found.json")
    assert done.code == 0, done.err
    record = json.loads((cwd / "found.json").read_text())
    assert [result["of"] for result in record["results"]] == kinds
    for result in record["results"]:
        assert {"AP", "AP50", "AP75"} <= result["overall"].keys()
        assert 0 <= result["overall"]["AP50"] <= 100
        assert result["per_class"].keys() == {"square", "bar"}
    assert record["test_pictures"] == 2
    for name in (*record["pictures"], *record["found"]):
        assert (cwd / name).stat().st_size > 0, name


def test_images_of_several_classes_are_measured_by_mean_average_precision(logo, cwd, resnet, tmp_path):
    boxes, rng = save_coco(tmp_path / "shapes", {"train": 12, "val": 8}), np.random.default_rng(0)
    images, labels = rng.integers(0, 256, (60, 32, 32, 3), np.uint8), rng.integers(0, 2, (60, 4))
    arrays = tmp_path / "several.npz"
    np.savez(arrays, train_images=images[:40], train_labels=labels[:40], test_images=images[40:],
             test_labels=labels[40:])  # fmt: skip
    for data, classes in ((boxes, {"square", "bar"}), (arrays, set("0123"))):
        done = logo("eval", "multilabel", resnet, "--data", data, "--out", f"{data.stem}.json")
        assert done.code == 0, done.err
        record = json.loads((cwd / f"{data.stem}.json").read_text())
        assert record["per_class"].keys() == classes
        assert record["value"] == pytest.approx(np.mean(list(record["per_class"].values())), abs=0.01)
        assert f"{record['value']:.2f}" in done.out
        assert {"untrained", "raw pixels", "pixels and colours"} >= record["baselines"].keys() > {"raw pixels"}


def test_a_detector_on_a_pyramid_shows_its_schedule_without_training(logo, cwd, coco):
    words = ("eval", "detect", "random/resnet18", "--head", "fpn", "--data", coco, "--batch-size", "2")
    done = logo(*words, "--iterations", "7", "--dry-run")
    assert done.code == 0, done.err
    assert "7" in done.out
    assert not list(cwd.iterdir())


def test_encoders_are_compared_with_the_first_with_labels_and_without(logo, cwd, own_run, data):
    for words, measures in (((), ("knn", "linear")), (("--no-labels",), ("found_again", "same_neighbours"))):
        done = logo("compare", own_run, "untrained", "pixels", *words, "--out", "page.html", "--overwrite")
        assert done.code == 0, done.err
        first, *others = json.loads((cwd / "page.json").read_text())["results"]
        assert first["verdict"] is None
        assert [each["encoder"] for each in others] == ["untrained", "pixels"]
        for each in others:
            assert each["verdict"] in ("better", "worse", "no measurable difference")
            for name in measures:
                assert each[f"{name}_difference"] == pytest.approx(each[name] - first[name], abs=0.02)
                assert f"{each[name]:.2f}" in done.out
        page = (cwd / "page.html").read_text()
        assert page.count("data:image/webp") > 10
        assert "untrained" in page
        assert "http" not in page
    compared = logo_ssl.compare([own_run, "untrained", "pixels"], data, labels=False, device="cpu", workers=0)
    assert [each.verdict for each in compared.encoders] == [None, *(each["verdict"] for each in others)]
    assert logo("compare", own_run, own_run).code == 0
    (file,) = (own_run / "evaluation").glob("compare-*.json")
    assert json.loads(file.read_text())["results"][1]["verdict"] == "no measurable difference"
