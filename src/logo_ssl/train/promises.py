"""Do a framework and a strategy keep what others rely on? Looked at once, before a run begins: some are not ours."""

from copy import deepcopy

import torch
from torch import nn

from ..errors import UserError, nearest
from ..frameworks import Framework
from .module import Pretraining

IMAGES = 2
"""As many as a similarity is asked for; latents are wider, so that nothing else has this length."""


def refuse_other_similarity(module: Pretraining) -> None:
    """Refuse a similarity that gives anything but a loss for each image: the mean of it would hide that."""
    shape = _similarity_shape(module)
    if shape in (None, (IMAGES,)):
        return
    given = f"a tensor of shape {shape}" if shape else "a single number"
    raise UserError(
        f"The similarity of framework {module.recipe.kind('framework')} gives {given} for {IMAGES} images; give one "
        f"loss for each image, of shape ({IMAGES},), without a mean over the batch."
    )


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


@torch.no_grad()
def _similarity_shape(module: Pretraining) -> tuple[int, ...] | None:
    """The shape that a copy of the framework gives for some grey images; None where it cannot take so few."""
    crops = module.made_up_crops(IMAGES)
    with torch.random.fork_rng(devices=[]):
        try:
            framework = deepcopy(module.framework)
            p = framework.project(crops._replace(x_l=crops.x_l[:0]), module.strategy.roles)
            return tuple(getattr(framework.similarity(p.q_g[0], p.t_g[0]), "shape", ()))
        except Exception:  # whatever is wrong in truth, training tells, with batches of its own size
            return None
