"""Is a framework refused, before anything is written, that does not keep what others rely on?"""

import pytest
import torch
from small_runs import SMALL, train

from logo_ssl.data import load_data
from logo_ssl.errors import UserError
from logo_ssl.frameworks import FRAMEWORKS, BYOLConfig, Framework
from logo_ssl.frameworks.byol import BYOL
from logo_ssl.similarity import negative_cosine
from logo_ssl.strategies import STRATEGIES
from logo_ssl.strategies.logo import LoGo
from logo_ssl.train import build
from logo_ssl.train.promises import IMAGES, _similarity_shape, refuse_unknown_heads

SMALL_BYOL = SMALL.changed(framework=BYOLConfig(dim=8, hidden=16))


@pytest.mark.parametrize(
    ("similarity", "given"),
    [
        (lambda q, t: negative_cosine(q, t).mean(), "a single number"),
        (lambda q, t: 0.0, "a single number"),
        (lambda q, t: q @ t.T, r"a tensor of shape \(2, 2\)"),
        (lambda q, t: (q - t).square().mean(0), r"a tensor of shape \(8,\)"),
    ],
    ids=["mean", "float", "matrix", "by dimension"],
)
def test_a_similarity_that_gives_no_loss_for_each_image_is_refused(similarity, given, data, tmp_path, monkeypatch):
    monkeypatch.setattr(BYOL, "similarity", lambda self, q, t: similarity(q, t))
    sentence = f"^The similarity of framework byol gives {given} for 2 images; give one loss for each image"
    with pytest.raises(UserError, match=sentence):
        train(SMALL_BYOL, data, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_name_in_kept_of_which_there_is_nothing_is_refused(data, tmp_path, monkeypatch):
    monkeypatch.setattr(BYOL, "kept", (*BYOL.kept, "momentum_encodr"))
    sentence = "^kept of framework byol names 'momentum_encodr', and .* Did you mean momentum_encoder"
    with pytest.raises(UserError, match=sentence):
        train(SMALL_BYOL, data, tmp_path / "run")
    assert not (tmp_path / "run").exists()
    monkeypatch.setattr(BYOL, "kept", Framework.kept)
    monkeypatch.setattr(LoGo, "kept", ("regresor",))
    with pytest.raises(UserError, match=r"^kept of strategy logo names 'regresor', and .* Did you mean regressor"):
        train(SMALL_BYOL, data, tmp_path / "run")


@pytest.mark.parametrize("name", ["h", "momentum_encoder", "encoder.net.projector.0", "centre", "scale", "absent"])
def test_whatever_a_framework_has_or_leaves_out_can_be_kept(name, data, monkeypatch):
    module = build(SMALL_BYOL, load_data(data, 16))
    module.framework.register_buffer("centre", torch.zeros(8))
    module.framework.scale, module.framework.absent = torch.nn.Parameter(torch.ones(1)), None
    monkeypatch.setattr(BYOL, "kept", (name,))
    refuse_unknown_heads(module)


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_our_own_have_what_they_keep(framework, strategy, data):
    recipe = SMALL.changed(framework=framework, framework__dim=8, strategy=strategy)
    refuse_unknown_heads(build(recipe, load_data(data, 16)))


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_looking_at_the_similarity_changes_nothing_of_what_is_trained(framework, data):
    module = build(SMALL.changed(framework=framework, framework__dim=8), load_data(data, 16))
    before, stream = {name: value.clone() for name, value in module.state_dict().items()}, torch.get_rng_state()
    assert _similarity_shape(module) == (IMAGES,)
    assert all(torch.equal(before[name], value) for name, value in module.state_dict().items())
    assert torch.equal(stream, torch.get_rng_state())
    assert all(part.training for part in module.framework.modules())


def test_a_framework_that_wants_more_images_is_left_to_its_training(data, monkeypatch):
    def picky(self, q, t):
        assert len(q) > IMAGES
        return negative_cosine(q, t)

    module = build(SMALL_BYOL, load_data(data, 16))
    monkeypatch.setattr(BYOL, "similarity", picky)
    assert _similarity_shape(module) is None
