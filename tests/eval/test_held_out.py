"""Does every part of a data set get images, none of them twice, and is one too small for it refused?"""

import pytest
import torch

from logo_ssl.errors import UserError
from logo_ssl.eval.held_out import part
from logo_ssl.probes import Labelled


def data(*labels: int) -> Labelled:
    return Labelled(torch.arange(float(len(labels)))[:, None], torch.tensor(labels, dtype=torch.int64))


@pytest.mark.parametrize("official", [True, False])
def test_parts_never_share_an_image_and_their_rows_say_which_they_have(official: bool) -> None:
    train = data(*(i % 5 for i in range(50)))
    parts = part(train, data(0, 1) if official else None, seed=3)
    rows = [*parts.rows]
    assert sorted(torch.cat(rows).tolist()) == list(range(50))
    assert (len(parts.rows.test) == 0) == official
    for features, mine in zip((parts.train, parts.val), rows[:2], strict=True):
        assert features.features.flatten().tolist() == mine.tolist()
        assert features.labels.equal(train.labels[mine])
    assert parts.rows.known.tolist() == sorted([*parts.rows.train.tolist(), *parts.rows.val.tolist()])
    if not official:
        assert parts.test.features.flatten().tolist() == parts.rows.test.tolist()


@pytest.mark.parametrize(
    ("train", "test", "sentence"),
    [
        (data(0, 1, 2), data(0, 1), "^No class of few has 2 images to train on, so none is left to choose by; give"),
        (data(0, 1, 2), None, "^No class of few has 2 images, so none is left to test on; give more, or a test split"),
        (data(0, 0, 1, 1), None, "^No class of few has 3 images, one each to train on, to choose by and to test on"),
        (data(0, 0, 1, 1), data(), "^None of the test images of few can be read"),
    ],
)
def test_a_part_that_would_be_empty_is_refused(train: Labelled, test: Labelled | None, sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        part(train, test, 0, "few")


def test_probes_on_an_apple_device_run_on_the_cpu() -> None:
    parts = part(data(0, 0, 0, 1, 1, 1), None, 0).to(torch.device("mps"))
    assert {tensor.device.type for labelled in parts[:3] for tensor in labelled} == {"cpu"}


def test_the_rows_that_authors_chose_by_choose_beside_an_official_test() -> None:
    train, val = data(*(i % 2 for i in range(6))), torch.tensor([0, 1, 1, 0, 0, 0]).bool()
    parts = part(train, data(0, 1), 0, val=val)
    assert parts.official_val
    assert [part.features.flatten().tolist() for part in parts[:2]] == [[0, 3, 4, 5], [1, 2]]
    assert [rows.tolist() for rows in parts.rows] == [[0, 3, 4, 5], [1, 2], []]
    counts = {"train_images": 6, "val_images": 2, "test_images": 2, "classes": 2}
    assert parts.counts == {"official_test": True, "official_val": True, **counts}


@pytest.mark.parametrize("val", [torch.zeros(6).bool(), torch.ones(6).bool()])
def test_an_official_validation_split_that_leaves_a_part_empty_gives_way(val) -> None:
    parts = part(data(*(i % 2 for i in range(6))), data(0, 1), 0, val=val)
    assert not parts.official_val
    assert (len(parts.train.labels), len(parts.val.labels)) == (4, 2)
