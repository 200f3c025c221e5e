"""Does a batch become the crops that the plan asks for?"""

from dataclasses import replace

import pytest
import torch
import torchvision.transforms.v2.functional as F
from torch import Tensor

from logo_ssl.augment import CropPlan, Draws, draw, make_crops
from logo_ssl.augment.fused import augment_fused
from logo_ssl.augment.transforms import augment_eager, blur_kernel
from logo_ssl.types import Crops

MIXED = CropPlan(global_size=24, local_size=16, blur_p=0.5)
EVERYTHING = replace(MIXED, solarise_p=0.3)
MEAN, STD = (0.5, 0.45, 0.4), (0.25, 0.2, 0.3)


def photos(n: int, c: int = 3, h: int = 32, w: int = 28) -> Tensor:
    return torch.randint(0, 256, (n, c, h, w), dtype=torch.uint8, generator=torch.Generator().manual_seed(9))


def crops(images: Tensor, plan: CropPlan, seed: int = 0) -> Crops:
    c = images.shape[1]
    return make_crops(images, plan, torch.Generator().manual_seed(seed), (0.5,) * c, (0.25,) * c)


def one_crop(image: Tensor, draws: Draws, i: int, size: int) -> Tensor:
    """The same draw, step by step, with torchvision."""
    x = F.resized_crop(image, *draws.boxes[i].tolist(), [size, size], antialias=True)
    x = F.horizontal_flip(x) if draws.flip[i] else x
    steps = (
        (F.adjust_brightness, draws.brightness),
        (F.adjust_contrast, draws.contrast),
        (F.adjust_saturation, draws.saturation),
        (F.adjust_hue, draws.hue),
    )
    for k in draws.order[i].tolist() if draws.jitter[i] else ():
        operation, factor = steps[k]
        x = operation(x, factor[i].item())
    x = F.rgb_to_grayscale(x, 3) if draws.grey[i] else x
    x = F.gaussian_blur(x, [blur_kernel(size)] * 2, [draws.sigma[i].item()] * 2) if draws.sigma[i] else x
    x = F.solarize(x, 0.5) if draws.solarise[i] else x
    return F.normalize(x, list(MEAN), list(STD))


def test_the_whole_chain_equals_torchvision_on_each_crop() -> None:
    images = photos(20)
    draws = draw(60, (32, 28), torch.Generator().manual_seed(1), MIXED, (0.1, 1.0))
    theirs = torch.stack([one_crop(images[i % 20].float() / 255, draws, i, 24) for i in range(60)])
    torch.testing.assert_close(augment_eager(images, draws, 24, MEAN, STD), theirs, atol=1e-4, rtol=0)


@pytest.mark.parametrize("c", [1, 3])
def test_selecting_and_touching_rows_make_the_same_crops(c: int) -> None:
    draws = draw(60, (32, 28), torch.Generator().manual_seed(1), EVERYTHING, (0.1, 1.0))
    images, mean, std = photos(20, c), MEAN[:c], STD[:c]
    selected = augment_fused(images, draws.table(), 24, mean, std, blurs=True, solarises=True)
    torch.testing.assert_close(selected, augment_eager(images, draws, 24, mean, std), atol=1e-5, rtol=0)


def test_a_batch_of_various_sizes_is_cropped_like_each_image_alone() -> None:
    sizes = [(32, 20), (11, 40), (40, 40), (1, 7)]
    images = [photos(1, 3, h, w) for h, w in sizes]
    canvas = torch.zeros(4, 3, 40, 40, dtype=torch.uint8)
    for i, image in enumerate(images):
        canvas[i, :, : image.shape[2], : image.shape[3]] = image
    rows = torch.tensor(sizes)
    draws = draw(8, rows.repeat(2, 1), torch.Generator().manual_seed(1), MIXED, (0.1, 1.0))
    assert (draws.boxes[:, 2:] + draws.boxes[:, :2] <= rows.repeat(2, 1)).all()
    ours = augment_eager(canvas, draws, 24, MEAN, STD)
    for i in range(8):
        alone = one_crop(images[i % 4][0].float() / 255, draws, i, 24)
        torch.testing.assert_close(ours[i], alone, atol=1e-4, rtol=0)
    x_g, *_ = make_crops(canvas, EVERYTHING, torch.Generator(), MEAN, STD, sizes=rows)
    assert x_g.isfinite().all()


@pytest.mark.parametrize("c", [1, 2, 3, 5])
@pytest.mark.parametrize("n_local", [0, 1, 3])
def test_crops_have_the_planned_shapes_and_are_finite(c: int, n_local: int) -> None:
    x_g, x_l, *_ = crops(photos(3, c), replace(EVERYTHING, n_local=n_local))
    assert x_g.shape == (2, 3, c, 24, 24)
    assert x_l.shape == (n_local, 3, c, 16, 16)
    assert x_g.dtype == x_l.dtype == torch.float32
    assert x_g.isfinite().all()
    assert x_l.isfinite().all()


def test_one_image_can_be_cropped_alone() -> None:
    assert crops(photos(1, 3, 1, 1), EVERYTHING).x_l.isfinite().all()


def test_every_image_and_every_crop_gets_a_draw_of_its_own() -> None:
    same = photos(1).expand(8, -1, -1, -1)
    x_g, *_ = crops(same, CropPlan())
    assert len(x_g.reshape(16, -1).unique(dim=0)) == 16


def test_crop_v_of_image_b_stands_at_v_b() -> None:
    flat = torch.arange(0, 200, 20, dtype=torch.uint8).view(10, 1, 1, 1).expand(10, 3, 16, 16)
    x_g, x_l, *_ = crops(flat, CropPlan(jitter_p=0.0, grey_p=0.0, n_local=3))
    for x in (x_g, x_l):
        expected = ((flat[:, :, :1, :1].float() / 255 - 0.5) / 0.25).expand(x.shape)
        torch.testing.assert_close(x, expected, atol=1e-5, rtol=0)


def test_the_same_seed_gives_the_same_crops_and_another_does_not() -> None:
    images = photos(6)
    first, again, other = (crops(images, EVERYTHING, seed) for seed in (3, 3, 4))
    assert first.x_g.equal(again.x_g)
    assert first.x_l.equal(again.x_l)
    assert not first.x_g.equal(other.x_g)


def test_making_crops_leaves_the_images_and_the_global_generator_alone() -> None:
    images, before, state = photos(4), photos(4), torch.get_rng_state()
    crops(images, EVERYTHING)
    assert images.equal(before)
    assert torch.get_rng_state().equal(state)


def test_equal_and_unequal_sizes_use_the_same_draws() -> None:
    images = photos(5)
    together, apart = (crops(images, replace(EVERYTHING, local_size=size)) for size in (24, 16))
    torch.testing.assert_close(together.x_g, apart.x_g)


def test_a_plan_without_changes_returns_the_images() -> None:
    still = CropPlan(
        global_scale=(1.0, 1.0), ratio=(1.0, 1.0), flip=0.0, jitter=(0.0, 0.0, 0.0, 0.0), jitter_p=1.0, grey_p=0.0
    )
    images = photos(3, 3, 32, 32)
    expected = ((images.float() / 255 - 0.5) / 0.25).expand(2, -1, -1, -1, -1)
    torch.testing.assert_close(crops(images, still).x_g, expected, atol=1e-5, rtol=0)


def test_autocast_does_not_round_the_crops() -> None:
    images = photos(4)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        rounded = crops(images, EVERYTHING)
    assert rounded.x_g.equal(crops(images, EVERYTHING).x_g)


def test_solarise_inverts_the_bright_half() -> None:
    bright = torch.full((2, 3, 8, 8), 255, dtype=torch.uint8)
    x_g, *_ = crops(bright, CropPlan(jitter_p=0.0, grey_p=0.0, solarise_p=1.0))
    torch.testing.assert_close(x_g, torch.full_like(x_g, -2.0), atol=1e-5, rtol=0)


@pytest.mark.parametrize(("size", "kernel"), [(16, 3), (32, 3), (96, 9), (224, 23)])
def test_the_blur_kernel_is_a_tenth_of_the_crop(size: int, kernel: int) -> None:
    assert blur_kernel(size) == kernel


def test_a_mean_for_the_wrong_number_of_channels_is_refused() -> None:
    with pytest.raises(ValueError, match="3 means and 3 deviations for 1 channels"):
        make_crops(photos(2, 1), CropPlan(), torch.Generator(), MEAN, STD)


@pytest.mark.gpu
@pytest.mark.filterwarnings("ignore:Synchronization debug mode is a prototype")
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_gpu_makes_the_same_crops_without_waiting() -> None:
    images = photos(16)
    on_gpu = images.cuda()
    crops(on_gpu, EVERYTHING)  # the first call may initialise libraries
    torch.cuda.set_sync_debug_mode("error")
    try:
        x_g, x_l, *_ = crops(on_gpu, EVERYTHING)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    expected = crops(images, EVERYTHING)
    # Within a grey level: products are of half precision there. Solarising is not continuous, so a few may differ more.
    grey_level = 1 / 255 / 0.25
    for ours, theirs in ((x_g.cpu(), expected.x_g), (x_l.cpu(), expected.x_l)):
        assert ((ours - theirs).abs() > grey_level).float().mean() < 2e-3


@pytest.mark.parametrize("layout", ["independent", "disjoint"])
@pytest.mark.parametrize("n_local", [0, 3])
def test_a_part_of_a_batch_is_cropped_as_in_the_whole(n_local: int, layout: str) -> None:
    images, plan = photos(6), replace(EVERYTHING, n_local=n_local, layout=layout)
    sizes = torch.tensor([[32, 28], [30, 20], [16, 28], [32, 9], [20, 20], [32, 28]])

    def cropped(rows: slice, part: tuple[int, int]) -> Crops:
        generator = torch.Generator().manual_seed(0)
        return make_crops(images[rows], plan, generator, MEAN, STD, sizes=sizes[rows], part=part, described=True)

    whole = cropped(slice(0, 6), (0, 1))
    parts = [cropped(slice(2 * number, 2 * number + 2), (number, 3)) for number in range(3)]
    torch.testing.assert_close(torch.cat([part.x_g for part in parts], dim=1), whole.x_g)
    torch.testing.assert_close(torch.cat([part.x_l for part in parts], dim=1), whole.x_l)
    for kind in ("parameters_g", "parameters_l"):
        assert torch.equal(torch.cat([getattr(part, kind) for part in parts], dim=1), getattr(whole, kind))
