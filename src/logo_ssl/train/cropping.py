"""What does a step see of a batch? Its crops, compiled while that works, and the labels that something learns from."""

from collections.abc import Callable

import torch
from torch import Tensor

from ..augment import make_crops
from ..hardware import to_device
from ..ranks import rank, world_size
from ..recipes import Recipe
from ..types import Crops, ImageBatch
from .compiling import first_line


class Cropping:
    """Makes this process's part of a batch's crops by the recipe's plan."""

    def __init__(
        self,
        recipe: Recipe,
        mean: tuple[float, ...],
        std: tuple[float, ...],
        labels: Tensor | None,
        say: Callable[[str], None],
    ) -> None:
        self.recipe, self.mean, self.std, self.labels, self.say = recipe, mean, std, labels, say
        self.compiled = False

    def __call__(self, batch: ImageBatch, draws: torch.Generator, *, bf16: bool) -> Crops:
        """The crops of a batch; a compiler that fails is said, and done without from then on."""
        state = draws.get_state()
        try:
            return self.make(batch, draws, bf16=bf16, compiled=self.compiled)
        except torch.OutOfMemoryError:
            raise
        except Exception as error:  # another canvas may need another compilation, which may fail
            if not self.compiled:
                raise
            self.compiled = False
            self.say(f"Compiling crops is off, and training slower: {first_line(error)}")
            return self.make(batch, draws.set_state(state), bf16=bf16, compiled=False)

    def make(self, batch: ImageBatch, draws: torch.Generator, *, bf16: bool, compiled: bool) -> Crops:
        """The crops of a batch, compiled or not."""
        crops = make_crops(
            batch.pixels,
            self.recipe.crops,
            draws,
            self.mean,
            self.std,
            sizes=batch.sizes,
            part=(rank(), world_size()),
            compiled=compiled,
            described=bool(self.recipe.augself.weights),
            dtype=torch.bfloat16 if bf16 else torch.float32,  # what the first layer would round them to
        )
        if self.labels is None or batch.rows is None:
            return crops
        labels = torch.where(batch.rows >= 0, self.labels[batch.rows], -1)  # of those that are shown
        return crops._replace(labels=to_device(labels, crops.x_g.device))
