"""Does the picture show what the network sees, and where it was cut?"""

import io
import subprocess
import sys

import matplotlib.figure
import numpy as np
import pytest
import torch
from matplotlib import colormaps
from PIL import Image

from logo_ssl.augment import CropPlan, cut, make_crops, plan_draws
from logo_ssl.augment.preview import GAP, MARGIN, SIDE, draw_crops

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


@pytest.fixture
def words(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is written on the pages that the test draws."""
    written, write = [], matplotlib.figure.Figure.text

    def spy(figure, x, y, text, *rest, **style):
        written.append(text)
        return write(figure, x, y, text, *rest, **style)

    monkeypatch.setattr(matplotlib.figure.Figure, "text", spy)
    return written


def test_drawing_first_and_cutting_second_makes_the_same_crops() -> None:
    images = torch.randint(0, 256, (3, 3, 20, 30), dtype=torch.uint8)
    sizes = torch.tensor([[20, 30], [9, 30], [20, 4]])
    plan, statistics = CropPlan(global_size=24, local_size=16, blur_p=0.5), ((0.5,) * 3, (0.25,) * 3)
    draws = plan_draws(plan, sizes, torch.Generator().manual_seed(1))
    expected = make_crops(images, plan, torch.Generator().manual_seed(1), *statistics, sizes=sizes)
    crops = cut(images, *draws, plan, *statistics)
    assert crops.x_g.equal(expected.x_g)
    assert crops.x_l.equal(expected.x_l)


def test_every_crop_is_on_the_page_pixel_for_pixel() -> None:
    plan, images = CropPlan(global_size=32, local_size=16), photos((40, 40), (40, 40))
    page = drawn(images, plan)
    batch = torch.tensor(np.stack(images)).permute(0, 3, 1, 2)
    crops = make_crops(batch, plan, torch.Generator().manual_seed(0), (0.5,) * 3, (0.25,) * 3)
    for x in (*crops.x_g.flatten(0, 1), *crops.x_l.flatten(0, 1)):
        seen = ((x * 0.25 + 0.5).clamp(0, 1) * 255).round().byte().permute(1, 2, 0).numpy()
        assert holds(page, seen.repeat(7, axis=0).repeat(7, axis=1))


@pytest.mark.parametrize("seed", range(5))
def test_a_box_surrounds_what_was_cut(seed: int) -> None:
    images = [np.zeros((32, 48, 3), dtype=np.uint8)]
    page = drawn(images, STILL, seed)
    draws, _ = plan_draws(STILL, torch.tensor([[32, 48]]), torch.Generator().manual_seed(seed))
    blue = np.array(colormaps["Blues"](0.9)[:3]) * 255
    near = np.abs(page - blue).max(axis=2) < 2
    width, scale = 3 * SIDE // 2, SIDE / 32
    y, x = np.argwhere(near[:, : MARGIN + width + 3]).T
    top, left, height, wide = draws.boxes[0].tolist()
    assert x.min() == pytest.approx(MARGIN + left * scale, abs=3)
    assert x.max() == pytest.approx(MARGIN + (left + wide) * scale, abs=3)
    assert y.max() - y.min() == pytest.approx(height * scale, abs=4)
    assert y.max() - (len(page) - MARGIN - SIDE) == pytest.approx((top + height) * scale, abs=4)


def test_crops_are_numbered_on_the_original_and_in_their_titles(words: list[str]) -> None:
    drawn(photos((30, 20), (20, 30)), CropPlan(n_local=3, flip=0.0))
    for name in ("g1", "g2", "l1", "l2", "l3"):
        assert words.count(name) == 4
    assert {"20 x 30 px", "30 x 20 px"} < set(words)


@pytest.mark.parametrize(("flip", "arrows"), [(0.0, 0), (1.0, 4)])
def test_only_flipped_crops_carry_an_arrow(words: list[str], flip: float, arrows: int) -> None:
    drawn(photos((30, 20)), CropPlan(flip=flip))
    assert sum("\N{LEFT RIGHT ARROW}" in text for text in words) == arrows


def test_the_caption_states_the_plan(words: list[str]) -> None:
    drawn(photos((20, 20)), CropPlan(global_size=224, local_size=96))
    assert words[0] == "2 global crops (40-100 % of the area, 224 px) and 2 local crops (5-40 %, 96 px)"
    drawn(photos((20, 20)), STILL)
    assert "1 global crop (40-100 % of the area, 32 px)" in words


@pytest.mark.parametrize(("channels", "note"), [
    (1, ""), (2, "\nthe two channels as red and green"), (4, "\nthe first 3 of 4 channels as red, green and blue"),
])  # fmt: skip
def test_images_of_any_number_of_channels_are_shown(words: list[str], channels: int, note: str) -> None:
    drawn(photos((32, 32), c=channels), STILL)
    assert words[0] == f"1 global crop (40-100 % of the area, 32 px){note}"


def test_a_grey_image_stays_grey() -> None:
    page = drawn(photos((32, 32), c=1), STILL)
    left = MARGIN + SIDE + GAP
    crop = page[-MARGIN - SIDE : -MARGIN, left : left + SIDE]
    assert crop.std() > 10
    assert (crop == crop[..., :1]).all()


def test_no_images_are_refused() -> None:
    with pytest.raises(ValueError, match="no images"):
        draw_crops([], CropPlan(), torch.Generator(), (0.5,), (0.25,))


def test_importing_it_does_not_import_matplotlib() -> None:
    check = "import sys, logo_ssl.augment.preview; sys.exit('matplotlib' in sys.modules)"
    subprocess.run([sys.executable, "-c", check], check=True)
