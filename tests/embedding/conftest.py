"""Photographs, some of them bad, and an encoder."""

import numpy as np
import pytest
from PIL import Image
from torch import nn
from use_encoders import lived_in


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("LOGO_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def photos(tmp_path):
    """A folder of 24 photographs of various sizes and kinds in three classes; one is no image, one is torn."""
    rng = np.random.default_rng(0)
    for i in range(24):
        file = tmp_path / "photos" / "abc"[i % 3] / f"{i:02}.{('png', 'jpg')[i % 2]}"
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(rng.integers(0, 256, (*rng.integers(20, 60, 2), 3), np.uint8)).save(file)
    (tmp_path / "photos" / "a" / "bad.jpg").write_bytes(b"nothing")
    torn = tmp_path / "photos" / "b" / "01.jpg"
    torn.write_bytes(torn.read_bytes()[:300])
    return tmp_path / "photos"


@pytest.fixture
def encoder() -> nn.Module:
    return lived_in("random/tiny", size=16)
