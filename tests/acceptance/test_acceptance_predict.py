"""Does a model that was trained stay, and does it tell what new images show?"""

import csv
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from made_up_data import CLASSES, labelled, save_folder

import logo_ssl

TUNING = ("--epochs", "4", "--batch-size", "16", "--lr", "0.05", "--device", "cpu")


@pytest.fixture(scope="module")
def new(tmp_path_factory) -> Path:
    """New images in one folder, and a file that is not an image."""
    folder = save_folder(tmp_path_factory.mktemp("new") / "new", labelled(12), classes=False)
    (folder / "corrupt.jpg").write_bytes(b"no image")
    return folder


def rows(file: Path) -> list[dict[str, str]]:
    with file.open(newline="") as lines:
        return list(csv.DictReader(lines))


@pytest.mark.parametrize("words", [(), ("--frozen",)], ids=["all weights", "frozen"])
def test_a_classifier_is_kept_and_tells_classes_and_probabilities_of_new_images(logo, cwd, run, new, tmp_path, words):
    photos = save_folder(tmp_path / "photos", labelled(60))
    done = logo("finetune", run, "--data", photos, "--out", "model", *TUNING, *words)
    assert done.code == 0, done.err
    about = json.loads((cwd / "model" / "model.json").read_text())
    (figure,) = (value for name, value in about["figures"].items() if "top-1" in name)
    assert f"{figure:.2f}" in done.out
    assert (about["classes"], about["test_images"]) == (list(CLASSES), 12)
    done = logo("predict", "model", "--data", new, "--out", "p.csv", "--workers", "0")
    assert done.code == 0, done.err
    found = rows(cwd / "p.csv")
    assert [Path(row["path"]).name for row in found] == [f"{i:03}.png" for i in range(12)]
    assert "corrupt.jpg" in (cwd / "p.csv-bad-images.csv").read_text()
    model = logo_ssl.load_classifier(cwd / "model")
    with torch.no_grad():
        scores = torch.cat([model(model.transform(row["path"])[None]) for row in found])
    for row, shares in zip(found, scores.double().softmax(dim=1), strict=True):
        told = [(row[f"label{n}"], float(row[f"probability{n}"])) for n in ("", "_2", "_3", "_4")]
        order = shares.argsort(descending=True).tolist()
        assert [label for label, _ in told] == [CLASSES[label] for label in order]
        np.testing.assert_allclose([share for _, share in told], shares[order], atol=1e-4)
    predictions = logo_ssl.predict(model, new, workers=0)
    assert [labels[0] for labels in predictions.labels] == [row["label"] for row in found]
    assert [Path(path).name for path in predictions.bad] == ["corrupt.jpg"]
    tuned, start = (logo_ssl.load(source).state_dict() for source in (cwd / "model", run))
    assert all(value.equal(start[name]) for name, value in tuned.items()) == bool(words)


def test_python_trains_the_same_classifier_as_the_command(logo, cwd, run, data, tmp_path):
    assert logo("finetune", run, "--out", "model", *TUNING).code == 0
    options = {"epochs": 4, "batch_size": 16, "lr": 0.05, "device": "cpu"}
    model = logo_ssl.finetune(run, data, out=tmp_path / "other", **options)
    theirs = logo_ssl.load_classifier(cwd / "model").state_dict()
    assert all(value.equal(theirs[name]) for name, value in model.state_dict().items())


@pytest.mark.filterwarnings("ignore")  # of torch's exporter
def test_onnx_has_the_classes_and_gives_the_scores_of_the_classifier(logo, cwd, run, data):
    onnxruntime = pytest.importorskip("onnxruntime")
    assert logo("finetune", run, "--out", "model", "--frozen").code == 0
    done = logo("export", "model", "--to", "onnx", "--out", "model.onnx")
    assert done.code == 0, done.err
    assert "labels = " in done.out
    session, model = onnxruntime.InferenceSession(str(cwd / "model.onnx")), logo_ssl.load_classifier(cwd / "model")
    assert json.loads(session.get_modelmeta().custom_metadata_map["classes"]) == list(model.classes)
    x = torch.rand(3, 3, 32, 32)
    (scores,) = session.run(["scores"], {"images": x.numpy()})
    torch.testing.assert_close(torch.from_numpy(scores), model(x).detach(), rtol=1e-4, atol=1e-4)


def test_a_model_is_replaced_by_a_whole_one_and_only_with_overwrite(logo, cwd, run, data):
    words = ("finetune", run, "--data", data, "--out", "model", "--frozen", "--device", "cpu")
    assert logo(*words).code == 0
    files = {file.name: file.read_bytes() for file in (cwd / "model").iterdir()}
    assert set(files) == {"model.safetensors", "model.json"}
    done = logo(*words, "--seed", "1")
    assert (done.code, "--overwrite" in done.err) == (2, True)
    assert logo(*words, "--seed", "1", "--overwrite").code == 0
    assert {file.name for file in (cwd / "model").iterdir()} == set(files)
    assert (cwd / "model" / "model.safetensors").read_bytes() != files["model.safetensors"]
    assert logo("predict", "model", "--data", data, "--out", "p.csv").code == 0
    for words in (("p.csv",), ("p.txt",), ("q.csv", "--draw", "drawings")):
        done = logo("predict", "model", "--data", data, "--out", *words)
        assert (done.code, words[-1] in done.err) == (2, True)
