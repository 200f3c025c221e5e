"""Is it learning? What is watched while training: losses, speed, kNN on frozen features, signs of collapse."""

import math
import time
from collections.abc import Callable
from typing import Any

import lightning as L
import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from ..data import ImageSet
from ..errors import UserError
from ..features import extract
from ..knn import knn_accuracy
from .module import Pretraining

KNN_K, KNN_TAU = 20, 0.07  # the authors' public code; k = 200, tau = 0.1 is the other custom
MOST_FEATURES = 50_000  # of each split; a monitor needs no more
STD_FLOOR, STD_FALL, RANK_FLOOR = 0.005, 0.2, 2.0
"""Alarms: a spread this small at all, this small a share of the widest one so far, or this few directions."""
ROWS_FOR_RANK = 8  # fewer latents than that span few directions anyway


def feature_std(z: Float[Tensor, "B D"]) -> Tensor:
    """Mean over dimensions of the std of unit vectors, times sqrt(D): about 1 when spread evenly, 0 when collapsed."""
    return F.normalize(z, dim=-1).std(dim=0, correction=0).mean() * z.shape[-1] ** 0.5


def effective_rank(z: Float[Tensor, "B D"]) -> Tensor:
    """exp of the entropy of the normalised singular values of the centred unit vectors (Roy & Vetterli, 2007)."""
    unit = F.normalize(z.float(), dim=-1)
    centred = unit - unit.mean(dim=0)
    small = centred @ centred.T if len(z) <= z.shape[-1] else centred.T @ centred
    singular = torch.linalg.eigvalsh(small.cpu()).clamp_min(0).sqrt()
    share = singular / singular.sum().clamp_min(1e-12)
    return torch.exp(-torch.special.xlogy(share, share).sum())


def log(trainer: L.Trainer, values: dict[str, Any]) -> None:
    """Hand values to every logger, at the current step."""
    for logger in trainer.loggers:
        logger.log_metrics(values, step=trainer.global_step)


class Steps(L.Callback):
    """Logs losses, learning rate and images/s every `log_every` steps; only then does the host wait for the device."""

    def __init__(self) -> None:
        self.seen, self.since = 0, time.perf_counter()

    def on_train_epoch_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Leave what happens between epochs (kNN, checkpoints) out of the speed."""
        self.seen, self.since = 0, time.perf_counter()

    def on_train_batch_end(
        self, trainer: L.Trainer, pl_module: L.LightningModule, outputs: Any, batch: Tensor, batch_idx: int
    ) -> None:
        """Log every so often, and at the end of an epoch."""
        assert isinstance(pl_module, Pretraining)
        self.seen += len(batch)
        if trainer.global_step % pl_module.recipe.log_every and not trainer.is_last_batch:
            return
        values = torch.stack([value.float().to(pl_module.device) for value in pl_module.logged.values()]).tolist()
        if not all(map(math.isfinite, values)):
            broken = ", ".join(n for n, value in zip(pl_module.logged, values, strict=True) if not math.isfinite(value))
            raise UserError(
                f"Training diverged: {broken} is not finite at step {trainer.global_step}. Lower optimiser.lr "
                f"({pl_module.recipe.optimiser.lr}) or strategy.lr, and start again in another --out."
            )
        speed = self.seen / (time.perf_counter() - self.since)
        log(
            trainer,
            dict(zip(pl_module.logged, values, strict=True)) | {"epoch": trainer.current_epoch, "images_per_s": speed},
        )


class CollapseGauge(L.Callback):
    """Measures the spread of the latents once an epoch, and says it plainly when they collapse."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self.say = say
        self.widest = 0.0

    def state_dict(self) -> dict[str, float]:
        """What a checkpoint keeps."""
        return {"widest": self.widest}

    def load_state_dict(self, state_dict: dict[str, float]) -> None:
        """Go on with what was seen before an interruption."""
        self.widest = state_dict["widest"]

    def on_train_batch_end(
        self, trainer: L.Trainer, pl_module: L.LightningModule, outputs: Any, batch: Tensor, batch_idx: int
    ) -> None:
        """Remember how widely the first latents were spread."""
        assert isinstance(pl_module, Pretraining)
        if trainer.global_step == 1 and pl_module.z is not None:
            self.widest = feature_std(pl_module.z).item()

    def on_train_epoch_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Log std and rank of the last batch's latents."""
        assert isinstance(pl_module, Pretraining)
        if pl_module.z is None:
            return
        std, rank = feature_std(pl_module.z).item(), effective_rank(pl_module.z).item()
        log(trainer, {"z_std": std, "z_rank": rank, "epoch": trainer.current_epoch})
        if sentence := self.alarm(std, rank, len(pl_module.z)):
            self.say(f"Epoch {trainer.current_epoch + 1}: {sentence}")

    def alarm(self, std: float, rank: float, n_latents: int) -> str | None:
        """A sentence if the latents collapse: a fall from what was reached, since untrained ones lie close together."""
        self.widest = max(self.widest, std)
        few_directions = n_latents >= ROWS_FOR_RANK and rank < RANK_FLOOR
        if std >= max(STD_FLOOR, STD_FALL * self.widest) and not few_directions:
            return None
        return (
            f"the latents are collapsing to one point (spread {std:.3f} of 1, effective rank {rank:.1f}). "
            "A lower learning rate or a smaller lambda usually helps."
        )


class OnlineKNN(L.Callback):
    """Classifies held-out images by their neighbours in feature space, before training and every n epochs."""

    def __init__(self, data: ImageSet, every: int, size: int) -> None:
        splits = data.for_knn()
        self.splits = None if splits is None else tuple(split.thinned(MOST_FEATURES) for split in splits)
        self.every, self.size = every, size

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """What an untrained encoder scores."""
        if trainer.global_step == 0:
            self._evaluate(trainer, pl_module, epoch=0)

    def on_train_epoch_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Every n epochs, and after the last."""
        epoch = trainer.current_epoch + 1
        if self.every and (epoch % self.every == 0 or epoch == trainer.max_epochs):
            self._evaluate(trainer, pl_module, epoch)

    def _evaluate(self, trainer: L.Trainer, pl_module: L.LightningModule, epoch: int) -> None:
        assert isinstance(pl_module, Pretraining)
        if self.splits is None or not self.every:
            return
        bank, queries = self.splits
        assert bank.labels is not None
        assert queries.labels is not None
        bank_features, query_features = (
            extract(pl_module.framework.encoder.backbone, part.images, pl_module.mean, pl_module.std, self.size)
            for part in (bank, queries)
        )
        device = bank_features.device
        accuracy = knn_accuracy(
            query_features,
            queries.labels.to(device),
            bank_features,
            bank.labels.to(device),
            KNN_K,
            KNN_TAU,
        )
        log(trainer, {"knn": accuracy, "knn_k": KNN_K, "knn_tau": KNN_TAU, "epochs_done": epoch})
