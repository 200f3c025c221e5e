"""Is a step that a CPU's memory cannot hold told before the system kills it, and no other?"""

from dataclasses import replace

import pytest
import torch
from small_runs import SMALL, train
from torch import nn

from logo_ssl.data import ImageSet, Split
from logo_ssl.errors import UserError
from logo_ssl.frameworks import MoCoConfig
from logo_ssl.hardware import whole_memory
from logo_ssl.recipes import RECIPES, find_recipe
from logo_ssl.strategies import TwoViewConfig
from logo_ssl.train import build
from logo_ssl.train.building import about_huge_crops, about_small_crops
from logo_ssl.train.memory import about_memory, least_memory

CPU = torch.device("cpu")
NOISE = ImageSet("noise", Split(torch.zeros(16, 3, 16, 16, dtype=torch.uint8)))


def machine(monkeypatch, free, whole: float | None = 10**15):
    monkeypatch.setattr("logo_ssl.train.memory.available_memory", lambda device: int(free))
    monkeypatch.setattr("logo_ssl.train.memory.whole_memory", lambda: whole)


def test_a_batch_that_cannot_fit_is_refused_before_anything_is_written(data, tmp_path, monkeypatch):
    machine(monkeypatch, 10**5)
    sentence = (
        r"^A batch of 16 with crops of 16 px takes 0\.0 GB of memory or more, and 0\.0 GB are free; free some, or "
        r"lower batch-size or crops\.global-size\.$"
    )
    with pytest.raises(UserError, match=sentence):
        train(SMALL, data, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_batch_that_may_not_fit_is_warned_of(data, tmp_path, monkeypatch):
    machine(monkeypatch, 0.9 * least_memory(build(SMALL, NOISE)))
    _, said = train(SMALL, data, tmp_path / "run", epochs=1)
    assert "are free: the system may kill this process without a word; free some, or lower --batch-size" in said


def test_what_the_whole_machine_could_not_hold_is_refused(monkeypatch):
    module = build(SMALL, NOISE)
    machine(monkeypatch, 0.9 * least_memory(module), whole=0.95 * least_memory(module))
    with pytest.raises(UserError, match="free some, or lower"):
        about_memory(module, CPU)


def test_nothing_is_refused_where_free_memory_is_a_guess(monkeypatch):
    machine(monkeypatch, 10**5, whole=None)
    assert len(about_memory(build(SMALL, NOISE), CPU)) == 1


def test_memory_of_a_gpu_is_not_guessed_at(monkeypatch):
    machine(monkeypatch, 0)
    assert about_memory(build(SMALL, NOISE), torch.device("cuda")) == []


@pytest.mark.parametrize("name", [name for name in RECIPES if name.startswith(("tiny", "cifar10", "imagenette"))])
def test_recipes_for_small_images_fit_into_an_ordinary_machine(name, monkeypatch):
    machine(monkeypatch, 10e9)
    assert about_memory(build(RECIPES[name], labelled(NOISE)), CPU) == []


def labelled(data):
    return replace(data, train=Split(data.train.images, torch.arange(16) % 2), classes=("a", "b"))


def test_huge_crops_of_the_smallest_network_are_refused_on_an_ordinary_machine(monkeypatch):
    machine(monkeypatch, 16e9)
    huge = replace(RECIPES["tiny"], batch_size=4, crops=replace(RECIPES["tiny"].crops, global_size=5000))
    with pytest.raises(UserError, match=r"crops of 5000 px takes 2\d\.\d GB of memory or more, and 16\.0 GB are free"):
        about_memory(build(huge, NOISE), CPU)


def test_what_is_counted_is_what_the_backward_pass_needs():
    module = build(replace(SMALL, framework=MoCoConfig(dim=8, queue=24), strategy=TwoViewConfig()), NOISE)
    module.framework.encoder.net.backbone = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.ReLU())
    crops, asking = module.recipe.crops, len(module.strategy.roles.queries)
    large, local = crops.global_size**2, crops.n_local * crops.local_size**2
    per_pixel = 4 * (3 + 8)  # what the convolution saw, and what the ReLU made
    expected = (asking * large + local) * per_pixel + (crops.n_global * large + local) * 4 * 3
    assert least_memory(module) == module.recipe.batch_size * expected


def test_a_backbone_that_takes_no_such_crops_is_left_to_others():
    module = build(SMALL, NOISE)
    module.framework.encoder.net.backbone = nn.Linear(3, 3)
    assert about_memory(module, CPU) == []


def test_memory_is_known_only_where_the_system_tells_it_and_does_not_swap(monkeypatch):
    found = []
    for told in ({}, {"MemAvailable": 1}, {"MemAvailable": 1, "SwapFree": 0}, {"MemAvailable": 1, "SwapFree": 1}):
        monkeypatch.setattr("logo_ssl.hardware._meminfo", lambda told=told: told and told | {"MemTotal": 2})
        found.append(whole_memory())
    assert found == [None, 2, 2, None]


@pytest.mark.parametrize(("side", "told"), [(4, False), (3, True)])
def test_crops_far_larger_than_the_images_are_told(side, told):
    small = ImageSet("noise", Split(torch.zeros(4, 3, side, 40, dtype=torch.uint8)))
    sentence = about_huge_crops(SMALL, small)
    assert bool(sentence) == told
    assert not told or "Crops of 16 px are 5 times as large as the images (about 3 px)" in sentence
    assert not told or "use --crops.global-size 3 or so" in sentence


@pytest.mark.parametrize(
    ("size", "changes", "told"),
    [
        (
            (200, 240),
            {},
            "Images of 240 x 200 px are seen as crops of 32 px by this recipe; without a recipe, settings",
        ),
        ((128, 400), {}, None),
        ((200, 240), {"crops__global_size": 24}, None),  # whoever sets them knows
        ((200, 240), {"chosen": ("why",)}, None),
    ],
    ids=["large", "not so large", "set", "chosen"],
)
def test_images_far_larger_than_the_crops_of_a_recipe_are_told(size, changes, told):
    large = ImageSet("noise", Split(torch.zeros(2, 3, *size, dtype=torch.uint8)))
    sentence = about_small_crops(find_recipe("cifar10-best").changed(**changes), large)
    assert (sentence or "").startswith(told or "")
    assert bool(sentence) == bool(told)
