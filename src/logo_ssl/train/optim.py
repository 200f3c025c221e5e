"""Optimisers (SGD, LARS, AdamW), and the learning rate as a pure function of the step: warm-up, then a cosine."""

import math
from collections.abc import Sequence
from typing import Any

import torch
from timm.optim import Lars
from torch import nn

from ..frameworks import Framework
from ..recipes import OptimiserConfig, Recipe


def learning_rate(config: OptimiserConfig, step: float, steps: int, warmup_steps: float) -> float:
    """eta_t: linear warm-up, then eta_min + (eta_max - eta_min)(1 + cos(t pi / T)) / 2."""
    if step < warmup_steps:
        return config.lr * min(1.0, (step + 1) / warmup_steps)
    t = (step - warmup_steps) / max(steps - warmup_steps, 1)
    return config.eta_min + 0.5 * (config.lr - config.eta_min) * (1 + math.cos(math.pi * t))


def rate_at(recipe: Recipe, step: int, steps_per_epoch: int) -> float:
    """A recipe's learning rate at a step of its run."""
    config = recipe.optimiser
    return learning_rate(config, *planned_step(recipe, step, steps_per_epoch), config.warmup_epochs * steps_per_epoch)


def planned_step(recipe: Recipe, step: int, steps_per_epoch: int) -> tuple[float, int]:
    """Where a step is in the plan that the run began with, and the steps of that plan.

    A run that was cut short goes through the rest of its plan faster: its rate decays from where it was to its end.
    """
    place, last = float(step), steps_per_epoch * recipe.epochs
    for cut, epochs in reversed(recipe.replans):
        planned = steps_per_epoch * epochs
        if place > cut:
            place = cut + (place - cut) * (planned - cut) / (last - cut)
        last = planned
    return place, last


def encoder_optimiser(
    config: OptimiserConfig, framework: Framework, others: Sequence[nn.Parameter] = ()
) -> torch.optim.Optimizer:
    """The optimiser of theta_e, h and others; groups marked `constant_lr` keep the peak rate."""
    constant = {id(p) for p in framework.constant_lr_parameters()}
    trained = [p for p in framework.parameters() if p.requires_grad] + list(others)
    groups: list[dict[str, Any]] = []
    for is_constant in (False, True):
        chosen = [p for p in trained if (id(p) in constant) == is_constant]
        for part in _decay_groups(chosen, config):
            groups.append(part | {"constant_lr": is_constant, "lr": config.lr})
    match config.kind:
        case "sgd":
            return torch.optim.SGD(groups, lr=config.lr, momentum=config.momentum, fused=_fused(trained))
        case "lars":
            return Lars(groups, lr=config.lr, momentum=config.momentum)  # type: ignore[arg-type] (timm says int)
        case "adamw":
            return torch.optim.AdamW(groups, lr=config.lr, fused=_fused(trained))


def set_learning_rate(optimiser: torch.optim.Optimizer, lr: float, constant: float = 0.0) -> None:
    """Give every group its rate for the next step; groups marked `constant_lr` get the constant one."""
    for group in optimiser.param_groups:
        group["lr"] = constant if group.get("constant_lr") else lr


def _decay_groups(parameters: list[nn.Parameter], config: OptimiserConfig) -> list[dict[str, Any]]:
    """SGD decays everything, as MoCo and SimSiam do; LARS and AdamW spare biases and norms."""
    if config.kind == "sgd":
        groups = [{"params": parameters, "weight_decay": config.weight_decay}]
    else:
        groups = [
            {"params": [p for p in parameters if p.dim() > 1], "weight_decay": config.weight_decay},
            {"params": [p for p in parameters if p.dim() <= 1], "weight_decay": 0.0},
        ]
    return [group for group in groups if group["params"]]


def _fused(parameters: list[nn.Parameter]) -> bool | None:
    return True if parameters[0].is_cuda else None
