import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from logo_ssl.errors import UserError
from logo_ssl.probes import balanced_share, stratified_split

labels_of_images = st.lists(st.integers(0, 6), min_size=1, max_size=80).map(torch.tensor)
fractions = st.floats(0.01, 1)


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


@given(labels_of_images, fractions)
def test_a_split_uses_every_image_once_and_leaves_each_class_to_train_on(labels, fraction):
    train, val = stratified_split(labels, fraction, seeded())
    assert sorted([*train.tolist(), *val.tolist()]) == list(range(len(labels)))
    assert set(labels[train].tolist()) == set(labels.tolist())
    for c in labels.unique():
        n, chosen = int((labels == c).sum()), int((labels[val] == c).sum())
        assert abs(chosen - n * fraction) <= 0.5 + 1e-4 or chosen in (1, n - 1)


@given(labels_of_images, fractions)
def test_a_share_holds_each_class_in_proportion_and_never_none(labels, fraction):
    share = balanced_share(labels, fraction, seeded())
    for c in labels.unique():
        n, chosen = int((labels == c).sum()), int((labels[share] == c).sum())
        assert chosen >= 1
        assert abs(chosen - n * fraction) <= 0.5 + 1e-4 or chosen == 1


@given(labels_of_images, fractions, fractions)
def test_a_larger_share_holds_the_smaller(labels, one, other):
    small, large = (set(balanced_share(labels, f, seeded()).tolist()) for f in sorted((one, other)))
    assert small <= large


def test_draws_follow_the_generator_alone():
    labels = torch.arange(300) % 7
    assert stratified_split(labels, 0.2, seeded(3)).val.equal(stratified_split(labels, 0.2, seeded(3)).val)
    assert not stratified_split(labels, 0.2, seeded(3)).val.equal(stratified_split(labels, 0.2, seeded(4)).val)


def test_every_image_of_a_class_is_drawn_as_often():
    labels, draws = torch.tensor([0] * 5 + [1] * 3), 3000
    generator, drawn = seeded(), torch.zeros(8)
    for _ in range(draws):
        drawn[balanced_share(labels, 0.2, generator)] += 1
    assert (drawn / draws - torch.tensor([1 / 5] * 5 + [1 / 3] * 3)).abs().max() < 0.04


@pytest.mark.parametrize("fraction", [0.0, -0.1, 1.5, float("nan")])
def test_an_impossible_fraction_is_an_error_that_names_it(fraction):
    with pytest.raises(UserError, match=f"fraction={fraction}"):
        balanced_share(torch.arange(4), fraction, seeded())
