"""Do encoders of every source give their own features, and is every key that did not fit said?"""

import argparse
import io
import json
import os
import socket
from collections import deque

import numpy as np
import pytest
import safetensors.torch
import torch
import torchvision
from huggingface_hub import constants
from torch import nn

from logo_ssl.data import ImageSet, Split
from logo_ssl.errors import UserError
from logo_ssl.eval import Extraction, inert, load_encoder
from logo_ssl.eval.foreign import guess
from logo_ssl.eval.matching import Match, sentences
from logo_ssl.eval.record import save
from logo_ssl.recipes import find_recipe
from logo_ssl.run import Run
from logo_ssl.train import build
from logo_ssl.train.weights import save_encoder


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
    children = [net.conv1, net.bn1, net.layer1, net.layer2, net.layer3, net.layer4]
    own = nn.Sequential(*children).state_dict()
    return {"state_dict": {f"model.backbone.{k.replace('downsample', 'shortcut')}": v for k, v in own.items()}}


def plain(net):
    return net.state_dict() | {"fc.weight": torch.zeros(1000, 512), "fc.bias": torch.zeros(1000)}


FORMATS = [moco, simsiam, lightly, lightly_generator, plain]


@pytest.mark.parametrize("layout", FORMATS)
def test_a_foreign_checkpoint_gives_the_features_of_its_network(resnet, tmp_path, layout):
    torch.save(layout(resnet), tmp_path / "checkpoint.pth.tar")
    encoder = load_encoder(str(tmp_path / "checkpoint.pth.tar"), size=16)
    x = torch.randn(2, 3, 16, 16)
    torch.testing.assert_close(encoder.backbone(x), resnet(x))
    assert not encoder.backbone.training
    assert (encoder.size, encoder.mean) == (16, (0.485, 0.456, 0.406))
    assert encoder.says[0] == "checkpoint.pth.tar is read as resnet18 with the cifar stem."
    assert encoder.missing == ()


@pytest.fixture
def solo(resnet):
    own = {f"backbone.{k}": v for k, v in resnet.state_dict().items()}
    return {"state_dict": own | {"classifier.weight": torch.zeros(10, 512)}}


def test_solo_learn_pads_its_cifar_stem_by_two(solo, tmp_path):
    torch.save(solo, tmp_path / "byol-cifar10-ab12-ep=999.ckpt")
    encoder = load_encoder(str(tmp_path / "byol-cifar10-ab12-ep=999.ckpt"))
    assert encoder.backbone.conv1.padding == (2, 2)
    assert "It comes from solo-learn, whose CIFAR stem pads by 2 pixels." in encoder.says
    torch.save(solo, tmp_path / "x.ckpt")
    other = load_encoder(str(tmp_path / "x.ckpt"), stem="cifar")
    assert other.fingerprint != encoder.fingerprint  # though the weights are equal
    assert load_encoder(str(tmp_path / "x.ckpt"), stem="solo-learn").fingerprint == encoder.fingerprint
    (tmp_path / "args.json").write_text('{"method": "byol", "backbone": {"name": "resnet18"}}')
    assert load_encoder(str(tmp_path / "x.ckpt")).backbone.conv1.padding == (2, 2)


def test_a_classifier_beside_a_backbone_is_not_yet_solo_learn(solo, tmp_path):
    torch.save(solo, tmp_path / "mine.ckpt")
    encoder = load_encoder(str(tmp_path / "mine.ckpt"))
    assert encoder.backbone.conv1.padding == (1, 1)
    assert any("give --stem solo-learn" in sentence for sentence in encoder.says)
    with pytest.raises(UserError, match="solo-learn's stem belongs to ResNets, and tiny is none"):
        load_encoder("random/tiny", stem="solo-learn")


def test_one_unmatched_key_is_told_in_the_singular():
    assert sentences(Match({}, "", ["bn1.num_batches_tracked"], ["queue"]))[1:] == [
        "Not in the checkpoint: 1 counter of batches, which evaluation does not read.",
        "Left out: 1 key of queues.",
    ]


def test_every_unmatched_key_is_said(resnet, tmp_path):
    checkpoint = moco(resnet)
    weights = checkpoint["state_dict"]
    odd = {f"module.odd{i}": torch.zeros(1) for i in range(7)}
    odd |= {f"module.decoder.{i}.weight": torch.zeros(1) for i in range(9)}
    gone = [key for key in weights if key.startswith("module.encoder_q.") and key.endswith("num_batches_tracked")]
    checkpoint["state_dict"] = {key: value for key, value in weights.items() if key not in gone} | odd
    torch.save(checkpoint, tmp_path / "m.pth")
    encoder = load_encoder(str(tmp_path / "m.pth"), size=16)
    said = " ".join(encoder.says)
    assert "100 tensors of the checkpoint under 'module.encoder_q.' fit" in said
    assert "Left out: 120 keys of momentum copies." in said
    assert "Left out: 4 keys of heads (projector, predictor, classifier)." in said
    assert "Left out: 2 keys of queues." in said
    alone = ", ".join(f"module.odd{i}" for i in range(7))
    assert f"Found no place in the backbone: 9 keys of module.decoder, {alone}." in said
    assert set(encoder.missing) == {key.removeprefix("module.encoder_q.") for key in gone}
    used = {f"module.encoder_q.{key}" for key in resnet.state_dict()}
    assert set(encoder.unused) == checkpoint["state_dict"].keys() - used
    data = ImageSet("two", Split(torch.zeros(2, 3, 16, 16, dtype=torch.uint8)))
    record = json.loads(save("knn", {}, encoder, data, Extraction(device="cpu"), tmp_path / "knn.json").read_text())
    assert record["keys_not_in_checkpoint"] == list(encoder.missing)
    assert record["keys_without_place"] == list(encoder.unused)


@pytest.mark.parametrize("change", ["gone", "other shape"])
def test_a_backbone_that_would_stay_partly_untrained_is_refused(resnet, tmp_path, change):
    weights = resnet.state_dict()
    weights.pop("bn1.running_mean") if change == "gone" else weights.update({"bn1.running_mean": torch.zeros(3)})
    torch.save(weights, tmp_path / "x.pt")
    with pytest.raises(
        UserError, match=r"1 of 100 weights of resnet18 .*is not in the checkpoint .*\(bn1.running_mean;"
    ):
        load_encoder(str(tmp_path / "x.pt"))


@pytest.mark.parametrize(("held", "named"), [("resnet18", "resnet34"), ("resnet34", "resnet18")])
def test_weights_of_one_resnet_are_not_those_of_another(tmp_path, held, named):
    torch.save(torchvision.models.get_model(held).state_dict(), tmp_path / "x.pt")
    with pytest.raises(UserError, match=f"holds a {held} by its shapes, not a {named}; leave --backbone out"):
        load_encoder(str(tmp_path / "x.pt"), backbone=named)


def test_size_and_normalisation_follow_the_stem_and_are_said(resnet, tmp_path):
    torch.save(resnet.state_dict(), tmp_path / "cifar.pt")
    encoder = load_encoder(str(tmp_path / "cifar.pt"))
    assert encoder.size == 32
    assert encoder.says[-1] == (
        "The encoder takes images of 32 px, with mean 0.485 0.456 0.406 and std 0.229 0.224 0.225, the custom on "
        "ImageNet; --mean and --std set others."
    )
    own = load_encoder(str(tmp_path / "cifar.pt"), mean=(0.5, 0.4, 0.3), std=(0.2, 0.2, 0.1), size=40)
    assert own.says[-1] == "The encoder takes images of 40 px, with mean 0.500 0.400 0.300 and std 0.200 0.200 0.100."
    untrained = load_encoder("random/resnet18", stem="cifar")
    assert (untrained.size, untrained.backbone.conv1.kernel_size) == (32, (3, 3))
    assert load_encoder("random/resnet18").size == 224


def test_a_stem_is_refused_where_the_encoder_tells_it(run):
    for source in (str(run.path), str(run.backbone_file), "torchvision/resnet18", "timm/resnet18"):
        with pytest.raises(UserError, match="says itself what it is"):
            load_encoder(source, stem="cifar")
    with pytest.raises(UserError, match="--backbone is for checkpoint files"):
        load_encoder("random/resnet18", backbone="resnet18")


def test_missing_counters_are_said_apart(resnet, tmp_path):
    weights = {k: v for k, v in resnet.state_dict().items() if not k.endswith("num_batches_tracked")}
    safetensors.torch.save_file(weights, tmp_path / "old.safetensors")
    said = load_encoder(str(tmp_path / "old.safetensors"), size=16).says
    assert "Not in the checkpoint: 20 counters of batches, which evaluation does not read." in said


@pytest.mark.parametrize("name", ["resnet18", "resnet34", "resnet50"])
def test_the_shapes_tell_the_resnet_and_its_stem(name):
    with torch.device("meta"):
        weights = torchvision.models.get_model(name).state_dict()
    assert guess({f"module.encoder_q.{k}": v for k, v in weights.items()}) == (name, "imagenet")


def test_a_resnet_that_is_not_known_is_asked_for(tmp_path):
    with torch.device("meta"):
        assert guess(torchvision.models.resnet101().state_dict()).backbone is None
    torch.save({"proj.weight": torch.zeros(2)}, tmp_path / "x.pt")
    with pytest.raises(UserError, match=r"x.pt tell no ResNet \(it has proj.weight, ...\); name its"):
        load_encoder(str(tmp_path / "x.pt"))


def test_a_named_backbone_that_does_not_fit_is_refused(resnet, tmp_path):
    torch.save(resnet.state_dict(), tmp_path / "x.pt")
    with pytest.raises(UserError, match="20 of 20 weights of tiny with the cifar stem are not in the checkpoint"):
        load_encoder(str(tmp_path / "x.pt"), backbone="tiny")


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
    found = inert.load(io.BytesIO(f"c{module}\n{function}\n(S'touch ran'\ntR.".encode()))
    assert isinstance(found, inert.Inert)


def test_a_pickle_cannot_change_what_it_finds(monkeypatch):
    monkeypatch.setattr(inert.REBUILT["torch._utils", "_rebuild_tensor"], "__doc__", "as it was")
    inert.load(io.BytesIO(b"\x80\x02ctorch._utils\n_rebuild_tensor\n(N}X\x07\x00\x00\x00__doc__N\x73tb."))
    assert inert.REBUILT["torch._utils", "_rebuild_tensor"].__doc__ == "as it was"


@pytest.mark.filterwarnings("ignore:.*torch.jit")
def test_a_script_is_refused(tmp_path):
    torch.jit.save(torch.jit.trace(nn.Linear(2, 2), torch.zeros(1, 2)), tmp_path / "script.pt")
    with pytest.raises(UserError, match="is no checkpoint"):
        load_encoder(str(tmp_path / "script.pt"))


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


def test_a_tensor_beside_the_weights_does_not_hide_them(resnet, tmp_path):
    content = {
        "epoch": 3,
        "state_dict": resnet.state_dict(),
        "best_acc1": torch.tensor(71.1),
    }  # as main_lincls.py saves
    torch.save(content, tmp_path / "lincls.pth.tar")
    assert (
        load_encoder(str(tmp_path / "lincls.pth.tar"), size=16).says[0].startswith("lincls.pth.tar is read as resnet18")
    )


def test_files_that_are_no_checkpoints_are_refused(tmp_path):
    for name, content in {"a.pth": b"nothing", "b.safetensors": b"nothing", "c.ckpt": b""}.items():
        (tmp_path / name).write_bytes(content)
        with pytest.raises(UserError, match="write or download it again"):
            load_encoder(str(tmp_path / name))
    torch.save({"epoch": 3}, tmp_path / "d.pth")
    with pytest.raises(UserError, match=r"holds no weights \(it has epoch\)"):
        load_encoder(str(tmp_path / "d.pth"))
    with pytest.raises(UserError, match="There is no checkpoint"):
        load_encoder(str(tmp_path / "e.pth"))
    with pytest.raises(UserError, match="is no encoder; give a run folder"):
        load_encoder("resnet50")


@pytest.fixture
def run(tmp_path, images: ImageSet):
    recipe = find_recipe("tiny").changed(crops__global_size=16)
    run = Run(tmp_path / "run")
    save_encoder(run, build(recipe, images))
    run.recipe_file.write_text(recipe.to_json())
    return run


def test_a_run_gives_its_encoder_and_what_it_needs(run):
    encoder = load_encoder(str(run.path))
    assert (encoder.size, encoder.channels, encoder.run.path) == (16, 3, run.path)
    assert load_encoder(str(run.path), size=24).size == 24
    by_file = load_encoder(str(run.backbone_file))
    assert (by_file.fingerprint, by_file.mean) == (encoder.fingerprint, encoder.mean)


def test_a_run_without_an_encoder_is_refused(run, tmp_path):
    run.backbone_file.write_bytes(b"torn")
    with pytest.raises(UserError, match="is no whole encoder"):
        load_encoder(str(run.path))
    run.backbone_file.unlink()
    with pytest.raises(UserError, match=r"has no encoder yet, since it has no checkpoint"):
        load_encoder(str(run.path))
    run.provenance_file.write_text("{}")
    with pytest.raises(UserError, match=r"is finished, but backbone.safetensors and its checkpoints are gone; place"):
        load_encoder(str(run.path))
    with pytest.raises(UserError, match="holds no run"):
        load_encoder(str(tmp_path))


def test_untrained_encoders_are_always_the_same_and_tell_strides_apart():
    first = load_encoder("random/tiny", size=16)
    torch.rand(3)
    assert load_encoder("random/tiny", size=16).fingerprint == first.fingerprint
    assert load_encoder("random/tiny", size=16, stem="cifar").fingerprint != first.fingerprint
    assert load_encoder("random/tiny", size=16, mean=[0.5], std=[0.2]).channels == 1


def test_a_fingerprint_is_the_same_on_every_machine():
    from logo_ssl.eval.fingerprints import weights_fingerprint

    weights = {"b": torch.arange(3.0), "a": torch.ones(2, 2, dtype=torch.bfloat16), "n": torch.tensor(5)}
    expected = "53a3f704d560f57ea65f1e61413fbc0c907c2d6d13467b4ee3c525efa7861d68"
    assert weights_fingerprint(weights, "net") == expected
    assert weights_fingerprint(dict(reversed(weights.items())), "net") == expected
    assert weights_fingerprint(weights | {"n": torch.tensor(6)}, "net") != expected


def test_torchvision_gives_the_features_before_its_classifier(monkeypatch):
    monkeypatch.setattr(torchvision.models.ResNet18_Weights, "get_state_dict", lambda *_, **__: state)
    net = torchvision.models.resnet18().eval()
    state = net.state_dict()
    encoder = load_encoder("torchvision/resnet18")
    x = torch.randn(1, 3, 64, 64)
    torch.testing.assert_close(net.fc(encoder.backbone(x)), net(x))
    assert (encoder.size, encoder.std) == (224, (0.229, 0.224, 0.225))


def test_weights_that_cannot_be_fetched_are_said(monkeypatch):
    def offline(*_, **__):
        raise OSError("no network")

    monkeypatch.setattr(torch.hub, "load_state_dict_from_url", offline)
    monkeypatch.setattr(torchvision.models.ResNet18_Weights, "get_state_dict", offline)
    monkeypatch.setattr("timm.create_model", offline)
    monkeypatch.setattr("logo_ssl.models.hub._out_of_reach", lambda: None)
    for source in ("torchvision/resnet18", "timm/resnet18"):
        with pytest.raises(UserError, match=rf"weights of {source} could not be fetched \(no network\)"):
            load_encoder(source)
    with pytest.raises(UserError, match=r"torchvision has no classifier 'resnet19'. Did you mean resnet18"):
        load_encoder("torchvision/resnet19")
    with pytest.raises(UserError, match=r"timm has no model 'resnet19'"):
        load_encoder("timm/resnet19")
    with pytest.raises(UserError, match=r"No backbone is called 'resnet19'"):
        load_encoder("random/resnet19")


@pytest.mark.parametrize("proxied", [False, True])
@pytest.mark.parametrize("reached", [False, True])
def test_a_hub_that_is_out_of_reach_is_asked_once_and_its_cache_is_still_looked_in(monkeypatch, reached, proxied):
    asked, was_offline = [], []

    def connect(place, timeout):
        asked.append(place)
        if not reached:
            raise socket.gaierror(-2, "Name or service not known")
        return io.BytesIO()

    def create(*_, **__):
        was_offline.append(constants.HF_HUB_OFFLINE)
        raise OSError("the hub's own words")

    monkeypatch.setattr("socket.create_connection", connect)
    monkeypatch.setattr("timm.create_model", create)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "ENDPOINT", "https://hub.test")
    monkeypatch.setattr("logo_ssl.models.hub.getproxies", lambda: {"no": "here"} | ({"https": "x"} if proxied else {}))
    given_up = not reached and not proxied
    said = "hub.test is out of reach: Name or service not known" if given_up else "the hub's own words"
    with pytest.raises(UserError, match=rf"timm/resnet18 could not be fetched \({said}\)"):
        load_encoder("timm/resnet18")
    assert asked == ([] if proxied else [("hub.test", 443)])
    assert was_offline == [given_up]
    assert constants.HF_HUB_OFFLINE is False


def test_what_a_user_says_of_normalisation_counts_and_is_checked():
    encoder = load_encoder("random/tiny", size=16, mean=(0.1, 0.2, 0.3), std=(1, 1, 1))
    assert (encoder.mean, encoder.std) == ((0.1, 0.2, 0.3), (1, 1, 1))
    with pytest.raises(UserError, match="std has 3 values, and random/tiny sees 1 channel"):
        load_encoder("random/tiny", size=16, mean=(0.1,), std=(1, 1, 1))
    with pytest.raises(UserError, match="size is 4"):
        load_encoder("random/tiny", size=4)
