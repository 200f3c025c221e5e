"""A frozen teacher: its features are its own, it never changes, and a run goes on with the same one alone."""

import math

import pytest
import torch
import torchvision
from small_frameworks import small

from logo_ssl.augment import CropPlan
from logo_ssl.data import ImageSet, Split
from logo_ssl.encoders import load_encoder
from logo_ssl.errors import UserError
from logo_ssl.frameworks import DistilConfig
from logo_ssl.models import Teacher
from logo_ssl.recipes import OptimiserConfig, Recipe
from logo_ssl.strategies import TwoViewConfig
from logo_ssl.train import build
from logo_ssl.train.optim import encoder_optimiser

LOOKS, OTHERS = ((0.4, 0.5, 0.6), (0.2, 0.3, 0.1)), ((0.1, 0.2, 0.3), (0.5, 0.6, 0.7))


def teacher(n_features=5, fingerprint="ab" * 32):
    network = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3 * 16, n_features), torch.nn.Dropout())
    return Teacher("somewhere", network, n_features, LOOKS, OTHERS, fingerprint)


def recipe(source, side=32, **changes):
    return Recipe(
        "distil",
        backbone="tiny",
        framework=DistilConfig(source, dim=8, hidden=16, queue=4),
        strategy=TwoViewConfig(),
        crops=CropPlan(n_local=0, global_size=side),
    ).changed(**changes)


def noise(channels=3):
    return ImageSet("noise", Split(torch.randint(0, 256, (16, channels, 32, 32), dtype=torch.uint8)))


@pytest.mark.parametrize("pushed", [0, 2, 4, 7])
def test_the_loss_is_a_cosine_and_a_cross_entropy_of_similarities(random, pushed):
    framework = small(
        DistilConfig("somewhere", dim=8, hidden=16, queue=4, cosine=0.7, relational=1.3, tau=0.3, tau_t=0.2)
    )
    framework.take_teacher(teacher())
    q, t, earlier = 3 * random(6, 5), 2 * random(6, 5), random(7, 5)
    framework.double()
    for key in earlier[:pushed]:
        framework.queue.push(key[None])
    known = [key / key.norm() for key in earlier[max(0, pushed - 4) : pushed]]
    centre = sum(known, torch.zeros(5).double()) / max(1, len(known))
    for asked, answered, loss in zip(q, t, framework.similarity(q, t), strict=True):
        asked, answered = asked / asked.norm(), answered / answered.norm() - centre
        answered = answered / answered.norm()
        others = [answered, *((key - centre) / (key - centre).norm() for key in known)]
        exps = [math.exp(float(answered @ other) / 0.2) for other in others]
        chances = [math.exp(float(asked @ other) / 0.3) for other in others]
        entropy = -sum(e / sum(exps) * math.log(c / sum(chances)) for e, c in zip(exps, chances, strict=True))
        assert loss.item() == pytest.approx(1.3 * entropy - 0.7 * float(asked @ answered), rel=1e-12)


@pytest.mark.parametrize(("source", "side"), [("random/tiny", 20), ("random/timm/test_vit", 48), ("r18.pth", 32)])
def test_a_teacher_answers_as_it_does_alone_whatever_its_size_and_its_students_normalisation(
    source, side, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    torch.save(torchvision.models.resnet18().state_dict(), "r18.pth")
    module = build(recipe(source, side), noise())
    pixels = torch.rand(4, 3, side, side)
    shown = (pixels - torch.tensor(module.mean)[:, None, None]) / torch.tensor(module.std)[:, None, None]
    alone = load_encoder(source, size=side)
    own = (pixels - torch.tensor(alone.mean)[:, None, None]) / torch.tensor(alone.std)[:, None, None]
    torch.testing.assert_close(module.framework.train().teacher(shown), alone.backbone(own), rtol=1e-3, atol=1e-4)


def test_a_teacher_never_trains_and_checkpoints_hold_its_fingerprint_alone():
    framework = small(DistilConfig("somewhere", dim=8, hidden=16, queue=4))
    framework.take_teacher(teacher())
    framework.train()
    assert not framework.teacher.network.training
    state, x = framework.state_dict(), torch.rand(2, 3, 4, 4)
    held = {name for name in state if name.startswith("teacher.")}
    assert held == {"teacher.fingerprint", "teacher.scale", "teacher.shift"}
    optimiser = encoder_optimiser(OptimiserConfig(), framework)
    learning = {id(parameter) for group in optimiser.param_groups for parameter in group["params"]}
    assert learning.isdisjoint(map(id, framework.teacher.parameters()))
    before = framework.float().teacher(x)
    framework.load_state_dict(state)
    torch.testing.assert_close(framework.teacher(x), before, rtol=0, atol=0)
    with pytest.raises(UserError, match=r"framework\.teacher=somewhere"):
        framework.load_state_dict(state | {"teacher.fingerprint": torch.zeros(32, dtype=torch.uint8)})


@pytest.mark.parametrize(("strategy", "n_local"), [("two-view", 0), ("multi-crop", 2), ("logo", 3)])
@pytest.mark.parametrize("n_global", [1, 3])
def test_the_teacher_answers_about_the_very_crop_and_pairs_weigh_as_ever(strategy, n_local, n_global):
    settings = {"crops__n_global": n_global, "crops__n_local": n_local}
    made = build(recipe("random/tiny", 16, strategy=strategy, **settings), noise()).strategy
    assert made.roles.pairs == tuple((crop, crop) for crop in range(n_global))
    assert 1 / made.weight == made.n_gg + made.n_lg == n_global * (1 + n_local)


@pytest.mark.parametrize(
    ("source", "channels", "side", "said"),
    [("nowhere", 3, 32, "nowhere"), ("random/tiny", 1, 32, "3 channels"), ("random/timm/test_vit", 3, 8, "8 px")],
)
def test_a_teacher_that_cannot_serve_is_refused_by_name(source, channels, side, said):
    with pytest.raises(UserError, match=rf"^framework\.teacher={source}: .*{said}"):
        build(recipe(source, side), noise(channels))
