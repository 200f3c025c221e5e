"""Callbacks that watch training: losses and speed, collapse, kNN on frozen features."""

import math
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import lightning as L
import torch
import torch.nn.functional as F
from torch import Tensor

from ..data import BadImages, ImageSet, squared
from ..data.images import VALIDATION, Rows
from ..distributed import all_gather, all_mean, gather_uneven, rank, world_size
from ..errors import UserError
from ..features import extract
from ..knn import knn_accuracy
from ..models import Queue
from ..recipes import Recipe
from ..text import counted
from ..types import ImageBatch
from .collapse import ALIKE, collapse_alarm, diagnose, diagnose_loss, effective_rank, feature_std, knn_fall, knn_loss
from .divergence import MOST_IN_A_ROW, Diverged, is_finite, never_finite
from .module import Pretraining

Say = Callable[[str], None]
CPU = torch.device("cpu")
STEPS_AHEAD = 4  # steps that Python may hand to a GPU before their turn
KNN_K, KNN_TAU = 20, 0.07  # the authors' public code; k = 200, tau = 0.1 is the other custom
MOST_FEATURES, MOST_BYTES = 50_000, 2**31  # of each split; a monitor needs no more


def log(trainer: L.Trainer, values: dict[str, Any], step: int | None = None) -> None:
    """Hand values to every logger, at a step or the current one; one process of several does."""
    if trainer.is_global_zero:
        for logger in trainer.loggers:
            logger.log_metrics(values, step=trainer.global_step if step is None else step)


def warn_of_collapse(alarm: str, recipe: Recipe, say: Say) -> None:
    """Print that training collapses, or end it, as the recipe asks."""
    if recipe.on_collapse == "stop":
        raise UserError(f"{alarm} Stopped, as on_collapse=stop asks.")
    say(alarm)


class Reading(NamedTuple):
    """Values on their way from the device."""

    step: int
    seen: int
    names: tuple[str, ...]
    values: Tensor
    known: dict[str, float]
    event: torch.cuda.Event | None

    def arrived(self) -> bool:
        """Whether reading them costs no waiting."""
        return self.event is None or self.event.query()

    def wait(self) -> dict[str, float]:
        """The values by name."""
        if self.event is not None:
            self.event.synchronize()
        return dict(zip(self.names, self.values.tolist(), strict=True))


class Steps(L.Callback):
    """Logs losses, learning rate and images/s every `log_every` steps, without ever making the device wait.

    On CUDA values are copied while later steps run, and logged a few steps after they were computed.
    """

    def __init__(self, say: Say = lambda sentence: None) -> None:
        self.say = say
        self.seen, self.since = 0, time.perf_counter()
        self.waiting: deque[Reading] = deque()
        self.behind: deque[torch.cuda.Event] = deque()
        self.skipped = (0, 0)  # by the encoder, by the regressor

    def on_train_epoch_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Leave what happens between epochs (kNN, checkpoints) out of the speed."""
        self.seen, self.since = 0, time.perf_counter()

    def on_train_batch_end(
        self, trainer: L.Trainer, pl_module: L.LightningModule, outputs: Any, batch: ImageBatch, batch_idx: int
    ) -> None:
        """Take a reading every so often and at the end of an epoch; log those that have arrived."""
        assert isinstance(pl_module, Pretraining)
        self.seen += len(batch.pixels) * trainer.world_size
        self._keep_close(pl_module.device)
        last = trainer.is_last_batch
        if trainer.global_step % pl_module.recipe.log_every == 0 or last:
            self.waiting.append(self._read(trainer, pl_module))
        if last:
            self.log_all(trainer)
        while self.waiting and self._due(trainer, self.waiting[0]):
            self._log(trainer, pl_module, self.waiting.popleft())

    def log_all(self, trainer: L.Trainer) -> None:
        """Log every reading, waiting for it if need be."""
        assert isinstance(trainer.lightning_module, Pretraining)
        while self.waiting:
            self._log(trainer, trainer.lightning_module, self.waiting.popleft())

    def _due(self, trainer: L.Trainer, reading: Reading) -> bool:
        """Whether a reading has arrived; of several processes, all look at it at the same step."""
        if trainer.world_size > 1:
            return trainer.global_step - reading.step >= STEPS_AHEAD
        return reading.arrived()

    def _keep_close(self, device: torch.device) -> None:
        """Keep Python at most so many steps ahead of the device, or speed and remaining time would be fiction."""
        if device.type == "cuda":
            event = torch.cuda.Event()
            event.record()
            self.behind.append(event)
            if len(self.behind) > STEPS_AHEAD:
                self.behind.popleft().synchronize()

    def _read(self, trainer: L.Trainer, module: Pretraining) -> Reading:
        (values,) = all_mean([torch.stack([value.float() for value in module.logged.values()])])
        event = None
        if values.is_cuda:
            values = values.to("cpu", non_blocking=True)
            event = torch.cuda.Event()
            event.record()
        known = {"lr": module.lr, "epoch": trainer.current_epoch}
        return Reading(trainer.global_step, self.seen, tuple(module.logged), values, known, event)

    def _log(self, trainer: L.Trainer, module: Pretraining, reading: Reading) -> None:
        values = reading.wait()
        self._check(module, reading.step, values)
        values = {name: value for name, value in values.items() if math.isfinite(value)}
        speed = reading.seen / (time.perf_counter() - self.since)  # now that the device is there
        log(trainer, values | reading.known | {"images_per_s": speed}, reading.step)

    def _check(self, module: Pretraining, step: int, values: dict[str, float]) -> None:
        """Take the counts of skipped steps out of the values, and print new ones.

        Raise `Diverged` if skipping does not help, or UserError for a loss that never was finite.
        """
        skipped = int(values.pop("skipped")), int(values.pop("skipped_by_regressor"))
        in_a_row = int(values.pop("skipped_in_a_row"))
        if skipped == self.skipped:
            return
        broken = [name for name, value in values.items() if not math.isfinite(value)]
        if in_a_row >= MOST_IN_A_ROW or not is_finite(module):
            if skipped[0] == step and (error := never_finite(broken, module.recipe)):
                raise error
            raise Diverged(step, broken)
        encoder, regressor = (now - before for now, before in zip(skipped, self.skipped, strict=True))
        self.skipped = skipped
        if encoder:
            self.say(f"Up to step {step}, {counted(encoder, 'step')} had no finite gradient and taught nothing.")
        if regressor:
            self.say(f"Up to step {step}, {counted(regressor, 'step')} of the regressor had no finite gradient.")


class CollapseGauge(L.Callback):
    """Measures the spread of the latents once an epoch, and warns when they collapse."""

    def __init__(self, say: Say, recipe: Recipe) -> None:
        self.say, self.recipe = say, recipe
        self.widest = 0.0

    def state_dict(self) -> dict[str, float]:
        """The widest spread, for the checkpoint."""
        return {"widest": self.widest}

    def load_state_dict(self, state_dict: dict[str, float]) -> None:
        """Go on with what was seen before an interruption."""
        self.widest = state_dict["widest"]

    def on_train_batch_end(
        self, trainer: L.Trainer, pl_module: L.LightningModule, outputs: Any, batch: ImageBatch, batch_idx: int
    ) -> None:
        """Remember how widely the first latents were spread."""
        assert isinstance(pl_module, Pretraining)
        if trainer.global_step == 1 and pl_module.z is not None:
            self.widest = feature_std(all_gather(pl_module.z)).item()

    def on_train_epoch_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Log std and rank of the last batch's latents, and the widest std: a collapse may come in the first epoch."""
        assert isinstance(pl_module, Pretraining)
        if pl_module.z is None:
            return
        z = all_gather(pl_module.z)
        std, used = feature_std(z).item(), effective_rank(z).item()
        self.widest = max(self.widest, std)
        measured = {"z_std": std, "z_rank": used, "z_std_widest": self.widest}
        log(trainer, {**measured, "epoch": trainer.current_epoch})
        if alarm := collapse_alarm(std, used, self.widest, *z.shape):
            cause = self._cause(pl_module)
            warn_of_collapse(f"Epoch {trainer.current_epoch + 1}: {alarm} {cause}", self.recipe, self.say)

    def _cause(self, module: Pretraining) -> str:
        ratio, alike = module.logged.get("ratio"), None
        queue = next((part for part in module.framework.children() if isinstance(part, Queue)), None)
        were_apart = self.widest**2 > 1 - ALIKE  # then keys are alike by the collapse: they are not its cause
        if queue is not None and not queue.vacant.any() and not were_apart:
            alike = F.normalize(queue.keys, dim=-1).mean(dim=0).square().sum().item()  # the mean cosine of all pairs
        return diagnose(self.recipe, None if ratio is None else ratio.item(), alike)


def rows_for_knn(data: ImageSet, size: int) -> tuple[list[Rows], list[int]] | None:
    """Bank and queries of images of a size as they are used, thinned where they are many, and how many they were."""
    most, whole = min(MOST_FEATURES, MOST_BYTES // (data.channels * size**2)), data.for_knn()
    return None if whole is None else ([rows.thinned(most) for rows in whole], [len(rows) for rows in whole])


class OnlineKNN(L.Callback):
    """Weighted kNN of validation or test images, or a tenth of train, before training and every n epochs.

    Of several processes, each decodes and encodes its share; features are then gathered, and all see the same accuracy.
    """

    def __init__(
        self,
        data: ImageSet,
        recipe: Recipe,
        bad_file: Path | None = None,
        say: Say = lambda s: None,
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
        """What was reached, for the checkpoint."""
        return {"best": self.best, "untrained": self.untrained, "of": self.of}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on with what was reached before an interruption, if it was reached on the same images."""
        if state_dict.get("of") == self.of:
            self.best, self.untrained = state_dict["best"], state_dict["untrained"]

    def on_load_checkpoint(self, trainer: L.Trainer, pl_module: L.LightningModule, checkpoint: dict[str, Any]) -> None:
        """Note how long the run was meant to be."""
        self.epochs_before = Recipe.from_json(checkpoint["recipe"]).epochs

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Score the untrained encoder; a longer run begins anew, as its risen learning rate costs accuracy."""
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
        """Decode photographs once; if none can be read, there is no kNN."""
        if self.splits is None:
            return
        asked = sum(map(len, self.splits))
        if world_size() > 1:
            self.splits = [split[torch.arange(len(split)).tensor_split(world_size())[rank()]] for split in self.splits]
        self.splits = [
            squared(s, self.size, BadImages(asked, math.inf, self.bad_file, self.root), self.workers)
            for s in self.splits
        ]
        readable = gather_uneven(torch.tensor([[len(s) for s in self.splits]], device=device)).sum(dim=0).tolist()
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
                gather_uneven(
                    extract(module.framework.encoder.backbone, part.array, module.mean, module.std, self.size)
                )
                for part in (bank, queries)
            )
        device = bank_features.device
        bank_labels, query_labels = (gather_uneven(labels.to(device)) for labels in (bank.labels, queries.labels))
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
            warn_of_collapse(f"Epoch {epoch}: {fall} {diagnose(recipe)}", recipe, self.say)
        elif loss := knn_loss(self.untrained, accuracy, self.n_images):
            self.say(f"Epoch {epoch}: {loss} {diagnose_loss(recipe, steps, epoch)}")
        self.best = max(self.best, accuracy)
