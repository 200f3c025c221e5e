"""Resizing on the CPU against Pillow's."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from logo_ssl.data.resizing import resized, square

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


@pytest.mark.parametrize("long", [30, 45, 60, 150, 300])
@pytest.mark.parametrize("turned", [False, True], ids=["wide", "high"])
def test_a_square_is_the_middle_of_the_whole_image_resized_however_long_it_is(long, turned):
    across, along = np.mgrid[:30, :long]
    waves = 128 + 60 * np.sin((along - long / 2) / 3) + 20 * np.sin(across / 4)
    image = np.repeat(waves[..., None], 3, axis=2).astype(np.uint8)
    whole = np.asarray(Image.fromarray(image).resize((round(long * 22 / 30), 22), Image.Resampling.BICUBIC))
    start = (whole.shape[1] - 22) // 2
    theirs = whole[:, start : start + 22].astype(int)
    ours = square(image.transpose(1, 0, 2), 22).transpose(1, 0, 2) if turned else square(image, 22)
    assert np.abs(ours - theirs).max() <= (2 if long <= 60 else 20)  # beyond 2:1, shifted by less than a pixel
