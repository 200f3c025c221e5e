"""Does tools/hold_out.py divide train, and leave test alone?"""

import runpy
from pathlib import Path

import numpy as np
import pytest

main = runpy.run_path(str(Path(__file__).parents[1] / "tools" / "hold_out.py"))["main"]


@pytest.fixture
def given(tmp_path):
    file = tmp_path / "set.npz"
    images = np.arange(60, dtype=np.uint8).reshape(60, 1, 1, 1)
    labels = np.arange(60, dtype=np.uint8) % 3
    np.savez(file, train_images=images, train_labels=labels, test_images=images + 100, test_labels=labels)
    return file


def test_every_training_image_is_in_one_part_with_its_label_and_no_test_image_in_either(given, tmp_path):
    main([str(given), str(tmp_path / "val.npz"), "--per-class", "5"])
    parts = np.load(tmp_path / "val.npz")
    both = np.concatenate([parts["train_images"].ravel(), parts["test_images"].ravel()])
    assert sorted(both) == list(range(60))
    for name in ("train", "test"):
        assert (parts[f"{name}_images"].ravel() % 3 == parts[f"{name}_labels"]).all()
    assert np.bincount(parts["test_labels"]).tolist() == [5, 5, 5]


def test_the_choice_is_by_chance_and_can_be_made_again(given, tmp_path):
    chosen = []
    for name, seed in (("a", "0"), ("b", "0"), ("c", "1")):
        main([str(given), str(tmp_path / f"{name}.npz"), "--per-class", "5", "--seed", seed])
        chosen.append(np.load(tmp_path / f"{name}.npz")["test_images"].ravel().tolist())
    assert chosen[0] == chosen[1] != chosen[2]


def test_it_neither_replaces_a_file_nor_empties_a_class(given, tmp_path):
    with pytest.raises(SystemExit, match=r"set\.npz exists already"):
        main([str(given), str(given), "--per-class", "5"])
    with pytest.raises(SystemExit, match="Class 0 has 20 images; hold out fewer"):
        main([str(given), str(tmp_path / "val.npz"), "--per-class", "20"])
