"""Encoders of every source give their own features, and nothing in a checkpoint is run."""

import argparse
import io
import os
from collections import deque

import numpy as np
import pytest
import timm
import torch
import torchvision
from torch import nn

from logo_ssl.embedding.exporting import export
from logo_ssl.encoders import load_encoder, weights_fingerprint
from logo_ssl.errors import UserError
from logo_ssl.models.backbones import RESNETS
from logo_ssl.models.external_checkpoints import REBUILT, SAFE_PICKLE, Inert, guess_resnet


@pytest.fixture(scope="module")
def resnet():
    """torchvision's ResNet-18 with a CIFAR stem, running statistics that are not the first ones, and no classifier."""
    torch.manual_seed(7)
    net = torchvision.models.resnet18()
    net.conv1, net.maxpool, net.fc = nn.Conv2d(3, 64, 3, 1, 1, bias=False), nn.Identity(), nn.Identity()
    for norm in net.modules():
        if isinstance(norm, nn.BatchNorm2d):
            norm.running_mean.normal_(0, 0.1)
            norm.running_var.uniform_(0.5, 1.5)
    return net.eval()


def heads(prefix: str) -> dict[str, torch.Tensor]:
    return {f"{prefix}.{i}.{kind}": torch.zeros(3) for i in (0, 2) for kind in ("weight", "bias")}


def moco(net):
    copy = {f"module.encoder_k.{k}": torch.zeros_like(v) for k, v in net.state_dict().items()}
    own = {f"module.encoder_q.{k}": v for k, v in net.state_dict().items()}
    queue = {"module.queue": torch.zeros(3, 8), "module.queue_ptr": torch.zeros(1)}
    weights = copy | own | heads("module.encoder_q.fc") | queue
    return {"epoch": 200, "arch": "resnet18", "state_dict": weights, "optimizer": {"state": {}}}


def simsiam(net):
    own = {f"module.encoder.{k}": v for k, v in net.state_dict().items()}
    return {"epoch": 100, "state_dict": own | heads("module.encoder.fc") | heads("module.predictor")}


def lightly(net):
    own = {f"backbone.{k}": v for k, v in nn.Sequential(*list(net.children())[:-1]).state_dict().items()}
    copy = {k.replace("backbone", "backbone_momentum"): torch.zeros_like(v) for k, v in own.items()}
    return {"state_dict": copy | own | heads("projection_head.layers"), "pytorch-lightning_version": "2.0"}


def lightly_generator(net):
    """The ResNetGenerator itself, whose `forward` has the first ReLU."""
    return {"model": {k.replace("downsample", "shortcut"): v for k, v in net.state_dict().items()}}


def with_splits(net):
    """Trained with `num_splits=4`: each running statistic has a part for each split."""
    own = {f"a.b.c.d.e.{k}": v for k, v in net.state_dict().items()}
    for name in [name for name in own if name.endswith(("running_mean", "running_var"))]:
        spread = torch.tensor([-0.3, 0.1, 0.3, -0.1])[:, None]
        own[name] = (own[name] + spread).flatten()
    return {"state_dict": own}


def plain(net):
    return net.state_dict() | {"fc.weight": torch.zeros(1000, 512), "fc.bias": torch.zeros(1000)}


def dino(net):
    def part(prefix, scale):
        return {f"{prefix}backbone.{k}": scale * v for k, v in net.state_dict().items()} | heads(f"{prefix}head.mlp")

    student = part("module.", 0) | {"module.backbone.masked_embed": torch.zeros(1, 8)}  # iBOT's, so that it has more
    return {"student": student, "teacher": part("", 1), "epoch": 100, "args": argparse.Namespace(lr=1)}


def flat_dino(net):
    own = {f"{who}_backbone.{k}": v * (who == "teacher") for who in ("student", "teacher") for k, v in net_of(net)}
    return {"state_dict": own}


def net_of(net):
    return net.state_dict().items()


FORMATS = [moco, simsiam, lightly, lightly_generator, with_splits, plain, dino, flat_dino]


@pytest.mark.parametrize("layout", FORMATS)
def test_a_foreign_checkpoint_gives_the_features_of_its_network(resnet, tmp_path, layout):
    torch.save(layout(resnet), tmp_path / "checkpoint.pth.tar")
    encoder = load_encoder(str(tmp_path / "checkpoint.pth.tar"), size=16)
    x = torch.randn(2, 3, 16, 16)
    torch.testing.assert_close(encoder.backbone(x), resnet(x))
    assert not encoder.backbone.training
    assert (encoder.size, encoder.mean) == (16, (0.485, 0.456, 0.406))
    assert "resnet18 with the cifar stem" in encoder.says[0]
    assert ("teacher" in encoder.says[1].partition(" fit ")[0]) == (layout in (dino, flat_dino))


@pytest.mark.parametrize("layout", [dino, flat_dino])
def test_a_key_chooses_the_student_and_a_wrong_one_is_named(resnet, tmp_path, layout):
    torch.save(layout(resnet), tmp_path / "dino.pth")
    key = "student" if layout is dino else "student_backbone"
    encoder = load_encoder(str(tmp_path / "dino.pth"), key=key, size=16)
    assert encoder.backbone.conv1.weight.abs().max() == 0
    with pytest.raises(UserError, match=r"key='pupil'.*teacher"):
        load_encoder(str(tmp_path / "dino.pth"), key="pupil")


def test_lightlys_cifar_backbone_has_no_first_relu(resnet, tmp_path):
    """`nn.Sequential(*list(ResNetGenerator("resnet-18").children())[:-1], nn.AdaptiveAvgPool2d(1))`, as in its docs."""
    children = [resnet.conv1, resnet.bn1, resnet.layer1, resnet.layer2, resnet.layer3, resnet.layer4]
    theirs = nn.Sequential(*children, nn.AdaptiveAvgPool2d(1), nn.Flatten())
    own = {f"backbone.{k.replace('downsample', 'shortcut')}": v for k, v in theirs.state_dict().items()}
    torch.save({"state_dict": own}, tmp_path / "lightly.ckpt")
    encoder = load_encoder(str(tmp_path / "lightly.ckpt"), size=16)
    x = torch.randn(2, 3, 16, 16)
    torch.testing.assert_close(encoder.backbone(x), theirs(x))
    assert (theirs(x) - resnet(x)).abs().max() > 0.01
    assert "the lightly stem" in encoder.says[0]
    for library, relu in {"torchvision": "relu", "timm": "act1"}.items():
        done = export(encoder, library, tmp_path / f"{library}.safetensors")
        assert f"encoder.{relu} = torch.nn.Identity()" in done.snippet


def test_a_transformer_of_dino_is_read_at_any_size(tmp_path):
    torch.manual_seed(0)
    theirs = timm.create_model("vit_tiny_patch16_224", num_classes=0).eval()
    weights = {f"backbone.{key}": value for key, value in theirs.state_dict().items()}
    torch.save({"teacher": weights | heads("head.mlp"), "student": {}}, tmp_path / "vit.pth")
    name, x = "timm/vit_tiny_patch16_224", torch.randn(1, 3, 224, 224)
    torch.testing.assert_close(load_encoder(str(tmp_path / "vit.pth"), backbone=name).backbone(x), theirs(x))
    small = load_encoder(str(tmp_path / "vit.pth"), backbone=name, size=96)
    assert small.backbone(x[..., :96, :96]).shape == (1, 192)
    assert small.backbone.blocks[0].attn.qkv.weight.equal(theirs.blocks[0].attn.qkv.weight)


@pytest.fixture
def solo(resnet):
    own = {f"backbone.{k}": v for k, v in resnet.state_dict().items()}
    return {"state_dict": own | {"classifier.weight": torch.zeros(10, 512)}}


def test_solo_learn_pads_its_cifar_stem_by_two(solo, tmp_path):
    torch.save(solo, tmp_path / "byol-cifar10-ab12-ep=999.ckpt")
    encoder = load_encoder(str(tmp_path / "byol-cifar10-ab12-ep=999.ckpt"))
    assert encoder.backbone.conv1.padding == (2, 2)
    torch.save(solo, tmp_path / "x.ckpt")
    other = load_encoder(str(tmp_path / "x.ckpt"), stem="cifar")
    assert other.fingerprint != encoder.fingerprint  # though the weights are equal
    assert load_encoder(str(tmp_path / "x.ckpt"), stem="solo-learn").fingerprint == encoder.fingerprint
    (tmp_path / "args.json").write_text('{"method": "byol", "backbone": {"name": "resnet18"}}')
    assert load_encoder(str(tmp_path / "x.ckpt")).backbone.conv1.padding == (2, 2)


@pytest.mark.parametrize("name", RESNETS)
def test_the_shapes_tell_the_resnet_and_its_stem(name):
    with torch.device("meta"):
        weights = torchvision.models.get_model(name).state_dict()
    assert guess_resnet({f"module.encoder_q.{k}": v for k, v in weights.items()}) == (name, "imagenet")


class Malicious:
    def __init__(self, file) -> None:
        self.file = file

    def __reduce__(self):
        return os.mkdir, (str(self.file),)


@pytest.mark.parametrize("new_format", [True, False])
@pytest.mark.parametrize("place", ["beside", "among"])
def test_a_malicious_checkpoint_runs_nothing(resnet, tmp_path, new_format, place):
    weights, bomb = resnet.state_dict(), {"bomb": Malicious(tmp_path / "ran")}
    content = {"state_dict": weights} | bomb if place == "beside" else {"state_dict": weights | bomb}
    torch.save(content, tmp_path / "bomb.pth", _use_new_zipfile_serialization=new_format)
    encoder = load_encoder(str(tmp_path / "bomb.pth"), size=16)
    assert encoder.backbone.conv1.weight.equal(resnet.conv1.weight)
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    "name", ["os system", "builtins eval", "builtins getattr", "torch.hub load", "subprocess Popen"]
)
def test_an_unknown_name_is_never_imported(name):
    module, function = name.split()
    found = SAFE_PICKLE.load(io.BytesIO(f"c{module}\n{function}\n(S'touch ran'\ntR.".encode()))
    assert isinstance(found, Inert)


def test_a_pickle_cannot_change_what_it_finds(monkeypatch):
    monkeypatch.setattr(REBUILT["torch._utils", "_rebuild_tensor"], "__doc__", "as it was")
    SAFE_PICKLE.load(io.BytesIO(b"\x80\x02ctorch._utils\n_rebuild_tensor\n(N}X\x07\x00\x00\x00__doc__N\x73tb."))
    assert REBUILT["torch._utils", "_rebuild_tensor"].__doc__ == "as it was"


class Settings(dict):
    """Of a kind that is not on this machine, as omegaconf's: built by its class, a state and items."""

    def __init__(self, lr: float) -> None:
        super().__init__(lr=lr)
        self.flags, self.kinds, self.queue = {"readonly": True}, (dict, Settings), deque([lr])


@pytest.mark.parametrize("new_format", [True, False])
def test_settings_of_any_kind_may_lie_beside_the_weights(resnet, tmp_path, new_format):
    extras = {"args": argparse.Namespace(lr=1), "best": np.float64(1), "cfg": Settings(0.1), "seen": {1, 2}}
    content = extras | {"model": resnet.state_dict()}
    torch.save(content, tmp_path / "x.pth", _use_new_zipfile_serialization=new_format)
    encoder = load_encoder(str(tmp_path / "x.pth"), size=16)
    weights = encoder.backbone.state_dict()
    assert all(weights[key].equal(value) for key, value in resnet.state_dict().items())


def test_a_run_gives_its_encoder_and_what_it_needs(run):
    encoder = load_encoder(str(run.path))
    assert (encoder.size, encoder.channels, encoder.run.path) == (16, 3, run.path)
    assert load_encoder(str(run.path), size=24).size == 24
    by_file = load_encoder(str(run.backbone_file))
    assert (by_file.fingerprint, by_file.mean) == (encoder.fingerprint, encoder.mean)


def test_untrained_encoders_are_always_the_same_and_tell_strides_apart():
    first = load_encoder("random/tiny", size=16)
    torch.rand(3)
    assert load_encoder("random/tiny", size=16).fingerprint == first.fingerprint
    assert load_encoder("random/tiny", size=16, stem="cifar").fingerprint != first.fingerprint
    assert load_encoder("random/tiny", size=16, mean=[0.5], std=[0.2]).channels == 1


def test_torchvision_gives_the_features_before_its_classifier(monkeypatch):
    monkeypatch.setattr(torchvision.models.ResNet18_Weights, "get_state_dict", lambda *_, **__: state)
    net = torchvision.models.resnet18().eval()
    state = net.state_dict()
    encoder = load_encoder("torchvision/resnet18")
    x = torch.randn(1, 3, 64, 64)
    torch.testing.assert_close(net.fc(encoder.backbone(x)), net(x))
    assert (encoder.size, encoder.std) == (224, (0.229, 0.224, 0.225))


def test_names_that_no_library_has_and_weights_that_cannot_be_fetched_are_refused(monkeypatch):
    def offline(*_, **__):
        raise OSError("no network")

    monkeypatch.setattr(torchvision.models.ResNet18_Weights, "get_state_dict", offline)
    monkeypatch.setattr("timm.create_model", offline)
    for library in ("torchvision", "timm"):
        with pytest.raises(UserError, match="no network"):
            load_encoder(f"{library}/resnet18")
    for library in ("torchvision", "timm", "random"):
        with pytest.raises(UserError, match=r"resnet19.*resnet18"):
            load_encoder(f"{library}/resnet19")
    for source in ("torchvision/resnet18", "timm/resnet18", "random/resnet18"):
        with pytest.raises(UserError, match="--backbone"):
            load_encoder(source, backbone="resnet18")


def test_size_and_normalisation_follow_the_stem_unless_they_are_given(resnet, tmp_path):
    torch.save(resnet.state_dict(), tmp_path / "cifar.pt")
    encoder = load_encoder(str(tmp_path / "cifar.pt"))
    assert (encoder.size, encoder.mean, encoder.std) == (32, (0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
    own = load_encoder(str(tmp_path / "cifar.pt"), mean=(0.5, 0.4, 0.3), std=(0.2, 0.2, 0.1), size=40)
    assert (own.size, own.mean, own.std) == (40, (0.5, 0.4, 0.3), (0.2, 0.2, 0.1))
    untrained = load_encoder("random/resnet18", stem="cifar")
    assert (untrained.size, untrained.backbone.conv1.kernel_size) == (32, (3, 3))
    assert load_encoder("random/resnet18").size == 224


def truncated(path, resnet):
    torch.save(resnet.state_dict(), path)
    path.write_bytes(path.read_bytes()[:-1000])


def scripted(path, resnet):
    torch.jit.save(torch.jit.trace(nn.Linear(2, 2), torch.zeros(1, 2)), path)


def without(key, path, resnet):
    torch.save({k: v for k, v in resnet.state_dict().items() if k != key}, path)


REFUSED = {
    "torn.pth": (lambda path, net: path.write_bytes(b"nothing"), {}, "not a whole checkpoint"),
    "torn.safetensors": (lambda path, net: path.write_bytes(b"nothing"), {}, "not a whole checkpoint"),
    "truncated.pt": (truncated, {}, "not a whole checkpoint"),
    "script.pt": (scripted, {}, "not a whole checkpoint"),
    "empty.pth": (lambda path, net: torch.save({"epoch": 3}, path), {}, "no weights"),
    "gone.pth": (lambda path, net: None, {}, "no checkpoint"),
    "partly.pt": (lambda path, net: without("bn1.running_mean", path, net), {}, "1 of 100 weights.*bn1.running_mean"),
    "other-shape.pt": (lambda path, net: torch.save(net.state_dict() | {"bn1.bias": torch.zeros(3)}, path), {}, "bn1"),
    "no-resnet.pt": (lambda path, net: torch.save({"proj.weight": torch.zeros(2)}, path), {}, "--backbone"),
    "named.pt": (lambda path, net: torch.save(net.state_dict(), path), {"backbone": "resnet34"}, "holds a resnet18"),
    "misnamed.pt": (lambda path, net: torch.save(net.state_dict(), path), {"backbone": "tiny"}, "20 of 20 weights"),
    "values.pt": (lambda path, net: torch.save(net.state_dict(), path), {"std": (1.0,)}, "std.*3 channels"),
    "zero.pt": (lambda path, net: torch.save(net.state_dict(), path), {"std": (1.0, 0.0, 1.0)}, "std.*above 0"),
    "small.pt": (lambda path, net: torch.save(net.state_dict(), path), {"size": 4}, "size=4"),
}


@pytest.mark.filterwarnings("ignore:.*torch.jit")
@pytest.mark.parametrize("name", REFUSED)
def test_a_checkpoint_that_cannot_serve_is_refused(resnet, tmp_path, name):
    write, options, named = REFUSED[name]
    write(tmp_path / name, resnet)
    with pytest.raises(UserError, match=named):
        load_encoder(str(tmp_path / name), **options)


def test_a_run_without_a_whole_encoder_is_refused(run, tmp_path):
    run.backbone_file.write_bytes(b"torn")
    for source in (run.path, tmp_path / "none", ""):
        with pytest.raises(UserError):
            load_encoder(str(source))
    run.backbone_file.unlink()
    with pytest.raises(UserError, match=r"backbone.safetensors"):
        load_encoder(str(run.path))


def test_a_fingerprint_is_the_same_on_every_machine():
    weights = {"b": torch.arange(3.0), "a": torch.ones(2, 2, dtype=torch.bfloat16), "n": torch.tensor(5)}
    expected = "53a3f704d560f57ea65f1e61413fbc0c907c2d6d13467b4ee3c525efa7861d68"
    assert weights_fingerprint(weights, "net") == expected
    assert weights_fingerprint(dict(reversed(weights.items())), "net") == expected
    assert weights_fingerprint(weights | {"n": torch.tensor(6)}, "net") != expected


def test_a_folder_as_on_the_hub_is_an_encoder(tmp_path):
    source = load_encoder("random/resnet18", size=32)
    export(source, "hf", tmp_path / "encoder-hf")
    found = load_encoder(str(tmp_path / "encoder-hf"))
    assert (found.fingerprint, found.size, found.mean) == (source.fingerprint, source.size, source.mean)
