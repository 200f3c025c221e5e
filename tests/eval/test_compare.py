"""A comparison of encoders is paired, agrees with naive loops, and tells a ruined encoder from what it was."""

import math
from dataclasses import replace

import pytest
import torch
from small_sets import QUIET, Pooled, colour_set, frozen

from logo_ssl.data import ImageSet, Split
from logo_ssl.data.scenes import make_scenes
from logo_ssl.errors import UserError
from logo_ssl.eval.compare import (
    MEASURES,
    NEIGHBOURS,
    WITH_LABELS,
    WITHOUT,
    compare_encoders,
    difference,
    found_again,
    judge,
    same_neighbours,
)


class Constant(Pooled):
    """A collapsed network."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.ones(len(x), 3)


def unit(generator: torch.Generator) -> torch.Tensor:
    return torch.nn.functional.normalize(torch.randn(25, 6, generator=generator, dtype=torch.float64), dim=1)


def test_crops_find_each_other_and_share_neighbours_as_in_a_naive_loop(generator):
    view = unit(generator)
    other = torch.nn.functional.normalize(view + 0.7 * unit(generator), dim=1)
    found, same = found_again(view @ other.T), same_neighbours(view @ view.T, other @ other.T)
    for i in range(25):
        cosines = [float(view[i] @ other[j]) for j in range(25)]
        assert found[i] == (max(cosines) == cosines[i])
        near = [
            set(sorted((j for j in range(25) if j != i), key=lambda j, v=v: -float(v[i] @ v[j]))[:NEIGHBOURS])
            for v in (view, other)
        ]
        assert same[i] == pytest.approx(len(near[0] & near[1]) / NEIGHBOURS)


def test_equal_features_find_nothing_and_have_no_neighbours():
    ones = torch.ones(25, 25, dtype=torch.float64)
    assert found_again(ones).sum() == same_neighbours(ones, ones).sum() == 0


@pytest.mark.parametrize(("gained", "lost"), [(9, 2), (4, 0), (0, 0)])
def test_the_error_of_a_difference_is_agresti_and_mins(gained, lost):
    n, first = 100, torch.zeros(100, dtype=torch.float64)
    first[:lost] = 100
    own = torch.zeros_like(first)
    own[lost : lost + gained] = 100
    b, c, size = gained + 0.5, lost + 0.5, n + 2
    expected = 100 * math.sqrt(b + c - (b - c) ** 2 / size) / size
    assert difference(own, first, "knn") == pytest.approx((gained - lost, expected))
    assert judge({"knn": own, "linear": own}, {"knn": first, "linear": first}) == "no measurable difference" or lost


def test_without_labels_both_measures_have_to_agree():
    low, high = (torch.arange(50).double() % 5 + value for value in (10, 30))
    for found, same, verdict in (
        (high, high, "better"),
        (low, low, "no measurable difference"),
        (high, low, "no measurable difference"),
    ):
        own, first = dict(zip(WITHOUT, (found, same), strict=True)), dict.fromkeys(WITHOUT, low)
        assert judge(own, first) == verdict
        assert judge(first, own) == verdict.replace("better", "worse")


def test_a_ruined_encoder_is_worse_with_labels_and_without():
    compared = compare_encoders([frozen(Pooled()), frozen(Constant()), frozen(Pooled())], colour_set(60, 90), QUIET)
    assert compared.labelled
    assert [each.verdict for each in compared.encoders] == [None, "worse", "no measurable difference"]
    assert list(compared.encoders[0].figures) == list(WITH_LABELS)
    assert compared.encoders[2].differences["knn"].points == 0
    scenes = ImageSet("scenes", Split(make_scenes(300, 32, 0)[0]))
    pooled, constant = (frozen(network, 32) for network in (Pooled(), Constant()))
    compared = compare_encoders([pooled, constant, pooled], scenes, QUIET)
    assert not compared.labelled
    assert [each.verdict for each in compared.encoders] == [None, "worse", "no measurable difference"]
    assert list(compared.encoders[1].differences) == list(WITHOUT)


@pytest.mark.parametrize("labels", [True, False])
def test_a_comparison_leaves_networks_in_the_mode_that_they_were_in(tiny, images, labels):
    tiny.backbone.train()
    compare_encoders([tiny, tiny], images, QUIET, labels=labels)
    assert tiny.backbone.training


def test_labels_may_be_left_aside_and_the_same_call_gives_the_same(tiny, images):
    pair = [tiny, frozen(Pooled(), 16)]
    first, again = (compare_encoders(pair, images, QUIET, labels=False) for _ in range(2))
    assert first == again
    assert not first.labelled
    with pytest.raises(UserError, match="blobs has 6"):
        compare_encoders(pair, replace(images, test=images.test[torch.arange(6)]), QUIET, labels=False)


def test_every_measure_says_what_it_tells():
    assert {*WITH_LABELS, *WITHOUT} == MEASURES.keys()
    assert all(measure.about for measure in MEASURES.values())
