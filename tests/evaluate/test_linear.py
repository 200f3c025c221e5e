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
from logo_ssl.evaluate.linear import linear

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
    assert figures[f"linear top-5, {protocol}"] == 100
    record = json.loads(out.read_text())
    assert {"protocol", "validation", "commit", "hardware", "fingerprint", "train_images"} <= record.keys()
    assert record["train_images"] == 60
    assert dict(linear(encoder, data, QUIET, protocol=protocol, epochs=15, out=out)) == figures


def test_without_a_test_split_a_fifth_is_held_out_and_said(encoder: FrozenEncoder) -> None:
    said: list[str] = []
    how = Extraction(device="cpu", workers=0, cache=False, say=said.append)
    figures = dict(linear(encoder, ImageSet("colours", colours(60, 0)), how, epochs=10))
    assert len(figures) == 2
    assert any("a fifth of the training images is held out" in sentence for sentence in said)


def test_zero_epochs_are_refused(encoder: FrozenEncoder) -> None:
    with pytest.raises(UserError, match="epochs is 0"):
        list(linear(encoder, ImageSet("colours", colours(30, 0)), QUIET, epochs=0))
