"""The page of crops shows every image, what training would see of it, and where each crop was cut."""

import io

import numpy as np
import pytest
import torch
from matplotlib.figure import Figure
from PIL import Image

from logo_ssl.augment import CropPlan, cut, make_crops, plan_draws
from logo_ssl.augment.preview import draw_crops, visible

HALF = (0.5,) * 3, (0.25,) * 3


def test_drawing_first_and_cutting_second_makes_the_same_crops():
    images = torch.randint(0, 256, (3, 3, 20, 30), dtype=torch.uint8)
    sizes = torch.tensor([[20, 30], [9, 30], [20, 4]])
    plan, statistics = CropPlan(global_size=24, local_size=16, blur_p=0.5), ((0.5,) * 3, (0.25,) * 3)
    draws = plan_draws(plan, sizes, torch.Generator().manual_seed(1))
    expected = make_crops(images, plan, torch.Generator().manual_seed(1), *statistics, sizes=sizes)
    crops = cut(images, *draws, plan, *statistics)
    assert crops.x_g.equal(expected.x_g)
    assert crops.x_l.equal(expected.x_l)


@pytest.mark.parametrize("channels", [1, 2, 3, 5])
def test_the_page_shows_every_image_its_crops_and_where_they_were_cut(monkeypatch, channels):
    figures: list[Figure] = []
    monkeypatch.setattr(Figure, "savefig", lambda figure, file, **_: figures.append(figure))
    rng, half = np.random.default_rng(0), (0.5,) * channels
    images = [rng.integers(0, 256, (h, w, channels), dtype=np.uint8) for h, w in ((32, 48), (40, 30))]
    plan, sizes = CropPlan(2, 3, 32, 16), torch.tensor([[32, 48], [40, 30]])
    draw_crops(images, plan, torch.Generator().manual_seed(0), half, (0.25,) * channels)
    draws = plan_draws(plan, sizes, torch.Generator().manual_seed(0))
    canvas = torch.zeros(2, channels, 40, 48, dtype=torch.uint8)
    for place, image in zip(canvas, images, strict=True):
        place[:, : image.shape[0], : image.shape[1]] = torch.tensor(image).permute(2, 0, 1)
    x_g, x_l, *_ = cut(canvas, *draws, plan, half, (0.25,) * channels)
    for i, row in enumerate(np.array(figures[0].axes).reshape(2, 6)):
        shown = [axes.images[0].get_array() for axes in row]
        crops = [((x[i] * 0.25 + 0.5).clamp(0, 1) * 255).round().byte().permute(1, 2, 0).numpy() for x in (*x_g, *x_l)]
        assert all(map(np.array_equal, shown, map(visible, [images[i], *crops])))
        boxes = [patch.get_bbox().translated(0.5, 0.5) for patch in row[0].patches]
        cut_at = torch.cat([kind.boxes.unflatten(0, (-1, 2))[:, i] for kind in draws]).tolist()
        assert [[box.y0, box.x0, box.height, box.width] for box in boxes] == cut_at


def test_the_page_is_an_image_and_always_the_same():
    pages = [draw_crops([np.zeros((9, 7, 3), np.uint8)], CropPlan(), torch.Generator(), *HALF) for _ in range(2)]
    assert pages[0] == pages[1]
    assert Image.open(io.BytesIO(pages[0])).width > 500
