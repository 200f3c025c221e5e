"""Images of a folder, a list or ImageNet's layouts are found in one order, with the right labels."""

import os
from importlib import resources
from pathlib import Path

import pytest

from logo_ssl.data import ImageSet, Split, load_data
from logo_ssl.errors import UserError


def place(root: Path, *names: str) -> Path:
    """Files that are images by their names alone: nothing may decode them on loading."""
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).touch()
    return root


def load(root: Path) -> ImageSet:
    return load_data(str(root), 32)


def names(split: Split | None, root: Path) -> list[str]:
    assert split is not None
    return [os.path.relpath(split.images.name(i), root) for i in range(len(split))]


def test_images_at_any_depth_are_found_in_sorted_order(tmp_path):
    place(tmp_path, "z.png", "b/deep/er/2.JPG", "b/1.jpeg", "a.b.webp", "b/readme.md", "b/jpg", "album.jpg/1.png")
    os.mkfifo(tmp_path / "pipe.png")
    data = load(tmp_path)
    assert names(data.train, tmp_path) == ["a.b.webp", "album.jpg/1.png", "b/1.jpeg", "b/deep/er/2.JPG", "z.png"]
    assert data.train.labels is None
    assert data.for_knn() is None


@pytest.mark.parametrize(
    ("files", "labels", "classes"),
    [
        (("dog/2.png", "cat/deep/1.png", "cat/3.png", "empty/notes.txt"), [0, 0, 1], ("cat", "dog")),
        (("10/a.png", "9/a.png", "0/a.png"), [0, 2, 1], ("0", "9", "10")),  # sorted as files, numbered as numbers
        (("cat/1.png", "2.png"), None, ()),  # a stray
        (("cat/1.png", "cat/2.png"), None, ("cat",)),
        (("1.png",), None, ()),
        (("car/1.png", "plane/2.png", "train/3.png"), [0, 1, 2], ("car", "plane", "train")),
        (("train/cat/1.png", "train/dog/2.png"), [0, 1], ("cat", "dog")),
    ],
)
def test_class_folders_are_labels(tmp_path, files, labels, classes):
    data = load(place(tmp_path, *files))
    assert (None if data.train.labels is None else data.train.labels.tolist()) == labels
    assert data.classes == classes
    assert data.test is None


@pytest.mark.parametrize("held_out", ["test", "val", "valid", "validation"])
def test_train_and_a_held_out_folder_are_splits(tmp_path, held_out):
    data = load(place(tmp_path, "train/cat/1.png", "train/dog/2.png", f"{held_out}/dog/3.png", "elsewhere/4.png"))
    assert names(data.train, tmp_path) == ["train/cat/1.png", "train/dog/2.png"]
    assert names(data.test, tmp_path) == [f"{held_out}/dog/3.png"]
    assert data.test.labels.tolist() == [1]


@pytest.mark.parametrize(
    ("held_out", "test", "labels"),
    [
        (("val/b/1.png", "val/c/1.png", "val/stray.png"), "val", [1, -1, -1]),  # classes that train lacks
        (("test/unknown/1.png", "val/b/1.png"), "val", [1]),
        (("test/1.png", "test/2.png", "val/a/1.png"), "val", [0]),
        (("val/1.png", "test/readme.md"), "val", None),
    ],
)
def test_a_held_out_folder_without_labels_of_train_gives_way_to_one_that_has_them(tmp_path, held_out, test, labels):
    data = load(place(tmp_path, "train/a/1.png", "train/b/1.png", *held_out))
    assert {name.split("/")[0] for name in names(data.test, tmp_path)} == {test}
    assert (None if data.test.labels is None else data.test.labels.tolist()) == labels


@pytest.mark.parametrize("val", ["val", "valid", "validation"])
def test_val_beside_test_is_watched_and_chosen_by(tmp_path, val):
    data = load(place(tmp_path, *(f"{part}/{name}/1.png" for part in ("train", val, "test") for name in "ab")))
    assert names(data.val, tmp_path) == [f"{val}/a/1.png", f"{val}/b/1.png"]
    assert names(data.test, tmp_path) == ["test/a/1.png", "test/b/1.png"]
    assert names(data.for_knn()[1], tmp_path) == names(data.val, tmp_path)
    unlabelled = load(place(tmp_path / "x", "train/a/1.png", "train/b/1.png", "val/1.png", "test/a/1.png"))
    assert (len(unlabelled.val), unlabelled.watched[1]) == (1, unlabelled.test)


def test_hidden_files_what_archives_leave_and_runs_of_ours_are_skipped(tmp_path):
    place(tmp_path, ".hidden.png", ".cache/1.png", "__MACOSX/a/1.png", "a/._1.png", "lost+found/1.png", "a/1.png")
    place(tmp_path, "run/recipe.json", "run/metrics.jsonl", "run/x.png", "clip.mov")
    data = load(tmp_path)
    assert names(data.train, tmp_path) == ["a/1.png"]
    (said,) = data.says
    assert "1 .mov" in said
    assert "1 run folder" in said
    assert names(load(tmp_path / "run").train, tmp_path) == ["run/x.png"]
    assert names(
        load(place(tmp_path / "y", "train/1.jpg", "run/recipe.json", "run/metrics.jsonl")).train, tmp_path
    ) == ["y/train/1.jpg"]


def test_linked_files_and_folders_count_and_loops_end(tmp_path):
    store = place(tmp_path / "store", "cats/1.png", "2.png")
    place(tmp_path / "set", "dog/3.png")
    (tmp_path / "set" / "cat").symlink_to(store / "cats")
    (tmp_path / "set" / "dog" / "x.png").symlink_to(store / "2.png")
    (tmp_path / "set" / "dog" / "gone.png").symlink_to("/nowhere/gone.png")
    (tmp_path / "set" / "dog" / "up").symlink_to(tmp_path / "set")
    (tmp_path / "set" / "dog" / "self").symlink_to("self")
    (store / "cats" / "back").symlink_to(tmp_path / "set" / "dog")  # which takes nothing from dog
    data = load(tmp_path / "set")
    assert names(data.train, tmp_path / "set") == ["cat/1.png", "dog/3.png", "dog/gone.png", "dog/x.png"]
    assert data.train.labels.tolist() == [0, 1, 1, 1]
    with pytest.raises(OSError, match="No such file"):
        data.train.images.read(2)


def test_a_name_that_is_not_utf8_can_be_read(tmp_path):
    (tmp_path / os.fsdecode(b"caf\xe9.png")).write_bytes(b"x")
    assert load(tmp_path).train.images.read(0) == b"x"


def write_list(root: Path, text: str | bytes, name: str = "list.txt") -> Path:
    (root / name).write_bytes(text if isinstance(text, bytes) else text.encode())
    return root / name


@pytest.mark.parametrize("name", ["list.txt", "LIST.LST"])
def test_a_text_file_names_images_from_its_own_folder_or_from_the_root(tmp_path, name):
    lines = f"\ufeff# my images\r\na/1.png\r\n\r\n{tmp_path}/b.png\r\nmy photo 3.jpg\r\n"
    data = load(write_list(place(tmp_path, "my photo 3.jpg"), lines, name))
    assert names(data.train, tmp_path) == ["a/1.png", "b.png", "my photo 3.jpg"]
    assert data.train.labels is None


@pytest.mark.parametrize(
    ("lines", "paths", "labels", "classes"),
    [
        (
            "a b.png 10\nc.png  2\nd.png\ne.png -1\n",
            ["a b.png", "c.png", "d.png", "e.png"],
            [1, 0, -1, -1],
            ("2", "10"),
        ),
        ("a 1.png\tgreat tit\nb\tcrow\nc\t-1\n", ["a 1.png", "b", "c"], [1, 0, -1], ("crow", "great tit")),
    ],
    ids=["as in caffe", "behind a tab"],
)
def test_labels_are_behind_the_paths(tmp_path, lines, paths, labels, classes):
    data = load(write_list(place(tmp_path, "photo 12"), lines))
    assert names(data.train, tmp_path) == paths
    assert (None if data.train.labels is None else data.train.labels.tolist()) == labels
    assert data.classes == classes


@pytest.fixture
def root(tmp_path, monkeypatch) -> Path:
    """An empty folder of named sets."""
    monkeypatch.setenv("LOGO_DATA", str(tmp_path))
    return tmp_path


WNIDS = sorted(resources.files("logo_ssl.data").joinpath("imagenet100.txt").read_text().split())


@pytest.mark.parametrize("folder", ["imagenet100", "imagenet", "ILSVRC2012"])
def test_imagenet100_takes_its_classes_out_of_imagenet(root, folder):
    place(root / folder, *(f"{split}/{wnid}/1.JPEG" for split in ("train", "val") for wnid in [*WNIDS, "n00000000"]))
    data = load_data("imagenet100", 224)
    assert data.classes == tuple(WNIDS)
    assert data.train.labels.tolist() == data.test.labels.tolist() == list(range(100))
    assert data.train.images.name(0) == str(root / folder / "train" / WNIDS[0] / "1.JPEG")
    assert (data.source, data.root) == ("imagenet100", str(root))


def test_imagenet_takes_every_class_and_without_val_holds_nothing_out(root):
    place(root / "ILSVRC2012", *(f"train/{wnid}/1.JPEG" for wnid in WNIDS[:3]))
    data = load_data("imagenet", 224)
    assert data.classes == tuple(WNIDS[:3])
    assert data.test is None


def test_missing_classes_are_named(root):
    place(root / "imagenet", *(f"train/{wnid}/1.JPEG" for wnid in WNIDS[2:]))
    (root / "imagenet/train" / WNIDS[1]).mkdir()
    with pytest.raises(UserError, match=f"train has no images of {WNIDS[0]}, {WNIDS[1]};"):
        load_data("imagenet100", 224)


def test_tiny_imagenet_is_read_in_its_public_layout(root):
    with pytest.raises(UserError, match=rf"not in {root}.*unpack http"):
        load_data("tiny-imagenet", 64)
    folder = place(root / "tiny-imagenet-200", "val/images/val_0.JPEG", "test/images/t.JPEG")
    place(folder, *(f"train/{n}/images/{n}_0.JPEG" for n in ("n2", "n1")))
    (folder / "wnids.txt").write_text("n2\nn1\n")
    (folder / "val/val_annotations.txt").write_text("val_0.JPEG\tn2\t0\t32\t44\t62\n")
    data = load_data("tiny-imagenet", 64)
    assert names(data.train, folder) == ["train/n1/images/n1_0.JPEG", "train/n2/images/n2_0.JPEG"]
    assert names(data.test, folder) == ["val/images/val_0.JPEG"]
    assert (data.train.labels.tolist(), data.test.labels.tolist(), data.classes) == ([0, 1], [1], ("n1", "n2"))


def test_mit67_is_read_by_its_official_lists(root):
    with pytest.raises(UserError, match=rf"{root}/mit67/Images/CLASS"):
        load_data("mit67", 64)
    (root / "mit67").mkdir()
    (root / "mit67/TrainImages.txt").write_text("bar/1.jpg\nattic/2.jpg\n")
    (root / "mit67/TestImages.txt").write_text("bar/3.jpg\n\n")
    data = load_data("mit67", 64)
    assert names(data.train, root) == ["mit67/Images/bar/1.jpg", "mit67/Images/attic/2.jpg"]
    assert (data.train.labels.tolist(), data.test.labels.tolist()) == ([1, 0], [1])
