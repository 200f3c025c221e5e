"""A strategy of one's own: what it sees, what of it is trained, its registries, Python that a recorded step skips."""

from dataclasses import dataclass
from typing import ClassVar

import lightning as L
import pytest
import torch
from small_runs import SMALL, train
from torch import nn

from logo_ssl.augment.draws import LAYOUTS, draw_boxes
from logo_ssl.equations import local_affinities
from logo_ssl.frameworks.moco import MoCo
from logo_ssl.strategies import STRATEGIES, LoGo, LoGoConfig, MultiCrop, MultiCropConfig
from logo_ssl.strategies.logo import AFFINITIES
from logo_ssl.train.compile import changed_names, python_state
from logo_ssl.weights import load


@dataclass(frozen=True)
class ProbeConfig(LoGoConfig):
    """LoGo that asks for everything."""

    uses_features: ClassVar[bool] = True
    uses_parameters: ClassVar[bool] = True
    uses_feature_maps: ClassVar[str] = "8"

    def build(self, n_global, n_local, dim):
        return Probe(self, n_global, n_local, dim)


class Probe(LoGo):
    """A push by features and boxes, with a scale that `outer` trains and a buffer that `after_step` counts in."""

    def __init__(self, *settings):
        super().__init__(*settings)
        self.scale = nn.Parameter(torch.tensor(2.0))
        self.register_buffer("steps", torch.tensor(0))
        self.seen = []

    def push(self, p, randomness):
        self.seen.append((float(p.progress), *(tuple(part.shape) for part in p[6:-1])))
        assert not torch.equal(p.parameters_l[0], p.parameters_l[1])
        pushed = local_affinities(self.affinity, p.z_l, randomness.outer_partner).mean()
        return self.scale * pushed + p.features_l.square().mean()

    def after_step(self, p, progress):
        self.steps += 1


class Counter(L.Callback):
    """Counts what a diagnosis would look at."""

    def __init__(self):
        self.strategies, self.batches = set(), 0

    def on_train_batch_end(self, trainer, pl_module, *_):
        self.strategies.add(pl_module.strategy)
        self.batches += 1


@pytest.fixture
def probe(monkeypatch):
    monkeypatch.setitem(STRATEGIES, "probe", ProbeConfig)


def test_a_strategy_sees_boxes_features_and_progress_and_what_it_has_is_trained(data, tmp_path, probe):
    counter = Counter()
    run, _ = train(SMALL, data, tmp_path / "run", strategy="probe", epochs=2, callbacks=[counter])
    state = load(run.saved()[0])["state_dict"]
    (strategy,) = counter.strategies
    n = counter.batches
    assert state["strategy.steps"] == n
    assert state["strategy.scale"] != 2.0
    progress, shapes = [seen[0] for seen in strategy.seen], {seen[1:] for seen in strategy.seen}
    assert progress == pytest.approx([step / n for step in range(n)])
    batch, width = SMALL.batch_size, 256
    vectors = ((2, batch, width), (2, batch, width), (2, batch, 9), (2, batch, 9))
    assert shapes == {(*vectors, (2, batch, 128, 2, 2), (2, batch, 128, 1, 1))}


def test_a_framework_hands_more_to_a_strategy(data, tmp_path, monkeypatch):
    project, seen = MoCo.project, []
    monkeypatch.setattr(MoCo, "project", lambda *given: project(*given)._replace(extra={"classes": 3}))
    monkeypatch.setattr(MultiCrop, "inner", lambda self, p, randomness: seen.append(p.extra))
    train(SMALL.with_part("strategy", MultiCropConfig()), data, tmp_path / "run", epochs=1)
    assert seen == [{"classes": 3}] * len(seen) != []


def test_its_push_reaches_the_encoder_and_leaves_the_regressor_to_its_own_step(data, tmp_path, probe):
    steps = {}
    for inner in (1, 3):
        run, _ = train(SMALL, data, tmp_path / f"{inner}", strategy="probe", strategy__inner_steps=inner, epochs=1)
        steps[inner] = load(run.saved()[0])["state_dict"]
    names = [name for name in steps[1] if name.startswith("strategy.regressor") and "weight" in name]
    assert names
    assert not any(torch.equal(steps[1][name], steps[3][name]) for name in names)


@pytest.mark.parametrize("inner", ["sgd", "adam"])
def test_the_inner_optimiser_is_chosen(data, tmp_path, inner):
    run, _ = train(SMALL, data, tmp_path / "run", strategy__inner_optimiser=inner, epochs=1)
    (state,) = load(run.saved()[0])["optimizer_states"][1:]
    assert ("exp_avg" in state["state"][0]) == (inner == "adam")


def test_affinities_and_places_of_crops_are_registries(data, tmp_path, monkeypatch):
    calls = []

    def corners(n, image_size, scale, ratio, generator, part):
        calls.append(n)
        boxes = draw_boxes(n, image_size, scale, ratio, generator, part)
        boxes[:, :2] = 0
        return boxes

    monkeypatch.setitem(AFFINITIES, "dot", lambda z_1, z_2: (z_1 * z_2).sum(dim=-1))
    monkeypatch.setitem(LAYOUTS, "corners", corners)
    changes = {"strategy__affinity": "dot", "crops__layout": "corners"}
    run, _ = train(SMALL, data, tmp_path / "run", epochs=1, **changes)
    assert set(calls) == {2 * SMALL.batch_size}
    assert not any(line.get("omega") for line in run.metrics())  # nothing is learned


def test_python_that_changes_in_a_step_is_named():
    class Warming(nn.Module):
        def __init__(self):
            super().__init__()
            self.t, self.config = 0, object()

    part = nn.Sequential(Warming())
    before = python_state([part])
    assert changed_names(before, python_state([part])) == []
    part[0].t += 1
    assert changed_names(before, python_state([part])) == ["Warming.t"]


@pytest.mark.parametrize(
    "device",
    [
        "cpu",
        pytest.param(
            "cuda",
            marks=[pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")],
        ),
    ],
)
def test_a_warm_up_of_lambda_follows_training_also_in_a_recorded_step(data, tmp_path, monkeypatch, device):
    class Warm(LoGo):
        def __init__(self, *settings):
            super().__init__(*settings)
            self.register_buffer("seen", torch.zeros(64))

        def lam(self, p):
            lam = self.config.lam * (p.progress / 0.5).clamp(max=1)
            self.seen.copy_(torch.cat([self.seen[1:], lam.view(1)]))  # recorded, as Python is not
            return lam

    monkeypatch.setattr(LoGoConfig, "build", lambda config, *given: Warm(config, *given))
    run, _ = train(SMALL, data, tmp_path / "run", epochs=8, device=device, compile="auto", strategy__lam=0.2)
    seen = load(run.saved()[0])["state_dict"]["strategy.seen"]
    n = run.newest_step()
    assert n > 10
    expected = torch.tensor([0.2 * min(1.0, 2 * step / n) for step in range(n)])
    torch.testing.assert_close(seen[-n:], expected)
