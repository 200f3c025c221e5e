"""Small data sets and encoders, and a cache that no other test shares."""

import pytest
import torch
from small_sets import Pooled, frozen, save_noise

from logo_ssl.data import ImageSet, Split
from logo_ssl.encoders import FrozenEncoder, load_encoder
from logo_ssl.recipes import find_recipe
from logo_ssl.run import Run
from logo_ssl.train import build
from logo_ssl.train.pretrain import save_encoder


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
    return save_noise(tmp_path / "photos", 30)


@pytest.fixture
def parted(tmp_path):
    """Class folders of 30 training and 15 test images."""
    save_noise(tmp_path / "parted" / "test", 15)
    return save_noise(tmp_path / "parted" / "train", 30).parent


@pytest.fixture
def pooled() -> FrozenEncoder:
    """Mean colours."""
    return frozen(Pooled())


@pytest.fixture
def tiny() -> FrozenEncoder:
    """An untrained network."""
    return load_encoder("random/tiny", size=16)


@pytest.fixture
def run(tmp_path, images: ImageSet) -> Run:
    """A run's folder with an encoder."""
    recipe, run = find_recipe("tiny").changed(crops__global_size=16, seed=1), Run(tmp_path / "run")
    save_encoder(run, build(recipe, images))
    run.recipe_file.write_text(recipe.to_json())
    return run
