"""Does each operation give every image what torchvision gives it alone?"""

from collections.abc import Callable

import pytest
import torch
import torchvision.transforms.v2.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from logo_ssl.augment import transforms

few = settings(max_examples=15, deadline=None)
seeds = st.integers(0, 2**16)
sides = st.integers(1, 20)


def batch(seed: int, n: int, c: int, h: int, w: int) -> Tensor:
    """Images with 8-bit values, so that greys, ties and saturated pixels occur."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randint(0, 256, (n, c, h, w), generator=generator).float() / 255
    x[0] = x[0, :1]
    return x.round() if seed % 4 == 0 else x


def as_bytes(x: Tensor) -> Tensor:
    return (x * 255).round().to(torch.uint8)


def one_by_one(operation: Callable[[Tensor, float], Tensor], x: Tensor, factors: Tensor) -> Tensor:
    return torch.stack([operation(image, factor) for image, factor in zip(x, factors.tolist(), strict=True)])


@few
@given(seed=seeds, h=st.integers(1, 40), w=st.integers(1, 40), size=st.integers(1, 24), c=st.sampled_from([1, 3, 5]))
def test_resized_crop_equals_torchvision_on_each_crop(seed: int, h: int, w: int, size: int, c: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    x = batch(seed, 3, c, h, w)
    height, width = (1 + (torch.rand(6, generator=generator) * side).long().clamp(max=side - 1) for side in (h, w))
    top = (torch.rand(6, generator=generator) * (h - height + 1)).long()
    left = (torch.rand(6, generator=generator) * (w - width + 1)).long()
    boxes = torch.stack((top, left, height, width), dim=1)
    ours = transforms.resized_crop(as_bytes(x), boxes.float(), size)
    theirs = [F.resized_crop(x[i % 3], *box, [size, size], antialias=True) for i, box in enumerate(boxes.tolist())]
    torch.testing.assert_close(ours, torch.stack(theirs), atol=1e-5, rtol=0)


@pytest.mark.parametrize("box", [(0, 0, 200, 190), (13, 40, 180, 31), (3, 5, 20, 24)])
def test_resized_crop_equals_torchvision_on_a_large_image(box: tuple[int, int, int, int]) -> None:
    x = batch(1, 1, 3, 200, 190)
    ours = transforms.resized_crop(as_bytes(x), torch.tensor([box]).float(), 96)
    torch.testing.assert_close(ours, F.resized_crop(x, *box, [96, 96], antialias=True), atol=1e-5, rtol=0)


def test_a_box_of_the_whole_image_at_its_own_size_changes_nothing() -> None:
    x = batch(2, 2, 3, 16, 16)
    torch.testing.assert_close(transforms.resized_crop(as_bytes(x), torch.tensor([[0.0, 0, 16, 16]] * 2), 16), x)


@few
@given(seed=seeds, h=sides, w=sides, c=st.sampled_from([1, 3]))
def test_brightness_and_contrast_equal_torchvision_on_each_image(seed: int, h: int, w: int, c: int) -> None:
    x = batch(seed, 4, c, h, w)
    factors = 2 * torch.rand(4, generator=torch.Generator().manual_seed(seed))
    for ours, theirs in ((transforms.brightness, F.adjust_brightness), (transforms.contrast, F.adjust_contrast)):
        torch.testing.assert_close(ours(x, factors), one_by_one(theirs, x, factors), atol=1e-6, rtol=0)


@few
@given(seed=seeds, h=sides, w=sides)
def test_saturation_equals_torchvision_on_each_image(seed: int, h: int, w: int) -> None:
    x = batch(seed, 4, 3, h, w)
    factors = 2 * torch.rand(4, generator=torch.Generator().manual_seed(seed))
    theirs = one_by_one(F.adjust_saturation, x, factors)
    torch.testing.assert_close(transforms.saturation(x, factors), theirs, atol=1e-6, rtol=0)


@few
@given(seed=seeds, h=sides, w=sides)
def test_hue_equals_torchvision_on_each_image(seed: int, h: int, w: int) -> None:
    x = batch(seed, 4, 3, h, w)
    shifts = torch.rand(4, generator=torch.Generator().manual_seed(seed)) - 0.5
    torch.testing.assert_close(transforms.hue(x, shifts), one_by_one(F.adjust_hue, x, shifts), atol=1e-5, rtol=0)


@pytest.mark.parametrize("shift", [-0.5, 0.0, 0.5])
def test_hue_equals_torchvision_on_every_corner_and_edge_of_the_colour_cube(shift: float) -> None:
    levels = torch.tensor([0.0, 1e-6, 0.5, 1 - 1e-6, 1.0])
    x = torch.cartesian_prod(levels, levels, levels).T.reshape(1, 3, 5, 25)
    torch.testing.assert_close(transforms.hue(x, torch.tensor([shift])), F.adjust_hue(x, shift), atol=1e-5, rtol=0)


def test_greyscale_equals_torchvision() -> None:
    x = batch(3, 3, 3, 5, 6)
    torch.testing.assert_close(transforms.greyscale(x), F.rgb_to_grayscale(x, 3), atol=1e-6, rtol=0)


@few
@given(seed=seeds, h=st.integers(6, 20), w=st.integers(6, 20), radius=st.integers(0, 5), c=st.sampled_from([1, 3, 5]))
def test_blur_equals_torchvision_on_each_image(seed: int, h: int, w: int, radius: int, c: int) -> None:
    x = batch(seed, 4, c, h, w)
    sigma = 0.1 + 1.9 * torch.rand(4, generator=torch.Generator().manual_seed(seed))
    kernel = 2 * radius + 1
    theirs = one_by_one(lambda image, s: F.gaussian_blur(image, [kernel, kernel], [s, s]), x, sigma)
    torch.testing.assert_close(transforms.gaussian_blur(x, sigma, kernel), theirs, atol=1e-5, rtol=0)


def test_solarise_and_normalise_equal_torchvision() -> None:
    x = batch(5, 3, 3, 6, 7)
    mean, std = [0.5, 0.4, 0.3], [0.2, 0.3, 0.4]
    torch.testing.assert_close(transforms.solarise(x), F.solarize(x, 0.5))
    torch.testing.assert_close(transforms.normalise(x, mean, std), F.normalize(x, mean, std))
