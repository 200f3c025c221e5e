"""Are arrays in MedMNIST's convention read, and all others explained?"""

from zipfile import ZipFile

import numpy as np
import pytest
import torch
from rich.console import Console

from logo_ssl.data import load_data
from logo_ssl.errors import UserError
from logo_ssl.eval import labelled
from logo_ssl.recipes import find_recipe
from logo_ssl.train.build import fitted

GREY = np.zeros((2, 4, 5), np.uint8)


def claiming(shape: str) -> bytes:
    """An array of 8 bytes, and of any shape by its header."""
    header = f"{{'descr': '|u1', 'fortran_order': False, 'shape': {shape}}}\n".encode()
    return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + bytes(8)


def save(folder, **arrays):
    np.savez(folder / "x.npz", **arrays)
    return str(folder / "x.npz")


def test_medmnists_convention(tmp_path):
    images = np.arange(2 * 4 * 5 * 3, dtype=np.uint8).reshape(2, 4, 5, 3)
    source = save(tmp_path, train_images=images, train_labels=np.array([[1], [0]]), test_images=images[:1])
    data = load_data(source, 99)
    assert torch.equal(data.train.images[1], torch.from_numpy(images[1]).permute(2, 0, 1))
    assert data.train.labels.tolist() == [1, 0]
    assert data.test.images.shape == (1, 3, 4, 5)
    assert (data.name, data.classes) == ("x", ("0", "1"))


def test_grey_arrays_have_one_channel(tmp_path):
    assert load_data(save(tmp_path, train_images=GREY), 99).train.images.shape == (2, 1, 4, 5)


@pytest.mark.parametrize("shape", [(2, 8, 8, 5), (2, 9, 9, 200), (2, 8, 9, 200), (2, 6, 4, 2)])
def test_any_number_of_channels_is_kept(tmp_path, shape):
    data = load_data(save(tmp_path, train_images=np.zeros(shape, np.uint8)), 99)
    assert data.channels == shape[3]
    assert data.train.images.is_contiguous()


def test_val_images_beside_test_images_are_to_choose_by(tmp_path):
    labels = {"train_labels": [0, 4], "test_labels": [4], "val_labels": [4, 0]}
    data = load_data(save(tmp_path, train_images=GREY, test_images=GREY[:1], val_images=GREY[:2], **labels), 99)
    assert (data.test.labels.tolist(), data.val.labels.tolist()) == ([1], [1, 0])
    assert data.watched == ("validation images", data.val)
    bank, queries = data.for_knn()
    assert (len(bank), queries.taken().labels.tolist()) == (2, [1, 0])


def test_test_images_without_labels_give_way_to_val_images_that_have_them(tmp_path):
    labels = {"train_labels": [0, 4], "val_labels": [4, 0]}
    data = load_data(save(tmp_path, train_images=GREY, test_images=GREY[:1], val_images=GREY[:2], **labels), 99)
    assert (data.test.labels.tolist(), data.val) == ([1, 0], None)


def test_labels_that_are_no_whole_numbers_are_refused_with_their_kind(tmp_path):
    source = save(tmp_path, train_images=GREY, train_labels=np.array([0.5, 0.0096], np.float32))
    told = r"labels in .*x.npz are float32, such as 0\.0096, and labels are whole numbers from 0, one for each class"
    with pytest.raises(UserError, match=told):
        load_data(source, 32)
    source = save(tmp_path, train_images=GREY, train_labels=np.array([0, np.nan]))  # as of an image without a label
    assert load_data(source, 32).train.labels.tolist() == [0, -1]


def test_val_images_are_held_out_where_there_are_no_others(tmp_path):
    source = save(tmp_path, train_images=GREY, train_labels=[0, 4], val_images=GREY[:1], val_labels=[4])
    data = load_data(source, 99)
    assert (data.test.labels.tolist(), data.val) == ([1], None)


def test_several_labels_for_each_image_are_no_label(tmp_path):
    many = np.zeros((2, 14), int)
    source = save(tmp_path, train_images=GREY, train_labels=many, test_images=GREY, test_labels=many)
    data = load_data(source, 99)
    assert data.train.labels is None
    assert data.test.labels is None
    assert data.classes == ()


def test_why_labels_that_lie_there_count_as_none_is_said(tmp_path):
    source = save(tmp_path, train_images=GREY, train_labels=np.eye(2, 3), test_images=GREY, test_labels=np.eye(2, 3))
    data = load_data(source, 99)
    told = f"train_labels in {source} is (2, 3), so it is not read; give one number for each image, by argmax(1) of"
    assert [sentence.startswith(told) for sentence in data.says] == [True]
    assert data.why_unlabelled == data.says[0]
    assert load_data(save(tmp_path, train_images=GREY, train_labels=[[0], [1]]), 99).says == ()


UNLABELLED = {
    "no labels": ({"valid_images": GREY}, ""),
    "none of train": ({"test_images": GREY, "test_labels": np.eye(2, 3)}, ""),
    "no label that counts": ({"train_labels": [-1, -1], "test_image": GREY}, ""),
    "misnamed": ({"train_label": [0, 1], "valid_images": GREY}, r" train_label in .* did you mean train_labels\?"),
    "one-hot": ({"train_labels": np.eye(2, 3), "test_image": GREY}, r" train_labels in .* is \(2, 3\), so .*, say\."),
}


@pytest.mark.parametrize(("arrays", "why"), UNLABELLED.values(), ids=UNLABELLED)
def test_an_evaluation_that_lacks_labels_tells_the_cure_and_then_what_lies_there_for_them(tmp_path, arrays, why):
    data = load_data(save(tmp_path, train_images=GREY, **arrays), 99)
    assert data.says  # whatever else lies there
    with pytest.raises(
        UserError, match=rf"x has no labels, .*; give .* an \.npz with train_labels, or a named set\.{why}$"
    ):
        labelled(data)
    with pytest.raises(UserError, match=rf"supervised learning needs them all\.{why}$"):
        fitted(find_recipe("tiny").changed(framework="supervised"), data, Console(quiet=True))


def test_labels_that_some_images_lack_are_not_explained_by_other_keys(tmp_path):
    data = load_data(
        save(tmp_path, train_images=np.repeat(GREY, 2, 0), train_labels=[0, 1, -1, 0], test_image=GREY), 99
    )
    with pytest.raises(UserError, match=r"without labels, and supervised learning needs them all\.$"):
        fitted(find_recipe("tiny").changed(framework="supervised"), data, Console(quiet=True))


@pytest.mark.parametrize(
    ("key", "meant"),
    [
        ("train_label", "train_labels"),
        ("Train_Labels", "train_labels"),
        ("test_image", "test_images"),
        ("valid_labels", "val_labels"),
        ("train_names", None),
        ("weights", None),
    ],
)
def test_a_key_that_is_nearly_ours_is_told_where_ours_is_missing(tmp_path, key, meant):
    source = save(tmp_path, train_images=GREY, **{key: [0, 1]})
    told = () if meant is None else (f"{key} in {source} is not read; did you mean {meant}?",)
    data = load_data(source, 99)
    assert data.says == told
    assert data.why_unlabelled == (told[0] if meant == "train_labels" else "")
    if meant is not None:
        there = {meant: GREY if meant.endswith("images") else [0, 1]}
        assert load_data(save(tmp_path, train_images=GREY, **there, **{key: [0, 1]}), 99).says == ()


@pytest.mark.parametrize("labels", [np.array(["b", "a"]), np.array([0, -3.0]), np.array([[5], [0]])])
def test_labels_of_any_kind_become_numbers_without_gaps(tmp_path, labels):
    got = load_data(save(tmp_path, train_images=GREY, train_labels=labels), 32).train.labels.tolist()
    assert got == ([0, -1] if labels.dtype.kind == "f" else [1, 0])


@pytest.mark.parametrize("labels", [np.array([5, 2]), np.array([[2], [3]], np.uint8), np.array([2.0, -1.0])])
def test_labels_that_do_not_start_at_0_are_refused(tmp_path, labels):
    with pytest.raises(UserError, match=r"The smallest label in .*x.npz is 2.*, and labels start at 0; subtract 2"):
        load_data(save(tmp_path, train_images=GREY, train_labels=labels), 32)


@pytest.mark.parametrize(
    ("arrays", "sentence"),
    [
        ({"images": np.zeros(3)}, "holds images; it needs the key train_images"),
        ({}, "holds nothing; it needs the key train_images"),
        ({"train_images": np.zeros((2, 4, 4))}, r"float64.*must be uint8.*Try \(x \* 255\)"),
        ({"train_images": np.zeros((2, 4, 4), np.uint16)}, r"uint16.*must be uint8.*Try \(x / x.max\(\) \* 255\)"),
        ({"train_images": np.zeros((2, 4, 4), bool)}, r"bool.*must be uint8.*Try x.astype"),
        ({"train_images": np.uint8(3)}, r"uint8 \(\); it must be uint8, N x H x W"),
        ({"train_images": np.zeros((0, 4, 4), np.uint8)}, r"uint8 \(0, 4, 4\)"),
        ({"train_images": np.zeros((2, 3, 8, 8), np.uint8)}, "looks like N x C x H x W"),
        ({"train_images": np.zeros((2, 13, 64, 64), np.uint8)}, "looks like N x C x H x W"),
        (
            {"train_images": np.zeros((2, 8, 8, 3), np.uint8), "test_images": np.zeros((2, 8, 8), np.uint8)},
            "train and test images in .* have 3 and 1 channels",
        ),
        ({"train_images": GREY, "train_labels": np.zeros(3)}, "2 train_images but 3"),
        ({"train_images": GREY, "train_labels": np.uint8(1)}, "2 train_images but 1"),
    ],
)
def test_an_npz_that_does_not_fit_is_explained(tmp_path, arrays, sentence):
    with pytest.raises(UserError, match=sentence):
        load_data(save(tmp_path, **arrays), 32)


def test_pickled_arrays_are_refused(tmp_path):
    with pytest.raises(UserError, match=r"not a readable"):
        load_data(save(tmp_path, train_images=np.array([{"a": 1}], dtype=object)), 32)


@pytest.mark.parametrize("content", [b"", b"PK not a zip", b"junk", b"\x93NUMPY\x01\x00"])
def test_files_that_only_claim_to_be_npz_are_refused(tmp_path, content):
    (tmp_path / "x.npz").write_bytes(content)
    with pytest.raises(UserError, match="not a readable"):
        load_data(str(tmp_path / "x.npz"), 32)


def test_a_single_array_called_npz_is_refused(tmp_path):
    np.save(tmp_path / "x.npy", GREY)
    (tmp_path / "x.npy").rename(tmp_path / "x.npz")
    with pytest.raises(UserError, match="not a readable"):
        load_data(str(tmp_path / "x.npz"), 32)


def test_a_damaged_npz_is_refused(tmp_path):
    np.savez_compressed(tmp_path / "x.npz", train_images=np.random.default_rng(0).bytes(5000))
    content = bytearray((tmp_path / "x.npz").read_bytes())
    content[500:600] = bytes(100)
    (tmp_path / "x.npz").write_bytes(content)
    with pytest.raises(UserError, match="not a readable"):
        load_data(str(tmp_path / "x.npz"), 32)


def as_it_was(content: bytearray, directory: int) -> None:
    """Nothing is changed."""


def encrypted(content: bytearray, directory: int) -> None:
    content[6] |= 1
    content[directory + 8] |= 1


def packed_unknown(content: bytearray, directory: int) -> None:
    content[8] = content[directory + 10] = 99


@pytest.mark.parametrize(
    ("array", "change", "sentence"),
    [
        (
            claiming("(1000000000, 10000, 3)"),
            as_it_was,
            r"does not fit into memory \(Unable to allocate .* save it again",
        ),
        (claiming("(2, 4, "), as_it_was, "is not a readable .npz file .*; save it with numpy.savez"),
        (claiming("(2, 4)"), encrypted, r"is not a readable .npz file \(.*encrypted.*\); save it with numpy.savez"),
        (claiming("(2, 4)"), packed_unknown, r"is not a readable .npz file \(.*compression.*\); save it with"),
        (b"not an array", as_it_was, r"train_images in .*x.npz is \|S12 \(\); it must be uint8"),
    ],
    ids=["claims too much", "torn header", "encrypted", "unknown compression", "no array"],
)
def test_what_only_a_foreign_or_damaged_archive_holds_is_refused_in_a_sentence(tmp_path, array, change, sentence):
    with ZipFile(tmp_path / "x.npz", "w") as archive:
        archive.writestr("train_images.npy", array)
    content = bytearray((tmp_path / "x.npz").read_bytes())
    change(content, content.find(b"PK\x01\x02"))
    (tmp_path / "x.npz").write_bytes(content)
    with pytest.raises(UserError, match=sentence):
        load_data(str(tmp_path / "x.npz"), 32)


def test_several_negative_labels_are_classes_that_do_not_start_at_0(tmp_path):
    source = save(tmp_path, train_images=GREY, train_labels=[-2, 0], test_images=GREY[:1], test_labels=[-1])
    with pytest.raises(UserError, match=r"The smallest label in .*x.npz is -2, and labels start at 0; add 2 to all"):
        load_data(source, 32)


def test_a_file_that_may_not_be_read_is_to_be_made_readable_not_saved_again(tmp_path, monkeypatch):
    def refuse(*_):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("logo_ssl.data.npz.ZipFile", refuse)
    with pytest.raises(
        UserError, match=r"x.npz cannot be read \(Permission denied\); make it readable, or give a copy"
    ):
        load_data(save(tmp_path, train_images=GREY), 4)
