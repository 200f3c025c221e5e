"""When is a step compiled and recorded? Before the first one, where the recipe and the device allow it."""

from typing import Any

import lightning as L
from torch import Tensor

from ..randomness import stream
from ..types import ImageBatch
from .checkpoints import awaited
from .compiling import compile_everywhere, has_compiler
from .module import Pretraining
from .replay import Replay


class Acceleration(L.Callback):
    """Makes a module's step fast, once; without a compiler it stays as it is."""

    def __init__(self) -> None:
        self.tried = False

    def on_train_batch_start(
        self, trainer: L.Trainer, pl_module: L.LightningModule, batch: Any, batch_idx: int
    ) -> None:
        """Compile networks and crops, and record the step on CUDA."""
        assert isinstance(pl_module, Pretraining)
        if not self.tried:
            self.tried = True
            _compile(trainer, pl_module, batch)
            if pl_module.compiled and pl_module.device.type == "cuda" and trainer.world_size == 1:
                pl_module.learn = Replay(pl_module.algorithm_1, pl_module.say)


def _compile(trainer: L.Trainer, module: Pretraining, batch: ImageBatch) -> None:
    wanted = module.recipe.compile
    if wanted == "off" or (wanted == "auto" and not has_compiler(module.device)):
        return
    module.say("Compiling (a minute or two; `--compile off` trains at once, and slower).")
    with awaited(trainer):  # for the compiler's processes, which a signal may end
        failure = compile_everywhere(module.framework, lambda: _trial(module, batch), module.device)
    module.compiled = module.cropping.compiled = failure is None
    if failure:
        module.say(f"Compiling is off, and training slower: {failure}")


def _trial(module: Pretraining, batch: ImageBatch) -> Tensor:
    """Something to differentiate, by compiled crops and networks."""
    p = module.project(module.cropping.make(batch, stream(0, "trial"), bf16=module.bf16, compiled=True))
    return p.q_g.sum() + p.q_l.sum()
