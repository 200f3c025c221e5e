"""Small data sets and encoders, and a cache that no other test shares."""

import numpy as np
import pytest
import torch
from PIL import Image

from logo_ssl.data import ImageSet, Split


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("LOGO_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def images(generator) -> ImageSet:
    """60 training and 24 test images of 6 classes, 16 px, told apart by their brightness."""
    splits = []
    for n in (60, 24):
        labels = torch.arange(n) % 6
        noise = torch.randint(0, 60, (n, 3, 16, 16), generator=generator)
        splits.append(Split((noise + 30 * labels.view(-1, 1, 1, 1)).to(torch.uint8), labels))
    return ImageSet("blobs", *splits, tuple("abcdef"))


@pytest.fixture
def photos(tmp_path):
    """A folder of 30 photographs of various sizes in three classes."""
    rng = np.random.default_rng(0)
    for i in range(30):
        file = tmp_path / "photos" / "abc"[i % 3] / f"{i}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(rng.integers(0, 256, (*rng.integers(12, 40, 2), 3), np.uint8)).save(file)
    return tmp_path / "photos"


@pytest.fixture
def parted(tmp_path):
    """Class folders of 30 training and 15 test images."""
    rng = np.random.default_rng(0)
    for part, n in (("train", 30), ("test", 15)):
        for i in range(n):
            file = tmp_path / "parted" / part / "abc"[i % 3] / f"{i}.png"
            file.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(rng.integers(0, 256, (*rng.integers(12, 40, 2), 3), np.uint8)).save(file)
    return tmp_path / "parted"
