"""Does AugSelf predict what the crop module says it drew?"""

import io
import math
from dataclasses import replace

import numpy as np
import pytest
import safetensors.torch
import torch
from rich.console import Console

from crop_by_crop import crop_by_crop
from logo_ssl import pretrain
from logo_ssl.augment import CropPlan, describe, make_crops, plan_draws
from logo_ssl.augself import AugSelf, AugSelfConfig, difference
from logo_ssl.data import load_data
from logo_ssl.errors import UserError
from logo_ssl.frameworks import BYOLConfig, MoCoConfig, SimCLRConfig, SimSiamConfig
from logo_ssl.recipes import find_recipe
from logo_ssl.strategies import LoGoConfig, TwoViewConfig
from logo_ssl.train import build
from logo_ssl.types import Crops, Objective

ON = AugSelfConfig(crop=0.5, colour=0.5, hidden=8)


def test_parameters_are_relative_to_image_and_range():
    sizes = torch.tensor([[40, 20]])
    (draws, _), plan = plan_draws(CropPlan(), sizes, torch.Generator().manual_seed(0)), CropPlan()
    described = describe(draws, sizes.repeat(2, 1), plan.jitter)
    top, left, height, width = draws.boxes.float().unbind(1)
    torch.testing.assert_close(described[:, 0], (top + height / 2) / 40)
    torch.testing.assert_close(described[:, 1], (left + width / 2) / 20)
    torch.testing.assert_close(described[:, 2:4], torch.stack((height / 40, width / 20), dim=1))
    expected = torch.stack(
        [(draws.brightness - 1) / 0.8, (draws.contrast - 1) / 0.8, (draws.saturation - 1) / 0.8, draws.hue / 0.2], dim=1
    )
    torch.testing.assert_close(described[:, 4:8], expected * draws.jitter[:, None])
    assert described[:, 8].tolist() == draws.flip.float().tolist()
    assert described[:, 4:8].abs().max() <= 0.5


def test_crops_hand_out_their_parameters_when_asked():
    images = torch.randint(0, 256, (5, 3, 20, 20), dtype=torch.uint8)
    plan, settings = CropPlan(global_size=16, local_size=8), ((0.5,) * 3, (0.5,) * 3)
    plain = make_crops(images, plan, torch.Generator().manual_seed(1), *settings)
    told = make_crops(images, plan, torch.Generator().manual_seed(1), *settings, described=True)
    assert plain.parameters_g is None
    assert told.parameters_g.shape == told.parameters_l.shape == (2, 5, 9)
    assert told.x_g.equal(plain.x_g)


@pytest.mark.parametrize("channels", [1, 2, 3, 4])
def test_a_colour_change_is_told_where_it_shows(channels):
    images = torch.randint(0, 256, (4, channels, 20, 20), dtype=torch.uint8)
    settings = (0.5,) * channels, (0.5,) * channels
    for column, strength in enumerate(0.4 * torch.eye(4)):
        plan = CropPlan(global_size=16, n_local=0, jitter_p=1.0, jitter=tuple(strength.tolist()), grey_p=0.0)
        still = replace(plan, jitter_p=0.0)
        crops = make_crops(images, plan, torch.Generator().manual_seed(1), *settings, described=True)
        shows = not crops.x_g.equal(make_crops(images, still, torch.Generator().manual_seed(1), *settings).x_g)
        assert bool((crops.parameters_g[:, :, 4 + column] != 0).all()) == shows
        assert bool((crops.parameters_g[:, :, 4:8] != 0).any()) == shows


def test_a_mirrored_crop_sees_the_other_on_the_other_side():
    one, other = torch.zeros(2, 9), torch.full((2, 9), 0.2)
    one[1, 8] = 1.0
    change = difference(one, other)
    assert change[0].tolist() == pytest.approx([-0.2] * 8)
    assert change[1].tolist() == pytest.approx([-0.2, 0.2] + [-0.2] * 6)


def test_features_that_hold_the_parameters_bring_the_loss_down():
    torch.manual_seed(0)
    augself = AugSelf(AugSelfConfig(crop=1.0, colour=1.0, hidden=32), 9)
    optimiser = torch.optim.Adam(augself.parameters(), lr=3e-3)
    losses = []
    for _ in range(150):
        parameters = torch.rand(2, 64, 9) - 0.5
        objective = augself(parameters, parameters)
        optimiser.zero_grad()
        objective.loss.backward()
        optimiser.step()
        losses.append(objective.loss.item())
    assert losses[-1] < 0.3 * losses[0]
    assert set(objective.terms) == {"augself_crop", "augself_colour"}


@pytest.fixture
def data(tmp_path):
    images = np.random.default_rng(0).integers(0, 256, (32, 16, 16, 3), np.uint8)
    np.savez(tmp_path / "data.npz", train_images=images)
    return str(tmp_path / "data.npz")


@pytest.mark.parametrize(
    "framework",
    [
        MoCoConfig(dim=8, queue=16, splits=2),
        SimSiamConfig(dim=8, hidden=4),
        BYOLConfig(dim=8, hidden=8),
        SimCLRConfig(dim=8),
    ],
    ids=lambda config: type(config).__name__,
)
@pytest.mark.parametrize("strategy", [TwoViewConfig(), LoGoConfig(depth=1, width=8)], ids=["two-view", "logo"])
def test_it_composes_with_every_framework_and_strategy(data, tmp_path, framework, strategy):
    n_local = 0 if isinstance(strategy, TwoViewConfig) else 2
    recipe = replace(
        find_recipe("tiny"), data=data, epochs=1, batch_size=16, loggers=(), device="cpu", framework=framework,
        strategy=strategy, crops=CropPlan(global_size=16, local_size=8, n_local=n_local), augself=ON, log_every=1,
    )  # fmt: skip
    run = pretrain(recipe, tmp_path / "run", console=Console(file=io.StringIO()))
    lines = [line for line in run.metrics() if "augself_crop" in line]
    assert len(lines) == 2
    assert all(math.isfinite(line["augself_colour"]) for line in lines)


def test_its_loss_counts_by_its_weights_and_reaches_the_backbone(data, tmp_path):
    recipe = replace(
        find_recipe("tiny"), data=data, epochs=1, batch_size=16, loggers=(), device="cpu", log_every=1,
        framework=SimSiamConfig(dim=8, hidden=4), strategy=TwoViewConfig(), crops=CropPlan(global_size=16, n_local=0),
    )  # fmt: skip
    weights = AugSelfConfig(crop=0.7, colour=0.2, hidden=8)
    runs = [
        pretrain(replace(recipe, augself=config), tmp_path / name, console=Console(file=io.StringIO()))
        for name, config in (("without", AugSelfConfig()), ("with", weights))
    ]
    for line in [line for line in runs[1].metrics() if "loss" in line]:
        expected = line["l_gg"] + 0.7 * line["augself_crop"] + 0.2 * line["augself_colour"]
        assert line["loss"] == pytest.approx(expected, rel=1e-5)
    one, other = (safetensors.torch.load_file(run.backbone_file) for run in runs)
    assert not any(value.equal(other[name]) for name, value in one.items() if value.ndim == 4)


@pytest.mark.parametrize("local_size", [16, 8], ids=["one size", "two sizes"])
@pytest.mark.parametrize(
    "framework", [MoCoConfig(dim=8, queue=16, splits=1), SimSiamConfig(dim=8, hidden=4)], ids=["moco", "simsiam"]
)
def test_it_learns_from_the_global_crops_alone(data, random, framework, local_size):
    crops = CropPlan(global_size=16, local_size=local_size)
    recipe = replace(find_recipe("tiny"), data=data, framework=framework, crops=crops, augself=ON)
    module = build(recipe, load_data(data, 16)).double()
    crops = Crops(random(2, 6, 3, 16, 16), random(2, 6, 3, local_size, local_size), parameters_g=random(2, 6, 9))
    nothing = Objective(torch.zeros(()).double(), {})
    got = module._with_augself(nothing, module._projections(crops, torch.zeros(()))).loss
    features = crop_by_crop(module.framework.encoder.backbone, crops.x_g)
    torch.testing.assert_close(got, module.augself(features, crops.parameters_g).loss)


def test_it_needs_both_crops_encoded(data, tmp_path):
    with pytest.raises(UserError, match=r"crops.n_global=2"):
        pretrain("cifar10-moco", tmp_path / "run", data=data, augself=ON)


def test_its_start_follows_from_the_seed(data):
    recipe = replace(find_recipe("tiny"), data=data, framework=SimSiamConfig(dim=8, hidden=4), augself=ON)
    torch.manual_seed(1)
    one = build(recipe, load_data(data, 16)).augself.state_dict()
    torch.manual_seed(2)
    other = build(recipe, load_data(data, 16)).augself.state_dict()
    assert all(value.equal(other[name]) for name, value in one.items())
