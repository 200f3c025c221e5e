"""Encoders for the tests of their use."""

import torch
from torch import nn

import logo_ssl


def lived_in(source: str, **options) -> nn.Module:
    """An encoder with running statistics as after training."""
    encoder, generator = logo_ssl.load(source, **options), torch.Generator().manual_seed(3)
    for norm in encoder.modules():
        if isinstance(norm, nn.modules.batchnorm._BatchNorm):
            norm.running_mean.normal_(0, 0.1, generator=generator)
            norm.running_var.uniform_(0.5, 1.5, generator=generator)
    return encoder
