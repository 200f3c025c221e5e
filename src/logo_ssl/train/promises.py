"""Do a framework and a strategy keep what others rely on? Looked at once, before a run begins: some are not ours."""

from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from inspect import isfunction, signature
from itertools import count
from typing import Any

import torch
from torch import Tensor, nn

from ..calling import about_call
from ..errors import UserError, nearest
from ..frameworks import Framework
from ..randomness import global_streams, set_global_streams
from ..ranks import rehearsed
from ..strategies import Strategy
from ..types import Crops, Objective, Projections
from .module import Pretraining

MISTAKES = (NameError, TypeError)
"""Whatever the images: the first step of a training would end in them, too. (Attributes may be what a copy lacks.)"""
NO_GRADIENT = "element 0 of tensors does not require grad"
"""What torch says of a loss without a gradient, where a strategy measures gradients itself."""


def refuse_broken_promises(module: Pretraining) -> None:
    """Rehearse a step on some grey images, with copies, and refuse what training could not use or would misread.

    A mistake in somebody's own part is shown where it is, as training would show it, before anything is written.
    """
    with _streams_put_back(module.device), rehearsed():
        try:
            sentence = next(_broken(module), None)
        except MISTAKES:
            raise
        except Exception:  # may be for want of images or colours: if not, training tells, with batches of its own
            return
    if sentence is not None:
        raise UserError(sentence)


def refuse_unknown_heads(module: Pretraining) -> None:
    """Refuse names in `kept` of which there is nothing: what they were to name would be lost with the run."""
    for kind, part in (("framework", module.framework), ("strategy", module.strategy)):
        known = _parts(part)
        for head in part.kept:
            if head not in known and not _may_be_absent(part, head):
                raise UserError(
                    f"kept of {kind} {module.recipe.kind(kind)} names {head!r}, and it has no network, parameter or "
                    f"buffer of that name; correct or remove it.{nearest(head, known)}"
                )


def _parts(part: nn.Module) -> list[str]:
    """The names of whatever a run can keep of it."""
    named = (part.named_modules(), part.named_parameters(), part.named_buffers())
    return [name for found in named for name, _ in found if name]


def _may_be_absent(part: nn.Module, head: str) -> bool:
    """Whether it is a predictor, which not all have, or was left out on purpose: its name stands for None."""
    return (isinstance(part, Framework) and head in Framework.kept) or getattr(part, head, part) is None


@contextmanager
def _streams_put_back(device: torch.device) -> Iterator[None]:
    """Undo what is drawn meanwhile from the streams that libraries share."""
    before = global_streams(device)
    try:
        yield
    finally:
        set_global_streams(before, device)


def _broken(module: Pretraining) -> Iterator[str]:
    """Sentences about what copies of framework and strategy take, and what they give for a few images."""
    yield from _of_calls(module.framework, Framework)
    yield from _of_calls(module.strategy, Strategy)
    try:
        framework, strategy, recipe = deepcopy(module.framework), deepcopy(module.strategy), module.recipe
    except Exception:  # what cannot be copied, such as an open file, cannot be tried without a trace
        return
    crops = _few_crops(module)
    n_images, of_framework = crops.x_g.shape[1], f"of framework {recipe.kind('framework')}"
    p = framework.project(crops, strategy.roles)
    yield from _of_projections(p, crops, strategy, recipe.framework.dim, f"project {of_framework}")
    losses = framework.similarity(p.q_g[0], p.t_g[0])
    if _shape(losses) != (n_images,):
        given = _told(losses) if _shape(losses) else "a single number"
        yield (
            f"The similarity {of_framework} gives {given} for {n_images} images; give one loss for each image, of "
            f"shape ({n_images},), without a mean over the batch."
        )
    chance, of_strategy = module.made_up_chance(n_images, strategy), f"of strategy {recipe.kind('strategy')}"
    inner = strategy.inner(p.z_l.detach(), chance)
    if inner is not None:
        yield from _of_objective(inner, f"inner {of_strategy}")
        if not inner.loss.requires_grad:
            yield _no_gradient(f"inner {of_strategy}")
    theta_e = [theta for theta in framework.encoder.parameters() if theta.requires_grad]
    try:
        outer = strategy.outer(framework.similarity, p, chance, theta_e)
    except RuntimeError as error:
        if NO_GRADIENT not in str(error):
            raise
        yield _no_gradient(_who_lost_it(framework, p, of_framework) or f"outer {of_strategy}")
        return
    yield from _of_objective(outer, f"outer {of_strategy}")
    if not outer.loss.requires_grad and module.augself is None:  # which adds what can be learned from
        yield _no_gradient(_who_lost_it(framework, p, of_framework) or f"outer {of_strategy}")
    framework.after_step(Projections(*(x.detach() for x in p)), 0.0)


def _of_calls(part: nn.Module, base: type[nn.Module]) -> Iterator[str]:
    """Whether its methods take what those of the base take, by which they are called."""
    for name, ours in vars(base).items():
        if isfunction(ours) and not name.startswith("_"):
            _, *given = signature(ours).parameters
            if sentence := about_call(part, name, given):
                yield sentence


def _few_crops(module: Pretraining) -> Crops:
    """Grey crops of as many images as there is nothing else, so that no other length passes for it; all small."""
    plan, roles = module.recipe.crops, module.strategy.roles
    others = {plan.n_global, plan.n_local, len(roles.queries), len(roles.targets), module.recipe.framework.dim}
    crops = module.made_up_crops(next(n for n in count(2) if n not in others))
    side = plan.local_size if plan.n_local else plan.global_size
    return crops._replace(x_g=crops.x_g[..., :side, :side])  # what costs time on a large network


def _of_projections(p: Any, crops: Crops, strategy: Strategy, dim: int, who: str) -> Iterator[str]:
    """Whether there is a row for each crop that was asked for, in it one for each image, and in that the latent."""
    if not isinstance(p, Projections):
        yield f"{who} gives {_told(p)}; give Projections(z_g, z_l, q_g, q_l, t_g)."
    (n_global, n_images), n_local, roles = crops.x_g.shape[:2], len(crops.x_l), strategy.roles
    width = _shape(p.q_g)[-1:] or (dim,)  # of what is compared, which need not be the latent
    encoded = len(roles.queries) if _shape(p.z_g)[:1] == (len(roles.queries),) else n_global
    wanted = {
        "z_g": (encoded, n_images, dim),
        "q_g": (len(roles.queries), n_images, *width),
        "t_g": (len(roles.targets), n_images, *width),
    }
    if n_local:
        wanted |= {"z_l": (n_local, n_images, dim), "q_l": (n_local, n_images, *width)}
    for name, shape in wanted.items():
        if _shape(given := getattr(p, name)) != shape:
            crop, whose = "local" if name.endswith("l") else "global", "framework.dim" if name[0] == "z" else "q_g's"
            yield (
                f"{who} gives {name} as {_told(given)}; give a tensor of shape {shape}: {shape[0]} {crop} crops, "
                f"{n_images} images, and a width of {shape[2]} ({whose})."
            )


def _of_objective(objective: Any, who: str) -> Iterator[str]:
    """Whether there is a loss to minimise, and terms that can be logged."""
    if not isinstance(objective, Objective):
        yield f"{who} gives {_told(objective)}; give Objective(loss, terms)."
    for name, value in {"the loss": objective.loss, **objective.terms}.items():
        if not isinstance(value, Tensor) or value.shape != ():
            yield f"{who} gives {name} as {_told(value)}; give a tensor of a single number, such as a mean."


def _no_gradient(who: str) -> str:
    return (
        f"{who} gives nothing that a gradient flows from, so nothing would be learned; look in it for .detach(), "
        ".item() and torch.no_grad()."
    )


def _who_lost_it(framework: Framework, p: Projections, of_framework: str) -> str | None:
    """Which of a framework's methods lost the gradient of a loss that has none; None if it was neither.

    Either may be without one and whole: others may be learned from, or a head within the similarity.
    """
    q, t = p.q_g[0].detach(), p.t_g[0]
    if not framework.similarity(q.clone().requires_grad_(), t).requires_grad:
        return f"The similarity {of_framework}"
    if not any(x.requires_grad for x in p) and not framework.similarity(q, t).requires_grad:
        return f"project {of_framework}"
    return None


def _shape(value: Any) -> tuple[int, ...]:
    return tuple(getattr(value, "shape", ()))


def _told(value: Any) -> str:
    """What a value is, in words."""
    if isinstance(value, Tensor):
        return f"a tensor of shape {tuple(value.shape)}"
    return "None" if value is None else f"a value of type {type(value).__name__}"
