"""Does a run that is interrupted, or still goes on, give the encoder of its newest checkpoint, and say so?"""

import shutil
from dataclasses import replace

import pytest
import safetensors.torch
import torch
from small_runs import SMALL, at_step, console, stop, train
from torch import nn

import logo_ssl
from logo_ssl.encoders import load_encoder
from logo_ssl.errors import Interrupted, UserError
from logo_ssl.frameworks import BYOL, FRAMEWORKS, BYOLConfig
from logo_ssl.strategies import LoGo
from logo_ssl.train import Pretraining
from logo_ssl.weights import digest


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("LOGO_CACHE", str(tmp_path / "cache"))


def interrupt(monkeypatch, step, go) -> dict[str, torch.Tensor]:
    """Stop a training after a step; the backbone's weights then."""
    kept: dict[str, torch.Tensor] = {}
    with monkeypatch.context() as patch:
        at_step(patch, lambda module: stop(), step)
        original = Pretraining.on_save_checkpoint

        def save(module, checkpoint):
            kept.update({k: v.clone() for k, v in module.framework.final_encoder.backbone.state_dict().items()})
            original(module, checkpoint)

        patch.setattr(Pretraining, "on_save_checkpoint", save)
        with pytest.raises(Interrupted):
            go()
    return kept


@pytest.mark.parametrize("framework", ["moco", "simsiam", "byol", "simclr", "dino"])
def test_the_newest_checkpoint_gives_its_encoder_with_a_word_about_it(data, tmp_path, monkeypatch, framework):
    recipe, path = replace(SMALL, framework=FRAMEWORKS[framework](dim=8)), str(tmp_path / "run")
    weights = interrupt(monkeypatch, 3, lambda: train(recipe, data, path))
    encoder = load_encoder(path)
    assert encoder.unfinished == "epoch 2 of 2"
    assert "epoch 2 of 2, unfinished" in encoder.says[0]
    for name, value in encoder.backbone.state_dict().items():
        assert torch.equal(value, weights[name]), name
    with pytest.warns(UserWarning, match="epoch 2 of 2, unfinished"):
        loaded = logo_ssl.load(path)
    assert loaded.transform.mean == encoder.mean
    logo_ssl.resume(path, console=console())
    after = load_encoder(path)
    assert (encoder.mean, encoder.std, encoder.size) == (after.mean, after.std, after.size)
    assert after.unfinished is None
    assert after.fingerprint != encoder.fingerprint


def test_a_finished_run_whose_file_is_gone_gives_that_of_its_last_checkpoint(data, tmp_path):
    run, _ = train(SMALL, data, tmp_path / "run")
    own = load_encoder(str(run.path))
    run.backbone_file.unlink()
    kept = load_encoder(str(run.path))
    assert kept.fingerprint == own.fingerprint
    assert (own.unfinished, kept.unfinished) == (None, None)
    assert "without backbone.safetensors" in kept.says[0]
    shutil.rmtree(run.checkpoints)
    with pytest.raises(UserError, match=r"backbone\.safetensors"):
        load_encoder(str(run.path))


def test_a_finished_run_that_goes_on_gives_what_is_newer(data, tmp_path, monkeypatch):
    run, _ = train(SMALL, data, tmp_path / "run")
    finished = load_encoder(str(run.path)).fingerprint
    interrupt(monkeypatch, 7, lambda: logo_ssl.resume(run.path, console=console(), epochs=4))
    encoder = load_encoder(str(run.path))
    assert encoder.unfinished == "epoch 3 of 4"
    assert encoder.fingerprint != finished
    assert load_encoder(str(run.backbone_file)).fingerprint == finished


def test_a_power_cut_between_heads_and_backbone_leaves_a_pair_that_fits(data, tmp_path):
    run, _ = train(SMALL, data, tmp_path / "run", epochs=1)
    old = run.backbone_file.read_bytes()
    logo_ssl.resume(run.path, console=console(), epochs=2)
    whole, heads = load_encoder(str(run.path)), safetensors.torch.load_file(run.heads_file)
    run.provenance_file.unlink()
    run.backbone_file.write_bytes(old)  # the second of the two to be renamed
    encoder = load_encoder(str(run.path))
    assert encoder.fingerprint == whole.fingerprint
    assert all(torch.equal(encoder.heads[name], value) for name, value in heads.items())


@pytest.fixture
def more_heads(monkeypatch):
    """A predictor, weights of a framework that it names, and a strategy's whose names others have."""
    byol, logo = BYOL.__init__, LoGo.__init__

    def framework(self, *arguments):
        byol(self, *arguments)
        self.prototypes, self.unnamed = nn.Parameter(torch.randn(3, 8)), nn.Linear(2, 2).requires_grad_(False)
        self.register_buffer("centre", torch.randn(8))

    def strategy(self, *arguments):
        logo(self, *arguments)
        self.projector, self.h = nn.Linear(2, 2), nn.Linear(2, 2)

    monkeypatch.setattr(BYOL, "__init__", framework)
    monkeypatch.setattr(LoGo, "__init__", strategy)
    monkeypatch.setattr(BYOL, "kept", (*BYOL.kept, "prototypes", "centre"))
    return SMALL.changed(framework=BYOLConfig(dim=8, hidden=16), epochs=1)


def test_a_run_keeps_the_same_heads_whether_it_is_finished_or_not(data, tmp_path, more_heads):
    run, _ = train(more_heads, data, tmp_path / "run")
    kept = safetensors.torch.load_file(run.heads_file)
    strangers = {"framework.prototypes", "framework.centre", "strategy.projector", "strategy.h"}
    known = {"projector", "h", "regressor"}
    assert {".".join(key.split(".")[: 1 + (key.split(".")[0] not in known)]) for key in kept} == known | strangers
    for file in (run.provenance_file, run.backbone_file, run.heads_file):
        file.unlink()
    unfinished = load_encoder(str(run.path)).heads
    assert unfinished.keys() == kept.keys()
    assert all(torch.equal(unfinished[key], value) for key, value in kept.items())


def test_a_torn_checkpoint_does_not_give_an_encoder_that_is_older_than_the_runs_own(data, tmp_path):
    run, _ = train(SMALL, data, tmp_path / "run", checkpoint_minutes=1e-9, checkpoint_keep=9)
    own = load_encoder(str(run.path)).fingerprint
    run.provenance_file.unlink()
    newest = run.saved()[0]
    newest.rename(run.checkpoints / f"step-000000009-{digest(newest)}.ckpt").write_bytes(b"torn")
    encoder = load_encoder(str(run.path))
    assert encoder.fingerprint == own
    assert encoder.unfinished is None
