"""End to end on a CPU: a run folder comes out, resumes, and says what is wrong."""

import io
import json
import math
import re
import traceback
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import safetensors.torch
import torch
import torch.nn.functional as F
from huggingface_hub import constants
from rich.console import Console
from small_runs import SMALL, assert_equal_runs, at_step, console, cut_short, train

from logo_ssl import load_backbone, pretrain, resume
from logo_ssl.augment import CropPlan
from logo_ssl.data import LoadingConfig, load_data
from logo_ssl.errors import UserError
from logo_ssl.eval import compare_knn
from logo_ssl.frameworks import BYOLConfig, SimCLRConfig, SimSiamConfig, SupervisedConfig
from logo_ssl.recipes import read_recipe
from logo_ssl.run import Run, locked
from logo_ssl.strategies import TwoViewConfig
from logo_ssl.train import Pretraining, build, callbacks
from logo_ssl.train.build import unsplit_batch
from logo_ssl.train.monitors import OnlineKNN
from logo_ssl.train.weights import _published_weights, save_encoder
from logo_ssl.types import ImageBatch


def test_a_run_leaves_everything_in_its_folder(data, tmp_path):
    run, said = train(SMALL, data, tmp_path / "run", loggers=("tensorboard",))
    names = {file.relative_to(run.path).as_posix() for file in run.path.rglob("*") if file.is_file()}
    assert {"recipe.json", "metrics.jsonl", "provenance.json"} <= names
    assert len([name for name in names if name.startswith("checkpoints/step-")]) == 2
    assert {"backbone.safetensors", "heads.safetensors"} <= names
    assert any(name.startswith("tensorboard/events") for name in names)
    assert "epoch 2/2" in said
    lines = list(run.metrics())
    assert {"l_gg", "l_lg", "l_ll", "omega", "ratio", "lr", "images_per_s"} <= lines[1].keys()
    assert [line["epochs_done"] for line in lines if "knn" in line] == [0, 1, 2]
    assert [line["knn_k"] for line in lines if "knn" in line] == [20] * 3
    assert sum("z_rank" in line for line in lines) == 2
    assert max(line["step"] for line in lines) == 6  # the regressor's steps do not count
    record = json.loads((run.path / "provenance.json").read_text())
    assert {"commit", "versions", "hardware", "seed", "seconds", "crops"} <= record.keys()
    heads = safetensors.torch.load_file(run.heads_file)
    assert {name.split(".")[0] for name in heads} == {"projector", "regressor"}


def test_bf16_trains_on_a_cpu(data, tmp_path):
    run, _ = train(SMALL, data, tmp_path / "run", epochs=1, precision="bf16", crops=replace(SMALL.crops, local_size=16))
    weights = safetensors.torch.load_file(run.backbone_file)
    assert all(torch.isfinite(value).all() and value.dtype != torch.bfloat16 for value in weights.values())


def test_the_step_detaches_for_the_regressor_and_shows_the_encoder_the_updated_one(data, tmp_path, monkeypatch):
    seen = []
    original = Pretraining.training_step

    def spied(self, images, batch_idx):
        inner, outer = self.strategy.inner, self.strategy.outer
        before = [p.detach().clone() for p in self.strategy.parameters()]

        def inner_spy(z_l, generator):
            seen.append(z_l.requires_grad)
            return inner(z_l, generator)

        def outer_spy(*arguments):
            seen.append([torch.equal(p, q) for p, q in zip(self.strategy.parameters(), before, strict=True)])
            return outer(*arguments)

        monkeypatch.setattr(self.strategy, "inner", inner_spy)
        monkeypatch.setattr(self.strategy, "outer", outer_spy)
        original(self, images, batch_idx)
        monkeypatch.setattr(self.strategy, "inner", inner)
        monkeypatch.setattr(self.strategy, "outer", outer)

    monkeypatch.setattr(Pretraining, "training_step", spied)
    train(SMALL, data, tmp_path / "run", epochs=1)
    assert seen[::2] == [False] * 3
    assert not any(all(unmoved) for unmoved in seen[1::2])


def test_a_run_is_resumed_from_any_folder(data, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run, _ = train(SMALL, "data.npz", tmp_path / "run", epochs=1)
    (run.path / "provenance.json").unlink()
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert resume(run.path, console=Console(file=io.StringIO())).is_finished


@pytest.mark.parametrize(("step", "saved"), [(1, None), (4, 3)], ids=["before a checkpoint", "after one"])
def test_a_traceback_ends_with_how_to_go_on_from_the_last_checkpoint(step, saved, data, tmp_path, monkeypatch):
    def fail(module):
        raise RuntimeError("a mistake of somebody's own")

    at_step(monkeypatch, fail, step)  # an epoch has three
    with pytest.raises(RuntimeError) as ended:
        train(SMALL, data, tmp_path / "run")
    path = tmp_path / "run"
    told = f"{path} is saved up to step {saved}; once this is fixed, go on with `logo-ssl resume {path}`."
    assert getattr(ended.value, "__notes__", []) == ([] if saved is None else [told])
    assert traceback.format_exception(ended.value)[-1].strip().endswith(told if saved else "somebody's own")


def test_a_queue_or_batch_larger_than_the_data_is_cut_and_said(data, tmp_path):
    recipe = replace(SMALL, batch_size=500, framework=replace(SMALL.framework, queue=9999), epochs=1)
    run, said = train(recipe, data, tmp_path / "run")
    assert "framework.queue: 9999 -> 24" in said
    assert "batch_size: 500 -> 48" in said
    assert json.loads(run.recipe_file.read_text())["framework"]["queue"] == 24


@pytest.mark.parametrize(
    ("batch_size", "changes", "cure"),
    [
        (37, {}, 32),
        (3, {}, 4),
        (37, {"framework__splits": 2}, 36),
        (35, {}, None),
        (37, {"framework__splits": 1}, None),
        (37, {"framework": SimSiamConfig(dim=8, hidden=4)}, None),
        (37, {"backbone": "timm/vit_tiny_patch16_224", "crops__global_size": 224, "crops__n_local": 0}, None),
    ],
    ids=["prime", "three", "two splits", "five sevens", "unasked", "simsiam", "no batch norm"],
)
def test_a_batch_that_no_split_divides_is_warned_of(data, batch_size, changes, cure):
    recipe = SMALL.changed(data=data, batch_size=batch_size, framework__splits=8).changed(**changes)
    said = unsplit_batch(build(recipe, load_data(data, 16)))
    assert said is None if cure is None else said.endswith(f"use --batch-size {cure}.")


def test_an_out_folder_in_use_is_refused_and_left_alone(data, tmp_path):
    run, _ = train(SMALL, data, tmp_path / "run", epochs=1)
    before = run.backbone_file.read_bytes()
    with pytest.raises(UserError, match=r"holds a finished run"):
        train(SMALL, data, run.path)
    (run.path / "provenance.json").unlink()
    with pytest.raises(UserError, match=r"holds an unfinished run.*resume"):
        train(SMALL, data, run.path)
    with locked(run.path), pytest.raises(UserError, match=r"is being trained by another"):
        train(SMALL, data, run.path)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.txt").write_text("precious")
    with pytest.raises(UserError, match="is not empty"):
        train(SMALL, data, tmp_path / "full")
    assert run.backbone_file.read_bytes() == before
    assert (tmp_path / "full" / "thesis.txt").read_text() == "precious"


def test_a_run_that_failed_in_its_first_step_is_begun_again_in_its_place(data, tmp_path, monkeypatch):
    out, logged = tmp_path / "run", {"loggers": ("tensorboard",)}
    with monkeypatch.context() as patch:
        at_step(patch, lambda module: 1 / 0, 0)
        with pytest.raises(ZeroDivisionError):
            train(SMALL, data, out, **logged)
    assert Run(out).recipe_file.is_file()
    with locked(out), pytest.raises(UserError, match=r"is being trained by another"):
        train(SMALL, data, out)
    Run(out).bad_images_file.write_text("image,reason\nmended.png,it was broken\n")
    before = set((out / "tensorboard").rglob("*tfevents*"))
    run, _ = train(SMALL, data, out, epochs=1, framework=SimSiamConfig(dim=8, hidden=4), **logged)
    assert read_recipe(run).kind("framework") == "simsiam"
    assert not run.bad_images_file.exists()
    assert before
    assert not before & set((out / "tensorboard").rglob("*tfevents*"))
    other, _ = train(SMALL, data, tmp_path / "other", epochs=1, framework=SimSiamConfig(dim=8, hidden=4), **logged)
    assert_equal_runs(run, other)


def test_a_run_that_saved_itself_is_not_begun_again_though_its_checkpoints_are_gone(data, tmp_path):
    out = tmp_path / "run"
    cut_short(data, out, before_step=4)
    for file in Run(out).saved():
        file.unlink()
    Run(out).backbone_file.unlink(missing_ok=True)
    with pytest.raises(UserError, match=r"holds an unfinished run.*resume"):
        train(SMALL, data, out)


BAD_SETTINGS = {
    "recipe": {"recipe": "labelled"},
    "out": {"out": ""},
    "data": {"data": "nowhere"},
    "init": {"init": "nowhere.bin"},
    "initialised by another network": {"init": "lab"},
    "precision": {"precision": "bf16", "device": "cpu", "crops__local_size": 8},
    "nodes": {"nodes": 2},
    "batch_size": {"devices": 4, "batch_size": 10, "device": "cpu"},
    "labels": {"framework": "supervised", "strategy": "two-view", "crops__n_local": 0, "data": "plain.npz"},
}


@pytest.mark.parametrize("named", BAD_SETTINGS)
def test_a_bad_setting_is_named_and_leaves_no_folder(named, data, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("MASTER_ADDR", "MASTER_PORT", "NODE_RANK"):
        monkeypatch.delenv(name, raising=False)
    Path("labelled").mkdir()
    np.savez("plain.npz", train_images=np.load(data)["train_images"])
    if "lab" in BAD_SETTINGS[named].values():
        recipe = replace(SMALL, data=data, backbone="resnet18", stem="cifar")
        save_encoder(Run("lab"), build(recipe, load_data(data, 16)))
        named = "init=lab: .* it holds resnet18 with the cifar stem"
    given = {"recipe": SMALL, "out": "run", "data": data, "console": console()} | BAD_SETTINGS.get(
        named, {"init": "lab"}
    )
    with pytest.raises(UserError, match=named if named != "labels" else "without labels"):
        pretrain(**given)
    assert not Path("run").exists()


BAD_CHANGES = {
    "seed": {"seed": 3},
    "optimiser.lr": {"optimiser__lr": 0.1},
    "loading.max_side": {"loading__max_side": 64},
    "epochs": {"epochs": 1},
    "nodes": {"nodes": 2, "epochs": 3},
}


def test_what_decides_the_result_cannot_change_on_the_way(data, tmp_path):
    run, _ = train(SMALL, data, tmp_path / "run", epochs=2)
    before = run.backbone_file.read_bytes()
    for named, changes in BAD_CHANGES.items():
        with pytest.raises(UserError, match=f"^{named}="):
            resume(run.path, console=console(), **changes)
    recipe = run.recipe_file.read_text()
    for torn in (recipe[:50], "[" * 200_000, json.dumps(json.loads(recipe) | {"batch_size": 8})):
        run.recipe_file.write_text(torn)
        with pytest.raises(UserError, match=r"recipe\.json|batch_size"):
            resume(run.path, console=console())
    run.recipe_file.write_text(recipe)
    resume(run.path, console=console(), epochs=3, loading__workers=0, checkpoint_keep=1)
    assert len(run.saved()) == 1
    for file in run.saved():
        file.unlink()
    before = run.backbone_file.read_bytes()
    with pytest.raises(UserError, match="cannot be extended"):
        resume(run.path, console=console(), epochs=4)
    assert run.backbone_file.read_bytes() == before


def test_a_run_prints_three_lines_before_training_and_three_after(data, tmp_path):
    _, said = train(SMALL, data, tmp_path / "run")
    assert [line.split()[0] for line in said.splitlines()] == [
        *("Data:", "Method:", "Labels:"),
        *("epoch", "epoch"),
        *("Result:", "Encoder:", "Next:"),
    ]
    told = console()
    resume(tmp_path / "run", console=told, epochs=3, verbose=True)
    assert "epochs: 2 -> 3" in told.file.getvalue()


def test_without_a_network_published_weights_are_given_up_after_one_try(monkeypatch):
    was_offline = []

    def create(*_, **__):
        was_offline.append(constants.HF_HUB_OFFLINE)
        raise RuntimeError("the hub's own words")

    monkeypatch.setattr("logo_ssl.models.hub._out_of_reach", lambda: "the hub is out of reach")
    monkeypatch.setattr("logo_ssl.train.weights.timm.create_model", create)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    with pytest.raises(UserError, match=r"timm/resnet18 could not be fetched \(the hub is out of reach\); give"):
        _published_weights("timm/resnet18")
    assert was_offline == [True]


def test_convolutions_begin_as_the_recipe_says(data):
    recipe = replace(SMALL, data=data, backbone="resnet18", stem="cifar")
    norms = []
    for each in ("library", "torch"):
        encoder = build(replace(recipe, initialisation=each), load_data(data, 16)).framework.encoder
        norms.append(encoder.backbone.layer4[1].conv2.weight.square().sum().item())
    assert norms[0] / norms[1] == pytest.approx(6, rel=0.05)


def test_a_run_can_start_from_another_runs_backbone(data, tmp_path):
    first, _ = train(SMALL, data, tmp_path / "first", epochs=1)
    _, said = train(SMALL, data, tmp_path / "second", epochs=1, init=str(first.path))
    assert "tensors fit" not in said
    with pytest.raises(UserError, match=r"must be a .safetensors file"):
        train(SMALL, data, tmp_path / "third", init="nowhere.bin")


def test_the_saved_backbone_is_the_trained_one_and_knn_is_recorded(data, tmp_path):
    run, _ = train(SMALL, data, tmp_path / "run")
    backbone, metadata = load_backbone(run)
    assert (metadata["backbone"], metadata["size"], len(metadata["mean"])) == ("tiny", 16, 3)
    assert not backbone.training
    torch.testing.assert_close(load_backbone(run.path)[0].state_dict(), backbone.state_dict())
    assert backbone(torch.randn(2, 3, 16, 16)).shape == (2, 256)
    results = dict(compare_knn(run))
    assert len(results) == 6
    online = [line["knn"] for line in run.metrics() if "knn" in line]
    assert results["trained encoder, k=20, tau=0.07"] == pytest.approx(online[-1])
    assert results["random initialisation, k=20, tau=0.07"] == pytest.approx(online[0])
    saved = run.evaluation("knn")
    assert {"protocol", "commit", "hardware", "seed", "seconds", "versions"} <= saved.keys()
    assert saved["evaluation"] == "knn"


def test_validation_images_are_watched_and_not_those_to_test_on(data, tmp_path):
    with np.load(data) as arrays:
        parts = dict(arrays)
    val = {f"val_{what}": parts[f"train_{what}"][:9] for what in ("images", "labels")}
    np.savez(tmp_path / "set.npz", **parts, **val)
    run, said = train(SMALL, str(tmp_path / "set.npz"), tmp_path / "run", epochs=1)
    assert "for kNN of 9 validation images among 48" in said
    logged = [(line["knn_images"], line["knn_of"]) for line in run.metrics() if "knn" in line]
    assert logged == [(9, "validation images")] * 2
    assert run.images()["val_images"] == 9
    list(compare_knn(run))
    assert run.evaluation("knn")["test_images"] == len(parts["test_images"])


def test_what_was_reached_on_other_images_is_not_gone_on_with(data):
    watched = OnlineKNN(load_data(data, 16), SMALL)
    older, same = {"best": 60.0, "untrained": 40.0}, {"best": 60.0, "untrained": 40.0, "of": None}
    for state in (older, same, watched.state_dict() | {"best": 60.0}):
        watched.best = 0.0
        watched.load_state_dict(state)
        assert watched.best == 60.0
    parts = load_data(data, 16)
    beside = OnlineKNN(replace(parts, val=parts.test), SMALL)
    beside.load_state_dict(older)  # which were of test images
    assert (beside.best, beside.untrained) == (0.0, 0.0)
    beside.load_state_dict(beside.state_dict() | {"best": 60.0})
    assert beside.best == 60.0


def test_unlabelled_data_train_without_knn(data, tmp_path):
    with np.load(data) as arrays:
        np.savez(tmp_path / "plain.npz", train_images=arrays["train_images"])
    run, said = train(SMALL, str(tmp_path / "plain.npz"), tmp_path / "run", epochs=1)
    assert "Labels: none, so there is no kNN." in said
    assert not any("knn" in line for line in run.metrics())
    (line,) = [line for line in run.metrics() if "z_rank" in line]
    assert f"Result: spread {line['z_std']:.2f} (0: collapsed, 1: even) in {line['z_rank']:.0f} of 8 dir" in said
    with pytest.raises(UserError, match=r"has no labels"):
        list(compare_knn(run))


@pytest.mark.parametrize("placement", ["auto", "encoded", "disk"])
def test_a_folder_with_bad_images_trains_and_lists_them(photos, tmp_path, placement):
    loading = LoadingConfig(placement=placement, workers=0)
    run, said = train(SMALL, photos, tmp_path / "run", loading=loading)
    assert run.is_finished
    rows = (run.path / "bad-images.csv").read_text().splitlines()
    assert sorted(row.split(",")[0] for row in rows[1:]) == ["cat/20.jpg", "cat/8.jpg", "dog/3.jpg", "dog/5.jpg"]
    assert "4 images could not be read and were replaced by others" in said
    told = (
        rf"(cat|dog)/\d+.jpg cannot be read \(.*\): such .* replaced by others, and listed in {run.bad_images_file}\."
    )
    (at_once,) = re.finditer(told, said)
    assert at_once.start() < said.index("epoch 1")  # and not when days have passed
    assert json.loads((run.path / "provenance.json").read_text())["bad_images"] == 4
    assert max(line["knn"] for line in run.metrics() if "knn" in line) > 60  # brightness tells them apart


@pytest.mark.parametrize(
    ("most", "told", "logged"),
    [(50_000, "16 held-out images among 48;", (48, None)), (12, "12 held-out images among 12;", (12, 48))],
)
def test_the_online_knn_tells_how_many_images_it_looks_among(data, tmp_path, monkeypatch, most, told, logged):
    monkeypatch.setattr("logo_ssl.train.monitors.MOST_FEATURES", most)
    run, said = train(SMALL, data, tmp_path / "run", epochs=1)
    assert f"for kNN of {told}" in said
    lines = [line for line in run.metrics() if "knn" in line]
    assert [(line["knn_bank"], line.get("knn_bank_of")) for line in lines] == [logged] * 2


def test_where_images_wait_does_not_change_what_is_learned(photos, tmp_path):
    runs = [
        train(SMALL, photos, tmp_path / name, epochs=1, loading=LoadingConfig(placement=name, workers=workers))[0]
        for name, workers in (("ram", 0), ("disk", 2))
    ]
    one, other = (safetensors.torch.load_file(run.backbone_file) for run in runs)
    assert all(torch.equal(other[name], value) for name, value in one.items())


def test_a_refused_run_leaves_its_folder_free_and_resuming_is_refused_too(photos, tmp_path):
    strict = LoadingConfig(workers=0, max_bad=0.05)
    for again in (lambda: train(SMALL, photos, tmp_path / "run", loading=strict), lambda: resume(tmp_path / "run")):
        with pytest.raises(UserError, match="images cannot be read"):
            again()
    run, _ = train(SMALL, photos, tmp_path / "run", loading=LoadingConfig(workers=0, max_bad=0.5), epochs=1)
    assert run.is_finished


def test_labels_teach_a_supervised_baseline(data, tmp_path):
    crops = CropPlan(n_global=1, n_local=0, global_size=16, jitter_p=0.0)
    recipe = replace(SMALL, framework=SupervisedConfig(), strategy=TwoViewConfig(), crops=crops, epochs=8)
    run, _ = train(recipe, data, tmp_path / "run")
    losses = [line["loss"] for line in run.metrics() if "loss" in line]
    assert losses[-1] < 0.7 * math.log(3)
    assert safetensors.torch.load_file(run.heads_file)["projector.weight"].shape == (3, 256)
    with np.load(data) as arrays:
        np.savez(tmp_path / "plain.npz", train_images=arrays["train_images"])
    with pytest.raises(UserError, match="has images without labels"):
        train(recipe, str(tmp_path / "plain.npz"), tmp_path / "other")


def test_a_replaced_image_teaches_its_own_label(data):
    """Row 4 stands twice, once in the place of an image that cannot be read; -1 is no image, and teaches nothing."""
    crops = CropPlan(n_global=1, n_local=0, global_size=16)
    recipe = replace(SMALL, framework=SupervisedConfig(3), strategy=TwoViewConfig(), crops=crops)
    images = load_data(data, 16)
    module, rows = build(recipe, images), torch.tensor([4, 5, -1, 4])
    seen = module.crop(ImageBatch(images.train.array[rows], rows=rows), torch.Generator().manual_seed(0))
    own = images.train.labels[4].item()
    assert seen.labels.tolist() == [own, images.train.labels[5].item(), -1, own]
    p = module.framework.project(seen, module.strategy.roles)
    losses = module.framework.similarity(p.q_g[0], p.t_g[0])
    assert losses[2] == 0
    torch.testing.assert_close(losses[:2], F.cross_entropy(p.q_g[0, :2], seen.labels[:2], reduction="none"))


def test_a_compiler_that_fails_is_said_in_a_line_and_training_goes_on(data, tmp_path, monkeypatch):
    def broken(*settings):
        raise RuntimeError("no compiler found\nwith a long tale")

    expected, _ = train(SMALL, data, tmp_path / "plain", epochs=1)
    monkeypatch.setattr("logo_ssl.augment.fused.compiled", broken)
    run, said = train(SMALL, data, tmp_path / "run", epochs=1, compile="on")
    assert "Compiling is off, and training slower: no compiler found" in said
    assert "with a long tale" not in said
    one, other = (safetensors.torch.load_file(r.backbone_file) for r in (expected, run))
    assert all(torch.equal(other[name], value) for name, value in one.items())  # the trial left no trace


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("compile", ["off", "on"])
def test_photographs_train_on_cuda(photos, tmp_path, compile):
    run, said = train(SMALL, photos, tmp_path / "run", device="cuda", compile=compile, epochs=4)
    assert "nvJPEG" in said
    assert "Compiling is off" not in said
    assert "CUDA graphs are off" not in said
    assert len((run.path / "bad-images.csv").read_text().splitlines()) == 5


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize(
    "framework",
    [SMALL.framework, SimSiamConfig(dim=8, hidden=4), BYOLConfig(dim=8, hidden=16), SimCLRConfig(dim=8)],
    ids=lambda config: type(config).__name__,
)
def test_a_recorded_step_learns_what_a_plain_one_does(data, tmp_path, monkeypatch, framework):
    losses = []
    for recorded in (True, False):
        if not recorded:
            monkeypatch.setattr(callbacks, "Replay", lambda function, say: function)
        run, said = train(
            SMALL, data, tmp_path / f"{recorded}", framework=framework, device="cuda", compile="on", precision="fp32",
            epochs=4, log_every=1, deterministic=True,  # such small runs are chaotic: 1e-4 becomes 0.1 in 12 steps
        )  # fmt: skip
        assert "is off" not in said
        assert "are off" not in said
        losses.append([line["loss"] for line in run.metrics() if "loss" in line])
    assert losses[0] == pytest.approx(losses[1], rel=1e-3, abs=1e-3)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.filterwarnings("ignore:Synchronization debug mode is a prototype")
@pytest.mark.parametrize("compile", ["off", "on"])
def test_no_step_waits_for_the_device(data, tmp_path, monkeypatch, compile):
    original, steps = Pretraining.training_step, []

    def watched(self, batch, batch_idx):
        steps.append(batch_idx)
        torch.cuda.set_sync_debug_mode("error" if len(steps) > 5 else "default")  # recording may wait
        try:
            original(self, batch, batch_idx)
        finally:
            torch.cuda.set_sync_debug_mode("default")

    monkeypatch.setattr(Pretraining, "training_step", watched)
    train(SMALL, data, tmp_path / "run", device="cuda", compile=compile, epochs=4)
    assert len(steps) == 12
