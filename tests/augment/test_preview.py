"""The page of crops shows what training would see, pixel for pixel, and where each crop was cut."""

import io

import numpy as np
import pytest
import torch
from matplotlib import colormaps
from PIL import Image

from logo_ssl.augment import CropPlan, cut, make_crops, plan_draws
from logo_ssl.augment.preview import MARGIN, SIDE, draw_crops

STILL = CropPlan(n_global=1, n_local=0, flip=0.0, jitter_p=0.0, grey_p=0.0)


def photos(*sizes: tuple[int, int], c: int = 3) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [rng.integers(0, 256, (h, w, c), dtype=np.uint8) for h, w in sizes]


def drawn(images: list[np.ndarray], plan: CropPlan, seed: int = 0) -> np.ndarray:
    c = images[0].shape[2]
    png = draw_crops(images, plan, torch.Generator().manual_seed(seed), (0.5,) * c, (0.25,) * c)
    return np.array(Image.open(io.BytesIO(png)).convert("RGB"))


def holds(page: np.ndarray, part: np.ndarray) -> bool:
    h, w, _ = part.shape
    places = np.argwhere((page[: len(page) - h + 1, : page.shape[1] - w + 1] == part[0, 0]).all(axis=2))
    return any(np.array_equal(page[y : y + h, x : x + w], part) for y, x in places)


def test_drawing_first_and_cutting_second_makes_the_same_crops():
    images = torch.randint(0, 256, (3, 3, 20, 30), dtype=torch.uint8)
    sizes = torch.tensor([[20, 30], [9, 30], [20, 4]])
    plan, statistics = CropPlan(global_size=24, local_size=16, blur_p=0.5), ((0.5,) * 3, (0.25,) * 3)
    draws = plan_draws(plan, sizes, torch.Generator().manual_seed(1))
    expected = make_crops(images, plan, torch.Generator().manual_seed(1), *statistics, sizes=sizes)
    crops = cut(images, *draws, plan, *statistics)
    assert crops.x_g.equal(expected.x_g)
    assert crops.x_l.equal(expected.x_l)


@pytest.mark.parametrize("channels", [1, 3])
def test_every_crop_is_on_the_page_pixel_for_pixel(channels):
    plan, images = CropPlan(global_size=32, local_size=16), photos((40, 40), (40, 40), c=channels)
    page = drawn(images, plan)
    batch, half = torch.tensor(np.stack(images)).permute(0, 3, 1, 2), (0.5,) * channels
    crops = make_crops(batch, plan, torch.Generator().manual_seed(0), half, (0.25,) * channels)
    for x in (*crops.x_g.flatten(0, 1), *crops.x_l.flatten(0, 1)):
        seen = ((x * 0.25 + 0.5).clamp(0, 1) * 255).round().byte().permute(1, 2, 0).numpy()
        assert holds(page, seen.repeat(7, axis=0).repeat(7, axis=1).repeat(3 // channels, axis=2))


@pytest.mark.parametrize("seed", range(5))
def test_a_box_surrounds_what_was_cut(seed):
    page = drawn([np.zeros((32, 48, 3), dtype=np.uint8)], STILL, seed)
    draws, _ = plan_draws(STILL, torch.tensor([[32, 48]]), torch.Generator().manual_seed(seed))
    width, scale = 3 * SIDE // 2, SIDE / 32
    near = np.abs(page - np.array(colormaps["Blues"](0.9)[:3]) * 255).max(axis=2) < 2
    y, x = np.argwhere(near[:, : MARGIN + width + 3]).T
    top, left, height, wide = draws.boxes[0].tolist()
    first = len(page) - MARGIN - SIDE
    edges = [x.min() - MARGIN, x.max() - MARGIN, y.min() - first, y.max() - first]
    assert edges == pytest.approx([left * scale, (left + wide) * scale, top * scale, (top + height) * scale], abs=4)


@pytest.mark.parametrize("channels", [2, 5])
def test_images_of_any_number_of_channels_are_shown(channels):
    assert drawn(photos((32, 32), (9, 60), c=channels), CropPlan(n_local=3)).std() > 10


def test_no_images_are_refused():
    with pytest.raises(ValueError, match="no images"):
        draw_crops([], CropPlan(), torch.Generator(), (0.5,), (0.25,))
