"""What does `logo-ssl pretrain` leave, for each method and each kind of data, and is Python's `pretrain` the same?"""

import json

import numpy as np
import pytest
import torch
from command_line import metrics, named, options, weights
from made_up_data import labelled, save_folder, save_list, save_npz, save_shards

import logo_ssl


def test_a_run_leaves_weights_settings_data_and_curves(run):
    for name in ("backbone.safetensors", "heads.safetensors", "provenance.json", "images.json"):
        assert (run / name).stat().st_size > 0, name
    assert list((run / "checkpoints").glob("*.ckpt"))
    recipe = json.loads((run / "recipe.json").read_text())
    assert (recipe["framework"]["kind"], recipe["strategy"]["kind"], recipe["epochs"]) == ("moco", "logo", 1)
    assert json.loads((run / "images.json").read_text())["train_images"] == 64
    steps = [line for line in metrics(run) if "loss" in line]
    assert [line["step"] for line in steps] == [1, 2, 3, 4]
    for name in ("l_gg", "l_lg", "l_ll", "omega", "ratio", "lr", "epoch", "images_per_s"):
        assert all(np.isfinite(line[name]) for line in steps), name
    curve = [line for line in metrics(run) if "knn" in line]
    assert [line["epochs_done"] for line in curve] == [0, 1]
    assert all(0 <= line["knn"] <= 100 for line in curve)


METHODS = [
    ("moco", "two-view", {"framework__head": "mlp"}),
    ("moco", "multi-crop", {}),
    ("simsiam", "logo", {"framework__hidden": 16, "framework__layers": 2}),
    ("byol", "logo", {"framework__hidden": 32}),
    ("simclr", "logo", {}),
    ("supervised", "two-view", {"framework__dim": None, "crops__n_global": 1}),
]
OF_MOCO = {f"framework__{name}": None for name in ("head", "queue", "tau", "m", "splits")}
OF_LOGO = {f"strategy__{name}": None for name in ("lam", "depth", "width")}


@pytest.mark.parametrize(("framework", "strategy", "changes"), METHODS)
def test_every_framework_and_strategy_trains(logo, cwd, data, framework, strategy, changes):
    own = {} if framework == "moco" else OF_MOCO
    own |= {} if strategy == "logo" else OF_LOGO
    own |= {"crops__n_local": 0} if strategy == "two-view" else {}
    words = options(framework=framework, strategy=strategy, **(own | changes))
    done = logo("pretrain", "tiny", "--data", data, "--out", "run", *words)
    assert done.code == 0, done.err
    recipe = json.loads((cwd / "run" / "recipe.json").read_text())
    assert (recipe["framework"]["kind"], recipe["strategy"]["kind"]) == (framework, strategy)
    names = {name for line in metrics(cwd / "run") for name in line}
    assert ("l_lg" in names) == (strategy != "two-view")
    assert ("omega" in names) == (strategy == "logo")
    assert all(torch.isfinite(value).all() for value in weights(cwd / "run").values())


def test_optimisers_augmentation_and_the_other_objective_are_options(logo, cwd, data):
    changes = {"optimiser__kind": "lars", "optimiser__clip": 1.0, "crops__blur_p": 0.5, "crops__solarise_p": 0.2}
    changes |= {"augself__crop": 0.5, "augself__colour": 0.5, "augself__hidden": 16, "strategy__affinity": "cosine"}
    changes |= {"crops__n_global": 3, "crops__n_local": 4, "crops__global_scale": (0.5, 0.9), "knn_every": 0}
    done = logo("pretrain", "tiny", "--data", data, "--out", "run", *options(**changes))
    assert done.code == 0, done.err
    recipe = json.loads((cwd / "run" / "recipe.json").read_text())
    assert recipe["crops"]["global_scale"] == [0.5, 0.9]
    assert recipe["augself"]["colour"] == 0.5
    assert not any("knn" in line for line in metrics(cwd / "run"))


def test_without_a_recipe_settings_are_chosen_for_the_images(logo, cwd, data):
    done = logo("pretrain", "--data", data, "--epochs", "1", "--device", "cpu", "--loggers", "--out", "run")
    assert done.code == 0, done.err
    recipe = json.loads((cwd / "run" / "recipe.json").read_text())
    assert recipe["batch_size"] <= 64
    assert (cwd / "run" / "backbone.safetensors").is_file()


def test_python_learns_what_the_command_learns(run, data, tmp_path):
    """The settings of the command's run, as Python's `pretrain` takes them."""
    recipe = json.loads((run / "recipe.json").read_text())
    parts = {name: recipe.pop(name) for name in ("framework", "strategy", "crops", "optimiser")}
    changes = {name: recipe[name] for name in ("backbone", "stem", "epochs", "batch_size", "seed", "knn_every")}
    for part, values in parts.items():
        if "kind" in values and part != "optimiser":
            changes[part] = values.pop("kind")
        changes |= {f"{part}__{name}": tuple(v) if isinstance(v, list) else v for name, v in values.items()}
    made = logo_ssl.pretrain(
        "tiny", tmp_path / "run", data=str(data), device="cpu", precision="fp32", log_every=1, loggers=(), **changes
    )
    assert made.path == tmp_path / "run"
    expected, got = weights(run), weights(tmp_path / "run")
    assert expected.keys() == got.keys()
    assert all(torch.equal(got[name], value) for name, value in expected.items())


def test_another_seed_learns_something_else_and_the_same_seed_the_same(trained, run):
    again, other = weights(trained("again")), weights(trained("other", seed=1))
    assert all(torch.equal(again[name], value) for name, value in weights(run).items())
    assert not all(torch.equal(other[name], value) for name, value in weights(run).items())


def test_training_starts_from_the_weights_of_init(logo, cwd, data, run):
    """With steps too short to move anything, the backbone stays what it began as, but for its batch norms."""
    words = options(epochs=1, optimiser__lr=1e-30, seed=5)
    done = logo("pretrain", "tiny", "--data", data, "--out", "run", "--init", run, *words)
    assert done.code == 0, done.err
    expected, got = weights(run), weights(cwd / "run")
    names = [name for name in expected if name.startswith("backbone") and name.endswith("weight")]
    assert names
    for name in names:
        torch.testing.assert_close(got[name], expected[name], msg=name)


def test_without_a_recipe_the_network_of_init_is_adapted_and_spared(logo, cwd, data, run):
    done = logo("pretrain", "--data", data, "--out", "run", "--init", run, "--device", "cpu", "--epochs", "1")
    assert done.code == 0, done.err
    recipe, start = (json.loads((each / "recipe.json").read_text()) for each in (cwd / "run", run))
    assert (recipe["backbone"], recipe["stem"]) == (start["backbone"], start["stem"])
    settings = recipe["optimiser"]
    assert settings["pull"] > 0 < settings["frozen_epochs"] < 1
    assert 0 < settings["backbone_lr"] < 1


SOURCES = {
    "class folders": lambda place, images: save_folder(place / "photos", images),
    "train and val": lambda place, images: (
        (
            save_folder(place / "photos" / "train", images[:16]),
            save_folder(place / "photos" / "val", images[16:]),
        )[0].parent
    ),
    "flat folder": lambda place, images: save_folder(place / "photos", images, classes=False),
    "list": lambda place, images: save_list(place / "photos.txt", images),
    "shards": lambda place, images: save_shards(place / "photos", images),
}


@pytest.mark.parametrize("kind", SOURCES)
def test_every_source_of_photographs_trains_and_gives_paths_labels_and_splits(logo, cwd, tmp_path, kind):
    source = SOURCES[kind](tmp_path, labelled(24))
    words = ("--loading.workers", "0", *options(batch_size=8))
    done = logo("pretrain", "tiny", "--data", source, "--out", "run", *words)
    assert done.code == 0, done.err
    assert any("knn" in line for line in metrics(cwd / "run")) == (kind != "flat folder")
    found = logo_ssl.embed(cwd / "run", source, workers=0)
    assert len(found.paths) == len(set(found.paths)) == 24
    assert sorted(set(found.splits)) == (["test", "train"] if kind == "train and val" else ["train"])
    if kind == "flat folder":
        assert set(found.labels) == {None}
    else:
        assert len(set(found.labels)) == 4


def test_the_same_images_have_the_same_features_in_every_source(run, tmp_path):
    """The images are as large as the encoder wants them, and PNG loses nothing."""
    images = labelled(12)
    arrays = np.stack([pixels for pixels, _ in images])
    np.savez(tmp_path / "arrays.npz", train_images=arrays)
    expected = logo_ssl.embed(run, tmp_path / "arrays.npz").vectors
    for kind, make in SOURCES.items():
        (tmp_path / kind).mkdir()
        found = logo_ssl.embed(run, make(tmp_path / kind, images), workers=0)
        order = np.argsort([name.rsplit("/", 1)[-1].rsplit(":", 1)[-1] for name in found.paths])
        np.testing.assert_allclose(found.vectors[order], expected, rtol=1e-4, atol=1e-5, err_msg=kind)


def test_images_of_two_channels_train_and_are_embedded(logo, cwd, tmp_path):
    data = save_npz(tmp_path / "two.npz", channels=2)
    words = options(crops__jitter_p=0.0, crops__grey_p=0.0)
    done = logo("pretrain", "tiny", "--data", data, "--out", "run", *words)
    assert done.code == 0, done.err
    encoder = logo_ssl.load(cwd / "run")
    assert encoder(torch.zeros(1, 2, 32, 32)).shape == (1, 256)


def test_images_that_cannot_be_read_are_listed_and_too_many_stop_the_run(logo, cwd, tmp_path):
    source = save_folder(tmp_path / "photos", labelled(24))
    (source / "ash" / "torn.png").write_bytes((source / "ash" / "000.png").read_bytes()[:100])
    words = ("--loading.workers", "0", *options(batch_size=8))
    done = logo("pretrain", "tiny", "--data", source, "--out", "run", *words)
    assert done.code == 0, done.err
    assert "ash/torn.png" in (cwd / "run" / "bad-images.csv").read_text()
    for i in range(20):
        (source / "elm" / f"empty-{i}.png").touch()
    done = logo("pretrain", "tiny", "--data", source, "--out", "worse", *words)
    assert done.code == 2
    assert named(done.err, "max-bad") or named(done.err, "--loading.max-bad")
    assert "Traceback" not in done.err


def test_tensorboard_is_written_unless_loggers_are_named(logo, cwd, data):
    assert logo("pretrain", "tiny", "--data", data, "--out", "run", *options(loggers=None)).code == 0
    assert list((cwd / "run" / "tensorboard").glob("events*"))
