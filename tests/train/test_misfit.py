"""Is a backbone refused, before anything is written, that gets the crops wrong where it is trained?"""

from dataclasses import replace
from itertools import product

import pytest
import torch
import torch.nn.functional as F
from small_runs import SMALL, train
from torch import nn

from logo_ssl.data import load_data
from logo_ssl.errors import UserError
from logo_ssl.models import FAMILIES
from logo_ssl.train import build
from logo_ssl.train.misfit import is_garbled, refuse_misfit

CPU, CUDA = torch.device("cpu"), torch.device("cuda")


def test_bf16_on_a_cpu_is_refused_for_crops_that_shrink_to_less_than_a_stride(data, tmp_path):
    crops = replace(SMALL.crops, local_size=8)
    sentence = r"^precision is bf16, .* where tiny convolves maps of 1 px, as of a crop of 8 px; use precision fp32"
    with pytest.raises(UserError, match=sentence):
        train(SMALL, data, tmp_path / "run", precision="bf16", device="cpu", crops=crops)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("precision", "local_size", "device", "refused"),
    [("bf16", 8, CPU, True), ("bf16", 8, CUDA, False), ("bf16", 16, CPU, False), ("fp32", 8, CPU, False)],
)
def test_what_is_right_elsewhere_is_not_refused_there(data, precision, local_size, device, refused):
    recipe = replace(SMALL, precision=precision, crops=replace(SMALL.crops, local_size=local_size))
    images = load_data(data, 16)
    module = build(recipe, images)
    if refused:
        with pytest.raises(UserError, match="use precision fp32, or larger crops"):
            refuse_misfit(module, images.channels, device)
    else:
        refuse_misfit(module, images.channels, device)
        assert not any(part._forward_pre_hooks for part in module.modules())


@pytest.mark.parametrize(
    ("net", "given"),
    [
        (nn.Sequential(nn.Conv2d(3, 8, 3, 2), nn.AdaptiveAvgPool2d(1)), r"\(1, 8, 1, 1\)"),
        (nn.Sequential(nn.AdaptiveAvgPool2d(2), nn.Flatten()), r"\(1, 12\)"),
    ],
    ids=["maps", "another width"],
)
def test_a_backbone_that_gives_no_features_of_its_width_is_refused(net, given, data, tmp_path, monkeypatch):
    monkeypatch.setitem(FAMILIES, "mine", lambda channels, stem: (net, 8))
    with pytest.raises(UserError, match=rf"^Backbone mine gives features of shape {given} for 1 .*; give \(1, 8\)"):
        train(SMALL, data, tmp_path / "run", backbone="mine")
    assert not (tmp_path / "run").exists()


def test_a_cpu_gets_bf16_gradients_right_wherever_it_is_trusted(generator):
    trusted = 0
    for side, kernel, stride, groups in product((1, 2, 3, 4), (1, 3, 5, 7), (1, 2, 3), (1, 128)):
        conv = nn.Conv2d(128, 256, kernel, stride, kernel // 2, groups=groups)
        if is_garbled(conv, side):
            continue
        gradients, trusted = [], trusted + 1
        weight = conv.weight.detach().bfloat16()
        x = torch.randn(4, 128, side, side, generator=generator).bfloat16()
        for dtype in (torch.bfloat16, torch.float32):
            w = weight.to(dtype, copy=True).requires_grad_()
            torch.full_like(w, 5.0)  # what memory holds that is not written
            F.conv2d(x.to(dtype), w, None, stride, kernel // 2, groups=groups).sum().backward()
            gradients.append(w.grad.float())
        torch.testing.assert_close(*gradients, rtol=0.02, atol=0.1)
    assert trusted == 83
