"""Signs that training goes well or badly: numbers that are not finite, a collapse, kNN; with causes and cures."""

import math
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import lightning as L
import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from ..data import BadImages, ImageSet, squared
from ..data.images import VALIDATION, Split
from ..errors import UserError
from ..knn import extract, nearest_neighbours, top_accuracies
from ..models import Queue
from ..recipes import Recipe
from ..run import standard_error
from ..strategies import LoGoConfig
from ..system.distributed import all_gather, gather_uneven, rank, world_size
from ..system.terminal import counted
from ..types import ImageBatch
from .module import Pretraining

Say = Callable[[str], None]

STD_FLOOR, STD_FALL = 0.005, 0.2
"""Alarms: a spread this small at all, or this small a share of the widest one so far."""
RANK_FLOOR, RANK_FLOOR_OF_MANY, MANY = 2.0, 3.0, 32
"""Or this few directions, and this few where so many are possible; runs that learn kept 10 or more (docs/results)."""
ROWS_FOR_RANK = 8  # fewer latents than that span few directions anyway
MOST_ROWS_FOR_RANK = 256  # more take the CPU long enough for a GPU to stand still between epochs
KNN_FALL = 10.0  # points below the best so far, or below the untrained encoder

SMALL_BATCH = 32
HIGH_RATE = 0.5  # of SGD, for a batch of 256
STRONG_PUSH = 1.0  # L2L's gradient over all others'
NO_PUSH = 1e5  # the gradients of all others over L2L's: the affinity is flat
WEAK_SCALE = 0.8  # global crops that all but equal the image
ALIKE = 0.99  # mean cosine of a queue's keys
FEW_STEPS = 300  # in which MoCo had learned little (results/README.md, experiment 2)

KNN_K, KNN_TAU = 20, 0.07  # the authors' public code; k = 200, tau = 0.1 is the other custom
MOST_FEATURES, MOST_BYTES = 50_000, 2**31  # of each split; a monitor needs no more


class Diverged(UserError):  # noqa: N818 (a turn of events)
    """Gradients or weights are not finite any more."""

    def __init__(self, step: int) -> None:
        self.step = step
        super().__init__(
            f"Training diverged at step {step}: numbers are not finite. Lower optimiser.lr (with LoGo also "
            "strategy.lr or strategy.lam), or set some optimiser.warmup_epochs or optimiser.clip=1."
        )


def is_finite(module: nn.Module) -> bool:
    """Whether every weight and statistic is a number."""
    tensors = [tensor for tensor in (*module.parameters(), *module.buffers()) if tensor.is_floating_point()]
    return bool(torch.stack([tensor.isfinite().all() for tensor in tensors]).all())  # a GPU is waited for once


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


def collapse_alarm(std: float, rank: float, widest: float, n_latents: int, width: int) -> str | None:
    """A sentence if the latents collapse: a fall from the widest spread, since untrained ones are close together."""
    most = directions(n_latents, width)
    narrow = std < max(STD_FLOOR, STD_FALL * widest)
    few = n_latents >= ROWS_FOR_RANK and rank < (RANK_FLOOR if most < MANY else RANK_FLOOR_OF_MANY)
    if not narrow and not few:
        return None
    where = "one point" if narrow else "few directions"
    return f"the latents are collapsing to {where} (spread {std:.3f} of 1, effective rank {rank:.1f} of {most})."


def knn_summary(lines: Iterable[Mapping[str, Any]]) -> str | None:
    """The last kNN in a log and that before training; None if both were not measured on the same images."""
    measured = [line for line in lines if "knn" in line]
    if len(measured) < 2:
        return None
    first, last = measured[0], measured[-1]
    if first["epochs_done"] != 0 or first.get("knn_of") != last.get("knn_of"):
        return None
    before, after, n = first["knn"], last["knn"], last["knn_images"]
    error = math.hypot(standard_error(before, n), standard_error(after, n))  # cautious: both are of the same images
    return (
        f"kNN {after:.1f} % after epoch {last['epochs_done']}, {before:.1f} % before, on {counted(n, 'image')} "
        f"(standard error of the difference {error:.1f})."
    )


def diagnose(recipe: Recipe, ratio: float | None = None, queue_alike: float | None = None) -> str:
    """A sentence with the likeliest cause of a collapse and its cure.

    `ratio` is the latest norm of the similarity gradient over that of L2L's, `queue_alike` the queue's mean cosine.
    """
    optimiser, crops, batch = recipe.optimiser, recipe.crops, recipe.batch_size
    logo = recipe.strategy if isinstance(recipe.strategy, LoGoConfig) else LoGoConfig(lam=0.0)  # others push nothing
    push = logo.lam
    if logo.balance == "weight":  # lambda is a plain weight: what it comes to depends on the ratio
        push = push / ratio if ratio else 0.0
    if push > STRONG_PUSH:
        cause = f"local crops are pushed apart {push:.2f} times as hard as the rest is pulled: lower strategy.lam"
    elif batch < SMALL_BATCH:
        cause = f"a batch of {batch} is small for batch norm: use batch_size={SMALL_BATCH} or more"
    elif optimiser.kind == "sgd" and optimiser.lr * 256 / batch > HIGH_RATE:
        cause = f"optimiser.lr={optimiser.lr:g} is high for a batch of {batch}: lower it, or add warmup_epochs"
    elif queue_alike is not None and queue_alike > ALIKE:
        cause = f"the queue's keys are nearly equal (mean cosine {queue_alike:.3f}): remove duplicate images"
        cause += ", or lower framework.queue"
    elif max(crops.jitter) * crops.jitter_p == 0 and crops.global_scale[0] > WEAK_SCALE:
        cause = "the augmentation is weak: use stronger crops.jitter and a lower crops.global_scale"
    elif not recipe.framework_traits.constant_lr:
        cause = "the predictor's learning rate falls with the encoder's: use framework.constant_lr=True"
    elif logo.lam > 0 and logo.affinity == "cosine":
        cause = "the affinity is a cosine, which the paper saw collapse: use strategy.affinity=learned"
    elif field := recipe.framework_traits.sharpness:
        cause = f"targets are even, and framework.{field} has to be lower, or they are all one, and it has to be higher"
    else:
        return f"A lower optimiser.lr{' or a smaller strategy.lam' if logo.lam > 0 else ''} usually helps."
    return f"Most likely {cause}."


def warn_of_collapse(alarm: str, recipe: Recipe, say: Say) -> None:
    """Print that training collapses, or end it, as the recipe asks."""
    if recipe.on_collapse == "stop":
        raise UserError(f"{alarm} Stopped, as on_collapse=stop asks.")
    say(alarm)


def log(trainer: L.Trainer, values: dict[str, Any], step: int | None = None) -> None:
    """Hand values to every logger, at a step or the current one; one process of several does."""
    if trainer.is_global_zero:
        for logger in trainer.loggers:
            logger.log_metrics(values, step=trainer.global_step if step is None else step)


class CollapseGauge(L.Callback):
    """Measures the spread of the latents once an epoch, and warns when they collapse."""

    def __init__(self, say: Say, recipe: Recipe) -> None:
        self.say, self.recipe = say, recipe
        self.widest, self.is_flat = 0.0, False

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
        log(trainer, {"z_std": std, "z_rank": used, "z_std_widest": self.widest, "epoch": trainer.current_epoch})
        if alarm := collapse_alarm(std, used, self.widest, *z.shape):
            cause = self._cause(pl_module)
            warn_of_collapse(f"Epoch {trainer.current_epoch + 1}: {alarm} {cause}", self.recipe, self.say)
        if not self.is_flat and (ratio := pl_module.logged.get("ratio")) is not None and ratio > NO_PUSH:
            self.is_flat = True
            flat = "the learned affinity is flat, so it pushes nothing apart"
            bound = getattr(self.recipe.strategy, "bound", "logistic")
            cure = "" if bound == "logistic" else ", or use strategy.bound=logistic"
            self.say(f"Epoch {trainer.current_epoch + 1}: {flat}. Lower strategy.lr{cure}.")

    def _cause(self, module: Pretraining) -> str:
        ratio, alike = module.logged.get("ratio"), None
        queue = next((part for part in module.framework.children() if isinstance(part, Queue)), None)
        were_apart = self.widest**2 > 1 - ALIKE  # then keys are alike by the collapse: they are not its cause
        if queue is not None and not queue.vacant.any() and not were_apart:
            alike = F.normalize(queue.keys, dim=-1).mean(dim=0).square().sum().item()  # the mean cosine of all pairs
        return diagnose(self.recipe, None if ratio is None else ratio.item(), alike)


def images_for_knn(data: ImageSet, size: int) -> tuple[Split, Split, int] | None:
    """Bank and queries of images of a size, thinned where they are many, and of how many the bank was taken."""
    return data.for_knn(min(MOST_FEATURES, MOST_BYTES // (data.channels * size**2)))


class OnlineKNN(L.Callback):
    """Weighted kNN of validation or test images, or a tenth of train, before training and every n epochs.

    Of several processes, each decodes and encodes its share; features are then gathered, and all see the same accuracy.
    """

    def __init__(self, data: ImageSet, recipe: Recipe, bad_file: Path, say: Say) -> None:
        self.every, self.size, self.workers = recipe.knn_every, recipe.crops.global_size, recipe.loading.workers
        self.bad_file, self.root, self.say = bad_file, data.root, say
        self.splits: list[Split] | None = None
        self.about: dict[str, Any] = {"knn_k": KNN_K, "knn_tau": KNN_TAU}
        if self.every and (used := images_for_knn(data, self.size)) is not None:
            bank, queries, bank_of = used
            self.splits = [bank, queries]
            self.about |= {"knn_bank_of": bank_of} if len(bank) < bank_of else {}
        if data.watched and data.watched[0] == VALIDATION:
            self.about["knn_of"] = VALIDATION
        self.best, self.untrained, self.latest, self.n_images = 0.0, 0.0, 0.0, 0
        self.epochs, self.is_extended = recipe.epochs, False

    def state_dict(self) -> dict[str, Any]:
        """What was reached, for the checkpoint."""
        return {"best": self.best, "untrained": self.untrained}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on with what was reached before an interruption."""
        self.best, self.untrained = state_dict["best"], state_dict["untrained"]

    def on_load_checkpoint(self, trainer: L.Trainer, pl_module: L.LightningModule, checkpoint: dict[str, Any]) -> None:
        """Note whether the run was meant to be shorter."""
        self.is_extended = self.epochs > Recipe.from_json(checkpoint["recipe"]).epochs

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Score the untrained encoder; a longer run begins anew, as its risen learning rate costs accuracy."""
        self._prepare(pl_module.device)
        self.best = 0.0 if self.is_extended else self.best
        if trainer.global_step == 0:
            self._evaluate(trainer, pl_module, epoch=0)

    def on_train_epoch_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Every n epochs, and after the last."""
        epoch = trainer.current_epoch + 1
        if self.every and (epoch % self.every == 0 or epoch == trainer.max_epochs):
            self._evaluate(trainer, pl_module, epoch)

    def _prepare(self, device: torch.device) -> None:
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
        self.about["knn_bank"], self.about["knn_images"] = readable
        self.n_images = readable[1]
        if min(readable) == 0:
            self.splits = None

    def accuracy(self, module: Pretraining) -> float | None:
        """Top-1 in percent of the backbone as it is, in the precision of training; None without labels."""
        if self.splits is None:
            return None
        features, labels = [], []
        for split in self.splits:
            assert split.labels is not None
            with torch.autocast(module.device.type, torch.bfloat16, enabled=module.bf16):
                x = extract(module.framework.final_encoder.backbone, split.array, module.mean, module.std, self.size)
            features.append(gather_uneven(x))
            labels.append(gather_uneven(split.labels.to(x.device)))
        (bank, queries), (bank_labels, query_labels) = features, labels
        near = nearest_neighbours(queries, bank, KNN_K)
        return top_accuracies(near, query_labels, bank_labels, KNN_K, KNN_TAU, tops=(1,))[0]

    def _evaluate(self, trainer: L.Trainer, pl_module: L.LightningModule, epoch: int) -> None:
        assert isinstance(pl_module, Pretraining)
        began, recipe = time.perf_counter(), pl_module.recipe
        accuracy = self.accuracy(pl_module)
        if accuracy is None:
            return
        log(trainer, {"knn": accuracy, **self.about, "knn_s": time.perf_counter() - began, "epochs_done": epoch})
        self.latest = accuracy
        if not epoch:
            self.untrained = accuracy
            return
        cause = diagnose(recipe)
        if self._far_below(self.best, accuracy):
            fall = f"kNN fell from {self.best:.1f} % to {accuracy:.1f} %, a sign of collapse."
            warn_of_collapse(f"Epoch {epoch}: {fall} {cause}", recipe, self.say)
        elif self._far_below(self.untrained, accuracy):  # at first it may be, so it stops no run
            loss = f"kNN is {accuracy:.1f} %, and the untrained encoder had {self.untrained:.1f} %"
            if 0 < (planned := trainer.global_step * recipe.epochs // epoch) < FEW_STEPS:
                cause = f"A run of {counted(planned, 'step')} is short: first use more epochs. {cause}"
            self.say(f"Epoch {epoch}: {loss}: training has made it worse. {cause}")
        self.best = max(self.best, accuracy)

    def _far_below(self, before: float, accuracy: float) -> bool:
        """Whether accuracy fell farther than chance would have it with few images."""
        return accuracy < before - max(KNN_FALL, 2 * standard_error(before, self.n_images))
