"""One contract for every framework x strategy x batch: what Algorithm 1 needs of them, and what they may not do."""

from copy import deepcopy

import pytest
import torch
from safetensors.torch import load_file

from logo_ssl.augment import CropPlan
from logo_ssl.data import ImageSet, Split
from logo_ssl.frameworks import (
    FRAMEWORKS,
    BarlowTwinsConfig,
    BYOLConfig,
    DINOConfig,
    DistilConfig,
    MoCoConfig,
    NNCLRConfig,
    SimCLRConfig,
    SimSiamConfig,
    SupervisedConfig,
    SwAVConfig,
    VICRegConfig,
)
from logo_ssl.recipes import OptimiserConfig, Recipe, check
from logo_ssl.run import Run
from logo_ssl.strategies import STRATEGIES, StrategyTraits
from logo_ssl.train import build
from logo_ssl.train.pretrain import save_encoder
from logo_ssl.types import Crops

CONFIGS = {
    "moco": MoCoConfig(dim=8, queue=13, splits=2),
    "simsiam": SimSiamConfig(dim=8, hidden=4, layers=2),
    "byol": BYOLConfig(dim=8, hidden=16),
    "simclr": SimCLRConfig(dim=8),
    "nnclr": NNCLRConfig(dim=8, hidden=16, queue=13),
    "swav": SwAVConfig(dim=8, hidden=16, prototypes=5, queue=13),
    "dino": DINOConfig(dim=8, hidden=16, out_dim=5, tau_t=0.07),
    "vicreg": VICRegConfig(dim=8),
    "barlow-twins": BarlowTwinsConfig(dim=8),
    "distil": DistilConfig("random/tiny", dim=8, hidden=16, queue=13),
    "supervised": SupervisedConfig(dim=8),
}
BATCHES = (2, 3, 8)
WIDTHS = {"swav": 5, "dino": 5, "distil": 256}
"""Of queries and targets; elsewhere that of the latents, 8."""
LEARN_FROM_BOTH_SIDES = {"simclr", "vicreg", "barlow-twins"}  # what holds latents apart looks at both sides
OWN_STATE = ("momentum_encoder.", "momentum_prototypes.", "queue.", "prototypes.frozen", "centre", "tau_t")
PREDICT = {"simsiam", "byol", "nnclr", "distil"}
STATISTICS = ("running_mean", "running_var", "num_batches_tracked")


def test_every_framework_is_under_contract():
    assert CONFIGS.keys() == FRAMEWORKS.keys()


def make(framework: str, strategy: str, batch: int, backbone: str = "tiny", side: int = 16):
    """A small Pretraining module in float64 and a batch of crops."""
    n_local = 2 if StrategyTraits.of(STRATEGIES[strategy]).least_local else 0
    recipe = Recipe(
        "contract",
        backbone=backbone,
        stem="cifar" if backbone == "tiny" else "imagenet",
        batch_size=batch,
        framework=CONFIGS[framework],
        strategy=STRATEGIES[strategy](),
        crops=CropPlan(n_local=n_local, global_size=side, local_size=side // 2),
        optimiser=OptimiserConfig(),
    )
    check(recipe)
    data = ImageSet("noise", Split(torch.randint(0, 256, (16, 3, side, side), dtype=torch.uint8)))
    torch.manual_seed(1)
    x_g, x_l = (torch.randn(n, batch, 3, s, s).double() for n, s in ((2, side), (n_local, side // 2)))
    crops = Crops(x_g, x_l, labels=torch.arange(batch) % 8)
    return build(recipe, data).double(), crops


def state(framework):
    """Everything but batch-norm statistics, which move with every forward pass."""
    return {name: x.clone() for name, x in framework.state_dict().items() if not name.endswith(STATISTICS)}


def moved(framework, before):
    """The names of what has changed."""
    return {name for name, x in state(framework).items() if not torch.equal(x, before[name])}


every_case = pytest.mark.parametrize(
    ("framework", "strategy", "batch", "network"),
    [
        *((f, s, b, ("tiny", 16)) for f in FRAMEWORKS for s in STRATEGIES for b in BATCHES),
        ("dino", "logo", 3, ("timm/test_vit", 32)),
    ],
)


@every_case
def test_contract(framework, strategy, batch, network, generator):
    module, crops = make(framework, strategy, batch, *network)
    f, s = module.framework, module.strategy
    mirrored = crops._replace(x_g=crops.x_g.flip(-1), x_l=crops.x_l.flip(-1))
    f.after_step(f.project(mirrored, s.roles), progress=0.0)  # a queue is empty before the first step
    trained = {name: q for name, q in f.named_parameters() if q.requires_grad}
    with torch.no_grad():
        for q in trained.values():
            q.add_(0.01)  # as an optimiser would, so that there is something to follow
    before_the_step = state(f)
    p = f.project(crops, s.roles)

    # Shapes and finiteness.
    width = WIDTHS.get(framework, 8)
    assert p.q_g.shape == (len(s.roles.queries), batch, width)
    assert p.t_g.shape == (len(s.roles.targets), batch, width)
    assert p.q_l.shape == (len(crops.x_l), batch, width)
    assert p.z_l.shape == (len(crops.x_l), batch, 8)
    assert all(torch.isfinite(part).all() for part in p if part is not None)

    # Queries learn; targets are constants, save where a framework says otherwise.
    assert p.q_g.requires_grad
    assert p.t_g.requires_grad == (framework in LEARN_FROM_BOTH_SIDES)

    # The similarity loss is pure: asked twice it answers the same, and changes nothing.
    before = deepcopy(f.state_dict())
    first, second = (f.similarity(p.q_g[0], p.t_g[-1]) for _ in range(2))
    torch.testing.assert_close(first, second, rtol=0, atol=0)
    assert first.shape == (batch,)
    assert all(torch.equal(value, before[name]) for name, value in f.state_dict().items())

    # The inner problem moves theta_d alone, the outer one theta_e alone.
    chance = s.draw(batch, generator)
    inner = s.inner(p, chance)
    if inner is not None:
        inner.loss.backward()
        assert all(q.grad is None for q in f.parameters())
        assert all(q.grad is not None for q in s.parameters())
        s.zero_grad(set_to_none=True)
    outer = s.outer(f.similarity, p, chance)
    assert outer.loss.shape == ()
    assert torch.isfinite(outer.loss)
    outer.loss.backward()
    assert all(q.grad is None for q in s.parameters())
    assert all(q.grad is not None for q in trained.values())
    assert not any(name.startswith("momentum_encoder") for name in trained)
    if batch > 2:  # two samples normalise to +-1 wherever they are: a zero gradient is right there
        assert sum(q.grad.abs().sum() for q in trained.values()) > 0

    # The framework's own state moves after the step, and only there; nothing that learns by gradients moves with it.
    assert moved(f, before_the_step) == set()
    f.after_step(p, progress=0.5)
    own = (*OWN_STATE, "prototypes.weight") if framework == "swav" else OWN_STATE  # unit vectors again
    assert moved(f, before_the_step) == {name for name in before_the_step if name.startswith(own)}


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_losses_get_32_bits_from_a_forward_pass_of_16(framework):
    module, crops = make(framework, "logo", 4)
    crops = crops._replace(x_g=crops.x_g.float(), x_l=crops.x_l.float())
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        p = module.float().framework.project(crops, module.strategy.roles)
    assert {part.dtype for part in p if part is not None} == {torch.float32}


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_stacking_crops_of_one_size_changes_nothing(framework):
    module, crops = make(framework, "logo", 8)
    same_size = Crops(crops.x_g, crops.x_g.flip(0).contiguous())
    encoder = module.framework.encoder
    z_g, z_l = encoder.encode(same_size.x_g, same_size.x_l)
    torch.testing.assert_close(z_g, encoder(same_size.x_g))
    torch.testing.assert_close(z_l, encoder(same_size.x_l))


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_changing_one_crop_leaves_the_latents_of_the_others_alone(framework):
    module, crops = make(framework, "logo", 8)
    encoder = module.framework.encoder
    changed = crops.x_g.clone()
    changed[1] += 1.0
    torch.testing.assert_close(encoder(crops.x_g)[0], encoder(changed)[0])


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_a_run_keeps_the_projector_and_where_there_are_any_the_predictor_and_the_regressor(
    framework, strategy, tmp_path
):
    module, _ = make(framework, strategy, 4)
    save_encoder(Run(tmp_path), module)
    kept = {name.split(".")[0] for name in load_file(Run(tmp_path).heads_file)}
    assert "projector" in kept
    assert ("h" in kept, "regressor" in kept) == (framework in PREDICT, strategy == "logo")
    assert kept <= {"projector", "h", "regressor", *(["framework"] if framework in WIDTHS else [])}
