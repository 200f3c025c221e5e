"""A kept classifier is the one that was trained, whatever its network and its images."""

import csv
from dataclasses import replace

import numpy as np
import pytest
import safetensors.torch
import torch
import torchvision
from torch import nn
from use_encoders import lived_in

import logo_ssl
from logo_ssl.data import ImageSet, Split
from logo_ssl.embedding.finetuning import keep
from logo_ssl.encoders import Architecture, FrozenEncoder, remove_classifier
from logo_ssl.errors import UserError
from logo_ssl.eval.features import Extraction
from logo_ssl.eval.protocol import Measurement

CLASSES = ("cat", "d\u00f6g", "elk, young", "fox", "gnu", "hen")


def of_torchvision() -> FrozenEncoder:
    net = torchvision.models.mobilenet_v3_small(weights=None)
    remove_classifier(net)
    return replace(
        logo_ssl.load("random/tiny", size=32).about,
        backbone=net.eval(),
        architecture=Architecture("torchvision/mobilenet_v3_small"),
    )


ENCODERS = {
    "tiny": lambda: lived_in("random/tiny", size=16).about,
    "lightly's stem": lambda: lived_in("random/resnet18", size=32, stem="lightly").about,
    "five channels": lambda: lived_in("random/resnet18", size=32, mean=(0.5,) * 5, std=(0.2,) * 5).about,
    "vit": lambda: lived_in("random/timm/test_vit", size=64).about,
    "torchvision": of_torchvision,
    "pixels": lambda: logo_ssl.load("pixels").about,
}


def kept(folder, encoder: FrozenEncoder) -> nn.Linear:
    """A model with a head that was drawn at random."""
    torch.manual_seed(1)
    width = encoder.backbone(torch.zeros(2, encoder.channels, encoder.size, encoder.size)).shape[1]
    head = nn.Linear(width, len(CLASSES))
    found = Measurement("finetune", {}, {}, {}, replace(encoder, head=head, classes=CLASSES))
    data = ImageSet("noise", Split(torch.zeros(2, encoder.channels, 16, 16, dtype=torch.uint8)))
    keep(found, data, folder, Extraction(device="cpu"))
    return head


@pytest.mark.parametrize("name", ENCODERS)
def test_a_model_loads_as_it_was_kept_from_its_folder_alone(tmp_path, name):
    encoder = ENCODERS[name]()
    head = kept(tmp_path / "model", encoder)
    model = logo_ssl.load_classifier(tmp_path / "model")
    x = torch.rand(2, encoder.channels, encoder.size, encoder.size)
    with torch.no_grad():
        features = encoder.backbone(x)
        torch.testing.assert_close(model(x), head(features), rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(logo_ssl.load(tmp_path / "model")(x), features, rtol=1e-5, atol=1e-5)
    assert model.classes == CLASSES
    assert model.transform == logo_ssl.load(tmp_path / "model").transform
    assert (model.transform.size, model.transform.mean) == (encoder.size, encoder.mean)


def test_the_five_likeliest_classes_are_those_of_float64(tmp_path, photos):
    kept(tmp_path / "model", ENCODERS["tiny"]())
    model = logo_ssl.load_classifier(tmp_path / "model")
    found = logo_ssl.predict(tmp_path / "model", photos, out=tmp_path / "p.csv", workers=0)
    exact = model.double()
    for path, labels, shares in zip(*found[:3], strict=True):
        scores = exact(exact.transform(path).double()[None])[0].detach().numpy()
        expected = np.exp(scores - scores.max())
        order = np.argsort(-expected)[:5]
        assert labels == tuple(CLASSES[label] for label in order)
        np.testing.assert_allclose(shares, (expected / expected.sum())[order], rtol=1e-3)
    with (tmp_path / "p.csv").open(newline="", encoding="utf-8") as lines:
        assert [row["label"] for row in csv.DictReader(lines)] == [labels[0] for labels in found.labels]
    assert len(found.bad) == 2


def test_a_torn_model_and_an_encoder_are_refused(tmp_path, photos):
    kept(tmp_path / "model", ENCODERS["tiny"]())
    file = tmp_path / "model" / "model.safetensors"
    weights = safetensors.torch.load_file(file)
    with safetensors.safe_open(file, framework="pt") as whole:
        metadata = whole.metadata()
    del weights["head.bias"]
    safetensors.torch.save_file(weights, file, metadata)
    with pytest.raises(UserError, match=r"model\.safetensors"):
        logo_ssl.predict(tmp_path / "model", photos)
    with pytest.raises(UserError, match="random/tiny"):
        logo_ssl.load_classifier("random/tiny")


def test_a_loaded_classifier_is_an_encoder_for_embed_and_export(tmp_path, photos):
    kept(tmp_path / "model", ENCODERS["tiny"]())
    model = logo_ssl.load_classifier(tmp_path / "model")
    found = logo_ssl.embed(model, photos, workers=0)
    np.testing.assert_array_equal(found.vectors, logo_ssl.embed(tmp_path / "model", photos, workers=0).vectors)
    exported = logo_ssl.export(model, "safetensors", tmp_path / "x.safetensors").path
    np.testing.assert_array_equal(found.vectors, logo_ssl.embed(exported, photos, workers=0).vectors)
    with pytest.raises(UserError, match="finetune"):
        logo_ssl.load_classifier(exported)
