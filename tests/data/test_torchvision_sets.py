"""torchvision's sets are read from their public layouts without decoding, downloaded once, and explained if missing."""

import json
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import torch
import torchvision

from logo_ssl.data import Photos, load_data
from logo_ssl.data.torchvision_sets import SETS
from logo_ssl.errors import UserError

datasets = torchvision.datasets


@pytest.fixture(autouse=True)
def root(tmp_path, monkeypatch) -> Path:
    """An empty folder of named sets, and no network."""

    def refuse(*_, **__):
        raise OSError("no network")

    monkeypatch.setattr(urllib.request, "urlopen", refuse)
    monkeypatch.setenv("LOGO_DATA", str(tmp_path))
    return tmp_path


def touch(folder: Path, *names: str) -> None:
    """Images by name alone: what decodes them fails."""
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()


def write(folder: Path, texts: dict[str, str]) -> None:
    for name, text in texts.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


def food101(root):
    touch(root / "food-101/images", "pie/1.jpg", "pie/2.jpg", "soup/3.jpg")
    write(root / "food-101/meta", {"train.json": '{"soup": ["soup/3"], "pie": ["pie/1"]}'})
    write(root / "food-101/meta", {"test.json": '{"pie": ["pie/2"], "soup": []}'})
    return ["pie/1.jpg", "soup/3.jpg"], [0, 1], ["pie/2.jpg"], [0], ("pie", "soup")


def dtd(root):
    touch(root / "dtd/dtd/images", *(f"{c}/{i}.jpg" for c in ("dotted", "lined") for i in range(3)))
    lines = {f"labels/{s}1.txt": f"dotted/{i}.jpg\nlined/{i}.jpg\n" for i, s in enumerate(("train", "val", "test"))}
    write(root / "dtd/dtd", lines)
    train = ["dotted/0.jpg", "dotted/1.jpg", "lined/0.jpg", "lined/1.jpg"]
    return train, [0, 0, 1, 1], ["dotted/2.jpg", "lined/2.jpg"], [0, 1], ("dotted", "lined")


def gtsrb(root):
    touch(root / "gtsrb/GTSRB/Training", "00000/a.ppm", "00001/b.ppm")
    touch(root / "gtsrb/GTSRB/Final_Test/Images", "c.ppm")
    write(root / "gtsrb", {"GT-final_test.csv": "Filename;ClassId\nc.ppm;1\n"})
    return ["00000/a.ppm", "00001/b.ppm"], [0, 1], ["Images/c.ppm"], [1], ("0", "1")


def country211(root):
    touch(root / "country211", *(f"{split}/{c}/{split}.jpg" for split in ("train", "valid", "test") for c in "AB"))
    train = ["train/A/train.jpg", "train/B/train.jpg", "valid/A/valid.jpg", "valid/B/valid.jpg"]
    return train, [0, 1, 0, 1], ["test/A/test.jpg", "test/B/test.jpg"], [0, 1], ("A", "B")


def caltech101(root):
    touch(root / "caltech101/101_ObjectCategories", "ant/image_0001.jpg", "bee/image_0001.jpg", "bee/image_0002.jpg")
    touch(root / "caltech101/101_ObjectCategories", "BACKGROUND_Google/image_0001.jpg")
    train = ["ant/image_0001.jpg", "bee/image_0001.jpg", "bee/image_0002.jpg"]
    return train, [0, 1, 1], None, None, ("ant", "bee")


def caltech256(root):
    touch(root / "caltech256/256_ObjectCategories", "001.ak47/001_0001.jpg", "002.flag/002_0001.jpg")
    return ["001.ak47/001_0001.jpg", "002.flag/002_0001.jpg"], [0, 1], None, None, ("001.ak47", "002.flag")


def inaturalist(root):
    classes = ("00000_a_b_c_d_e_f_g", "00001_a_b_c_d_e_f_h")
    touch(root, *(f"2021_{split}/{c}/{split}.jpg" for split in ("train", "valid") for c in classes))
    train, test = ([f"2021_{split}/{c}/{split}.jpg" for c in classes] for split in ("train", "valid"))
    return train, [0, 1], test, [0, 1], classes


def clevrclassification(root):
    touch(root / "clevr/CLEVR_v1.0/images", "train/1.png", "val/2.png")
    for split, file, n in (("train", "1.png", 3), ("val", "2.png", 2)):
        scenes = {"scenes": [{"image_filename": file, "objects": [0] * n}]}
        write(root / "clevr/CLEVR_v1.0/scenes", {f"CLEVR_{split}_scenes.json": json.dumps(scenes)})
    return ["train/1.png"], [3], ["val/2.png"], [2], ("0", "1", "2", "3")


LAYOUTS = [food101, dtd, gtsrb, country211, caltech101, caltech256, inaturalist, clevrclassification]


def check(data, train, labels, test, test_labels, classes) -> None:
    for split, files, numbers in ((data.train, train, labels), (data.test, test, test_labels)):
        if files is None:
            assert split is None
            continue
        assert isinstance(split.images, Photos)
        names = [split.images.name(i) for i in range(len(split))]
        assert len(names) == len(files)
        assert all(name.endswith(file) for name, file in zip(names, files, strict=True))
        assert all(Path(name).is_file() for name in names)
        assert (None if split.labels is None else split.labels.tolist()) == numbers
    assert data.classes == classes


@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda layout: layout.__name__)
def test_a_set_in_its_public_layout_becomes_paths_and_labels(root, layout):
    expected = layout(root)
    check(load_data(layout.__name__, 224), *expected)


@pytest.mark.parametrize(
    ("layout", "val"),
    [
        (dtd, [False, True, False, True]),
        (country211, [False, False, True, True]),
        (food101, None),
    ],
)
def test_an_official_validation_split_is_marked_in_train(root, layout, val):
    layout(root)
    found = load_data(layout.__name__, 224)
    assert (None if found.val_in_train is None else found.val_in_train.tolist()) == val
    assert found.source == layout.__name__


def test_stanfordcars_is_read_where_it_was_placed(root):
    scipy_io = pytest.importorskip("scipy.io")
    touch(root / "stanford_cars", "cars_train/1.jpg", "cars_train/2.jpg", "cars_test/3.jpg", "cars_test/4.jpg")
    (root / "stanford_cars/devkit").mkdir()
    for file, names in (("devkit/cars_train_annos.mat", "12"), ("cars_test_annos_withlabels.mat", "34")):
        rows = np.array([(f"{n}.jpg", i + 1) for i, n in enumerate(names)], dtype=[("fname", object), ("class", int)])
        scipy_io.savemat(root / "stanford_cars" / file, {"annotations": rows})
    scipy_io.savemat(root / "stanford_cars/devkit/cars_meta.mat", {"class_names": np.array(["Audi", "BMW"], object)})
    check(load_data("stanfordcars", 224), ["1.jpg", "2.jpg"], [0, 1], ["3.jpg", "4.jpg"], [0, 1], ("Audi", "BMW"))


def test_places365_is_read_at_256_px(root, monkeypatch):
    monkeypatch.setattr(datasets.Places365, "_check_integrity", lambda *_: True)
    touch(root, "data_256_standard/a/abbey/1.jpg", "data_256_standard/b/bar/2.jpg", "val_256/3.jpg")
    write(root, {"categories_places365.txt": "/a/abbey 0\n/b/bar 1\n", "places365_val.txt": "3.jpg 1\n"})
    write(root, {"places365_train_standard.txt": "/a/abbey/1.jpg 0\n/b/bar/2.jpg 1\n"})
    check(load_data("places365", 224), ["abbey/1.jpg", "bar/2.jpg"], [0, 1], ["3.jpg"], [1], ("/a/abbey", "/b/bar"))


class Fake:
    """A data set that holds what it is told, whatever split is asked for."""

    def __init__(self, **attributes):
        self.__dict__ |= attributes

    def __call__(self, root, **arguments):
        self.asked = [*getattr(self, "asked", []), arguments]
        return self

    def __len__(self):
        return 2


LAST = np.arange(2 * 4 * 4 * 3, dtype=np.uint8).reshape(2, 4, 4, 3)
FIRST = torch.from_numpy(LAST).permute(0, 3, 1, 2)


@pytest.mark.parametrize(
    ("name", "fake", "expected"),
    [
        ("CIFAR10", Fake(data=LAST, targets=[3, 0], classes=list("abcd")), FIRST),
        ("STL10", Fake(data=FIRST.numpy(), labels=np.array([3, 0], np.uint8), classes=list("abcd")), FIRST),
        ("SVHN", Fake(data=FIRST.numpy(), labels=np.array([3, 0])), FIRST),
        ("MNIST", Fake(data=FIRST[:, 0], targets=torch.tensor([3, 0])), FIRST[:, :1]),
    ],
)
def test_arrays_become_one_tensor_whatever_their_order(monkeypatch, name, fake, expected):
    monkeypatch.setattr(datasets, name, fake)
    data = load_data(name.lower(), 32)
    assert (name == "STL10") == (fake.asked[0].get("split") == "train+unlabeled")
    assert torch.equal(data.train.images, expected)
    assert data.train.images.is_contiguous()
    assert data.train.labels.tolist() == [3, 0]
    assert len(data.classes) >= 4


def test_a_missing_set_says_what_to_place_where(root):
    with pytest.raises(UserError) as caught:
        load_data("svhn", 32)
    assert all(str(root / place) in str(caught.value) for place in SETS["svhn"].places)


def test_a_set_is_downloaded_once_whoever_asks_at_the_same_time(root, monkeypatch):
    downloads = []

    def svhn(root: str, split: str, download: bool) -> Fake:
        if not download and not (Path(root) / split).exists():  # as torchvision looks: whether it is whole is not seen
            raise RuntimeError("Dataset not found or corrupted.")
        if download and not (Path(root) / split).exists():
            downloads.append(split)
            (Path(root) / split).touch()
            time.sleep(0.05)
        return Fake(data=LAST, targets=[3, 0])

    monkeypatch.setattr(datasets, "SVHN", svhn)
    with ThreadPoolExecutor(4) as pool:  # each thread takes locks of its own, as processes do
        found = list(pool.map(lambda _: load_data("svhn", 32), range(4)))
    assert all(torch.equal(data.test.images, FIRST) for data in found)
    assert sorted(downloads) == ["test", "train"]
