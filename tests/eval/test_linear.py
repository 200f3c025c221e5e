"""Do linear probes and transfer give the figures of the features, chosen without the test images?"""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

from logo_ssl.data import ImageSet, Split, load_data
from logo_ssl.errors import UserError
from logo_ssl.eval import Extraction, parting
from logo_ssl.eval.encoders import FrozenEncoder
from logo_ssl.eval.held_out import part
from logo_ssl.eval.knn import knn
from logo_ssl.eval.linear import linear, told_choice

QUIET = Extraction(device="cpu", workers=0, cache=False)


class Pooled(nn.Module):
    """Mean colours as features: enough to tell classes of different colours apart."""

    def __init__(self) -> None:
        super().__init__()
        self.unused = nn.Parameter(torch.zeros(1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.mean(dim=(2, 3))


@pytest.fixture
def encoder() -> FrozenEncoder:
    return FrozenEncoder("pooled", Pooled().eval(), (0.5,) * 3, (0.25,) * 3, 8, "pooled")


def colours(n: int, seed: int) -> Split:
    """Three classes of noisy colours."""
    rng = np.random.default_rng(seed)
    labels = np.arange(n) % 3
    images = rng.integers(0, 120, (n, 3, 8, 8))
    images[np.arange(n), labels] += 90
    return Split(torch.from_numpy(images.astype(np.uint8)), torch.from_numpy(labels))


@pytest.mark.parametrize("protocol", ["sgd", "sgd-augmented", "lbfgs"])
def test_separable_features_are_separated_and_recorded(encoder: FrozenEncoder, tmp_path: Path, protocol: str) -> None:
    data = ImageSet("colours", colours(60, 0), colours(30, 1), ("r", "g", "b"))
    out = tmp_path / "linear.json"
    figures = dict(linear(encoder, data, QUIET, protocol=protocol, epochs=15, out=out))
    assert figures[f"linear top-1, {protocol}"] > 95
    record = json.loads(out.read_text())
    assert {"protocol", "validation", "commit", "hardware", "fingerprint", "train_images"} <= record.keys()
    assert record["train_images"] == 60
    assert dict(linear(encoder, data, QUIET, protocol=protocol, epochs=15, out=out)) == figures


@pytest.mark.parametrize("protocol", ["sgd", "sgd-augmented", "lbfgs"])
def test_validation_images_beside_a_test_choose(encoder, tmp_path: Path, protocol: str, monkeypatch) -> None:
    """Then they are learned from, too; nearest neighbours, which choose nothing, know train alone."""
    train, test, val = (colours(n, seed) for seed, n in enumerate((60, 30, 12)))
    data, out, chosen_by = ImageSet("colours", train, test, ("r", "g", "b"), val), tmp_path / "linear.json", []
    monkeypatch.setattr(parting, "part", lambda *given: chosen_by.append(part(*given).val.labels) or part(*given))
    list(linear(encoder, data, QUIET, protocol=protocol, epochs=5, out=out))
    record = json.loads(out.read_text())
    assert chosen_by[0].equal(val.labels)
    assert (record["official_val"], record["val_images"], record["train_images"]) == (True, 12, 72)
    assert record["data_fingerprint"].keys() == {"train", "val", "test"}
    assert "chosen on the validation split, then trained on train and validation" in record["protocol"]
    list(knn(encoder, data, QUIET, protocols=[(5, 0.1)], out=tmp_path / "knn.json"))
    counts = json.loads((tmp_path / "knn.json").read_text())
    assert (counts["train_images"], counts["test_images"]) == (60, 30)


def test_photographs_of_val_are_joined_to_those_of_train(encoder, tmp_path: Path) -> None:
    for part_, seed in (("train", 0), ("val", 1), ("test", 2)):
        for i, pixels in enumerate(colours(24, seed).array.permute(0, 2, 3, 1).numpy()):
            file = tmp_path / "set" / part_ / "rgb"[i % 3] / f"{i}.png"
            file.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(pixels).save(file)
    (tmp_path / "set" / "val" / "r" / "0.png").write_bytes(b"")
    how = Extraction(device="cpu", workers=0, cache=False, max_bad=0.9)
    data, out = load_data(str(tmp_path / "set"), 8), tmp_path / "linear.json"
    list(linear(encoder, data, how, protocol="sgd-augmented", epochs=2, out=out))
    record = json.loads(out.read_text())
    assert (record["val_images"], record["train_images"], record["unreadable_count"]) == (23, 47, 1)


def test_validation_images_of_another_size_do_but_for_random_crops(encoder) -> None:
    val = colours(12, 2)
    data = ImageSet("colours", colours(60, 0), colours(30, 1), (), replace(val, images=val.array[..., :-1]))
    said: list[str] = []
    how = Extraction(device="cpu", workers=0, cache=False, say=said.append)
    for protocol in ("sgd", "lbfgs"):
        assert list(linear(encoder, data, how, protocol=protocol, **({"epochs": 2} if protocol == "sgd" else {})))
    assert sum(sentence.startswith("Validation images of colours choose, and train with") for sentence in said) == 2
    with pytest.raises(UserError, match=r"to train on and to choose by are .* pixels; give both the same size"):
        list(linear(encoder, data, QUIET, protocol="sgd-augmented", epochs=2))


def test_a_class_of_validation_images_that_train_lacks_is_refused(encoder) -> None:
    val = Split(colours(3, 2).array, torch.tensor([0, 1, 5]))
    data = ImageSet("colours", colours(60, 0), colours(30, 1), (), val)
    with pytest.raises(UserError, match=r"1 validation image of colours \(the first: one of class 5\) is of no class"):
        list(linear(encoder, data, QUIET))


def test_without_a_test_split_a_fifth_is_held_out_and_said(encoder: FrozenEncoder) -> None:
    said: list[str] = []
    how = Extraction(device="cpu", workers=0, cache=False, say=said.append)
    figures = dict(linear(encoder, ImageSet("colours", colours(60, 0)), how, epochs=10))
    assert list(figures) == ["linear top-1, sgd"]  # five guesses would name all three classes
    assert any("a fifth of the training images is held out" in sentence for sentence in said)


def test_zero_epochs_are_refused(encoder: FrozenEncoder) -> None:
    with pytest.raises(UserError, match="epochs is 0"):
        list(linear(encoder, ImageSet("colours", colours(30, 0)), QUIET, epochs=0))


@pytest.mark.parametrize("rates", [(), (0.0, 1.0), (float("nan"),), (float("inf"),)])
def test_rates_that_cannot_work_are_refused(encoder: FrozenEncoder, rates: tuple[float, ...]) -> None:
    with pytest.raises(UserError, match=r"^rates is .*; give one or more learning rates above 0"):
        list(linear(encoder, ImageSet("colours", colours(30, 0)), QUIET, rates=rates))


@pytest.mark.parametrize(
    ("validation", "chosen", "beyond"),
    [
        ({1.0: 50.0, 3.0: 60.0, 10.0: 70.0}, 10.0, "It is the largest that was tried"),
        ({1.0: 70.0, 3.0: 60.0, 10.0: 50.0}, 1.0, "It is the smallest that was tried"),
        ({1.0: 50.0, 3.0: 70.0, 10.0: 60.0}, 3.0, None),
        ({1.0: 70.0, 3.0: 70.0, 10.0: 50.0}, 1.0, None),
    ],
)
def test_a_choice_is_told_and_whether_the_best_may_lie_beyond(validation, chosen, beyond) -> None:
    told = told_choice("lr", chosen, validation)
    assert told.startswith(f"lr {chosen:g} is the best of 3, right on 70.00 % of validation images.")
    assert ("that was tried" in told) == (beyond is not None)
    assert beyond is None or beyond in told


@pytest.mark.parametrize(("protocol", "what"), [("sgd", "lr 0.1 is right on "), ("lbfgs", "L2 weight ")])
def test_the_chosen_rate_or_weight_is_said(encoder: FrozenEncoder, protocol: str, what: str) -> None:
    said: list[str] = []
    how = Extraction(device="cpu", workers=0, cache=False, say=said.append)
    list(linear(encoder, ImageSet("colours", colours(60, 0)), how, protocol=protocol, epochs=2, rates=(0.1,)))
    assert any(sentence.startswith(what) for sentence in said)
