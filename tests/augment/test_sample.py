"""Are the parameters drawn as torchvision draws them, and for each crop on its own?"""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torchvision.transforms import RandomResizedCrop

from logo_ssl.augment import CropPlan, Draws, draw, draw_boxes
from logo_ssl.augment.draws import Part, draw_disjoint_boxes

RATIO = (3 / 4, 4 / 3)
PLAN = CropPlan(jitter=(0.4, 0.3, 0.2, 0.1), blur_p=0.5, solarise_p=0.3)


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def drawn(n: int, plan: CropPlan = PLAN) -> Draws:
    return draw(n, (32, 32), generator(), plan, (0.2, 1.0))


def moments(boxes: Tensor, image_size: tuple[int, int]) -> Tensor:
    """Mean and spread of area share and log-aspect, and mean position within the room that is left."""
    top, left, height, width = boxes.double().unbind(dim=1)
    H, W = image_size
    area, aspect = height * width / (H * W), (width / height).log()
    return torch.stack((area.mean(), aspect.mean(), area.std(), aspect.std(), top.mean() / H, left.mean() / W))


@pytest.mark.parametrize("scale", [(0.05, 0.4), (0.4, 1.0)])
@pytest.mark.parametrize("image_size", [(32, 32), (24, 40), (10, 60), (60, 10)])
def test_boxes_are_distributed_as_in_torchvision(scale: tuple[float, float], image_size: tuple[int, int]) -> None:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        image = torch.empty(1, *image_size)
        theirs = [RandomResizedCrop.get_params(image, list(scale), list(RATIO)) for _ in range(3000)]
    ours = draw_boxes(30_000, image_size, scale, RATIO, generator())
    # 3000 samples: the standard error of each moment is below 0.006.
    torch.testing.assert_close(moments(ours, image_size), moments(torch.tensor(theirs), image_size), atol=0.02, rtol=0)


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 999), h=st.integers(1, 50), w=st.integers(1, 50), low=st.floats(0.01, 1.0))
def test_boxes_lie_inside_the_image(seed: int, h: int, w: int, low: float) -> None:
    top, left, height, width = draw_boxes(200, (h, w), (low, 1.0), RATIO, generator(seed)).unbind(dim=1)
    assert (top >= 0).all()
    assert (left >= 0).all()
    assert (height > 0).all()
    assert (width > 0).all()
    assert (top + height <= h).all()
    assert (left + width <= w).all()


@pytest.mark.parametrize("image_size", [(10, 60), (60, 10), (20, 20)])
def test_the_fallback_is_the_central_box_of_torchvision(image_size: tuple[int, int]) -> None:
    scale, ratio = (4.0, 4.0), (0.8, 1.2)  # no box of four times the area fits
    theirs = RandomResizedCrop.get_params(torch.empty(1, *image_size), list(scale), list(ratio))
    assert draw_boxes(3, image_size, scale, ratio, generator()).tolist() == [list(theirs)] * 3


def test_each_order_is_a_permutation_and_all_24_occur_equally_often() -> None:
    order = drawn(24_000).order
    assert order.sort(dim=1).values.equal(torch.arange(4).expand(24_000, 4))
    _, counts = order.unique(dim=0, return_counts=True)
    assert len(counts) == 24
    assert counts.min() > 850  # 1000 expected, standard deviation 31
    assert counts.max() < 1150


@pytest.mark.parametrize(("name", "low", "high"), [
    ("brightness", 0.6, 1.4), ("contrast", 0.7, 1.3), ("saturation", 0.8, 1.2), ("hue", -0.1, 0.1),
])  # fmt: skip
def test_factors_fill_their_range(name: str, low: float, high: float) -> None:
    values = getattr(drawn(10_000), name)
    assert low - 1e-6 <= values.min() < values.max() <= high + 1e-6
    assert values.mean().item() == pytest.approx((low + high) / 2, abs=0.02 * (high - low))
    assert values.std().item() == pytest.approx((high - low) / 12**0.5, rel=0.03)


def test_a_factor_is_never_negative() -> None:
    assert drawn(5000, CropPlan(jitter=(2.0, 2.0, 2.0, 0.5))).brightness.min() >= 0


def test_probabilities_are_met() -> None:
    draws = drawn(20_000)
    rates = [x.float().mean().item() for x in (draws.flip, draws.jitter, draws.grey, draws.sigma > 0, draws.solarise)]
    assert rates == pytest.approx([0.5, 0.8, 0.2, 0.5, 0.3], abs=0.02)
    assert draws.sigma[draws.sigma > 0].min() >= 0.1


def test_each_crop_has_a_draw_of_its_own() -> None:
    draws = drawn(500)
    for values in (draws.brightness, draws.contrast, draws.saturation, draws.hue):
        assert len(values.unique()) > 490
    assert len(draws.boxes.unique(dim=0)) > 400


def test_the_same_seed_draws_the_same() -> None:
    assert all(a.equal(b) for a, b in zip(drawn(50), drawn(50), strict=True))


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 999), h=st.integers(4, 50), w=st.integers(4, 50), crops=st.integers(1, 4))
def test_disjoint_boxes_of_an_image_share_no_pixel_and_lie_inside_it(seed: int, h: int, w: int, crops: int) -> None:
    part = Part(crops=crops)
    boxes = draw_disjoint_boxes(crops * 20, (h, w), (0.05, 0.4), RATIO, generator(seed), part).view(crops, 20, 4)
    used = torch.zeros(20, h, w)
    for crop in boxes:
        for image, (top, left, height, width) in enumerate(crop.tolist()):
            assert min(top, left) >= 0 < min(height, width)
            assert (top + height <= h, left + width <= w) == (True, True)
            used[image, top : top + height, left : left + width] += 1
    assert used.max() == 1


def test_disjoint_boxes_are_as_large_as_others_unless_their_strip_is_too_small() -> None:
    boxes = draw_disjoint_boxes(2000, (100, 100), (0.05, 0.1), RATIO, generator(), Part(crops=2)).double()
    share = boxes[:, 2:].prod(dim=1) / 100**2
    assert 0.045 < share.min() < share.max() < 0.105
    assert abs(share.mean() - 0.075) < 0.003
