"""Optimisers (SGD, LARS, AdamW), and the learning rate as a pure function of the step: warm-up, then a cosine."""

import math
from collections.abc import Sequence
from typing import Any

import torch
from timm.models import group_parameters
from timm.optim import Lars
from torch import nn

from ..frameworks import Framework
from ..recipes import OptimiserConfig, Recipe


def learning_rate(config: OptimiserConfig, step: float, steps: int, warmup_steps: float) -> float:
    """eta_t: linear warm-up, then eta_min + (eta_max - eta_min)(1 + cos(t pi / T)) / 2."""
    if step < warmup_steps:
        return config.lr * min(1.0, (step + 1) / warmup_steps)
    return _cosine(config.lr, config.eta_min, (step - warmup_steps) / max(steps - warmup_steps, 1))


def _cosine(start: float, end: float, t: float) -> float:
    return end + 0.5 * (start - end) * (1 + math.cos(math.pi * t))


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


def weight_decay_at(recipe: Recipe, step: int, steps_per_epoch: int) -> float | None:
    """A recipe's weight decay at a step of its run; None where it stays the same."""
    config = recipe.optimiser
    if config.weight_decay_end is None:
        return None
    place, last = planned_step(recipe, step, steps_per_epoch)
    return _cosine(config.weight_decay, config.weight_decay_end, place / last)


def is_frozen(recipe: Recipe, step: int, steps_per_epoch: int) -> bool:
    """Whether a recipe's backbone stands still at a step of its run."""
    return planned_step(recipe, step, steps_per_epoch)[0] < recipe.optimiser.frozen_epochs * steps_per_epoch


class StartingWeights(nn.Module):
    """The weights that a backbone starts from, and L2-SP (Li et al., 2018), which leads it back to them.

    As AdamW's weight decay it is a step of its own, so that neither momentum nor Adam's scales change its strength.
    """

    def __init__(self, backbone: nn.Module) -> None:
        super().__init__()
        for i, theta in enumerate(backbone.parameters()):
            self.register_buffer(str(i), theta.detach().clone())  # so that checkpoints have them

    @torch.no_grad()
    def pull(self, backbone: nn.Module, share: float) -> None:
        """theta <- theta + share (theta_0 - theta)."""
        torch._foreach_lerp_(list(backbone.parameters()), list(self.buffers()), share)


def encoder_optimiser(
    config: OptimiserConfig, framework: Framework, others: Sequence[nn.Parameter] = ()
) -> torch.optim.Optimizer:
    """The optimiser of theta_e, h and others; groups marked `constant_lr` keep the peak rate.

    SGD decays everything, as MoCo and SimSiam do; LARS and AdamW spare biases, norms, and what timm names. Where the
    backbone learns otherwise than the heads, its groups are marked `backbone`.
    """
    constant = {id(p) for p in framework.constant_lr_parameters()}
    trained = [p for p in framework.parameters() if p.requires_grad] + list(others)
    backbone: Any = framework.encoder.backbone
    undecayed = getattr(backbone, "no_weight_decay", set)()  # timm's: position embeddings, class token
    spared = {id(p) for name, p in backbone.named_parameters() if name in undecayed}
    scales = _layer_scales(backbone, config.layer_decay) if config.layer_decay < 1 else {}
    apart = {id(p) for p in backbone.parameters()} if config.spares_backbone else set()
    members: dict[tuple[bool, bool, bool, float], list[nn.Parameter]] = {}
    for p in trained:
        is_spared = config.kind != "sgd" and (p.dim() <= 1 or id(p) in spared)
        is_spared |= config.pull > 0 and id(p) in apart
        scale = scales.get(id(p), 1.0) * (config.backbone_lr if id(p) in apart else 1.0)
        members.setdefault((id(p) in constant, is_spared, id(p) in apart, scale), []).append(p)
    groups = [
        {"params": part, "weight_decay": 0.0 if is_spared else config.weight_decay, "decays": not is_spared}
        | {"lr": scale * config.lr, "lr_scale": scale, "constant_lr": is_constant, "backbone": is_apart}
        for (is_constant, is_spared, is_apart, scale), part in sorted(members.items(), key=lambda item: item[0])
    ]
    match config.kind:
        case "sgd":
            optimiser = torch.optim.SGD(groups, lr=config.lr, momentum=config.momentum, fused=_fused(trained))
            if is_fused(optimiser):  # a first step that is left out would leave momentum that nobody wrote
                optimiser.state.update({p: {"momentum_buffer": torch.zeros_like(p)} for p in trained})
            return optimiser
        case "lars":
            return Lars(groups, lr=config.lr, momentum=config.momentum)  # type: ignore[arg-type] (timm says int)
        case "adamw":
            return torch.optim.AdamW(groups, lr=config.lr, fused=_fused(trained))


def set_learning_rate(
    optimiser: torch.optim.Optimizer,
    lr: float,
    constant: float = 0.0,
    weight_decay: float | None = None,
    *,
    frozen: bool = False,
) -> None:
    """Give every group its rate for the next step, and its weight decay if that changes.

    Groups marked `constant_lr` get the constant rate; groups of lower layers get a share of theirs, and the backbone's
    none while it is `frozen`.
    """
    for group in optimiser.param_groups:
        group["lr"] = (constant if group.get("constant_lr") else lr) * group.get("lr_scale", 1.0)
        if frozen and group.get("backbone"):
            group["lr"] = 0.0
        if weight_decay is not None and group["decays"]:
            group["weight_decay"] = weight_decay


def _layer_scales(backbone: Any, decay: float) -> dict[int, float]:
    """The share of the learning rate that each parameter of a timm network gets: its last layer all of it."""
    layers: Any = group_parameters(backbone, backbone.group_matcher(), reverse=True)
    last = max(layers.values())
    return {id(p): decay ** (last - layers[name]) for name, p in backbone.named_parameters()}


def is_fused(optimiser: torch.optim.Optimizer) -> bool:
    """Whether an optimiser is one kernel for all weights, which can leave out a step by itself (`found_inf`)."""
    # Not `defaults`: a run that began on a CPU has another value in its checkpoint.
    return all(group.get("fused") for group in optimiser.param_groups)


def _fused(parameters: list[nn.Parameter]) -> bool | None:
    return True if parameters[0].is_cuda else None
