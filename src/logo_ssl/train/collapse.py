"""Signs of learning and of a collapse (kNN, spread and rank of latents), and the likeliest cause with its cure."""

import math
from collections.abc import Iterable, Mapping
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from ..recipes import Recipe
from ..run import is_number
from ..sampling import standard_error
from ..strategies import LoGoConfig
from ..text import counted

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
WEAK_SCALE = 0.8  # global crops that all but equal the image
ALIKE = 0.99  # mean cosine of a queue's keys
FEW_STEPS = 300  # in which MoCo had learned little (results/README.md, experiment 2)


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


def knn_summary(lines: Iterable[Mapping[str, Any]]) -> str | None:
    """The last kNN in a log and the untrained encoder's; None if both were not measured on the same images."""
    measured = [
        line
        for line in lines
        if is_number(line.get("knn")) and 0 <= line["knn"] <= 100 and isinstance(line.get("epochs_done"), int)
    ]
    if not measured or measured[0]["epochs_done"] != 0 or measured[-1]["epochs_done"] == 0:
        return None
    first, last = measured[0], measured[-1]
    if first.get("knn_of") != last.get("knn_of"):
        return None
    before, after, n = first["knn"], last["knn"], last.get("knn_images")
    both = f"kNN {after:.1f} % after epoch {last['epochs_done']}, {before:.1f} % untrained"
    if not isinstance(n, int) or n < 1:
        return f"{both}."
    error = math.hypot(standard_error(before, n), standard_error(after, n))  # cautious: both are of the same images
    return f"{both}, on {counted(n, 'image')} (standard error of the difference {error:.1f})."


def diagnose(recipe: Recipe, ratio: float | None = None, queue_alike: float | None = None) -> str:
    """A sentence with the likeliest cause and its cure.

    `ratio` is the latest norm of the similarity gradient over that of L2L's, `queue_alike` the queue's mean cosine.
    """
    optimiser, crops = recipe.optimiser, recipe.crops
    logo = recipe.strategy if isinstance(recipe.strategy, LoGoConfig) else LoGoConfig(lam=0.0)  # others push nothing
    push = logo.lam
    if logo.balance == "weight":  # lambda is a plain weight: what it comes to depends on the ratio
        push = push / ratio if ratio else 0.0
    if push > STRONG_PUSH:
        cause = f"local crops are pushed apart harder than the others are pulled together ({push:.2f} times): lower "
        cause += "strategy.lam"
    elif recipe.batch_size < SMALL_BATCH:
        cause = f"a batch of {recipe.batch_size} is small for batch norm: use batch_size={SMALL_BATCH} or more"
    elif optimiser.kind == "sgd" and optimiser.lr * 256 / recipe.batch_size > HIGH_RATE:
        cause = f"the learning rate is high ({optimiser.lr:g} for a batch of {recipe.batch_size}): lower optimiser.lr, "
        cause += "or add optimiser.warmup_epochs"
    elif queue_alike is not None and queue_alike > ALIKE:
        cause = f"the queue holds nearly equal keys (mean cosine {queue_alike:.3f}): remove duplicates from the data, "
        cause += "or lower framework.queue"
    elif max(crops.jitter) * crops.jitter_p == 0 and crops.global_scale[0] > WEAK_SCALE:
        cause = "the augmentation is weak: use stronger crops.jitter and a lower crops.global_scale"
    elif not recipe.framework_traits.constant_lr:
        cause = "the predictor's learning rate falls with the encoder's: use framework.constant_lr=True"
    elif logo.lam > 0 and logo.affinity == "cosine":
        cause = "the affinity is a cosine, which the paper saw collapse: use strategy.affinity=learned"
    else:
        return f"A lower optimiser.lr{' or a smaller strategy.lam' if logo.lam > 0 else ''} usually helps."
    return f"Most likely {cause}."


def diagnose_loss(recipe: Recipe, steps: int, epochs_done: int) -> str:
    """Why kNN is below the untrained encoder's after so many steps: a run that is short has to be longer first."""
    planned = steps * recipe.epochs // epochs_done
    short = f"A run of {counted(planned, 'step')} is short: first use more epochs. " if 0 < planned < FEW_STEPS else ""
    return f"{short}{diagnose(recipe)}"
