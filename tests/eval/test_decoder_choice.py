"""Who decodes the photographs that an encoder sees?"""

import pytest
import torch
from PIL import Image

from logo_ssl.data import Photos
from logo_ssl.data.images import Paths
from logo_ssl.eval import Extraction, pixels
from logo_ssl.eval.pixels import PIXELS_PER_WORKER, decodes_on_gpu


@pytest.fixture
def cuda(monkeypatch):
    """A machine with a CUDA device that decodes, and cores for four workers."""
    monkeypatch.setattr(pixels, "best_device", lambda wish: torch.device("cuda"))
    monkeypatch.setattr(pixels.nvjpeg, "works", lambda device: True)
    monkeypatch.setattr("logo_ssl.data.workers.default_workers", lambda: 4)
    return monkeypatch


@pytest.fixture
def photos(tmp_path):
    """Three photographs for which four workers are just enough."""
    for i in range(3):
        Image.new("RGB", (PIXELS_PER_WORKER // 100, 400)).save(tmp_path / f"{i}.jpg")
    return Photos.all(Paths(sorted(tmp_path.iterdir())))


def test_enough_workers_decode_unless_nvjpeg_is_asked_for(cuda, photos):
    assert not decodes_on_gpu(Extraction(decoder="auto"), photos, 224)
    assert not decodes_on_gpu(Extraction(decoder="auto", workers=4), photos, 224)
    assert decodes_on_gpu(Extraction(decoder="nvjpeg"), photos, 224)


def test_nvjpeg_takes_over_where_workers_are_few(cuda, photos):
    assert decodes_on_gpu(Extraction(decoder="auto", workers=3), photos, 224)
    assert decodes_on_gpu(Extraction(decoder="auto", workers=0), photos, 224)
    assert not decodes_on_gpu(Extraction(decoder="workers", workers=0), photos, 224)


def test_nvjpeg_takes_over_where_photographs_are_large(cuda, photos, tmp_path):
    for i in range(1, 3):  # most of them
        Image.new("RGB", (1000, 800)).save(tmp_path / f"{i}.jpg")
    assert decodes_on_gpu(Extraction(decoder="auto"), photos, 224)


def test_without_nvjpeg_workers_decode(cuda, photos):
    cuda.setattr(pixels.nvjpeg, "works", lambda device: False)
    assert not decodes_on_gpu(Extraction(decoder="auto", workers=0), photos, 224)


def test_workers_decode_where_nothing_can_be_read(cuda, tmp_path):
    (tmp_path / "0.jpg").write_bytes(b"no image")
    assert not decodes_on_gpu(Extraction(decoder="auto", workers=0), Photos.all(Paths([tmp_path / "0.jpg"])), 224)
