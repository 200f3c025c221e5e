"""Images that many tests learn from; none changes them."""

import pytest
from drawn import save_coco

from logo_ssl.detection import load_detection


@pytest.fixture(scope="session")
def data(tmp_path_factory):
    """Five images to train on, two to test on, in COCO's layout and with masks."""
    return load_detection(str(save_coco(tmp_path_factory.mktemp("drawn") / "coco", {"train": 5, "val": 2})))


@pytest.fixture
def enough_memory(monkeypatch):
    """As many worker processes as are wished for, however little memory they could share."""
    monkeypatch.setattr("logo_ssl.detection.train.fitting_workers", lambda wished, *others: wished)
