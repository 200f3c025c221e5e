"""How does a detector learn? SGD with steps, through Lightning; then its batch norms see training pictures again."""

from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import Any

import lightning as L
import torch
from torch import Tensor
from torchvision.models.detection.generalized_rcnn import GeneralizedRCNN

from ..errors import UserError
from ..models.norm import BatchNorm
from ..randomness import stream
from ..train.quiet import quiet
from .recipe import DetectionRecipe, learning_rate
from .samples import Read, Sample, TrainingPictures, loader, whole

LOOK_EVERY = 50
"""Iterations between looks at the loss: each look waits for the device."""
LINES = 10
"""Sentences about the loss in a training."""
Progress = Callable[[str, int, int], None]
Say = Callable[[str], None]


class Detecting(L.LightningModule):
    """A detector in training."""

    def __init__(self, detector: GeneralizedRCNN, recipe: DetectionRecipe, progress: Progress, say: Say) -> None:
        super().__init__()
        self.detector, self.recipe, self.told, self.say = detector, recipe, progress, say

    def training_step(self, batch: list[Read], batch_idx: int) -> Tensor:
        """The sum of all losses of a batch; the draws of an iteration come from its number."""
        torch.manual_seed(stream(self.recipe.seed, "detect", batch_idx).initial_seed())
        loss = torch.stack(list(losses_of(self.detector, batch).values())).sum()
        if batch_idx % LOOK_EVERY == 0 and not loss.isfinite():
            raise UserError(f"The loss is no finite number at iteration {batch_idx}; lower lr, or warm up for longer.")
        self.told("training", done := batch_idx + 1, self.recipe.iterations)
        if done % max(self.recipe.iterations // LINES, 1) == 0:
            rate = learning_rate(self.recipe, batch_idx)
            self.say(
                f"Iteration {done:,}/{self.recipe.iterations:,}: loss {loss.item():.3f}, learning rate {rate:.2g}."
            )
        return loss

    def configure_optimizers(self) -> Any:
        """SGD with momentum; weights of batch norms do not decay."""
        norms = {
            id(weight)
            for module in self.detector.modules()
            if isinstance(module, BatchNorm)
            for weight in module.parameters()
        }
        weights = [weight for weight in self.detector.parameters() if weight.requires_grad]
        groups = [
            {"params": [weight for weight in weights if id(weight) not in norms]},
            {"params": [weight for weight in weights if id(weight) in norms], "weight_decay": 0.0},
        ]
        recipe = self.recipe
        sgd = torch.optim.SGD(groups, recipe.lr, recipe.momentum, weight_decay=recipe.weight_decay)
        rates = torch.optim.lr_scheduler.LambdaLR(sgd, lambda i: learning_rate(recipe, i) / recipe.lr)
        return {"optimizer": sgd, "lr_scheduler": {"scheduler": rates, "interval": "step"}}


def losses_of(detector: GeneralizedRCNN, batch: Sequence[Read]) -> dict[str, Tensor]:
    """What torchvision's detector makes of a batch in train mode."""
    there = whole(batch)
    return detector([sample.pixels for sample in there], [sample.target for sample in there])


def train_detector(
    detector: GeneralizedRCNN,
    pictures: TrainingPictures,
    recipe: DetectionRecipe,
    device: torch.device,
    workers: int = 0,
    progress: Progress = lambda what, done, total: None,
    say: Say = lambda sentence: None,
) -> None:
    """Train a detector in place, in bfloat16 on CUDA, and refresh its batch norms."""
    module = Detecting(detector.train(), recipe, progress, say)
    batches = loader(pictures, recipe.batch_size, workers)
    cuda = [device] if device.type == "cuda" else []
    with quiet(), torch.random.fork_rng(devices=cuda):
        trainer = L.Trainer(
            accelerator=device.type,
            devices=1,
            precision="bf16-mixed" if cuda else "32-true",
            max_steps=recipe.iterations,
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
        )
        try:
            trainer.fit(module, batches)
            last = islice(batches, recipe.norm_batches) if recipe.norm_batches else ()
            refresh_norms(detector.to(device), last, device)
        except torch.OutOfMemoryError as error:
            raise UserError(
                f"The device has too little memory for batches of {recipe.batch_size} pictures; lower batch-size (and "
                "lr with it), or short-sides."
            ) from error


@torch.no_grad()
def refresh_norms(detector: GeneralizedRCNN, batches: Iterable[list[Read]], device: torch.device) -> None:
    """Make the running statistics of batch norms plain means over batches, with the weights as they are now."""
    norms = [module for module in detector.modules() if isinstance(module, BatchNorm)]
    momenta = [norm.momentum for norm in norms]
    detector.train()
    for n, batch in enumerate(batches, 1):
        for norm in norms:
            norm.momentum = 1 / n  # the n-th of a running mean
        there = [
            Sample(sample.pixels.to(device), {name: value.to(device) for name, value in sample.target.items()})
            for sample in whole(batch)
        ]
        with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
            losses_of(detector, there)
    for norm, momentum in zip(norms, momenta, strict=True):
        norm.momentum = momentum
    detector.eval()
