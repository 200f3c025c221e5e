"""Are the features good for anything yet? Weighted kNN of validation or test images, or a tenth of train, meanwhile."""

import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lightning as L
import torch

from ...data import BadImages, ImageSet, squared
from ...data.images import VALIDATION, Rows
from ...features import extract
from ...knn import knn_accuracy
from ...ranks import rank, stacked, world_size
from ...recipes import Recipe
from ...sampling import standard_error
from ...text import counted
from ..collapse_causes import diagnose, diagnose_loss
from ..module import Pretraining
from .telling import log, ring

CPU = torch.device("cpu")
KNN_K, KNN_TAU = 20, 0.07  # the authors' public code; k = 200, tau = 0.1 is the other custom
KNN_FALL = 10.0  # points below the best so far, or below the untrained encoder
MOST_FEATURES, MOST_BYTES = 50_000, 2**31  # of each split; a monitor needs no more


def rows_for_knn(data: ImageSet, size: int) -> tuple[list[Rows], list[int]] | None:
    """Bank and queries of images of a size as they are used, thinned where they are many, and how many they were."""
    most, whole = min(MOST_FEATURES, MOST_BYTES // (data.channels * size**2)), data.for_knn()
    return None if whole is None else ([rows.thinned(most) for rows in whole], [len(rows) for rows in whole])


def knn_fall(best: float, accuracy: float, n_images: int | None = None) -> str | None:
    """A sentence if accuracy fell far below the best so far, and farther than chance would have it with few images."""
    if not _far_below(best, accuracy, n_images):
        return None
    return f"kNN fell from {best:.1f} % to {accuracy:.1f} %, a sign of collapse."


def knn_loss(untrained: float, accuracy: float, n_images: int | None = None) -> str | None:
    """A sentence if accuracy is far below that of the untrained encoder; at first it may be, so it stops no run."""
    if not _far_below(untrained, accuracy, n_images):
        return None
    return f"kNN is {accuracy:.1f} %, and the untrained encoder had {untrained:.1f} %: training has made it worse."


def _far_below(before: float, accuracy: float, n_images: int | None) -> bool:
    chance = 2 * standard_error(before, n_images) if n_images else 0.0
    return accuracy < before - max(KNN_FALL, chance)


class OnlineKNN(L.Callback):
    """Classifies some images by their neighbours in feature space, before training and every n epochs.

    Of several processes, each decodes and encodes its share; features are then gathered, and all see the same accuracy.
    """

    def __init__(
        self,
        data: ImageSet,
        recipe: Recipe,
        bad_file: Path | None = None,
        say: Callable[[str], None] = lambda s: None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.every, self.size, self.workers = recipe.knn_every, recipe.crops.global_size, recipe.loading.workers
        self.bad_file, self.root, self.say, self.clock = bad_file, data.root, say, clock
        used, (self.bank_of, _) = (rows_for_knn(data, self.size) if self.every else None) or (None, (0, 0))
        self.splits = None if used is None else [rows.taken() for rows in used]
        self.thinned = self.splits is not None and len(self.splits[0]) < self.bank_of
        self.best, self.untrained, self.n_bank, self.n_images = 0.0, 0.0, 0, 0
        self.of = VALIDATION if data.watched and data.watched[0] == VALIDATION else None
        self.epochs, self.epochs_before = recipe.epochs, recipe.epochs

    def state_dict(self) -> dict[str, Any]:
        """What a checkpoint keeps."""
        return {"best": self.best, "untrained": self.untrained, "of": self.of}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on with what was reached before an interruption, if it was reached on the same images."""
        if state_dict.get("of") == self.of:
            self.best, self.untrained = state_dict["best"], state_dict["untrained"]

    def on_load_checkpoint(self, trainer: L.Trainer, pl_module: L.LightningModule, checkpoint: dict[str, Any]) -> None:
        """Note how long the run was meant to be."""
        self.epochs_before = Recipe.from_json(checkpoint["recipe"]).epochs

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """What an untrained encoder scores; a longer run begins anew, as its risen learning rate costs accuracy."""
        self.prepare(pl_module.device)
        if self.epochs > self.epochs_before:
            self.best = 0.0
            log(trainer, {"extended_from_epochs": self.epochs_before})
        if trainer.global_step == 0:
            self._evaluate(trainer, pl_module, epoch=0)

    def on_train_epoch_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Every n epochs, and after the last."""
        epoch = trainer.current_epoch + 1
        if self.every and (epoch % self.every == 0 or epoch == trainer.max_epochs):
            self._evaluate(trainer, pl_module, epoch)

    def prepare(self, device: torch.device = CPU) -> None:
        """Decode photographs once; without any that can be read there is no kNN."""
        if self.splits is None:
            return
        asked = sum(map(len, self.splits))
        if world_size() > 1:
            self.splits = [split[torch.arange(len(split)).tensor_split(world_size())[rank()]] for split in self.splits]
        self.splits = [
            squared(s, self.size, BadImages(asked, math.inf, self.bad_file, self.root), self.workers)
            for s in self.splits
        ]
        readable = stacked(torch.tensor([[len(s) for s in self.splits]], device=device)).sum(dim=0).tolist()
        if lost := asked - sum(readable):
            self.say(f"The online kNN leaves out {counted(lost, 'image')} that cannot be read.")
        self.n_bank, self.n_images = readable
        if min(readable) == 0:
            self.splits = None

    def accuracy(self, module: Pretraining) -> float | None:
        """Top-1 in percent of the backbone as it is, in the precision of training; None without labels."""
        if self.splits is None:
            return None
        bank, queries = self.splits
        assert bank.labels is not None
        assert queries.labels is not None
        with torch.autocast(module.device.type, torch.bfloat16, enabled=module.bf16):
            bank_features, query_features = (
                stacked(extract(module.framework.encoder.backbone, part.array, module.mean, module.std, self.size))
                for part in (bank, queries)
            )
        device = bank_features.device
        bank_labels, query_labels = (stacked(labels.to(device)) for labels in (bank.labels, queries.labels))
        return knn_accuracy(query_features, query_labels, bank_features, bank_labels, KNN_K, KNN_TAU)

    def _evaluate(self, trainer: L.Trainer, pl_module: L.LightningModule, epoch: int) -> None:
        assert isinstance(pl_module, Pretraining)
        began = self.clock()
        accuracy = self.accuracy(pl_module)
        if accuracy is not None:
            about = {"knn_k": KNN_K, "knn_tau": KNN_TAU, "knn_images": self.n_images, "knn_bank": self.n_bank}
            about |= {"knn_bank_of": self.bank_of} if self.thinned else {}
            about |= {"knn_of": self.of} if self.of else {}
            about |= {"knn_s": round(self.clock() - began, 3)}
            log(trainer, {"knn": accuracy, **about, "epochs_done": epoch})
            self._judge(accuracy, epoch, trainer.global_step, pl_module.recipe)

    def _judge(self, accuracy: float, epoch: int, steps: int, recipe: Recipe) -> None:
        if not epoch:
            self.untrained = accuracy
            return
        if fall := knn_fall(self.best, accuracy, self.n_images):
            ring(f"Epoch {epoch}: {fall} {diagnose(recipe)}", recipe, self.say)
        elif loss := knn_loss(self.untrained, accuracy, self.n_images):
            self.say(f"Epoch {epoch}: {loss} {diagnose_loss(recipe, steps, epoch)}")
        self.best = max(self.best, accuracy)
