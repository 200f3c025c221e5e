"""Do linear probes and transfer give the figures of the features, chosen without the test images?"""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from logo_ssl.data import ImageSet, Split
from logo_ssl.errors import UserError
from logo_ssl.evaluate import Extraction
from logo_ssl.evaluate.encoders import FrozenEncoder
from logo_ssl.evaluate.linear import linear, told_choice

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
