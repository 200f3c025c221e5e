"""Is it learning? What is watched while training: losses, speed, kNN on frozen features, signs of collapse."""

import math
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import lightning as L
import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from ..data import BadImages, ImageSet, squared
from ..errors import UserError
from ..features import extract
from ..knn import knn_accuracy
from ..ranks import averaged, gathered, rank, stacked, world_size
from ..recipes import Recipe
from ..types import ImageBatch
from .doctor import diagnose
from .faults import MOST_IN_A_ROW, Diverged, is_finite
from .module import Pretraining

CPU = torch.device("cpu")
KNN_K, KNN_TAU = 20, 0.07  # the authors' public code; k = 200, tau = 0.1 is the other custom
MOST_FEATURES, MOST_BYTES = 50_000, 2**31  # of each split; a monitor needs no more
STEPS_AHEAD = 4  # steps that Python may hand to a GPU before their turn
STD_FLOOR, STD_FALL = 0.005, 0.2
"""Alarms: a spread this small at all, or this small a share of the widest one so far."""
RANK_FLOOR, RANK_FLOOR_OF_MANY, MANY = 2.0, 3.0, 32
"""Or this few directions, and this few where so many are possible; runs that learn kept 10 or more (docs/results)."""
KNN_FALL = 10.0  # points below the best so far, or below the untrained encoder
ROWS_FOR_RANK = 8  # fewer latents than that span few directions anyway
MOST_ROWS_FOR_RANK = 256  # more take the CPU long enough for a GPU to stand still between epochs


def feature_std(z: Float[Tensor, "B D"]) -> Tensor:
    """Mean over dimensions of the std of unit vectors, times sqrt(D): about 1 when spread evenly, 0 when collapsed."""
    return F.normalize(z, dim=-1).std(dim=0, correction=0).mean() * z.shape[-1] ** 0.5


def effective_rank(z: Float[Tensor, "B D"]) -> Tensor:
    """exp of the entropy of the normalised singular values of the centred unit vectors (Roy & Vetterli, 2007)."""
    unit = F.normalize(z[:MOST_ROWS_FOR_RANK].float(), dim=-1)
    centred = unit - unit.mean(dim=0)
    small = centred @ centred.T if len(unit) <= z.shape[-1] else centred.T @ centred
    singular = torch.linalg.eigvalsh(small.cpu()).clamp_min(0).sqrt()
    share = singular / singular.sum().clamp_min(1e-12)
    return torch.exp(-torch.special.xlogy(share, share).sum())


def directions(n_latents: int, width: int) -> int:
    """The most directions that centred latents can use, as far as the rank looks at them."""
    return max(1, min(n_latents - 1, MOST_ROWS_FOR_RANK - 1, width))


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
    chance = 0.0 if not n_images else 200 * math.sqrt(before / 100 * (1 - before / 100) / n_images)  # 2 standard errors
    return accuracy < before - max(KNN_FALL, chance)


def log(trainer: L.Trainer, values: dict[str, Any], step: int | None = None) -> None:
    """Hand values to every logger, at a step or the current one; one process of several does."""
    if not trainer.is_global_zero:
        return
    for logger in trainer.loggers:
        logger.log_metrics(values, step=trainer.global_step if step is None else step)


class Steps(L.Callback):
    """Logs losses, learning rate and images/s every `log_every` steps, without ever making the device wait.

    On CUDA values are copied while later steps run, and logged a few steps after they were computed.
    """

    def __init__(self, say: Callable[[str], None] = lambda sentence: None) -> None:
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

    def _due(self, trainer: L.Trainer, reading: "Reading") -> bool:
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

    def _read(self, trainer: L.Trainer, module: Pretraining) -> "Reading":
        (values,) = averaged([torch.stack([value.float() for value in module.logged.values()])])
        event = None
        if values.is_cuda:
            values = values.to("cpu", non_blocking=True)
            event = torch.cuda.Event()
            event.record()
        known = {"lr": module.lr, "epoch": trainer.current_epoch}
        return Reading(trainer.global_step, self.seen, tuple(module.logged), values, known, event)

    def _log(self, trainer: L.Trainer, module: Pretraining, reading: "Reading") -> None:
        values = reading.wait()
        self._watch(module, reading.step, values)
        values = {name: value for name, value in values.items() if math.isfinite(value)}
        speed = reading.seen / (time.perf_counter() - self.since)  # now that the device is there
        log(trainer, values | reading.known | {"images_per_s": speed}, reading.step)

    def _watch(self, module: Pretraining, step: int, values: dict[str, float]) -> None:
        """Say that steps were left out; raise `Diverged` if that does not help. Takes the counts out of the values."""
        skipped = int(values.pop("skipped")), int(values.pop("skipped_by_regressor"))
        in_a_row = int(values.pop("skipped_in_a_row"))
        if skipped == self.skipped:
            return
        broken = [name for name, value in values.items() if not math.isfinite(value)]
        if in_a_row >= MOST_IN_A_ROW or not is_finite(module):
            raise Diverged(step, broken)
        encoder, regressor = (now - before for now, before in zip(skipped, self.skipped, strict=True))
        self.skipped = skipped
        if encoder:
            were = "was" if encoder == 1 else "were"
            self.say(f"{encoder} of the steps up to {step} had no finite gradient and {were} left out.")
        if regressor:
            times = "once" if regressor == 1 else f"{regressor} times"
            self.say(f"Up to step {step} the regressor had no finite gradient {times}, and learned nothing then.")


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


class CollapseGauge(L.Callback):
    """Measures the spread of the latents once an epoch, and says it plainly when they collapse."""

    def __init__(self, say: Callable[[str], None], recipe: Recipe) -> None:
        self.say, self.recipe = say, recipe
        self.widest = 0.0

    def state_dict(self) -> dict[str, float]:
        """What a checkpoint keeps."""
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
            self.widest = feature_std(gathered(pl_module.z)).item()

    def on_train_epoch_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Log std and rank of the last batch's latents."""
        assert isinstance(pl_module, Pretraining)
        if pl_module.z is None:
            return
        z = gathered(pl_module.z)
        std, used = feature_std(z).item(), effective_rank(z).item()
        log(trainer, {"z_std": std, "z_rank": used, "epoch": trainer.current_epoch})
        if sentence := self.alarm(std, used, *z.shape):
            sentence = f"Epoch {trainer.current_epoch + 1}: {sentence} {self._cause(pl_module)}"
            if self.recipe.on_collapse == "stop":
                raise UserError(f"{sentence} Stopped, as on-collapse asks.")
            self.say(sentence)

    def _cause(self, module: Pretraining) -> str:
        ratio, queue = module.logged.get("ratio"), getattr(module.framework, "queue", None)
        alike = None
        if queue is not None and not queue.vacant.any():
            alike = F.normalize(queue.keys, dim=-1).mean(dim=0).square().sum().item()  # the mean cosine of all pairs
        return diagnose(self.recipe, None if ratio is None else ratio.item(), alike)

    def alarm(self, std: float, rank: float, n_latents: int, width: int) -> str | None:
        """A sentence if the latents collapse: a fall from what was reached, since untrained ones lie close together."""
        self.widest, most = max(self.widest, std), directions(n_latents, width)
        narrow = std < max(STD_FLOOR, STD_FALL * self.widest)
        few = n_latents >= ROWS_FOR_RANK and rank < (RANK_FLOOR if most < MANY else RANK_FLOOR_OF_MANY)
        if not narrow and not few:
            return None
        where = "one point" if narrow else "few directions"
        return f"the latents are collapsing to {where} (spread {std:.3f} of 1, effective rank {rank:.1f} of {most})."


class OnlineKNN(L.Callback):
    """Classifies held-out images by their neighbours in feature space, before training and every n epochs.

    Of several processes, each decodes and encodes its share; features are then gathered, and all see the same accuracy.
    """

    def __init__(
        self, data: ImageSet, recipe: Recipe, bad_file: Path | None = None, say: Callable[[str], None] = lambda s: None
    ) -> None:
        self.every, self.size, self.workers = recipe.knn_every, recipe.crops.global_size, recipe.loading.workers
        self.bad_file, self.say = bad_file, say
        most = min(MOST_FEATURES, MOST_BYTES // (data.channels * self.size**2))
        splits = data.for_knn() if self.every else None
        self.splits = None if splits is None else [split.thinned(most) for split in splits]
        self.best, self.untrained, self.n_images = 0.0, 0.0, 0

    def state_dict(self) -> dict[str, float]:
        """What a checkpoint keeps."""
        return {"best": self.best, "untrained": self.untrained}

    def load_state_dict(self, state_dict: dict[str, float]) -> None:
        """Go on with what was reached before an interruption."""
        self.best, self.untrained = state_dict["best"], state_dict.get("untrained", 0.0)

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """What an untrained encoder scores."""
        self.prepare(pl_module.device)
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
            squared(s, self.size, BadImages(asked, math.inf, self.bad_file), self.workers) for s in self.splits
        ]
        readable = stacked(torch.tensor([[len(s) for s in self.splits]], device=device)).sum(dim=0).tolist()
        if sum(readable) < asked:
            self.say(f"{asked - sum(readable)} images of the online kNN cannot be read and are left out of it.")
        self.n_images = readable[1]
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
        accuracy = self.accuracy(pl_module)
        if accuracy is not None:
            about = {"knn_k": KNN_K, "knn_tau": KNN_TAU, "knn_images": self.n_images}
            log(trainer, {"knn": accuracy, **about, "epochs_done": epoch})
            self._judge(accuracy, epoch, pl_module.recipe)

    def _judge(self, accuracy: float, epoch: int, recipe: Recipe) -> None:
        if not epoch:
            self.untrained = accuracy
            return
        fall = knn_fall(self.best, accuracy, self.n_images)
        if fall and recipe.on_collapse == "stop":
            raise UserError(f"Epoch {epoch}: {fall} {diagnose(recipe)} Stopped, as on-collapse asks.")
        if trouble := fall or knn_loss(self.untrained, accuracy, self.n_images):
            self.say(f"Epoch {epoch}: {trouble} {diagnose(recipe)}")
        self.best = max(self.best, accuracy)
