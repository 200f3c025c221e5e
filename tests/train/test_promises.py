"""Is a framework refused, before anything is written, that does not keep what others rely on?"""

import random

import numpy as np
import pytest
import torch
from small_runs import SMALL, train

from logo_ssl.augself import AugSelfConfig
from logo_ssl.data import load_data
from logo_ssl.equations import local_to_global
from logo_ssl.errors import UserError
from logo_ssl.frameworks import FRAMEWORKS, BYOLConfig, Framework
from logo_ssl.frameworks.byol import BYOL
from logo_ssl.similarity import negative_cosine
from logo_ssl.strategies import STRATEGIES, LoGoConfig, Strategy
from logo_ssl.strategies.logo import LoGo
from logo_ssl.strategies.multi_crop import MultiCrop
from logo_ssl.train import build
from logo_ssl.train.folder import is_finished
from logo_ssl.train.promises import _broken, refuse_broken_promises, refuse_unknown_heads
from logo_ssl.types import Objective, Projections

SMALL_BYOL = SMALL.changed(framework=BYOLConfig(dim=8, hidden=16))


@pytest.mark.parametrize(
    ("similarity", "given"),
    [
        (lambda q, t: negative_cosine(q, t).mean(), "a single number"),
        (lambda q, t: 0.0, "a single number"),
        (lambda q, t: q @ t.T, r"a tensor of shape \(3, 3\)"),
        (lambda q, t: (q - t).square().mean(0), r"a tensor of shape \(8,\)"),
    ],
    ids=["mean", "float", "matrix", "by dimension"],
)
def test_a_similarity_that_gives_no_loss_for_each_image_is_refused(similarity, given, data, tmp_path, monkeypatch):
    monkeypatch.setattr(BYOL, "similarity", lambda self, q, t: similarity(q, t))
    sentence = f"^The similarity of framework byol gives {given} for 3 images; give one loss for each image"
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


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_a_rehearsal_changes_nothing_of_what_is_trained_and_goes_to_its_end(framework, strategy, data):
    recipe = SMALL.changed(framework=framework, framework__dim=8, strategy=strategy)
    module = build(recipe, load_data(data, 16))
    before, stream = {name: value.clone() for name, value in module.state_dict().items()}, torch.get_rng_state()
    assert list(_broken(module)) == []  # nothing is raised, either
    refuse_broken_promises(module)
    assert all(torch.equal(before[name], value) for name, value in module.state_dict().items())
    assert all(parameter.grad is None for parameter in module.parameters())
    assert torch.equal(stream, torch.get_rng_state())
    assert all(part.training for part in module.framework.modules())


def test_a_framework_that_wants_more_images_is_left_to_its_training(data, monkeypatch):
    def picky(self, q, t):
        assert len(q) > 10
        return negative_cosine(q, t)

    module = build(SMALL_BYOL, load_data(data, 16))
    monkeypatch.setattr(BYOL, "similarity", picky)
    with pytest.raises(AssertionError):
        list(_broken(module))
    refuse_broken_promises(module)


def turned(p):
    """Images before crops."""
    return Projections(*(x.transpose(0, 1) for x in p))


PROJECTIONS = {
    "tuple": (tuple, "gives a value of type tuple; give Projections"),
    "turned": (
        turned,
        r"gives z_g as a tensor of shape \(3, 2, 8\); give a tensor of shape \(2, 3, 8\): 2 global crops,",
    ),
    "few local": (
        lambda p: p._replace(q_l=p.q_l[:1]),
        r"gives q_l as .* \(1, 3, 8\); give .* \(2, 3, 8\): 2 local crops,",
    ),
    "few targets": (lambda p: p._replace(t_g=p.t_g[:1]), r"gives t_g as .* \(1, 3, 8\); give .* \(2, 3, 8\)"),
    "no targets": (lambda p: p._replace(t_g=None), r"gives t_g as None; give a tensor of shape \(2, 3, 8\)"),
    "narrow": (lambda p: Projections(*(x[..., :4] for x in p)), r"gives z_g as .* a width of 8 \(framework\.dim\)"),
    "narrow queries": (lambda p: p._replace(q_g=p.q_g[..., :4]), r"gives t_g as .* a width of 4 \(q_g's\)"),
}


@pytest.mark.parametrize(("change", "told"), PROJECTIONS.values(), ids=PROJECTIONS)
def test_projections_of_another_shape_are_refused(change, told, data, tmp_path, monkeypatch):
    project = BYOL.project
    monkeypatch.setattr(BYOL, "project", lambda *given: change(project(*given)))
    with pytest.raises(UserError, match=f"^project of framework byol {told}"):
        train(SMALL_BYOL, data, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_what_is_compared_may_be_wider_than_the_latents(data, monkeypatch):
    project = BYOL.project

    def prototypes(*given):
        p = project(*given)
        return p._replace(**{name: torch.cat([getattr(p, name)] * 2, dim=-1) for name in ("q_g", "q_l", "t_g")})

    monkeypatch.setattr(BYOL, "project", prototypes)
    assert list(_broken(build(SMALL_BYOL, load_data(data, 16)))) == []


OBJECTIVES = {
    "tensor": (lambda o: o.loss, r"gives a tensor of shape \(\); give Objective\(loss, terms\)"),
    "nothing": (lambda o: None, r"gives None; give Objective\(loss, terms\)"),
    "each image": (
        lambda o: o._replace(loss=o.loss.expand(3)),
        r"gives the loss as a tensor of shape \(3,\); give a ten",
    ),
    "float": (lambda o: o._replace(terms={"x": 0.5}), "gives x as a value of type float; give a tensor of a single"),
}


@pytest.mark.parametrize(("change", "told"), OBJECTIVES.values(), ids=OBJECTIVES)
def test_objectives_of_another_kind_are_refused(change, told, data, tmp_path, monkeypatch):
    inner, outer = LoGo.inner, LoGo.outer
    monkeypatch.setattr(LoGo, "outer", lambda *given: change(outer(*given)))
    with pytest.raises(UserError, match=f"^outer of strategy logo {told}"):
        train(SMALL_BYOL, data, tmp_path / "run")
    assert not (tmp_path / "run").exists()
    if change(Objective(torch.zeros(()), {})) is not None:
        monkeypatch.setattr(LoGo, "inner", lambda *given: change(inner(*given)))
        with pytest.raises(UserError, match=f"^inner of strategy logo {told}"):
            train(SMALL_BYOL, data, tmp_path / "run")


def detached(p):
    return Projections(*(x.detach() for x in p))


CUT = {
    "project": (BYOL, "project", detached, "project of framework byol"),
    "similarity": (BYOL, "similarity", torch.Tensor.detach, "The similarity of framework byol"),
    "outer": (LoGo, "outer", lambda o: o._replace(loss=o.loss.detach()), "outer of strategy logo"),
    "inner": (LoGo, "inner", lambda o: o._replace(loss=o.loss.detach()), "inner of strategy logo"),
}


@pytest.mark.parametrize(("owner", "method", "cut", "who"), CUT.values(), ids=CUT)
def test_a_loss_without_a_gradient_is_refused_by_who_lost_it(owner, method, cut, who, data, tmp_path, monkeypatch):
    whole = getattr(owner, method)
    monkeypatch.setattr(owner, method, lambda *given: cut(whole(*given)))
    with pytest.raises(UserError, match=rf"^{who} gives nothing that a gradient flows from, .* \.detach\(\)"):
        train(SMALL_BYOL, data, tmp_path / "run")
    assert not (tmp_path / "run").exists()
    if owner is BYOL:  # and by a strategy that measures no gradients itself
        with pytest.raises(UserError, match=f"^{who} gives nothing that a gradient flows from"):
            train(SMALL_BYOL, data, tmp_path / "run", strategy="multi-crop")


def only_local(self, l_s, p, chance, theta_e=()):
    return Objective(local_to_global(l_s, p.q_l, p.t_g), {})


def without_global_queries(patch):
    project = BYOL.project
    patch.setattr(BYOL, "project", lambda *given: (p := project(*given))._replace(q_g=p.q_g.detach()))
    patch.setattr(MultiCrop, "outer", only_local)


def with_a_head_alone(patch):
    build, project = BYOLConfig.build, BYOL.project

    def with_head(*given):
        framework = build(*given)
        framework.requires_grad_(False)
        framework.head = torch.nn.Linear(8, 8)
        return framework

    patch.setattr(BYOLConfig, "build", with_head)
    patch.setattr(BYOL, "project", lambda *given: detached(project(*given)))
    patch.setattr(BYOL, "similarity", lambda self, q, t: negative_cosine(self.head(q), t))


def with_augself_alone(patch):
    patch.setattr(MultiCrop, "outer", lambda self, *given: Objective(torch.zeros(()), {}))


HONEST = {
    "only local crops ask": (without_global_queries, {}),
    "head within similarity": (with_a_head_alone, {}),
    "augself alone": (with_augself_alone, {"augself": AugSelfConfig(crop=1.0)}),
}


@pytest.mark.parametrize(("change", "settings"), HONEST.values(), ids=HONEST)
def test_parts_whose_loss_has_a_gradient_are_trained_wherever_it_comes_from(
    change, settings, data, tmp_path, monkeypatch
):
    change(monkeypatch)
    recipe = SMALL_BYOL.changed(strategy="multi-crop", epochs=1, knn_every=0, **settings)
    assert list(_broken(build(recipe, load_data(data, 16)))) == []
    run, _ = train(recipe, data, tmp_path / "run")
    assert is_finished(run)


class Half(Framework):
    """A framework that does not project."""

    def similarity(self, q, t):
        return negative_cosine(q, t)


class Bare(BYOL):
    """A framework without an encoder."""

    def __init__(self):
        torch.nn.Module.__init__(self)


class Forgetful(BYOL):
    """A framework that sets a network before torch is ready for it."""

    def __init__(self):
        self.h = torch.nn.Identity()


class Plain(LoGo):
    """A strategy that sets a number alone, which torch lets pass."""

    def __init__(self):
        self.lam = 1.0


class Deep(LoGo):
    """A strategy whose own network forgets it."""

    def __init__(self):
        Strategy.__init__(self, "mean", 2, 2)
        self.head = Head()


class Head(torch.nn.Module):
    def __init__(self):
        self.scale = 1.0


UNWHOLE = {
    "project": (BYOLConfig, Half, r"^Framework byol is not whole: .* abstract method '?project'?; write what"),
    "outer": (LoGoConfig, lambda: Strategy("mean", 2, 2), r"^Strategy logo is not whole: .* '?outer'?; write what"),
    "encoder": (BYOLConfig, Bare, r"^Framework byol has no encoder; make one: self\.encoder = Encoder\(backbone"),
    "network": (BYOLConfig, Forgetful, r"^Forgetful\.__init__ must call super\(\)\.__init__\(\.\.\.\) first"),
    "number": (LoGoConfig, Plain, r"^Plain\.__init__ must call super\(\)\.__init__\(\.\.\.\) first"),
    "inside": (LoGoConfig, Deep, r"^Head\.__init__ must call super\(\)\.__init__\(\.\.\.\) first"),
    "framework": (BYOLConfig, torch.nn.Identity, "of type Identity, and framework byol must extend Framework"),
    "strategy": (LoGoConfig, torch.nn.Identity, "of type Identity, and strategy logo must extend Strategy"),
}


@pytest.mark.parametrize(("config", "make", "sentence"), UNWHOLE.values(), ids=UNWHOLE)
def test_a_part_that_is_not_whole_is_refused(config, make, sentence, data, tmp_path, monkeypatch):
    monkeypatch.setattr(config, "build", lambda *_: make())
    with pytest.raises(UserError, match=sentence):
        train(SMALL_BYOL, data, tmp_path / "run")
    assert not (tmp_path / "run").exists()


CALLS = {
    "after_step": (BYOL, lambda self: None, "", "p, progress"),
    "project": (BYOL, lambda self, crops: None, "crops", "crops, roles"),
    "similarity": (BYOL, lambda q, t: None, "t", "q, t"),  # without self
    "outer": (LoGo, lambda self, l_s, p, chance: None, "l_s, p, chance", "l_s, p, chance, theta_e"),
    "inner": (LoGo, lambda self, z_l: None, "z_l", "z_l, chance"),
    "draw": (LoGo, lambda self, n, generator, *, seed: None, r"n, generator, \*, seed", "n_images, generator"),
}


@pytest.mark.parametrize("method", CALLS)
def test_a_method_that_cannot_take_what_it_is_given_is_told_with_the_cure(method, data, tmp_path, monkeypatch):
    owner, wrong, takes, given = CALLS[method]
    monkeypatch.setattr(owner, method, wrong)
    sentence = (
        rf"{method} of {owner.__name__} takes \({takes}\), and is called with \({given}\); write `def {method}\(self, "
    )
    with pytest.raises(UserError, match=f"^{sentence}{given}\\)`\\.$"):
        train(SMALL_BYOL, data, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_state_that_a_step_moves_is_after_a_rehearsal_as_before(data, monkeypatch):
    module, called = build(SMALL.changed(framework__queue=8), load_data(data, 16)), []
    framework = module.framework
    framework.counter, framework.seen, framework.dice = 0, [], torch.Generator().manual_seed(1)
    move = type(framework).after_step

    def after_step(self, p, progress):
        move(self, p, progress)  # queue and momentum encoder
        self.counter += 1
        self.seen.append(p.t_g)
        called.append((self.queue.pushed.item(), torch.rand(1, generator=self.dice), torch.rand(1)))
        called.append((random.random(), np.random.rand()))

    def state():
        streams = (random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist())
        tensors = {name: value.tolist() for name, value in module.state_dict().items()}
        return tensors, framework.counter, framework.seen, framework.dice.get_state().tolist(), streams

    monkeypatch.setattr(type(framework), "after_step", after_step)
    module.strategy.seen, draw = 0, LoGo.draw

    def counted(self, *given):
        self.seen += 1
        return draw(self, *given)

    monkeypatch.setattr(LoGo, "draw", counted)
    with torch.no_grad():
        for weight in framework.encoder.parameters():
            weight.add_(0.1)  # so that there is something to follow
    before = state()
    refuse_broken_promises(module)
    assert called[0][0] > 0
    assert state() == before
    assert module.strategy.seen == 0


MISTAKEN = {
    "name": ("project", lambda *_: absent, NameError),  # noqa: F821
    "type": ("after_step", lambda self, p, progress: p.z_g + "x", TypeError),
}


@pytest.mark.parametrize(("method", "wrong", "error"), MISTAKEN.values(), ids=MISTAKEN)
def test_a_mistake_within_a_method_is_shown_where_it_is_before_anything_is_written(
    method, wrong, error, data, tmp_path, monkeypatch
):
    monkeypatch.setattr(BYOL, method, wrong)
    with pytest.raises(error) as shown:
        train(SMALL_BYOL, data, tmp_path / "run")
    assert shown.traceback[-1].path.name == "test_promises.py"
    assert not (tmp_path / "run").exists()


def test_a_part_that_cannot_be_copied_is_left_to_its_training(data, tmp_path):
    module = build(SMALL_BYOL, load_data(data, 16))
    with (tmp_path / "notes.txt").open("w") as notes:
        module.framework.notes = notes
        refuse_broken_promises(module)


@pytest.mark.parametrize(
    ("wrong", "error"), [(lambda *_: 1 + "x", TypeError), (lambda self, *_: self.absent, AttributeError)]
)
def test_a_mistake_within_a_part_is_shown_where_it_is(wrong, error, data, tmp_path, monkeypatch):
    monkeypatch.setattr(BYOLConfig, "build", wrong)
    with pytest.raises(error, match=r"unsupported operand|absent"):
        train(SMALL_BYOL, data, tmp_path / "run")
