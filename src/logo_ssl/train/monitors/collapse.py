"""Do the latents collapse? Their spread and rank, and the alarm when either falls."""

from collections.abc import Callable
from typing import Any

import lightning as L
import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from ...models import Queue
from ...ranks import gathered
from ...recipes import Recipe
from ...types import ImageBatch
from ..collapse_causes import ALIKE, diagnose
from ..module import Pretraining
from .telling import log, ring

STD_FLOOR, STD_FALL = 0.005, 0.2
"""Alarms: a spread this small at all, or this small a share of the widest one so far."""
RANK_FLOOR, RANK_FLOOR_OF_MANY, MANY = 2.0, 3.0, 32
"""Or this few directions, and this few where so many are possible; runs that learn kept 10 or more (docs/results)."""
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
        """Log std and rank of the last batch's latents, and the widest std: a collapse may come in the first epoch."""
        assert isinstance(pl_module, Pretraining)
        if pl_module.z is None:
            return
        z = gathered(pl_module.z)
        std, used = feature_std(z).item(), effective_rank(z).item()
        sentence = self.alarm(std, used, *z.shape)
        told = {"z_std": std, "z_rank": used, "z_std_widest": self.widest}
        log(trainer, {**told, "epoch": trainer.current_epoch})
        if sentence:
            ring(f"Epoch {trainer.current_epoch + 1}: {sentence} {self._cause(pl_module)}", self.recipe, self.say)

    def _cause(self, module: Pretraining) -> str:
        ratio, alike = module.logged.get("ratio"), None
        queue = next((part for part in module.framework.children() if isinstance(part, Queue)), None)
        lay_apart = self.widest**2 > 1 - ALIKE  # then keys are alike by the collapse: they are no cause of it
        if queue is not None and not queue.vacant.any() and not lay_apart:
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
