"""Encoders for the tests of their use, and for benchmarks/round_trip.py."""

from pathlib import Path
from typing import Any

import torch
from torch import nn

import logo_ssl
from logo_ssl.data import ImageSet
from logo_ssl.recipes import find_recipe
from logo_ssl.run import Run
from logo_ssl.train import build
from logo_ssl.train.pretrain import save_encoder


def lived_in(source: str, **options) -> nn.Module:
    """An encoder with running statistics as after training."""
    encoder = logo_ssl.load(source, **options)
    draw_statistics(encoder)
    return encoder


def draw_statistics(network: nn.Module) -> None:
    """Running statistics as after training, for every batch norm."""
    generator = torch.Generator().manual_seed(3)
    for norm in network.modules():
        if isinstance(getattr(norm, "running_mean", None), torch.Tensor):
            norm.running_mean.normal_(0, 0.1, generator=generator)
            norm.running_var.uniform_(0.5, 1.5, generator=generator)


def untrained_run(folder: Path, images: ImageSet, **changes) -> Run:
    """A run whose encoder has learned nothing, but has running statistics."""
    recipe, run = find_recipe("tiny").changed(**changes), Run(folder)
    module = build(recipe, images)
    draw_statistics(module.framework.encoder)
    save_encoder(run, module)
    run.recipe_file.write_text(recipe.to_json())
    return run


def executed(snippet: str) -> dict[str, Any]:
    """What the printed lines define, `encoder` among it; they need nothing but themselves."""
    names: dict[str, Any] = {}
    exec(snippet, names)
    assert len(names["features"]) == len(names["images"])
    return names
