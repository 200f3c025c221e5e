"""torchvision's sets are read from their public layouts without decoding, downloaded once, and explained if missing."""

import bz2
import json
import sys
import threading
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch
import torchvision

from logo_ssl.data import load_data
from logo_ssl.data.images import Paths
from logo_ssl.data.torchvision_sets import SETS, download_once
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


def idx(path: Path, array: np.ndarray) -> None:
    """MNIST's own format."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(bytes([0, 0, 8, array.ndim]) + np.array(array.shape, ">i4").tobytes() + array.tobytes())


def food101(root):
    touch(root / "food-101/images", "pie/1.jpg", "pie/2.jpg", "soup/3.jpg")
    write(root / "food-101/meta", {"train.json": '{"soup": ["soup/3"], "pie": ["pie/1"]}'})
    write(root / "food-101/meta", {"test.json": '{"pie": ["pie/2"], "soup": []}'})
    return ["pie/1.jpg", "soup/3.jpg"], [0, 1], ["pie/2.jpg"], [0], ("pie", "soup")


def oxfordiiitpet(root):
    touch(root / "oxford-iiit-pet/images", "a_1.jpg", "b_1.jpg", "b_2.jpg")
    write(root / "oxford-iiit-pet/annotations", {"trainval.txt": "b_1 2 1 1\na_1 1 1 1\n", "test.txt": "b_2 2 1 1\n"})
    return ["a_1.jpg", "b_1.jpg"], [0, 1], ["b_2.jpg"], [1], ("A", "B")


def dtd(root):
    touch(root / "dtd/dtd/images", *(f"{c}/{i}.jpg" for c in ("dotted", "lined") for i in range(3)))
    lines = {f"labels/{s}1.txt": f"dotted/{i}.jpg\nlined/{i}.jpg\n" for i, s in enumerate(("train", "val", "test"))}
    write(root / "dtd/dtd", lines)
    train = ["dotted/0.jpg", "dotted/1.jpg", "lined/0.jpg", "lined/1.jpg"]
    return train, [0, 0, 1, 1], ["dotted/2.jpg", "lined/2.jpg"], [0, 1], ("dotted", "lined")


def fgvcaircraft(root):
    touch(root / "fgvc-aircraft-2013b/data/images", "1.jpg", "2.jpg", "3.jpg")
    texts = {"variants.txt": "707-320\nA300\n", "images_variant_trainval.txt": "1 A300\n2 707-320\n"}
    texts |= {"images_variant_val.txt": "1 A300\n", "images_variant_test.txt": "3 A300\n"}
    write(root / "fgvc-aircraft-2013b/data", texts)
    return ["1.jpg", "2.jpg"], [1, 0], ["3.jpg"], [1], ("707-320", "A300")


def gtsrb(root):
    touch(root / "gtsrb/GTSRB/Training", "00000/a.ppm", "00001/b.ppm")
    touch(root / "gtsrb/GTSRB/Final_Test/Images", "c.ppm")
    write(root / "gtsrb", {"GT-final_test.csv": "Filename;ClassId\nc.ppm;1\n"})
    return ["00000/a.ppm", "00001/b.ppm"], [0, 1], ["Images/c.ppm"], [1], ("0", "1")


def eurosat(root):
    touch(root / "eurosat/2750", "Forest/1.jpg", "River/2.jpg")
    return ["Forest/1.jpg", "River/2.jpg"], [0, 1], None, None, ("Forest", "River")


def country211(root):
    touch(root / "country211", *(f"{split}/{c}/{split}.jpg" for split in ("train", "valid", "test") for c in "AB"))
    train = ["train/A/train.jpg", "train/B/train.jpg", "valid/A/valid.jpg", "valid/B/valid.jpg"]
    return train, [0, 1, 0, 1], ["test/A/test.jpg", "test/B/test.jpg"], [0, 1], ("A", "B")


def renderedsst2(root):
    splits = ("train", "valid", "test")
    touch(root / "rendered-sst2", *(f"{split}/{c}/1.png" for split in splits for c in ("negative", "positive")))
    train = [f"{split}/{c}/1.png" for split in ("train", "valid") for c in ("negative", "positive")]
    test = ["test/negative/1.png", "test/positive/1.png"]
    return train, [0, 1, 0, 1], test, [0, 1], ("negative", "positive")


def imagenette(root):
    touch(root / "imagenette2", *(f"{s}/{c}/1.JPEG" for s in ("train", "val") for c in ("n01440764", "n02979186")))
    train, test = ([f"{s}/{c}/1.JPEG" for c in ("n01440764", "n02979186")] for s in ("train", "val"))
    return train, [0, 1], test, [0, 1], ("tench", "cassette player")


def sun397(root):
    touch(root / "SUN397", "b/bar/sun_2.jpg", "a/abbey/sun_1.jpg")
    write(root / "SUN397", {"ClassName.txt": "/a/abbey\n/b/bar\n"})
    return ["a/abbey/sun_1.jpg", "b/bar/sun_2.jpg"], [0, 1], None, None, ("abbey", "bar")


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


LAYOUTS = [
    *(food101, oxfordiiitpet, dtd, fgvcaircraft, gtsrb, eurosat, country211, renderedsst2, imagenette, sun397),
    *(caltech101, caltech256, inaturalist, clevrclassification),
]


def check(data, train, labels, test, test_labels, classes) -> None:
    for split, files, numbers in ((data.train, train, labels), (data.test, test, test_labels)):
        if files is None:
            assert split is None
            continue
        assert isinstance(split.images.files, Paths)
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
        (fgvcaircraft, [True, False]),
        (country211, [False, False, True, True]),
        (renderedsst2, [False, False, True, True]),
        (oxfordiiitpet, None),
    ],
)
def test_an_official_validation_split_is_marked_in_train(root, layout, val):
    layout(root)
    found = load_data(layout.__name__, 224)
    assert (None if found.val_in_train is None else found.val_in_train.tolist()) == val
    assert found.source == layout.__name__


def test_flowers102_joins_train_and_val(root, monkeypatch):
    scipy_io = pytest.importorskip("scipy.io")
    monkeypatch.setattr(datasets.Flowers102, "_check_integrity", lambda self: True)
    touch(root / "flowers-102/jpg", *(f"image_{i:05d}.jpg" for i in (1, 2, 3)))
    scipy_io.savemat(root / "flowers-102/setid.mat", {"trnid": [1, 1], "valid": [3, 3], "tstid": [2, 2]})
    scipy_io.savemat(root / "flowers-102/imagelabels.mat", {"labels": [1, 2, 3]})
    data = load_data("flowers102", 224)
    assert data.train.labels.tolist() == [0, 0, 2, 2]
    assert data.val_in_train.tolist() == [False, False, True, True]
    assert data.test.labels.tolist() == [1, 1]
    assert data.classes[2] == "canterbury bells"


def test_stanfordcars_is_read_where_it_was_placed(root):
    scipy_io = pytest.importorskip("scipy.io")
    touch(root / "stanford_cars", "cars_train/1.jpg", "cars_train/2.jpg", "cars_test/3.jpg", "cars_test/4.jpg")
    (root / "stanford_cars/devkit").mkdir()
    for file, names in (("devkit/cars_train_annos.mat", "12"), ("cars_test_annos_withlabels.mat", "34")):
        rows = np.array([(f"{n}.jpg", i + 1) for i, n in enumerate(names)], dtype=[("fname", object), ("class", int)])
        scipy_io.savemat(root / "stanford_cars" / file, {"annotations": rows})
    scipy_io.savemat(root / "stanford_cars/devkit/cars_meta.mat", {"class_names": np.array(["Audi", "BMW"], object)})
    check(load_data("stanfordcars", 224), ["1.jpg", "2.jpg"], [0, 1], ["3.jpg", "4.jpg"], [0, 1], ("Audi", "BMW"))


def test_omniglot_numbers_its_characters_by_name(root, monkeypatch):
    monkeypatch.setattr(datasets.Omniglot, "_check_integrity", lambda self: True)
    touch(root / "omniglot-py/images_background", "B/character01/1.png", "A/character02/1.png", "A/character01/1.png")
    files = ["A/character01/1.png", "A/character02/1.png", "B/character01/1.png"]
    check(load_data("omniglot", 105), files, [0, 1, 2], None, None, ("0", "1", "2"))


def test_lfwpeople_are_read_where_they_were_placed(root, monkeypatch):
    monkeypatch.setattr(datasets.LFWPeople, "_check_integrity", lambda self: True)
    touch(root / "lfw-py/lfw_funneled", "Ann/Ann_0001.jpg", "Bob/Bob_0001.jpg", "Bob/Bob_0002.jpg")
    write(root / "lfw-py", {"people.txt": "1\n2\nAnn\t1\nBob\t2\n", "lfw-names.txt": "Ann 1\nBob 2\n"})
    check(
        load_data("lfwpeople", 224),
        ["Ann_0001.jpg", "Bob_0001.jpg", "Bob_0002.jpg"],
        [0, 1, 1],
        None,
        None,
        ("Ann", "Bob"),
    )


def test_places365_is_read_at_256_px(root, monkeypatch):
    monkeypatch.setattr(datasets.Places365, "_check_integrity", lambda *_: True)
    touch(root, "data_256_standard/a/abbey/1.jpg", "data_256_standard/b/bar/2.jpg", "val_256/3.jpg")
    write(root, {"categories_places365.txt": "/a/abbey 0\n/b/bar 1\n", "places365_val.txt": "3.jpg 1\n"})
    write(root, {"places365_train_standard.txt": "/a/abbey/1.jpg 0\n/b/bar/2.jpg 1\n"})
    check(load_data("places365", 224), ["abbey/1.jpg", "bar/2.jpg"], [0, 1], ["3.jpg"], [1], ("/a/abbey", "/b/bar"))


def test_celeba_has_attributes_and_no_labels(root, monkeypatch):
    monkeypatch.setattr(datasets.CelebA, "_check_integrity", lambda self: True)
    touch(root / "celeba/img_align_celeba", "1.jpg", "2.jpg", "3.jpg", "4.jpg")
    write(root / "celeba", {"list_eval_partition.txt": "1.jpg 0\n2.jpg 0\n3.jpg 2\n4.jpg 2\n"})
    rows = "".join(f"{i}.jpg 1\n" for i in range(1, 5))
    write(root / "celeba", {"identity_CelebA.txt": rows})
    for name in ("bbox", "landmarks_align", "attr"):
        write(root / "celeba", {f"list_{name}_celeba.txt": f"4\nx\n{rows}"})
    check(load_data("celeba", 224), ["1.jpg", "2.jpg"], None, ["3.jpg", "4.jpg"], None, ())


@pytest.mark.parametrize("name", ["MNIST", "FashionMNIST", "KMNIST"])
def test_mnist_and_its_like_become_grey_arrays(root, name):
    images = np.arange(3 * 28 * 28, dtype=np.uint8).reshape(3, 28, 28)
    for part, n in (("train", 3), ("t10k", 2)):
        idx(root / name / "raw" / f"{part}-images-idx3-ubyte", images[:n])
        idx(root / name / "raw" / f"{part}-labels-idx1-ubyte", np.array([9, 0, 4], np.uint8)[:n])
    data = load_data(name.lower(), 28)
    assert torch.equal(data.train.images, torch.from_numpy(images)[:, None])
    assert data.train.labels.tolist() == [9, 0, 4]
    assert (len(data.test), len(data.classes)) == (2, 10)


def test_usps_is_read_from_its_text(root):
    for name in ("usps.bz2", "usps.t.bz2"):
        (root / name).write_bytes(bz2.compress(b"".join(b"%d " % y + b"1:1 " * 256 + b"\n" for y in (10, 1))))
    data = load_data("usps", 16)
    assert data.train.images.shape == (2, 1, 16, 16)
    assert data.train.labels.tolist() == [9, 0]


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
        ("CIFAR100", Fake(data=LAST, targets=[3, 0], classes=list("abcd")), FIRST),
        ("STL10", Fake(data=FIRST.numpy(), labels=np.array([3, 0], np.uint8), classes=list("abcd")), FIRST),
        ("SVHN", Fake(data=FIRST.numpy(), labels=np.array([3, 0])), FIRST),
        ("SEMEION", Fake(data=LAST[..., 0], labels=np.array([3, 0])), FIRST[:, :1]),
        ("QMNIST", Fake(data=FIRST[:, 0], targets=torch.tensor([[3, 9, 9], [0, 9, 9]])), FIRST[:, :1]),
        ("FER2013", Fake(_samples=[(FIRST[0, 0], 3), (FIRST[1, 0], 0)]), FIRST[:, :1]),
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
    assert all(("download" in arguments) == SETS[name.lower()].downloads for arguments in fake.asked)


class HDF5(ModuleType):
    """As much of h5py as PCAM needs; the arrays lie in .npy files called .h5."""

    class File:
        def __init__(self, path):
            self.array = np.load(path)

        def __enter__(self):
            return {"x": self.array, "y": self.array}

        def __exit__(self, *_):
            return None


def test_pcam_is_read_from_hdf5(root, monkeypatch):
    monkeypatch.setitem(sys.modules, "h5py", HDF5("h5py"))
    images = np.random.default_rng(0).integers(0, 256, (2, 96, 96, 3), dtype=np.uint8)
    (root / "pcam").mkdir()
    for part in ("train", "valid", "test"):
        for name, array in (("x", images), ("y", np.array([1, 0]).reshape(2, 1, 1, 1))):
            with (root / "pcam" / f"camelyonpatch_level_2_split_{part}_{name}.h5").open("wb") as file:
                np.save(file, array)
    data = load_data("pcam", 96)
    assert torch.equal(data.train.images, torch.from_numpy(images).permute(0, 3, 1, 2).repeat(2, 1, 1, 1))
    assert data.train.labels.tolist() == [1, 0, 1, 0]
    assert (len(data.test), data.val_in_train.tolist()) == (2, [False, False, True, True])
    monkeypatch.setitem(sys.modules, "h5py", None)
    with pytest.raises(UserError, match="h5py"):
        load_data("pcam", 96)


@pytest.mark.parametrize("name", SETS)
def test_a_missing_set_says_what_to_place_where(root, name):
    with pytest.raises(UserError) as caught:
        load_data(name, 32)
    assert all(str(root / place) in str(caught.value) for place in SETS[name].places)


def test_a_set_is_downloaded_once_whoever_asks_at_the_same_time(root):
    under_way, downloads = threading.Lock(), []

    def find() -> list[str]:
        if not (root / "set").exists():  # as torchvision looks: whether it is whole is not seen
            raise RuntimeError("Dataset not found or corrupted.")
        return sorted(file.name for file in (root / "set").iterdir())

    def fetch() -> list[str]:
        assert under_way.acquire(blocking=False), "two write to the same files"
        downloads.append(1)
        touch(root / "set", "first")
        time.sleep(0.2)
        touch(root / "set", "last")
        under_way.release()
        return find()

    with ThreadPoolExecutor(4) as pool:  # of threads, each takes locks of its own, as processes do
        asked = [pool.submit(download_once, root, "set", find, fetch) for _ in range(4)]
        assert [one.result() for one in asked] == [["first", "last"]] * 4
    assert len(downloads) == 1
