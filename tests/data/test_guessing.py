"""Is it told which folders were taken for classes, and what guessing by them gives?"""

from PIL import Image

from logo_ssl.data import load_data
from logo_ssl.data.guessing import about_labels


def told(folder, **images):
    for name, n in images.items():
        for i in range(n):
            file = folder / name.lstrip("_") / f"{i}.png"
            file.parent.mkdir(parents=True, exist_ok=True)
            Image.new("RGB", (4, 4)).save(file)
    return about_labels(load_data(str(folder), 16))


def test_folders_that_were_taken_for_classes_are_named_with_what_guessing_gives(tmp_path):
    assert told(tmp_path / "byyear", _2019=10, _2020=20, _2021=10) == (
        "Labels from 3 folders: 2019, 2020, 2021 (always guessing the commonest: 50 %); if these are no classes, kNN "
        "tells nothing: --knn-every 0."
    )
    many = told(tmp_path / "many", **{f"_{i}": 2 for i in range(10)})
    assert many is not None
    assert many.startswith("Labels from 10 folders: 0, 1, 2 and 7 others (")


def test_what_has_no_folders_or_labels_from_elsewhere_says_nothing_of_folders(tmp_path):
    assert told(tmp_path / "one", cat=3) is None
    assert about_labels(load_data("scenes", 16)) is None
