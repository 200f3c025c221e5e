"""Is a sensible recipe chosen for data and machine, said, saved, and changed by whoever knows better?"""

import json
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

import logo_ssl
from logo_ssl.data import load_data
from logo_ssl.data.facts import Facts, facts_of
from logo_ssl.errors import UserError
from logo_ssl.recipes import DECIDED, Machine, Recipe, check, choose, flat, summary
from logo_ssl.show.rerun import rerun

GB = 10**9
CPU, GPU, LAPTOP = Machine("cpu", "a CPU", 16 * GB), Machine("cuda", "a GPU", 80 * GB), Machine("mps", "a Mac", 8 * GB)
SMALL_GPU = Machine("cuda", "a small GPU", 6 * GB)


@pytest.mark.parametrize("machine", [CPU, GPU, LAPTOP, SMALL_GPU], ids=lambda machine: machine.name)
@pytest.mark.parametrize("side", [8, 28, 64, 130, 500, 4000])
@pytest.mark.parametrize("n", [2, 33, 1_000, 60_000, 2_000_000])
def test_every_choice_is_sound_and_survives_json(n, side, machine):
    recipe = choose(Facts(n, side, 3, False), machine)
    check(recipe)
    assert Recipe.from_json(recipe.to_json()) == recipe
    assert recipe.batch_size <= n
    assert 2 <= recipe.framework.queue <= n


def test_the_choice_follows_the_data_and_the_machine():
    def seen(n, side, machine=GPU):
        recipe = choose(Facts(n, side, 3, True), machine)
        return recipe.backbone, recipe.stem, recipe.crops.global_size, recipe.crops.local_size, recipe.batch_size

    assert seen(50_000, 32) == ("resnet18", "cifar", 32, 32, 256)
    assert seen(50_000, 96) == ("resnet18", "cifar", 64, 64, 256)
    assert seen(5_000, 400) == ("resnet18", "imagenet", 224, 96, 256)
    assert seen(5_000, 128) == ("resnet18", "imagenet", 128, 64, 256)
    assert seen(200_000, 400)[0] == "resnet34"
    assert seen(2_000_000, 400)[0] == "resnet50"
    assert seen(5_000, 400, CPU) == ("tiny", "imagenet", 64, 32, 64)
    assert seen(5_000, 28, CPU) == ("tiny", "imagenet", 32, 16, 64)


def test_less_memory_and_fewer_images_make_smaller_batches_and_rates():
    full, small = (choose(Facts(2_000_000, 400, 3, False), machine) for machine in (GPU, SMALL_GPU))
    assert small.batch_size < full.batch_size
    assert small.optimiser.lr / small.batch_size == pytest.approx(full.optimiser.lr / full.batch_size)
    assert choose(Facts(100, 400, 3, False), GPU).batch_size == 32


def test_fewer_images_are_seen_more_often():
    epochs = [choose(Facts(n, 32, 3, False), GPU).epochs for n in (1_000, 50_000, 1_000_000)]
    assert epochs == [800, 200, 100]


@pytest.mark.parametrize("labelled", [True, False])
def test_facts_of_arrays_and_photographs(tmp_path, labelled):
    names = {"train_labels": np.arange(6) % 2} if labelled else {}
    np.savez(tmp_path / "x.npz", train_images=np.zeros((6, 20, 30, 1), np.uint8), **names)
    assert facts_of(load_data(str(tmp_path / "x.npz"), 32)) == Facts(6, 20, 1, labelled)
    for i, size in enumerate([(40, 90), (60, 50), (70, 300)]):
        file = tmp_path / "photos" / ("ab"[i % 2] if labelled else "") / f"{i}.jpg"
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", size).save(file)
    (tmp_path / "photos" / "bad.jpg").write_bytes(b"nothing")
    facts = facts_of(load_data(str(tmp_path / "photos"), 32))
    assert facts[:3] == (4, 50, 3)
    assert str(facts).startswith("4 images of about 50 px, with")


def test_images_that_cannot_be_read_are_told(tmp_path):
    (tmp_path / "bad.jpg").write_bytes(b"nothing")
    with pytest.raises(UserError, match="None of the images can be read"):
        facts_of(load_data(str(tmp_path), 32))


@pytest.fixture
def array(tmp_path):
    images = np.random.default_rng(0).integers(0, 256, (40, 16, 16, 3), np.uint8)
    np.savez(tmp_path / "x.npz", train_images=images)
    return tmp_path / "x.npz"


def test_pretraining_without_a_recipe_says_and_saves_what_it_chose(array, tmp_path, capsys):
    run = logo_ssl.pretrain(data=array, out=tmp_path / "run", epochs=1, device="cpu", loggers=())
    said, saved = capsys.readouterr().out, json.loads(run.recipe_file.read_text())
    assert "Chosen for 40 images of about 16 px, without labels, on CPU" in said
    assert f"Settings: {summary(Recipe.from_json(run.recipe_file.read_text()))}" in said
    assert "1 epochs" in said  # what was said otherwise counts
    assert (saved["name"], saved["epochs"], saved["backbone"], saved["batch_size"]) == ("auto", 1, "tiny", 32)
    assert saved["chosen"][0].startswith("Chosen for 40 images")
    assert logo_ssl.embed(run.path, split="train").vectors.shape == (40, 256)


def test_the_folder_is_named_after_the_recipe(array, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run = logo_ssl.pretrain("tiny", data=array, epochs=1, device="cpu", loggers=())
    assert run.path.resolve() == tmp_path / "runs" / "tiny"


def test_without_data_there_is_nothing_to_choose_by(tmp_path):
    with pytest.raises(UserError, match="Say where your images are"):
        logo_ssl.pretrain(out=tmp_path / "run")


def test_the_command_that_repeats_an_automatic_run_names_all_that_was_chosen():
    recipe = replace(choose(Facts(5_000, 400, 3, False), GPU), data="photos")
    command = rerun(recipe, "again")
    assert command.startswith("logo-ssl pretrain auto ")
    for field in DECIDED:
        assert field in flat(recipe)
        assert f"--{field.replace('_', '-')} " in command
