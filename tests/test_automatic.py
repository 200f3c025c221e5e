"""The recipe `auto`: sound for any data and machine, printed, saved, and changed by whoever knows better."""

from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

import logo_ssl
from logo_ssl import cli
from logo_ssl.cli import parse
from logo_ssl.data import load_data
from logo_ssl.data.decode import DatasetInfo, dataset_info
from logo_ssl.errors import UserError
from logo_ssl.recipes import RECIPES, Machine, Recipe, check, choose, differences, read_recipe
from logo_ssl.train.build import recipe_for

GB = 10**9
CPU, GPU, LAPTOP = Machine("cpu", "a CPU", 16 * GB), Machine("cuda", "a GPU", 80 * GB), Machine("mps", "a Mac", 8 * GB)
SMALL_GPU = Machine("cuda", "a small GPU", 6 * GB)


@pytest.mark.parametrize("machine", [CPU, GPU, LAPTOP, SMALL_GPU], ids=lambda machine: machine.name)
@pytest.mark.parametrize("side", [8, 28, 64, 130, 500, 4000])
@pytest.mark.parametrize("n", [2, 33, 1_000, 60_000, 2_000_000])
def test_every_choice_is_sound_and_survives_json(n, side, machine):
    recipe = choose(DatasetInfo(n, side, 3, False), machine)
    check(recipe)
    assert Recipe.from_json(recipe.to_json()) == recipe
    assert recipe.batch_size <= n
    assert 1 <= recipe.framework.queue <= n // 2


def test_weights_to_start_from_are_adapted_the_more_carefully_the_fewer_images_there_are():
    wishes = {"init": "torchvision/resnet18", "backbone": "resnet18", "stem": "imagenet"}
    chosen = {n: choose(DatasetInfo(n, 400, 3, False), GPU, wishes) for n in (500, 5_000, 500_000)}
    assert [recipe.epochs for recipe in chosen.values()] == [160, 160, 20]
    assert [recipe.optimiser.pull for recipe in chosen.values()] == pytest.approx([1.0, 0.1, 0.001])
    for n, recipe in chosen.items():
        check(replace(recipe, init=wishes["init"]))
        fresh = choose(DatasetInfo(n, 400, 3, False), GPU, {**wishes, "init": None})
        assert recipe.epochs < fresh.epochs
        assert recipe.optimiser.backbone_lr < 1 == fresh.optimiser.backbone_lr
        assert recipe.optimiser.frozen_epochs > 0 == fresh.optimiser.pull


def test_the_choice_follows_the_data_and_the_machine():
    def seen(n, side, machine=GPU):
        recipe = choose(DatasetInfo(n, side, 3, True), machine)
        return recipe.backbone, recipe.stem, recipe.crops.global_size, recipe.crops.local_size, recipe.batch_size

    assert seen(50_000, 32) == ("resnet18", "cifar", 32, 16, 256)
    assert seen(50_000, 96) == ("resnet18", "cifar", 64, 32, 256)
    assert seen(5_000, 400) == ("resnet18", "imagenet", 224, 96, 256)
    assert seen(5_000, 128) == ("resnet18", "imagenet", 128, 64, 256)
    assert seen(200_000, 400)[0] == "resnet34"
    assert seen(2_000_000, 400)[0] == "resnet50"
    assert seen(5_000, 400, CPU) == ("tiny", "imagenet", 64, 32, 64)
    assert seen(5_000, 28, CPU) == ("tiny", "imagenet", 32, 16, 64)


def test_less_memory_and_fewer_images_make_smaller_batches_and_rates():
    full, small = (choose(DatasetInfo(2_000_000, 400, 3, False), machine) for machine in (GPU, SMALL_GPU))
    assert small.batch_size < full.batch_size
    assert small.optimiser.lr / small.batch_size == pytest.approx(full.optimiser.lr / full.batch_size)
    assert choose(DatasetInfo(100, 400, 3, False), GPU).batch_size == 32


def test_for_images_like_cifars_it_is_the_recipe_whose_figures_are_published():
    changed = differences(choose(DatasetInfo(50_000, 32, 3, True), GPU), RECIPES["cifar10-tuned-moco-logo"])
    assert changed.keys() <= {"data", "knn_every", "checkpoint_every"}


@pytest.mark.parametrize("side", [128, 400])
@pytest.mark.parametrize(
    ("n", "backbone"), [(9_469, "resnet18"), (50_001, "resnet34"), (200_000, "resnet34"), (2_000_000, "resnet50")]
)
def test_photographs_of_any_number_have_imagenettes_settings_but_for_backbone_epochs_and_sizes(n, backbone, side):
    recipe, base = choose(DatasetInfo(n, side, 3, True), GPU), RECIPES["imagenette-moco-logo"]
    sizes = {"crops.global_size", "crops.local_size"} if side != base.crops.global_size else set()
    free = {"data", "backbone", "epochs", "knn_every", "checkpoint_every"} | sizes
    assert differences(recipe, base).keys() <= free
    assert recipe.backbone == backbone


@pytest.mark.parametrize("side", [64, 400])
def test_a_cpu_sees_photographs_in_their_colours_too(side):
    crops = choose(DatasetInfo(5_000, side, 3, False), CPU).crops
    assert replace(crops, global_size=128, local_size=64) == RECIPES["imagenette-moco-logo"].crops


@pytest.mark.parametrize("n", [33, 100, 300, 9_469, 2_000_000])
def test_batch_norm_of_mocos_keys_sees_enough_images(n):
    for machine in (GPU, SMALL_GPU, LAPTOP, CPU):
        recipe = choose(DatasetInfo(n, 400, 3, False), machine)
        assert recipe.framework.splits >= 2
        assert recipe.batch_size // recipe.framework.splits >= min(16, recipe.batch_size // 2)


@pytest.mark.parametrize("labelled", [True, False])
def test_facts_of_arrays_and_photographs(tmp_path, labelled):
    names = {"train_labels": np.arange(6) % 2} if labelled else {}
    np.savez(tmp_path / "x.npz", train_images=np.zeros((6, 20, 30, 1), np.uint8), **names)
    assert dataset_info(load_data(str(tmp_path / "x.npz"), 32)) == DatasetInfo(6, 20, 1, labelled)
    for i, size in enumerate([(40, 90), (60, 50), (70, 300)]):
        file = tmp_path / "photos" / ("ab"[i % 2] if labelled else "") / f"{i}.jpg"
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", size).save(file)
    (tmp_path / "photos" / "bad.jpg").write_bytes(b"nothing")
    facts = dataset_info(load_data(str(tmp_path / "photos"), 32))
    assert facts[:3] == (4, 50, 3)
    assert str(facts).startswith("4 images of about 50 px, with")


def test_images_that_cannot_be_read_are_told(tmp_path):
    (tmp_path / "bad.jpg").write_bytes(b"nothing")
    with pytest.raises(UserError, match=r"bad\.jpg"):
        dataset_info(load_data(str(tmp_path), 32))


@pytest.fixture
def array(tmp_path):
    images = np.random.default_rng(0).integers(0, 256, (40, 16, 16, 3), np.uint8)
    np.savez(tmp_path / "x.npz", train_images=images)
    return tmp_path / "x.npz"


def test_what_others_depend_on_is_wished_for_before_the_choice():
    photographs = DatasetInfo(60_000, 400, 3, False)
    plain = choose(photographs, SMALL_GPU)
    deep = choose(photographs, SMALL_GPU, {"backbone": "resnet50"})
    assert deep.backbone == "resnet50"
    assert "resnet50" in deep.chosen[0]
    assert deep.batch_size < plain.batch_size
    assert deep.optimiser.lr / deep.batch_size == pytest.approx(plain.optimiser.lr / plain.batch_size)
    few = choose(photographs, GPU, {"batch_size": 48})
    assert few.batch_size == 48
    assert few.optimiser.lr / 48 == pytest.approx(plain.optimiser.lr / plain.batch_size)
    assert choose(photographs, SMALL_GPU._replace(bf16=False)).batch_size < plain.batch_size


def test_the_shell_and_python_wish_alike(array):
    wishes = {"device": "cpu", "backbone": "resnet18", "batch_size": 16, "crops__global_size": 24}
    python = recipe_for(str(array), "cpu", wishes).changed(**wishes, framework="byol", epochs=3)
    assert (python.batch_size, python.crops.global_size) == (16, 24)
    for line in (
        f"--data {array} --device cpu --backbone resnet18 --batch-size 16 --crops.global-size 24 --framework byol",
        f"--data={array} --device=cpu --backbone=resnet18 --batch_size=16 --crops.global_size=24 --framework=byol",
        f"--batch-size 8 --data {array} --device cpu --backbone resnet18 --batch_size 16 --crops.global_size 24 "
        "--framework simsiam --framework byol",
    ):
        assert parse(["pretrain", *line.split(), "--epochs", "3", "--loading.workers", "-1"]).checked() == python


def test_auto_means_the_choice_everywhere(array, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    run = logo_ssl.pretrain("auto", data=array, epochs=1, device="cpu", loggers=())
    chosen = read_recipe(run)
    assert chosen.chosen
    again = logo_ssl.pretrain(chosen.changed(seed=1), "runs/again")  # a chosen recipe is one as any other
    assert differences(read_recipe(again), chosen).keys() == {"seed"}
    with pytest.raises(SystemExit) as stop:
        cli.main(["show-crops", "--data", str(array), "--device", "cpu", "--images", "1"])
    assert stop.value.code == 0, capsys.readouterr().err


@pytest.mark.parametrize("side", [32, 64, 400])
def test_a_network_of_timm_is_chosen_with_the_first_layers_that_it_has(side):
    recipe = choose(DatasetInfo(5_000, side, 3, False), GPU, {"backbone": "timm/vit_tiny_patch16_224"})
    assert recipe.stem == "imagenet"
    check(recipe)
    asked = choose(DatasetInfo(5_000, side, 3, False), GPU, {"backbone": "timm/resnet18", "stem": "cifar"})
    with pytest.raises(UserError, match="stem=cifar"):
        check(asked)
