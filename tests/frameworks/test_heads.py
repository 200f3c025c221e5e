"""Which layers sit on the backbone? Those of each framework's own paper, in its order and width."""

import pytest
from small_frameworks import N_FEATURES as F
from small_frameworks import small
from torch import nn

from logo_ssl.frameworks import BYOLConfig, MoCoConfig, SimCLRConfig, SimSiamConfig
from logo_ssl.models import BatchNorm

LINEAR = ["Linear"]
PLAIN = ["Linear", "ReLU", "Linear"]
NORMED = ["Linear", "BatchNorm", "ReLU", "Linear"]
HIDDEN = ["Linear", "BatchNorm", "ReLU"]


def layers(head: nn.Module) -> list[str]:
    return [type(layer).__name__ for layer in head.children()]


def widths(head: nn.Module) -> list[tuple[int, int]]:
    return [(layer.in_features, layer.out_features) for layer in head.children() if isinstance(layer, nn.Linear)]


@pytest.mark.parametrize(
    ("config", "expected", "sizes"),
    [
        (MoCoConfig(dim=8, queue=4, head="linear"), LINEAR, [(F, 8)]),
        (MoCoConfig(dim=8, queue=4, head="mlp"), PLAIN, [(F, F), (F, 8)]),
        (MoCoConfig(dim=8, queue=4, head="mlp-bn"), NORMED, [(F, F), (F, 8)]),
        (SimSiamConfig(dim=8, layers=2), [*HIDDEN, "Linear", "BatchNorm"], [(F, 8), (8, 8)]),
        (SimSiamConfig(dim=8, layers=3), [*HIDDEN, *HIDDEN, "Linear", "BatchNorm"], [(F, 8), (8, 8), (8, 8)]),
        (BYOLConfig(dim=8, hidden=16), NORMED, [(F, 16), (16, 8)]),
        (SimCLRConfig(dim=8), NORMED, [(F, F), (F, 8)]),
        (SimCLRConfig(dim=8, last_norm=True), [*NORMED, "BatchNorm"], [(F, F), (F, 8)]),
        (MoCoConfig(dim=8, queue=4, head="mlp-bn", last_norm=True), [*NORMED, "BatchNorm"], [(F, F), (F, 8)]),
    ],
    ids=[
        "moco linear",
        "moco mlp",
        "moco mlp-bn",
        "simsiam 2",
        "simsiam 3",
        "byol",
        "simclr",
        "simclr, last norm",
        "moco, last norm",
    ],
)
def test_the_projector_has_these_layers(config, expected, sizes):
    framework = small(config)
    answering = getattr(framework, "momentum_encoder", framework.encoder)
    for encoder in (framework.encoder, answering):
        assert layers(encoder.projector) == expected
        assert widths(encoder.projector) == sizes


@pytest.mark.parametrize(
    "config", [SimSiamConfig(dim=8, hidden=4), BYOLConfig(dim=8, hidden=4)], ids=["simsiam", "byol"]
)
def test_the_predictor_has_a_hidden_layer_and_an_output_without_norm(config):
    h = small(config).h
    assert layers(h) == NORMED
    assert widths(h) == [(8, 4), (4, 8)]


def test_simsiams_last_norm_has_no_affine():
    (*_, last) = small(SimSiamConfig(dim=8)).encoder.projector.children()
    assert isinstance(last, BatchNorm)
    assert list(last.parameters()) == []
