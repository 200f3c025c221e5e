"""Who decodes the photographs that an encoder sees?"""

import pytest
import torch

from logo_ssl.evaluate import Extraction, extraction
from logo_ssl.evaluate.extraction import MANY_CORES, decodes_on_gpu


@pytest.fixture
def cuda(monkeypatch):
    """A machine with a CUDA device that decodes, and few cores."""
    monkeypatch.setattr(extraction, "best_device", lambda wish: torch.device("cuda"))
    monkeypatch.setattr(extraction.nvjpeg, "works", lambda device: True)
    monkeypatch.setattr(extraction, "default_workers", lambda: 2)
    return monkeypatch


@pytest.mark.parametrize("workers", [-1, 0, MANY_CORES - 1])
def test_nvjpeg_takes_over_where_workers_are_few(cuda, workers):
    assert decodes_on_gpu(Extraction(decoder="auto", workers=workers))
    assert not decodes_on_gpu(Extraction(decoder="workers", workers=workers))


def test_many_workers_decode_unless_nvjpeg_is_asked_for(cuda):
    assert not decodes_on_gpu(Extraction(decoder="auto", workers=MANY_CORES))
    assert decodes_on_gpu(Extraction(decoder="nvjpeg", workers=MANY_CORES))
    cuda.setattr(extraction, "default_workers", lambda: MANY_CORES)
    assert not decodes_on_gpu(Extraction(decoder="auto"))


def test_without_nvjpeg_workers_decode(cuda):
    cuda.setattr(extraction.nvjpeg, "works", lambda device: False)
    assert not decodes_on_gpu(Extraction(decoder="auto", workers=0))
