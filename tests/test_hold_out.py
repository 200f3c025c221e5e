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
    labels = np.arange(60, dtype=np.int64).reshape(60, 1) % 3
    labels[:3] = -1  # no label: never held out
    np.savez(file, train_images=images, train_labels=labels, test_images=images + 100, test_labels=labels)
    return file


def divided(given, out, *options):
    main([str(given), str(out), "--per-class", "5", *options])
    return np.load(out)


def test_every_training_image_is_in_one_part_with_its_label_and_no_test_image_in_either(given, tmp_path):
    parts = divided(given, tmp_path / "val.npz")
    assert sorted(np.concatenate([parts["train_images"], parts["test_images"]]).ravel()) == list(range(60))
    assert np.bincount(parts["test_labels"].ravel()).tolist() == [5, 5, 5]
    assert (parts["test_images"].ravel() % 3 == parts["test_labels"].ravel()).all()
    assert parts["train_labels"].shape == (45, 1)


def test_the_choice_is_random_and_can_be_made_again(given, tmp_path):
    one, again, other = (
        divided(given, tmp_path / f"{name}.npz", "--seed", seed)["test_images"].ravel().tolist()
        for name, seed in (("a", "0"), ("b", "0"), ("c", "1"))
    )
    assert one == again != other


def test_it_replaces_no_file(given):
    with pytest.raises(SystemExit):
        main([str(given), str(given)])
