"""Test images that are also among those that train or choose are found and counted."""

from dataclasses import replace

import torch

from logo_ssl.data import Split, load_data
from logo_ssl.eval import leakage
from logo_ssl.eval.encoder import load_encoder
from logo_ssl.eval.knn import knn
from logo_ssl.eval.leakage import count_copies
from logo_ssl.eval.options import Extraction


def test_copies_of_training_images_are_counted(parted, images) -> None:
    for i in (1, 4):
        (parted / "test" / "b" / f"copy {i}.png").write_bytes((parted / "train" / "b" / f"{i}.png").read_bytes())
    (parted / "train" / "a" / "0.png").write_bytes(b"")
    (parted / "test" / "a" / "0.png").write_bytes(b"")  # which are not copies of an image
    data, said = load_data(str(parted), 16), list[str]()
    found = count_copies(data.train, data.test, say=said.append)
    assert found == {"test_images_compared": 17, "test_images_in_train": 2}
    assert "2 of 17 test images" in said[0]
    assert count_copies(images.train, images.test)["test_images_in_train"] == 0
    assert count_copies(images.train, images.train[torch.tensor([7])])["test_images_in_train"] == 1
    assert count_copies(images.train, None) == {}


def test_copies_among_validation_images_are_counted_where_these_choose(images) -> None:
    train, test = images.train, images.test
    val = Split(torch.cat([test.array[:2], train.array[:1]]), torch.tensor([0, 1, 0]))
    said: list[str] = []
    assert count_copies(train, test, val, say=said.append) == {
        "test_images_compared": 24,
        "test_images_in_train": 0,
        "val_images_compared": 3,
        "val_images_in_train": 1,
        "test_images_in_val": 2,
    }
    assert len(said) == 2
    said.clear()
    how = Extraction(cache=False, say=said.append)
    list(knn(load_encoder("random/tiny", size=16), replace(images, val=test), how, protocols=((5, 0.07),)))
    assert not any("Warning" in sentence for sentence in said)  # kNN does not choose


def test_a_look_for_copies_is_bounded(images, monkeypatch) -> None:
    monkeypatch.setattr(leakage, "LOOKED_AT", 20)
    monkeypatch.setattr(leakage, "MOST_READ", 10)
    said: list[str] = []
    found = count_copies(images.train, images.train, say=said.append)
    assert found["test_images_compared"] == 20
    assert 0 < found["test_images_in_train"] < 20
    assert "at least" in said[0]
    monkeypatch.setattr(leakage, "MOST_KNOWN", 59)
    assert count_copies(images.train, images.train) == {}
