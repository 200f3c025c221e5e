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


def test_every_training_image_is_in_one_part_with_its_label_and_no_test_image_in_either(given, tmp_path, capsys):
    main([str(given), str(tmp_path / "val.npz"), "--per-class", "5"])
    assert "val.npz: 45 images to train on, 15 held out, 5 of each class." in capsys.readouterr().out
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


def refused(capsys, *arguments):
    """What it says when it refuses, in its last line."""
    with pytest.raises(SystemExit) as stop:
        main([str(argument) for argument in arguments])
    assert stop.value.code == 2
    return capsys.readouterr().err.splitlines()[-1]


def test_it_neither_replaces_a_file_nor_empties_a_class(given, tmp_path, capsys):
    val = tmp_path / "val.npz"
    assert "set.npz exists already" in refused(capsys, given, given, "--per-class", 5)
    assert "Class 0 has 20 images; hold out fewer" in refused(capsys, given, val, "--per-class", 20)
    assert "--per-class is 0; hold out 1 or more" in refused(capsys, given, val, "--per-class", 0)
    assert not val.exists()


def test_what_it_cannot_use_is_told_in_a_sentence(given, tmp_path, capsys):
    val, text = tmp_path / "val.npz", tmp_path / "text.npz"
    text.write_text("no zip")
    assert "text.npz is not a readable .npz file" in refused(capsys, text, val)
    assert "nowhere.npz is not a readable .npz file" in refused(capsys, tmp_path / "nowhere.npz", val)
    assert "let it end in .npz" in refused(capsys, given, tmp_path / "val.txt")
    np.savez(tmp_path / "bare.npz", train_images=np.load(given)["train_images"])
    assert "bare.npz has not one label for each training image" in refused(capsys, tmp_path / "bare.npz", val)


def test_arrays_stay_as_they_were_and_images_without_a_label_in_train(tmp_path):
    images = np.arange(8, dtype=np.uint8).repeat(64).reshape(8, 8, 8)
    words, numbers = np.array(["cat", "dog"] * 4), np.array([0, 5, -1, -1] * 2)
    for name, labels, n in (("words", words, 2), ("numbers", numbers, 1)):
        np.savez(tmp_path / f"{name}.npz", train_images=images, train_labels=labels)
        main([str(tmp_path / f"{name}.npz"), str(tmp_path / f"{name}-val.npz"), "--per-class", str(n)])
        parts = np.load(tmp_path / f"{name}-val.npz")
        assert parts["test_images"].shape == (2 * n, 8, 8)
        assert parts["test_labels"].dtype == labels.dtype
        assert set(parts["test_labels"]) == ({"cat", "dog"} if name == "words" else {0, 5})
