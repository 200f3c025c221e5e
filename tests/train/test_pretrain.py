"""End to end on a CPU: a run folder comes out, resumes, and says what is wrong."""

import copy
import io
import json
import math
import re
from dataclasses import replace

import numpy as np
import pytest
import safetensors.torch
import torch
import torch.nn.functional as F
import torchvision
from rich.console import Console
from small_runs import SMALL, assert_equal_runs, at_step, console, train

from logo_ssl import finetune, load_backbone, resume
from logo_ssl.augment import CropPlan
from logo_ssl.cli import parse
from logo_ssl.data import LoadingConfig, load_data
from logo_ssl.encoders import IMAGENET_MEAN, Architecture, load_encoder, metadata_of
from logo_ssl.errors import UserError
from logo_ssl.eval.features import Extraction
from logo_ssl.eval.knn import KNN
from logo_ssl.frameworks import BYOLConfig, SimCLRConfig, SimSiamConfig, SupervisedConfig
from logo_ssl.models import build_backbone
from logo_ssl.recipes import OptimiserConfig, read_recipe
from logo_ssl.run import Run, locked
from logo_ssl.strategies import TwoViewConfig
from logo_ssl.train import Pretraining, build, trainer
from logo_ssl.train.build import recipe_for, with_network_of
from logo_ssl.train.monitors import OnlineKNN
from logo_ssl.types import ImageBatch
from logo_ssl.weights import read_tensors, save_model


@pytest.mark.parametrize("kind", ["lars", "adamw"])
def test_other_optimisers_warm_up_and_train(data, tmp_path, kind):
    optimiser = OptimiserConfig(kind=kind, lr=1e-3, warmup_epochs=1, clip=1.0)
    run, _ = train(SMALL, data, tmp_path / "run", optimiser=optimiser, log_every=1)
    rates = [line["lr"] for line in run.metrics() if "lr" in line]
    assert rates[:3] == pytest.approx([1e-3 / 3, 2e-3 / 3, 1e-3])
    assert rates[3] == pytest.approx(1e-3)
    assert rates[-1] < rates[3]


def test_an_out_folder_in_use_is_refused_and_left_alone(data, tmp_path):
    run, _ = train(SMALL, data, tmp_path / "run", epochs=1)
    before = run.backbone_file.read_bytes()
    with pytest.raises(UserError, match="a finished run"):
        train(SMALL, data, run.path)
    run.provenance_file.unlink()
    with pytest.raises(UserError, match=r"an unfinished run.*resume"):
        train(SMALL, data, run.path)
    with locked(run.path), pytest.raises(UserError, match="another process"):
        train(SMALL, data, run.path)
    for name in ("thesis.txt", "recipe.json"):  # of which the second may be somebody's own
        (tmp_path / "full").mkdir(exist_ok=True)
        (tmp_path / "full" / name).write_text("precious")
        with pytest.raises(UserError, match="not empty"):
            train(SMALL, data, tmp_path / "full")
        assert (tmp_path / "full" / name).read_text() == "precious"
    assert run.backbone_file.read_bytes() == before


def test_a_run_that_failed_in_its_first_step_is_begun_again_in_its_place(data, tmp_path, monkeypatch):
    out, logged = tmp_path / "run", {"loggers": ("tensorboard",)}
    with monkeypatch.context() as patch:
        at_step(patch, lambda module: 1 / 0, 0)
        with pytest.raises(ZeroDivisionError):
            train(SMALL, data, out, **logged)
    assert Run(out).recipe_file.is_file()
    Run(out).bad_images_file.write_text("image,reason\nmended.png,it was broken\n")
    before = set((out / "tensorboard").rglob("*tfevents*"))
    run, _ = train(SMALL, data, out, epochs=1, framework=SimSiamConfig(dim=8, hidden=4), **logged)
    assert read_recipe(run).kind("framework") == "simsiam"
    assert not run.bad_images_file.exists()
    assert before
    assert not before & set((out / "tensorboard").rglob("*tfevents*"))
    other, _ = train(SMALL, data, tmp_path / "other", epochs=1, framework=SimSiamConfig(dim=8, hidden=4), **logged)
    assert_equal_runs(run, other)


def test_convolutions_begin_as_the_recipe_says(data):
    recipe = replace(SMALL, data=data, backbone="resnet18", stem="cifar")
    norms = []
    for each in ("library", "torch"):
        encoder = build(replace(recipe, initialisation=each), load_data(data, 16)).framework.encoder
        norms.append(encoder.backbone.layer4[1].conv2.weight.square().sum().item())
    assert norms[0] / norms[1] == pytest.approx(6, rel=0.05)


def test_the_saved_backbone_is_the_trained_one_and_knn_is_recorded(data, tmp_path):
    run, _ = train(SMALL, data, tmp_path / "run")
    backbone, metadata = load_backbone(run)
    assert (metadata["backbone"], metadata["size"], len(metadata["mean"])) == ("tiny", 16, 3)
    assert not backbone.training
    *_, online = (line["knn"] for line in run.metrics() if "knn" in line)
    measured = KNN(str(run.path)).measure(load_encoder(str(run.path)), load_data(data, 16), Extraction(cache=False))
    assert measured.figures["knn top-1, k=20, tau=0.07"] == pytest.approx(online)


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
    encoder, images = load_encoder(str(run.path)), load_data(str(tmp_path / "set.npz"), 16)
    measured = KNN(str(run.path)).measure(encoder, images, Extraction(cache=False))
    assert measured.record["test_images"] == len(parts["test_images"])


def test_a_folder_with_bad_images_trains_and_lists_them(photos, tmp_path):
    run, said = train(SMALL, photos, tmp_path / "run", loading=LoadingConfig(workers=0))
    rows = (run.path / "bad-images.csv").read_text().splitlines()
    assert sorted(row.split(",")[0] for row in rows[1:]) == ["cat/20.jpg", "cat/8.jpg", "dog/3.jpg", "dog/5.jpg"]
    assert "4 images could not be read" in said
    assert "The online kNN leaves out 4 images" in said
    (at_once,) = re.finditer(r"(cat|dog)/\d+.jpg cannot be read", said)
    assert at_once.start() < said.index("epoch 1")  # and not when days have passed
    assert json.loads((run.path / "provenance.json").read_text())["bad_images"] == 4
    assert max(line["knn"] for line in run.metrics() if "knn" in line) > 60  # brightness tells them apart


@pytest.mark.parametrize(
    ("most", "told", "logged"),
    [(50_000, "16 held-out images among 48", (48, None)), (12, "12 held-out images among 12", (12, 48))],
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


def test_settings_too_large_for_the_data_are_cut_and_said(data, tmp_path):
    optimiser, framework = replace(SMALL.optimiser, warmup_epochs=5), replace(SMALL.framework, queue=9999)
    run, said = train(SMALL, data, tmp_path / "run", batch_size=500, framework=framework, optimiser=optimiser, epochs=1)
    assert "framework.queue: 9999 -> 24" in said
    assert "batch_size: 500 -> 48" in said
    assert "optimiser.warmup_epochs: 5 -> 0.1" in said
    assert read_recipe(run).framework.queue == 24


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"precision": "bf16"}, "precision=bf16"),
        ({"data": "nowhere"}, "nowhere"),
        ({"init": "nowhere.bin"}, r"nowhere\.bin"),
        ({"init": "nowhere.txt"}, r"'nowhere\.txt' is not an encoder"),
        ({"init": "plain.safetensors"}, r"init=plain\.safetensors"),
        ({"init": "plain.safetensors", "init_key": "student"}, "key='student'"),
        ({"init_key": "student"}, "init_key=student"),
        ({"recipe": "photos"}, "photos"),
    ],
)
def test_what_cannot_be_trained_is_refused_and_leaves_nothing(data, tmp_path, monkeypatch, changes, told):
    monkeypatch.chdir(tmp_path)
    safetensors.torch.save_file({"of.another": torch.zeros(1)}, "plain.safetensors")
    given = {"recipe": SMALL, "data": data, "out": tmp_path / "run"} | changes
    with pytest.raises(UserError, match=told):
        train(**given)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("source", ["run", "unfinished run", "its file", "its classifier", "checkpoint", "library"])
def test_training_starts_from_whatever_can_be_evaluated_and_normalises_as_there(data, tmp_path, monkeypatch, source):
    other, _ = train(SMALL, data, tmp_path / "other", epochs=1)
    (model, needs), weights = load_backbone(other), safetensors.torch.load_file(other.backbone_file)
    mean = needs["mean"]
    with np.load(data) as arrays:
        np.savez(tmp_path / "dark.npz", train_images=arrays["train_images"] // 2)
    init = str(tmp_path / "other")
    if source == "unfinished run":
        other.provenance_file.unlink()
        other.backbone_file.unlink()
    elif source == "its file":
        init = str(other.backbone_file)
    elif source == "its classifier":
        init = str(tmp_path / "model")
        finetune(other.path, data, out=init, frozen=True, device="cpu", workers=0)
    elif source == "checkpoint":
        init, mean = str(tmp_path / "theirs.pth.tar"), IMAGENET_MEAN
        theirs = {f"a.b.c.d.e.{key}": value for key, value in weights.items()}
        torch.save({"teacher": {key: 0 * value for key, value in theirs.items()}, "student": theirs}, init)
    elif source == "library":
        init, mean = "timm/small", [0.5, 0.4, 0.3]
        model.pretrained_cfg = {"mean": mean, "std": (0.2,) * 3}
        monkeypatch.setattr("timm.is_model", lambda name: True)
        monkeypatch.setattr("timm.create_model", lambda name, **_: model)
    said = list[str]()
    recipe = SMALL.changed(init=init, init_key="student" if source == "checkpoint" else None)
    module = build(recipe, load_data(str(tmp_path / "dark.npz"), 16), said.append)
    assert module.mean == pytest.approx(mean, abs=0.005)
    got = module.framework.encoder.backbone.state_dict()
    assert all(got[key].equal(value) for key, value in weights.items())
    assert ("under 'a.b.c.d.e.'" in said[0]) == (source == "checkpoint")


def keep_classifier(folder, backbone, stem):
    """A ResNet-18 as `logo-ssl finetune` keeps it, by the name and the stem that its source has."""
    found = load_encoder("random/resnet18", stem=stem or "imagenet", size=32)
    head, architecture = torch.nn.Linear(512, 2), Architecture(backbone, stem)
    found = replace(found, architecture=architecture, head=head, classes=("cat", "dog"))
    save_model(folder, found.classifier.backbone, metadata_of(found, found.classes), "{}")


def test_without_a_recipe_the_network_is_that_of_the_weights_to_start_from(data, tmp_path):
    network = build_backbone("resnet18", "cifar")
    for name in ("theirs.pth.tar", "moco-ep=9.ckpt"):  # the second as solo-learn calls its own
        torch.save({"state_dict": network.state_dict()}, tmp_path / name)
    keep_classifier(tmp_path / "model", "torchvision/resnet18", "")
    run, _ = train(SMALL, data, tmp_path / "run", epochs=1, stem="cifar")
    chosen = {
        str(tmp_path / "theirs.pth.tar"): ("resnet18", "cifar"),
        str(tmp_path / "moco-ep=9.ckpt"): ("resnet18", "cifar"),
        str(tmp_path / "model"): ("resnet18", "imagenet"),
        str(run.path): ("tiny", "cifar"),
        str(run.backbone_file): ("tiny", "cifar"),
        "torchvision/resnet34": ("resnet34", "imagenet"),
        "timm/resnet10t": ("timm/resnet10t", "imagenet"),
    }
    for init, network in chosen.items():
        recipe = recipe_for(data, "cpu", {"init": init})
        assert (recipe.backbone, recipe.stem) == network
    assert recipe_for(data, "cpu", {"init": init, "backbone": "resnet50"}).backbone == "resnet50"


@pytest.mark.parametrize(
    ("backbone", "stem", "told"),
    [("torchvision/resnet18", "", ""), ("resnet18", "lightly", "ReLU"), ("resnet18", "solo-learn", "pads")],
)
def test_a_start_tells_what_a_recipe_builds_otherwise(data, tmp_path, backbone, stem, told):
    keep_classifier(tmp_path / "model", backbone, stem)
    keep_classifier(tmp_path / "model", backbone, stem)
    init, said = {"init": str(tmp_path / "model")}, list[str]()
    module = build(with_network_of(SMALL, init).changed(**init), load_data(data, 16), said.append)
    assert "unchanged" not in said[0]
    assert said[0].count("of a network") == said[0].count(told or "of a network") == bool(told)
    assert module.mean == IMAGENET_MEAN


def test_a_recipe_takes_the_network_of_the_weights_to_start_from_unless_one_is_named(data, tmp_path):
    run, _ = train(SMALL, data, tmp_path / "run", epochs=1)
    weights, asked = str(run.backbone_file), ["pretrain", "cifar10-tuned-moco", "--data", data, "--init"]
    assert parse([*asked, weights]).settings.backbone == SMALL.backbone
    assert parse([*asked, "torchvision/resnet18"]).settings.stem == "cifar"
    transformer = parse([*asked, "timm/test_vit"]).settings
    assert (transformer.backbone, transformer.stem) == ("timm/test_vit", "imagenet")
    assert parse([*asked, weights, "--backbone", "resnet34"]).settings.backbone == "resnet34"
    again, _ = train(SMALL.changed(backbone="resnet18"), data, tmp_path / "again", epochs=1, init=weights)
    assert read_recipe(again).backbone == SMALL.backbone


def test_weights_for_colours_start_a_network_for_grey_images_and_it_is_said(data, tmp_path):
    run, _ = train(SMALL, data, tmp_path / "run", epochs=1)
    with np.load(data) as arrays:
        np.savez(tmp_path / "grey.npz", train_images=arrays["train_images"][..., :1])
    _, said = train(SMALL, str(tmp_path / "grey.npz"), tmp_path / "grey", epochs=1, init=str(run.backbone_file))
    assert "resampled: 0.weight" in said
    assert "unchanged" not in said


def test_the_backbone_stands_still_while_its_new_heads_learn(data, tmp_path, monkeypatch):
    other, _ = train(SMALL, data, tmp_path / "other", epochs=1)
    start, seen = safetensors.torch.load_file(other.backbone_file), {}

    def look(module):
        seen[module.global_step] = [copy.deepcopy(part.state_dict()) for part in module.framework.encoder.net]

    at_step(monkeypatch, look, 0, 3, 5)
    optimiser = replace(SMALL.optimiser, frozen_epochs=1)
    train(SMALL, data, tmp_path / "run", init=str(other.path), optimiser=optimiser)
    names = [name for name in start if name.endswith("weight")]
    for step, stands in ((0, True), (3, True), (5, False)):
        assert all(seen[step][0][name].equal(start[name]) for name in names) == stands
    assert not seen[0][1]["0.weight"].equal(seen[3][1]["0.weight"])


def test_published_weights_of_torchvision_are_read_from_its_cache(data, tmp_path, monkeypatch):
    """Under the name that its download has, so that torchvision's own code loads them."""
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    published, theirs = torchvision.models.ResNet18_Weights.DEFAULT, torchvision.models.resnet18()
    file = tmp_path / "hub" / "checkpoints" / published.url.rpartition("/")[2]
    file.parent.mkdir(parents=True)
    torch.save(theirs.state_dict(), file)
    said = list[str]()
    recipe = SMALL.changed(backbone="resnet18", init="torchvision/resnet18")
    module = build(recipe, load_data(data, 16), said.append)
    assert module.framework.encoder.backbone.conv1.weight.equal(theirs.conv1.weight)
    assert module.mean == tuple(published.transforms().mean)
    assert "unchanged" not in said[0]


def test_data_without_labels_train_without_knn_and_show_the_spread(data, tmp_path):
    with np.load(data) as arrays:
        np.savez(tmp_path / "plain.npz", train_images=arrays["train_images"])
    run, said = train(SMALL, str(tmp_path / "plain.npz"), tmp_path / "run", epochs=1)
    assert not any("knn" in line for line in run.metrics())
    (line,) = [line for line in run.metrics() if "z_rank" in line]
    assert f"Result: spread {line['z_std']:.2f}" in said


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("compile", ["off", "on"])
def test_photographs_train_on_cuda(photos, tmp_path, compile):
    run, said = train(SMALL, photos, tmp_path / "run", device="cuda", compile=compile, epochs=4, verbose=True)
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
            monkeypatch.setattr(trainer, "Replay", lambda function, *_: function)
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


def test_a_run_is_resumed_from_any_folder(data, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run, _ = train(SMALL, "data.npz", tmp_path / "run", epochs=1)
    (run.path / "provenance.json").unlink()
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert resume(run.path, console=Console(file=io.StringIO())).is_finished


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


def test_a_run_that_begins_with_weights_keeps_its_best_encoder(data, tmp_path, monkeypatch):
    start, _ = train(SMALL, data, tmp_path / "start", epochs=1)
    assert not start.best_file.exists()
    scores = iter([50.0, 95.0, 10.0])
    monkeypatch.setattr(OnlineKNN, "accuracy", lambda *arguments: next(scores))
    run, said = train(SMALL, data, tmp_path / "run", epochs=2, init=str(start.path))
    steps = [int(read_tensors(file)[1]["step"]) for file in (run.best_file, run.backbone_file)]
    assert steps == [3, 6]
    assert f"{run.best_file}, kNN 95.0 % after epoch 1" in said
    scores = iter([55.0])
    resume(run.path, console=console(), epochs=3)
    assert read_tensors(run.best_file)[1]["step"] == "3"
