"""Are the images of a folder or a text file found, in one order, with the right labels?"""

import os
from pathlib import Path

import pytest
from logo_ssl.data.folders import find_images
from PIL import Image

from logo_ssl.data import load_data
from logo_ssl.data.images import ImageSet, Split
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
    place(tmp_path, "z.png", "b/deep/er/2.JPG", "b/1.jpeg", "a.b.webp", "b/readme.md", "b/jpg")
    data = load(tmp_path)
    assert names(data.train, tmp_path) == ["a.b.webp", "b/1.jpeg", "b/deep/er/2.JPG", "z.png"]
    assert data.train.labels is None
    assert data.for_knn() is None


def test_order_does_not_depend_on_the_file_system(tmp_path, monkeypatch):
    place(tmp_path, *(f"{c}/{i}.png" for c in "cab" for i in range(5)))
    before = find_images(str(tmp_path))

    class Backwards:
        def __init__(self, folder):
            with scandir(folder) as entries:
                self.entries = sorted(entries, key=lambda entry: entry.name, reverse=True)

        def __enter__(self):
            return iter(self.entries)

        def __exit__(self, *_):
            return None

    scandir = os.scandir
    monkeypatch.setattr(os, "scandir", Backwards)
    assert find_images(str(tmp_path)) == before == sorted(before)


def test_class_folders_are_labels(tmp_path):
    data = load(place(tmp_path, "dog/2.png", "cat/deep/1.png", "cat/3.png", "empty/notes.txt"))
    assert names(data.train, tmp_path) == ["cat/3.png", "cat/deep/1.png", "dog/2.png"]
    assert data.train.labels.tolist() == [0, 0, 1]
    assert data.classes == ("cat", "dog")


def test_classes_that_are_numbers_stand_in_their_order(tmp_path):
    assert load(place(tmp_path, "10/a.png", "9/a.png", "0/a.png")).classes == ("0", "9", "10")


@pytest.mark.parametrize("files", [("cat/1.png", "2.png"), ("cat/1.png", "cat/2.png"), ("1.png",)])
def test_strays_or_a_single_class_folder_mean_no_labels(tmp_path, files):
    data = load(place(tmp_path, *files))
    assert data.train.labels is None
    assert data.classes == (("cat",) if files[-1].startswith("cat") else ())


@pytest.mark.parametrize("held_out", ["test", "val", "valid", "validation"])
def test_train_and_a_held_out_folder_are_splits(tmp_path, held_out):
    data = load(place(tmp_path, "train/cat/1.png", "train/dog/2.png", f"{held_out}/dog/3.png", "elsewhere/4.png"))
    assert names(data.train, tmp_path) == ["train/cat/1.png", "train/dog/2.png"]
    assert names(data.test, tmp_path) == [f"{held_out}/dog/3.png"]
    assert data.test.labels.tolist() == [1]


def test_train_alone_is_the_split(tmp_path):
    data = load(place(tmp_path, "train/cat/1.png", "train/dog/2.png"))
    assert data.train.labels.tolist() == [0, 1]
    assert data.test is None


def test_a_class_may_be_called_train(tmp_path):
    data = load(place(tmp_path, "car/1.png", "plane/2.png", "train/3.png"))
    assert data.classes == ("car", "plane", "train")


def test_a_test_class_that_train_lacks_has_no_label(tmp_path):
    data = load(place(tmp_path, "train/a/1.png", "train/b/1.png", "val/b/1.png", "val/c/1.png", "val/stray.png"))
    assert data.test.labels.tolist() == [1, -1, -1]


def test_test_classes_that_are_all_strange_are_not_taken_for_no_labels(tmp_path):
    data = load(place(tmp_path, *(f"{name}/{i}.png" for name in ("train/a", "train/b", "val/c") for i in range(9))))
    assert data.test.labels.tolist() == [-1] * 9
    bank, queries = data.for_knn()  # the monitor does with what train has
    assert (len(bank), len(queries)) == (16, 2)


def test_a_test_folder_of_strange_classes_gives_way_too(tmp_path):
    place(tmp_path, "train/a/1.png", "train/b/1.png", "test/unknown/1.png", "val/b/1.png")
    assert load(tmp_path).test.labels.tolist() == [1]


def test_a_test_folder_without_labels_gives_way_to_one_that_has_them(tmp_path):
    place(tmp_path, "train/a/1.png", "train/b/1.png", "test/1.png", "test/2.png", "val/a/1.png")
    assert load(tmp_path).test.labels.tolist() == [0]


@pytest.mark.parametrize("val", ["val", "valid", "validation"])
def test_val_beside_test_is_watched_and_chosen_by(tmp_path, val):
    data = load(place(tmp_path, *(f"{part}/{name}/1.png" for part in ("train", val, "test") for name in "ab")))
    assert names(data.val, tmp_path) == [f"{val}/a/1.png", f"{val}/b/1.png"]
    assert names(data.test, tmp_path) == ["test/a/1.png", "test/b/1.png"]
    assert names(data.for_knn()[1].taken(), tmp_path) == names(data.val, tmp_path)
    assert data.says == ()


def test_val_without_labels_is_not_watched(tmp_path):
    data = load(place(tmp_path, "train/a/1.png", "train/b/1.png", "val/1.png", "test/a/1.png"))
    assert (len(data.val), data.watched) == (1, ("held-out images", data.test))


def test_an_unlabelled_or_empty_test_folder_is_no_obstacle(tmp_path):
    data = load(place(tmp_path, "train/a/1.png", "train/b/1.png", "val/1.png", "test/readme.md"))
    assert names(data.test, tmp_path) == ["val/1.png"]
    assert data.test.labels is None


def test_hidden_files_and_what_archives_leave_are_skipped(tmp_path):
    place(tmp_path, ".hidden.png", ".cache/1.png", "__MACOSX/a/1.png", "a/._1.png", "lost+found/1.png", "a/1.png")
    assert names(load(tmp_path).train, tmp_path) == ["a/1.png"]


def test_linked_files_and_folders_count(tmp_path):
    store = place(tmp_path / "store", "cats/1.png", "2.png")
    (tmp_path / "set" / "dog").mkdir(parents=True)
    (tmp_path / "set" / "cat").symlink_to(store / "cats")
    (tmp_path / "set" / "dog" / "x.png").symlink_to(store / "2.png")
    data = load(tmp_path / "set")
    assert names(data.train, tmp_path / "set") == ["cat/1.png", "dog/x.png"]
    assert data.train.labels.tolist() == [0, 1]


def test_a_symlink_loop_ends(tmp_path):
    place(tmp_path / "set", "a/1.png", "b/2.png")
    (tmp_path / "set" / "a" / "up").symlink_to(tmp_path / "set")
    (tmp_path / "set" / "a" / "self").symlink_to("self")
    (tmp_path / "set" / "b" / "out").symlink_to(tmp_path / "out")
    place(tmp_path / "out", "3.png")
    (tmp_path / "out" / "back").symlink_to(tmp_path / "set" / "b")
    assert names(load(tmp_path / "set").train, tmp_path / "set") == ["a/1.png", "b/2.png", "b/out/3.png"]


def test_images_that_links_bring_from_outside_are_told_once_with_their_place(tmp_path):
    place(tmp_path / "set", "cat/1.png", "dog/2.png")
    store = place(tmp_path / "store", "3.png", "more/4.png", "more/deep/5.png")
    (tmp_path / "set" / "cat" / "more").symlink_to(store / "more")
    (tmp_path / "set" / "dog" / "x.png").symlink_to(store / "3.png")
    (tmp_path / "set" / "dog" / "y.png").symlink_to("x.png")  # by a second link
    (tmp_path / "set" / "dog" / "z.png").symlink_to("../cat/more/deep/5.png")
    (tmp_path / "set" / "dog" / "again.png").symlink_to("../cat/1.png")  # which lies inside
    told = f"Taken from outside of {tmp_path}/set, by links to {store}, {store}/more and {store}/more/deep: 5 images."
    assert load(tmp_path / "set").says == (told,)


def test_links_to_many_folders_outside_are_told_by_the_largest(tmp_path):
    for i in range(5):
        place(tmp_path / "store" / str(i), *(f"{n}.png" for n in range(5 - i)))
        (tmp_path / "set").mkdir(exist_ok=True)
        (tmp_path / "set" / str(i)).symlink_to(tmp_path / "store" / str(i))
    store = tmp_path / "store"
    where = f"{store}/0, {store}/1, {store}/2 and 2 other folders"
    assert load(tmp_path / "set").says == (f"Taken from outside of {tmp_path}/set, by links to {where}: 15 images.",)


def test_a_split_that_is_a_link_is_told_and_a_whole_folder_that_is_one_is_not(tmp_path):
    place(tmp_path / "store", "a/1.png", "b/2.png")
    place(tmp_path / "set", "val/a/3.png")
    (tmp_path / "set" / "train").symlink_to(tmp_path / "store")
    told = f"Taken from outside of {tmp_path}/set, by links to {tmp_path}/store: 2 images."
    assert load(tmp_path / "set").says == (told,)
    (tmp_path / "another name").symlink_to(tmp_path / "store")
    assert load(tmp_path / "another name").says == ()


def test_links_that_lead_nowhere_or_in_circles_bring_no_images_from_outside(tmp_path):
    place(tmp_path, "a/1.png", "b/2.png")
    (tmp_path / "a" / "gone.png").symlink_to("/nowhere/gone.png")
    (tmp_path / "a" / "itself.png").symlink_to("itself.png")
    (tmp_path / "b" / "itself").symlink_to("itself")
    (tmp_path / "b" / "nowhere").symlink_to("/nowhere")
    data = load(tmp_path)
    assert names(data.train, tmp_path) == ["a/1.png", "a/gone.png", "a/itself.png", "b/2.png"]  # two cannot be read
    assert data.says == (f"Passed over in {tmp_path}: 2 without an ending.",)
    for row in (1, 2):
        with pytest.raises(OSError, match=r"No such file|Too many levels"):
            data.train.images.read(row)


def test_a_link_to_another_class_takes_nothing_from_it(tmp_path):
    place(tmp_path, "a/1.png", "b/2.png")
    (tmp_path / "a" / "akin").symlink_to(tmp_path / "b")
    assert names(load(tmp_path).train, tmp_path) == ["a/1.png", "b/2.png"]


def test_a_folder_named_like_an_image_is_a_folder(tmp_path):
    assert names(load(place(tmp_path, "album.jpg/1.png")).train, tmp_path) == ["album.jpg/1.png"]


def test_a_pipe_named_like_an_image_is_left_alone(tmp_path):
    os.mkfifo(place(tmp_path, "1.png") / "pipe.png")
    assert names(load(tmp_path).train, tmp_path) == ["1.png"]


def test_a_name_that_is_not_utf8_can_be_read(tmp_path):
    (tmp_path / os.fsdecode(b"caf\xe9.png")).write_bytes(b"x")
    assert load(tmp_path).train.images.read(0) == b"x"


def test_a_folder_without_images_is_explained(tmp_path):
    with pytest.raises(UserError, match=r"No images in .*\.jpg.*at any depth"):
        load(place(tmp_path, "notes.md"))


def test_a_folder_that_cannot_be_read_is_named(tmp_path, monkeypatch):
    def refuse(folder):
        raise PermissionError(13, "Permission denied", folder)

    monkeypatch.setattr(os, "scandir", refuse)
    with pytest.raises(UserError, match=r"cannot be read \(Permission denied\); make it readable"):
        load(tmp_path)


def write_list(root: Path, text: str | bytes, name: str = "list.txt") -> Path:
    (root / name).write_bytes(text if isinstance(text, bytes) else text.encode())
    return root / name


@pytest.mark.parametrize("name", ["list.txt", "LIST.LST"])
def test_a_text_file_names_images_from_its_own_folder_or_from_the_root(tmp_path, name):
    place(tmp_path, "a/1.png", "my photo 3.jpg")
    lines = f"# my images\r\na/1.png\r\n\r\n{tmp_path}/b.png\r\nmy photo 3.jpg\r\n"
    data = load(write_list(tmp_path, lines, name))
    assert names(data.train, tmp_path) == ["a/1.png", "b.png", "my photo 3.jpg"]
    assert data.train.labels is None


def test_labels_stand_behind_a_space_as_in_caffe(tmp_path):
    data = load(write_list(place(tmp_path, "a b.png"), "a b.png 10\nc.png  2\nd.png\ne.png -1\n"))
    assert names(data.train, tmp_path) == ["a b.png", "c.png", "d.png", "e.png"]
    assert data.train.labels.tolist() == [1, 0, -1, -1]
    assert data.classes == ("2", "10")


def test_labels_behind_a_tab_may_be_words(tmp_path):
    data = load(write_list(place(tmp_path, "a 1.png"), "a 1.png\tgreat tit\nb\tcrow\nc\t-1\n"))
    assert names(data.train, tmp_path) == ["a 1.png", "b", "c"]
    assert data.train.labels.tolist() == [1, 0, -1]


def test_a_line_that_is_an_existing_path_is_a_path(tmp_path):
    data = load(write_list(place(tmp_path, "photo 12"), "photo 12\nphoto 13\n"))
    assert names(data.train, tmp_path) == ["photo 12", "photo"]


def test_a_byte_order_mark_belongs_to_no_path(tmp_path):
    data = load(write_list(place(tmp_path, "a.png"), b"\xef\xbb\xbfa.png\n"))
    assert names(data.train, tmp_path) == ["a.png"]


def test_one_path_in_a_hundred_is_enough(tmp_path):
    place(tmp_path, "99.png")
    assert len(load(write_list(tmp_path, "\n".join(f"{i}.png" for i in range(300)))).train) == 300


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("gone/1.png 3\ngone/2.png 4\n", r"None of the first paths.*'gone/1.png', looked for in /"),
        ("# nothing\n\n", r"None of the first paths.*there is none"),
        (b"caf\xe9.png\n", r"cannot be read as UTF-8"),
    ],
)
def test_a_text_file_that_leads_nowhere_is_explained(tmp_path, text, sentence):
    with pytest.raises(UserError, match=sentence):
        load(write_list(tmp_path, text))


def test_runs_of_ours_are_nobodys_photographs(tmp_path):
    place(tmp_path, "cat/1.jpg", "cat/2.png", "dog/3.jpg", "run/recipe.json", "run/metrics.jsonl", "run/affinity/x.png")
    Image.new("RGB", (8, 8)).save(tmp_path / "cat" / "theirs.png")
    data = load(tmp_path)
    assert names(data.train, tmp_path) == ["cat/1.jpg", "cat/2.png", "cat/theirs.png", "dog/3.jpg"]
    assert data.classes == ("cat", "dog")
    assert data.says == (f"Passed over in {tmp_path}: 1 run of logo-ssl.",)
    assert names(load(place(tmp_path / "run", "y.png")).train, tmp_path) == ["run/affinity/x.png", "run/y.png"]


def test_a_run_beside_train_does_not_make_it_a_class(tmp_path):
    data = load(place(tmp_path, "train/1.jpg", "run/recipe.json", "run/metrics.jsonl", "run/x.png"))
    assert names(data.train, tmp_path) == ["train/1.jpg"]
