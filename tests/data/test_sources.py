import numpy as np
import pytest
import torch
from PIL import Image

from logo_ssl.data import Batches, ImageSet, Split, load_data
from logo_ssl.errors import UserError


@pytest.fixture
def photos(tmp_path):
    """Two class folders of images of several sizes and modes."""
    rng = np.random.default_rng(0)
    for name in ("cat", "dog"):
        (tmp_path / "photos" / name / "deep").mkdir(parents=True)
        for i, (mode, shape) in enumerate((("RGB", (40, 60, 3)), ("L", (33, 20)), ("RGBA", (50, 50, 4)))):
            image = Image.fromarray(rng.integers(0, 256, shape, dtype=np.uint8), mode)
            image.save(tmp_path / "photos" / name / "deep" / f"{i}.png")
    return tmp_path / "photos"


def test_class_folders_are_labels(photos):
    data = load_data(str(photos), 24)
    assert data.train.images.shape == (6, 3, 24, 24)
    assert data.train.labels.tolist() == [0, 0, 0, 1, 1, 1]
    assert data.classes == ("cat", "dog")


def test_a_flat_folder_has_no_labels(photos):
    data = load_data(str(photos / "cat"), 24)
    assert data.train.labels is None
    assert data.for_knn() is None


def test_train_and_val_folders_are_splits(photos, tmp_path):
    root = tmp_path / "split"
    root.mkdir()
    photos.rename(root / "train")
    (root / "val" / "dog").mkdir(parents=True)
    Image.new("RGB", (30, 30)).save(root / "val" / "dog" / "x.jpg")
    data = load_data(str(root), 16)
    assert len(data.train) == 6
    assert data.test.labels.tolist() == [1]


def test_the_middle_of_an_image_is_kept(tmp_path):
    pixels = np.zeros((10, 30, 3), dtype=np.uint8)
    pixels[:, 10:20] = 200
    Image.fromarray(pixels).save(tmp_path / "wide.png")
    data = load_data(str(tmp_path), 10)
    assert (data.train.images == 200).all()


def save_npz(path, **arrays):
    np.savez(path, **arrays)
    return str(path)


def test_npz_in_medmnists_convention(tmp_path):
    images = np.arange(2 * 4 * 5 * 3, dtype=np.uint8).reshape(2, 4, 5, 3)
    source = save_npz(
        tmp_path / "x.npz", train_images=images, train_labels=np.array([[1], [0]]), test_images=images[:1]
    )
    data = load_data(source, 99)
    assert torch.equal(data.train.images[1], torch.from_numpy(images[1]).permute(2, 0, 1))
    assert data.train.labels.tolist() == [1, 0]
    assert data.test.images.shape == (1, 3, 4, 5)


def test_grey_arrays_have_one_channel(tmp_path):
    source = save_npz(tmp_path / "x.npz", train_images=np.zeros((2, 4, 5), np.uint8))
    assert load_data(source, 99).train.images.shape == (2, 1, 4, 5)


@pytest.mark.parametrize(
    ("arrays", "sentence"),
    [
        ({"images": np.zeros(3)}, "needs the key train_images"),
        ({"train_images": np.zeros((2, 4, 4))}, "must be uint8"),
        ({"train_images": np.zeros((2, 3, 8, 8), np.uint8)}, "looks like N x C x H x W"),
        (
            {"train_images": np.zeros((2, 8, 8, 3), np.uint8), "test_images": np.zeros((2, 8, 8), np.uint8)},
            "3 and 1 channels",
        ),
        ({"train_images": np.zeros((2, 4, 4), np.uint8), "train_labels": np.zeros(3)}, "2 train_images but 3"),
    ],
)
def test_an_npz_that_does_not_fit_is_explained(tmp_path, arrays, sentence):
    with pytest.raises(UserError, match=sentence):
        load_data(save_npz(tmp_path / "x.npz", **arrays), 32)


def test_pickled_arrays_are_refused(tmp_path):
    source = save_npz(tmp_path / "x.npz", train_images=np.array([{"a": 1}], dtype=object))
    with pytest.raises(UserError, match=r"not a readable"):
        load_data(source, 32)


def test_missing_data_and_broken_images_are_explained(tmp_path):
    with pytest.raises(UserError, match=r"No data at 'scene'.*Did you mean scenes\?"):
        load_data("scene", 32)
    with pytest.raises(UserError, match=r"No images in"):
        load_data(str(tmp_path), 32)
    (tmp_path / "broken.jpg").write_bytes(b"not an image")
    with pytest.raises(UserError, match=r"broken.jpg cannot be read"):
        load_data(str(tmp_path), 32)
    (tmp_path / "notes.txt").write_text("hello")
    with pytest.raises(UserError, match=r"neither a folder of images nor an .npz"):
        load_data(str(tmp_path / "notes.txt"), 32)


def test_imagenet100_says_what_to_place_where(monkeypatch, tmp_path):
    monkeypatch.setenv("LOGO_DATA", str(tmp_path))
    with pytest.raises(UserError, match=r"imagenet100/train/CLASS"):
        load_data("imagenet100", 224)


def test_statistics_are_those_of_the_pixels():
    images = torch.randint(0, 256, (20, 2, 8, 8), dtype=torch.uint8)
    mean, std = ImageSet("x", Split(images)).statistics()
    expected = images.double().div(255).transpose(0, 1).flatten(1)
    assert mean == pytest.approx(expected.mean(1).tolist(), abs=1e-6)
    assert std == pytest.approx(expected.std(1).tolist(), abs=1e-6)


def test_without_a_test_split_a_tenth_is_held_out_of_the_bank():
    images = torch.arange(40, dtype=torch.uint8).view(40, 1, 1, 1)
    bank, queries = ImageSet("x", Split(images, torch.arange(40) % 2)).for_knn()
    assert (len(bank), len(queries)) == (36, 4)
    assert not set(bank.images.flatten().tolist()) & set(queries.images.flatten().tolist())


def test_unlabelled_rows_stay_out_of_the_bank():
    images = torch.arange(40, dtype=torch.uint8).view(40, 1, 1, 1)
    labels = torch.where(torch.arange(40) < 20, torch.arange(40) % 2, -1)
    bank, queries = ImageSet("stl", Split(images, labels)).for_knn()
    assert (bank.labels >= 0).all()
    assert (queries.labels >= 0).all()


def test_thinning_keeps_every_class_of_a_sorted_set():
    split = Split(torch.zeros(1000, 1, 1, 1, dtype=torch.uint8), torch.arange(1000) // 100)
    assert set(split.thinned(20).labels.tolist()) == set(range(10))
    assert len(split.thinned(20)) == 20


@pytest.mark.parametrize("labels", [np.array(["b", "a"]), np.array([7e9, -3.0]), np.array([[5], [2]])])
def test_labels_of_any_kind_count_from_zero(tmp_path, labels):
    source = save_npz(tmp_path / "x.npz", train_images=np.zeros((2, 4, 4), np.uint8), train_labels=labels)
    got = load_data(source, 32).train.labels.tolist()
    assert got == ([0, -1] if labels.dtype.kind == "f" else [1, 0])


@pytest.mark.parametrize("content", [b"", b"PK not a zip", b"junk"])
def test_files_that_only_claim_to_be_npz_are_refused(tmp_path, content):
    (tmp_path / "x.npz").write_bytes(content)
    with pytest.raises(UserError, match="not a readable"):
        load_data(str(tmp_path / "x.npz"), 32)


def test_order_follows_from_seed_and_epoch_alone():
    images = torch.arange(20, dtype=torch.uint8).view(20, 1, 1, 1)

    def order(seed, epoch):
        batches = Batches(images, 4, seed)
        batches.set_epoch(epoch)
        return torch.cat(list(batches)).flatten().tolist()

    assert order(0, 1) == order(0, 1)
    assert len({tuple(order(seed, epoch)) for seed in (0, 1) for epoch in (0, 1)}) == 4
    assert sorted(order(0, 0)) == list(range(20))


def test_a_smaller_last_batch_is_left_out_but_a_small_set_is_not():
    images = torch.zeros(10, 1, 1, 1, dtype=torch.uint8)
    assert [len(b) for b in Batches(images, 4, 0)] == [4, 4]
    assert [len(b) for b in Batches(images, 64, 0)] == [10]
