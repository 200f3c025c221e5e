"""Is a backbone refused, before anything is written, that gets the crops wrong where it is trained?"""

from dataclasses import replace
from itertools import product

import torch
import torch.nn.functional as F
from small_runs import SMALL
from torch import nn

from logo_ssl.data import load_data
from logo_ssl.train import build
from logo_ssl.train.build import check_bf16_on_cpu, is_garbled

CPU, CUDA = torch.device("cpu"), torch.device("cuda")


def test_larger_crops_in_bf16_are_not_refused(data):
    recipe = replace(SMALL, precision="bf16", crops=replace(SMALL.crops, local_size=16))
    module = build(recipe, load_data(data, 16))
    check_bf16_on_cpu(module)
    assert not any(part._forward_pre_hooks for part in module.modules())


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
