"""Resizing on the CPU against Pillow's, and squares against torchvision's."""

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from PIL import Image
from torchvision.transforms import v2

from logo_ssl.data.nvjpeg import cut_square
from logo_ssl.data.resizing import LONGEST, resized, square
from logo_ssl.features import prepared

SIDES = st.integers(1, 90)
PILLOWS = {"bilinear": Image.Resampling.BILINEAR, "bicubic": Image.Resampling.BICUBIC}


@pytest.mark.parametrize("mode", PILLOWS)
@settings(deadline=None, max_examples=60)
@given(SIDES, SIDES, SIDES, SIDES, st.integers(0, 2**31))
def test_pixels_are_pillows_but_for_rounding(mode, height, width, new_height, new_width, seed):
    # Both cut off at 0 and 255 between rows and columns, but not in the same order: far from these, all is rounding.
    image = np.random.default_rng(seed).integers(90, 166, (height, width, 3), dtype=np.uint8)
    ours = resized(image, (new_height, new_width), mode)
    theirs = np.asarray(Image.fromarray(image).resize((new_width, new_height), PILLOWS[mode]))
    assert ours.shape == theirs.shape
    assert ours.flags.c_contiguous  # or the next copy would take longer than the resizing
    assert np.abs(ours.astype(int) - theirs).max() <= 2


def test_the_same_size_is_the_same_image():
    image = np.random.default_rng(0).integers(0, 256, (17, 23, 3), dtype=np.uint8)
    assert np.array_equal(resized(image, (17, 23), "bicubic"), image)


def test_black_and_white_differ_from_pillow_at_edges_alone():
    image = np.random.default_rng(0).integers(0, 2, (60, 80, 3), dtype=np.uint8) * 255
    theirs = np.asarray(Image.fromarray(image).resize((40, 30), Image.Resampling.BICUBIC))
    difference = np.abs(resized(image, (30, 40), "bicubic").astype(int) - theirs)
    assert (difference.mean() < 1, difference.max() < 64) == (True, True)


def test_a_mirrored_view_of_an_image_that_must_not_be_written_to_is_resized():
    image = np.random.default_rng(0).integers(0, 256, (40, 40, 3), dtype=np.uint8)
    image.setflags(write=False)
    assert np.array_equal(resized(image[:, ::-1], (20, 20), "bilinear")[:, ::-1], resized(image, (20, 20), "bilinear"))


def torchvisions(image: torch.Tensor, size: int) -> torch.Tensor:
    """What torchvision makes of an image [C H W], by the transforms that `export` prints."""
    resize = v2.Resize(size, v2.InterpolationMode.BICUBIC, antialias=True)
    return v2.Compose([resize, v2.CenterCrop(size)])(image)


ODD_SHAPES = st.tuples(st.integers(1, 300), st.integers(1, 300)).filter(
    lambda sides: max(sides) <= LONGEST * min(sides)
)


@settings(deadline=None, max_examples=300)
@given(ODD_SHAPES, st.integers(1, 100), st.integers(0, 2**31))
def test_squares_are_those_of_torchvision_to_the_pixel(shape, size, seed):
    image = np.random.default_rng(seed).integers(0, 256, (*shape, 3), dtype=np.uint8)
    pixels = torch.from_numpy(image).permute(2, 0, 1)
    theirs = torchvisions(pixels, size)
    assert torch.equal(torch.from_numpy(square(image, size)).permute(2, 0, 1), theirs)


@settings(deadline=None, max_examples=100)
@given(ODD_SHAPES, st.integers(1, 100), st.integers(0, 2**31))
def test_squares_of_arrays_and_on_a_device_are_those_of_torchvision(shape, size, seed):
    pixels = torch.from_numpy(np.random.default_rng(seed).integers(0, 256, (3, *shape), dtype=np.uint8))
    theirs = torchvisions(pixels.float(), size).clamp(0, 255)  # as floats, so without the CPU's own way for bytes
    assert torch.equal(cut_square(pixels[None], size)[0], theirs.round().byte())
    ours = prepared(pixels[None], (0.0,) * 3, (1.0,) * 3, size)[0]
    torch.testing.assert_close(ours, theirs / 255, rtol=0, atol=1e-5)


@settings(deadline=None, max_examples=60)
@given(st.integers(1, 40), st.integers(1, 3000), st.integers(2, 30), st.booleans())
def test_the_square_of_a_very_long_image_is_shifted_by_less_than_a_pixel(short, more, size, turned):
    long = LONGEST * short + more
    assume(long * size / short < 20_000)
    image = np.repeat(np.linspace(0, 255, long)[None, :, None], short, axis=0).repeat(3, axis=2).astype(np.uint8)
    image = image.transpose(1, 0, 2) if turned else image
    theirs = torchvisions(torch.from_numpy(image).permute(2, 0, 1), size).permute(1, 2, 0)
    a_pixel = 255 / (long * size // short)
    assert np.abs(square(image, size).astype(int) - theirs.numpy()).max() <= a_pixel + 2
