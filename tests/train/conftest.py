"""Data that the tests of training share."""

import numpy as np
import pytest
from PIL import Image


@pytest.fixture
def data(tmp_path):
    """48 + 16 blurred noise images in three classes of brightness."""
    rng = np.random.default_rng(0)
    labels = np.arange(64) % 3
    images = (rng.integers(0, 90, (64, 16, 16, 3)) + 80 * labels[:, None, None, None]).astype(np.uint8)
    file = tmp_path / "data.npz"
    np.savez(file, train_images=images[:48], train_labels=labels[:48], test_images=images[48:], test_labels=labels[48:])
    return str(file)


@pytest.fixture
def photos(tmp_path):
    """48 photographs of various sizes in two class folders, four of them bad."""
    rng = np.random.default_rng(0)
    for i in range(48):
        file = tmp_path / "photos" / ("cat", "dog")[i % 2] / f"{i}.jpg"
        file.parent.mkdir(parents=True, exist_ok=True)
        height, width = rng.integers(12, 40, 2)
        Image.fromarray(rng.integers(0, 120, (height, width, 3), np.uint8) + np.uint8(100 * (i % 2))).save(file)
    for i in (3, 8):
        (tmp_path / "photos" / ("cat", "dog")[i % 2] / f"{i}.jpg").write_bytes(b"")
    for i in (5, 20):
        file = tmp_path / "photos" / ("cat", "dog")[i % 2] / f"{i}.jpg"
        file.write_bytes(file.read_bytes()[:200])
    return str(tmp_path / "photos")
