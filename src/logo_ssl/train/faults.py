"""What if a step cannot be made? Which number broke, what would fit into memory, and the sentence that says so."""

import gc
import re
from collections.abc import Callable

import torch
from torch import nn

from ..errors import UserError
from ..hardware import hardware
from ..recipes import Recipe
from ..strategies import BESIDE_REGRESSOR, OF_REGRESSOR, LoGoConfig

TRIES = 2
"""How often training goes back to its last good state, each time with half the learning rate, before it gives up."""

MOST_IN_A_ROW = 3
"""Steps in a row whose gradient may be left out before training counts as diverged."""


class Diverged(Exception):  # noqa: N818 (a turn of events)
    """Gradients are not finite any more."""

    def __init__(self, step: int, broken: list[str]) -> None:
        super().__init__(f"not finite at step {step}: {', '.join(broken)}")
        self.step, self.broken = step, broken or ["the gradient"]

    def without_traceback(self) -> "Diverged":
        """The same without the frames, which hold networks and images."""
        return Diverged(self.step, self.broken)


def diagnosis(diverged: Diverged, recipe: Recipe) -> UserError:
    """Why training diverges in spite of all, as far as can be told."""
    return UserError(
        f"Training diverged at step {diverged.step} ({', '.join(diverged.broken)} not finite), and again after "
        f"{TRIES} returns to the last good state with half the learning rate each. Try "
        f"{', '.join(cures(diverged, recipe))}, in another --out."
    )


def never_finite(broken: list[str], recipe: Recipe) -> UserError | None:
    """What to say where no step had a finite gradient: no rate is the cause, unless the regressor alone is broken."""
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
    """What to try where training diverges, the likeliest first."""
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


def is_finite(module: nn.Module) -> bool:
    """Whether every weight and statistic is a number."""
    tensors = [tensor for tensor in (*module.parameters(), *module.buffers()) if tensor.is_floating_point()]
    return bool(torch.stack([tensor.isfinite().all() for tensor in tensors]).all())  # a GPU is waited for once


def too_large(batch_size: int, device: torch.device, try_batch: Callable[[int], None]) -> UserError:
    """What to say when memory does not suffice: with the largest batch, by halves, that `try_batch` can take."""
    fits = batch_size // 2
    while fits >= 2 and not _fits(fits, try_batch):
        fits //= 2
    cure = f"batch_size={fits} fits" if fits >= 2 else "no batch fits; use smaller crops or a smaller backbone"
    return UserError(f"{hardware(device)} has too little memory for a batch of {batch_size}; {cure}.")


def _fits(size: int, try_batch: Callable[[int], None]) -> bool:
    try:
        try_batch(size)
    except torch.OutOfMemoryError:
        return False
    finally:
        free_memory()
    return True


def free_memory() -> None:
    """Give back what nothing refers to any more."""
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def dead_worker(error: RuntimeError, fewer_workers: str) -> UserError | None:
    """A sentence if the error is that a worker process died, with what to try; nothing if it is another."""
    found = re.search(r"DataLoader worker \(pid\(?s?\)? ([\d, ]+)\)(.*)", str(error))
    if found is None:
        return None
    how = "killed, often because memory ran out" if "Killed" in found[2] else found[2].strip(" .") or "gone"
    return UserError(f"A process that decodes images died (pid {found[1]}: {how}); try {fewer_workers}.")
