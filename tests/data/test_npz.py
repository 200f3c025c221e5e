"""Arrays in MedMNIST's convention are read, and all others refused with the key that is wrong."""

import numpy as np
import pytest
import torch

from logo_ssl.data import load_data
from logo_ssl.errors import UserError

GREY = np.zeros((2, 4, 5), np.uint8)


def save(folder, **arrays) -> str:
    np.savez(folder / "x.npz", **arrays)
    return str(folder / "x.npz")


def test_medmnists_convention(tmp_path):
    images = np.arange(3 * 4 * 5 * 3, dtype=np.uint8).reshape(3, 4, 5, 3)
    source = save(tmp_path, train_images=images, train_labels=np.array([[1], [0], [-1]]), test_images=images[:1])
    data = load_data(source, 99)
    assert torch.equal(data.train.images[1], torch.from_numpy(images[1]).permute(2, 0, 1))
    assert data.train.labels.tolist() == [1, 0, -1]
    assert data.test.images.shape == (1, 3, 4, 5)
    assert (data.name, data.classes, data.says) == ("x", ("0", "1"), ())
    assert load_data(save(tmp_path, train_images=GREY), 99).train.images.shape == (2, 1, 4, 5)


@pytest.mark.parametrize("shape", [(2, 8, 8, 5), (2, 9, 9, 200), (2, 8, 9, 200), (2, 6, 4, 2)])
def test_any_number_of_channels_is_kept(tmp_path, shape):
    data = load_data(save(tmp_path, train_images=np.zeros(shape, np.uint8)), 99)
    assert data.channels == shape[3]
    assert data.train.images.is_contiguous()


def test_val_images_are_to_choose_by_beside_labelled_test_images_and_else_tested_on(tmp_path):
    labels = {"train_labels": [0, 4], "test_labels": [4], "val_labels": [4, 0]}
    data = load_data(save(tmp_path, train_images=GREY, test_images=GREY[:1], val_images=GREY, **labels), 99)
    assert (data.test.labels.tolist(), data.val.labels.tolist()) == ([1], [1, 0])
    assert data.watched == ("validation images", data.val)
    del labels["test_labels"]
    for more in ({"test_images": GREY[:1]}, {}):
        data = load_data(save(tmp_path, train_images=GREY, val_images=GREY, **labels, **more), 99)
        assert (data.test.labels.tolist(), data.val) == ([1, 0], None)


@pytest.mark.parametrize(
    ("labels", "expected", "classes"),
    [
        (np.array(["b", "a"]), [1, 0], ("a", "b")),
        (np.array([[5], [0]]), [1, 0], ("0", "5")),
        (np.array([7, 3], np.uint8), [1, 0], ("3", "7")),
        (np.array([7.0, 3.0]), [1, 0], ("3", "7")),
        (np.zeros((2, 14), int), None, ()),  # several for each image, as in ChestMNIST
    ],
)
def test_labels_of_any_kind_become_numbers_without_gaps(tmp_path, labels, expected, classes):
    data = load_data(save(tmp_path, train_images=GREY, train_labels=labels), 32)
    assert (None if data.train.labels is None else data.train.labels.tolist()) == expected
    assert data.classes == classes
    assert [("train_labels" in sentence) for sentence in data.says] == [True] * (expected is None)


def claiming(shape: str) -> bytes:
    """An array of 8 bytes, and of any shape by its header."""
    header = f"{{'descr': '|u1', 'fortran_order': False, 'shape': {shape}}}\n".encode()
    return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + bytes(8)


@pytest.mark.parametrize(
    ("arrays", "named"),
    [
        ({"images": np.zeros(3)}, "train_images; it has images"),
        ({}, "train_images; it has none"),
        ({"train_images": np.zeros((2, 4, 4))}, r"train_images must be uint8.*float64"),
        ({"train_images": np.uint8(3)}, r"train_images must be uint8, N x H x W.*\(\)"),
        ({"train_images": np.zeros((0, 4, 4), np.uint8)}, r"train_images.*\(0, 4, 4\)"),
        ({"train_images": np.zeros((2, 3, 8, 8), np.uint8)}, "looks like N x C x H x W"),
        ({"train_images": np.zeros((2, 13, 64, 64), np.uint8)}, "looks like N x C x H x W"),
        ({"train_images": np.zeros((2, 8, 8, 3), np.uint8), "test_images": np.zeros((2, 8, 8), np.uint8)}, "channels"),
        ({"train_images": GREY, "train_labels": np.zeros(3)}, "train_labels must be one for each of 2"),
        ({"train_images": GREY, "train_labels": np.uint8(1)}, "train_labels must be one for each of 2"),
        ({"train_images": np.array([{"a": 1}], dtype=object)}, "not a readable"),  # pickled
    ],
)
def test_arrays_that_do_not_fit_are_refused(tmp_path, arrays, named):
    with pytest.raises(UserError, match=named):
        load_data(save(tmp_path, **arrays), 32)


@pytest.mark.parametrize("content", [b"", b"PK not a zip", b"junk", b"\x93NUMPY\x01\x00", claiming("(2, 4, 4)")])
def test_files_that_only_claim_to_be_npz_are_refused(tmp_path, content):
    (tmp_path / "x.npz").write_bytes(content)
    with pytest.raises(UserError, match="not a readable"):
        load_data(str(tmp_path / "x.npz"), 32)
