"""Average precision is scikit-learn's; a set's labels are those of its boxes or of its arrays."""

import numpy as np
import pytest
import torch
from drawn import save_coco
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import average_precision_score

from logo_ssl.detection.multilabel import average_precision, bootstrap_error, load_multilabel, mean_average_precision
from logo_ssl.errors import UserError


def drawn(n, n_classes, seed, levels=8):
    """Scores of few levels, many of them equal, and labels that they tell something of."""
    generator = torch.Generator().manual_seed(seed)
    scores = torch.randint(levels, (n, n_classes), generator=generator).double()
    labels = torch.rand(n, n_classes, generator=generator) < (scores + 1) / (2 * levels)
    return scores, labels.long()


@given(st.integers(1, 40), st.integers(1, 5), st.integers(1, 99), st.sampled_from([2, 8, 10**6]))
def test_average_precision_is_scikit_learns_with_equal_scores_as_well(n, n_classes, seed, levels):
    scores, labels = drawn(n, n_classes, seed, levels)
    for c, found in enumerate(average_precision(scores, labels)[0].tolist()):
        if labels[:, c].any():
            assert found == pytest.approx(average_precision_score(labels[:, c], scores[:, c]))
        else:
            assert np.isnan(found)


def test_an_image_that_counts_twice_is_as_two_images():
    scores, labels = drawn(30, 3, 0)
    times = torch.randint(3, (4, 30), generator=torch.Generator().manual_seed(1))
    together = average_precision(scores, labels, times)
    for row, found in zip(times, together, strict=True):
        rows = torch.arange(30).repeat_interleave(row)
        torch.testing.assert_close(found, average_precision(scores[rows], labels[rows])[0])


def test_the_standard_error_is_the_spread_over_fresh_test_images():
    spread = torch.tensor([mean_average_precision(*drawn(300, 3, seed)) for seed in range(200)]).std().item()
    assert bootstrap_error(*drawn(300, 3, 1000)) == pytest.approx(spread, rel=0.25)


def test_an_image_has_the_classes_of_its_boxes(tmp_path):
    data = load_multilabel(str(save_coco(tmp_path / "coco", {"train": 5, "val": 2})), 32)
    assert [len(data.multilabels[part]) for part in ("train", "test")] == [5, 2]
    assert data.multilabels["train"].shape[1] == len(data.classes) > 0
    assert data.multilabels["train"].any(dim=0).all()


IMAGES, LABELS = np.zeros((6, 8, 8, 3), np.uint8), np.array([[0, 1, 0], [1, 1, 0]] * 3)


def save(file, **arrays):
    np.savez(file, **arrays)
    return str(file)


def test_arrays_are_split_as_they_are_and_a_class_that_train_lacks_is_left_out(tmp_path):
    test = {"test_images": IMAGES[:4], "test_labels": LABELS[:4] | 1}
    val = {"val_images": IMAGES[:2], "val_labels": LABELS[:2]}
    data = load_multilabel(save(tmp_path / "a.npz", train_images=IMAGES, train_labels=LABELS, **val, **test), 8)
    assert {part: tuple(labels.shape) for part, labels in data.multilabels.items()} == {
        "train": (6, 2), "val": (2, 2), "test": (4, 2)
    }  # fmt: skip
    assert (data.classes, len(data.says)) == (("0", "1"), 1)
    data = load_multilabel(save(tmp_path / "b.npz", train_images=IMAGES, train_labels=LABELS, **val), 8)
    assert data.multilabels["test"].equal(torch.tensor(LABELS[:2, :2]))
    assert "val" not in data.multilabels


TRAIN, TEST = {"train_images": IMAGES, "train_labels": LABELS}, {"test_images": IMAGES, "test_labels": LABELS}


@pytest.mark.parametrize(
    ("arrays", "named"),
    [
        (TRAIN, "test"),
        (TRAIN | {"train_labels": LABELS[:, 0]} | TEST, "train_labels"),
        (TRAIN | TEST | {"test_labels": LABELS * 2}, "test_labels"),
        (TRAIN | TEST | {"test_labels": LABELS[:, :2]}, "classes"),
        (TRAIN | TEST | {"test_labels": LABELS * 0}, "class"),
        (TRAIN | {"test_images": IMAGES}, "test_labels"),
    ],
)
def test_labels_of_another_kind_are_refused(tmp_path, arrays, named):
    with pytest.raises(UserError, match=named):
        load_multilabel(save(tmp_path / "a.npz", **arrays), 8)
