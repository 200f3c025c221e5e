"""Gradients that are not finite: counted as 0, and a training that diverges by them, with what to try."""

import torch
from torch import Tensor, nn
from torch.nn.utils import get_total_norm

from ..errors import UserError
from ..recipes import Recipe
from ..strategies import BESIDE_REGRESSOR, OF_REGRESSOR, LoGoConfig

TRIES = 2
"""How often training goes back to its last checkpoint, each time with half the learning rate, before it gives up."""
MOST_IN_A_ROW = 3
"""Steps in a row whose gradient may be left out before training counts as diverged."""


class NonFiniteGuard(nn.Module):
    """Counts a gradient that is not finite as 0, without waiting for the device.

    Momentum, weight decay and the statistics of batch norm go on, as after any step that teaches nothing new.
    """

    def __init__(self) -> None:
        super().__init__()
        self.counts: Tensor
        self.register_buffer("counts", torch.zeros(4), persistent=False)
        """The encoder's, the regressor's, either in a row, and the most in a row."""

    def zero_if_broken(self, gradients: list[Tensor], regressor_broken: Tensor) -> None:
        """Make the encoder's gradients 0 unless they are finite; count it, and whether the regressor's were."""
        broken = ~get_total_norm(gradients).isfinite()
        for gradient in gradients:
            gradient.masked_fill_(broken, 0)
        encoder, regressor, in_a_row, most = self.counts
        in_a_row = (in_a_row + 1) * (broken | regressor_broken)
        counts = (encoder + broken, regressor + regressor_broken, in_a_row, torch.maximum(most, in_a_row))
        self.counts.copy_(torch.stack(counts))

    def terms(self) -> dict[str, Tensor]:
        """The counts, for the log."""
        encoder, regressor, _, most_in_a_row = self.counts
        return {"skipped": encoder, "skipped_by_regressor": regressor, "skipped_in_a_row": most_in_a_row}

    def reset(self) -> None:
        """Count from 0."""
        self.counts.zero_()


class Diverged(Exception):  # noqa: N818 (a turn of events)
    """Gradients or weights are not finite any more."""

    def __init__(self, step: int, broken: list[str]) -> None:
        self.step, self.broken = step, broken or ["the gradient"]
        super().__init__(f"Training diverged at step {step} ({', '.join(self.broken)} not finite)")


def is_finite(module: nn.Module) -> bool:
    """Whether every weight and statistic is a number."""
    tensors = [tensor for tensor in (*module.parameters(), *module.buffers()) if tensor.is_floating_point()]
    return bool(torch.stack([tensor.isfinite().all() for tensor in tensors]).all())  # a GPU is waited for once


def diverged_for_good(diverged: Diverged, recipe: Recipe) -> UserError:
    """The error after all tries, with what to change."""
    return UserError(
        f"{diverged}, and again after {TRIES} returns to the last checkpoint with half the learning rate each. Try "
        f"{', '.join(cures(diverged, recipe))}, in another --out."
    )


def never_finite(broken: list[str], recipe: Recipe) -> UserError | None:
    """The error if no step had a finite gradient: no rate is the cause, unless the regressor alone is broken."""
    terms = {*broken} - {"loss"}
    if "loss" not in broken or (terms & OF_REGRESSOR and terms <= OF_REGRESSOR | BESIDE_REGRESSOR):
        return None
    init = f", or for weights in init={recipe.init} that are not finite" if recipe.init else ""
    return UserError(
        f"The loss is not finite from the first step ({', '.join(broken)}); look for a division by 0, or a root or "
        f"logarithm of 0, in outer of strategy {recipe.kind('strategy')} and in project and similarity of framework "
        f"{recipe.kind('framework')}{init}."
    )


def cures(diverged: Diverged, recipe: Recipe) -> list[str]:
    """What to try if training diverges, the likeliest first."""
    strategy, found = recipe.strategy, [f"a lower optimiser.lr ({recipe.optimiser.lr:g})"]
    if lam := getattr(strategy, "lam", 0.0):  # it has L2L
        found.append(f"a lower strategy.lam ({lam:g})")
    if recipe.optimiser.warmup_epochs == 0:
        found.append("some optimiser.warmup_epochs")
    if not recipe.optimiser.clip:
        found.append("optimiser.clip=1")
    if isinstance(strategy, LoGoConfig) and OF_REGRESSOR & {*diverged.broken}:
        found.insert(0, f"a lower strategy.lr ({strategy.lr:g})")
        if strategy.bound == "mean-difference":
            found.insert(0, "strategy.bound=logistic, since a mean difference has no bound")
    return found
